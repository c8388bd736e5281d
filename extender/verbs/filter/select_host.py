"""The hosts to answer: one node in decisive placement, else a shortlist of the best nodes or all that pass.

Where the node of a pod can change the result for other pods, decisive placement answers exactly one node: the node is
known at once, and no other request has to wait for the pod. It does so too where our rules have scores: then the
scheduler need not request them. The choice is by our own score, then by what the in-tree plugins would have scored:
preferred node affinity, PreferNoSchedule taints, free resources. Answers are short on purpose: the length of an answer
costs the scheduler more than our decision does.

Where every requested node is rejected, a node outside of the scheduler's sample may still take the pod. At 5,000 nodes
kube-scheduler asks about 500 of them; a pod that fits elsewhere only stays pending until unrelated events move the
sample (measured). A nomination makes the scheduler look at that node first, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from extender.index.view import CompiledConstraints, IndexReaders
from extender.model.constraints.taints import PREFER_NO_SCHEDULE
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.resources import CPU, MEMORY, Resources
from extender.rules import catalog
from extender.rules.frames import IndexFrame, WorstCaseFrame
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.request import Ranked, RequestedNodes, Search
from extender.verbs.search.ranking import best_ranked

# How many equal nodes are compared by their free resources. Two random choices already level a load well; a few more
# level it better, and all 500 would cost more than the rest of the decision.
COMPARED = 5

# How many nodes that pass our rules and have too little room are tried elsewhere, best first, before giving up.
TRIED = 64
# How many passing nodes of the whole cluster are searched at first: mostly one of a few has room. Then more, and then all.
_FIRST_TRIED, _FIRST_RANKED = 8, 4 * TRIED


def best_passing(search: Search, most: int, start: int) -> Ranked:
    """Up to ``most`` positions that pass, with their ranks, best first, starting from the name number ``start``.

    Without preferences all ranks are equal, and O(most) names are read.
    """
    scoring = catalog.scoring_rules(search.compiled, search.settings.rules)
    return best_ranked(search, scoring, most, start) if scoring else search.first_passing(most, start)


def answers_one(compiled: CompiledConstraints, view: IndexReaders, settings: Settings) -> bool:
    """Whether a request is answered with one node. All pods for which our rules have scores are such pods.

    With several schedulers every pod is: it takes room that another scheduler would give away.
    """
    if settings.placement != "decisive":
        return False
    if settings.schedulers == "many":
        return True
    return view.is_touched(compiled.signature) or bool(catalog.scoring_rules(compiled, settings.rules))


def select_hosts(search: Search, pod: Pod, seed: int, avoid: str) -> Sequence[str]:
    """The names to answer, best first; empty where no node passes. O(names × clauses) at worst."""
    requested, settings, filters = search.requested, search.settings, search.filters
    if filters.rejects_every_node:
        return ()
    if search.view.reserved.by_node and (own := _own_slot(search, pod)):
        return (own,)
    most = settings.answers.shortlist
    if len(requested) > 1 and answers_one(search.compiled, search.view, settings):
        return requested.names_at(select_host(search, pod, seed % len(requested), avoid))
    if most and len(requested) > most:
        return requested.names_at(_shortlist(search, pod, most, seed % len(requested)))
    nodes = requested.positions()
    if filters.passes_all and len(nodes) == len(requested):
        return requested.names
    return requested.names_at(filters.passing(nodes))


def _shortlist(search: Search, pod: Pod, most: int, start: int) -> list[int]:
    """Up to ``most`` positions that pass, best first: by our own score, then by the pod's preferred node terms.

    kube-scheduler scores only the nodes that are answered, so a node that it would prefer must not be cut off.
    """
    signature, requested = pod.signature, search.requested
    if not signature.preferred_nodes:
        return [node for _, node in best_passing(search, most, start)]

    def preferred(item: tuple[float, int]) -> tuple[float, int]:
        rank, position = item
        node = requested.node(position)
        return rank, _preference(node, signature) if node is not None else 0

    return [node for _, node in sorted(best_passing(search, len(requested), start), key=preferred, reverse=True)[:most]]


def _own_slot(search: Search, pod: Pod) -> str:
    """The requested node where room is reserved for the pod, if it passes: its group was placed with the pod there."""
    own = search.view.reserved.node_of(pod.uid)
    if not own or own not in search.requested.names:
        return ""
    position = search.requested.position(own)
    return own if position is not None and search.filters.reason(position) is None else ""


def select_host(search: Search, pod: Pod, start: int, avoid: str) -> list[int]:
    """The position to answer, as a list of one, or an empty list where no node passes.

    ``avoid`` is the node of an earlier answer where the pod was not bound: it is chosen only where no other passes.
    """
    requested = search.requested
    compares_all = bool(pod.signature.preferred_nodes)
    ranked = best_passing(search, len(requested) if compares_all else min(COMPARED, len(requested)), start)
    if avoid and len(ranked) > 1:
        avoided = requested.position(avoid)
        ranked = [item for item in ranked if item[1] != avoided]
    equals = _equals(ranked)
    if len(equals) <= 1:
        return equals
    return [preferred_in_tree(equals, requested, pod, search.view)]


def _equals(ranked: Ranked) -> list[int]:
    """The positions that share the best rank."""
    if not ranked:
        return []
    best = ranked[0][0]
    return [node for rank, node in ranked if rank >= best]


def preferred_in_tree(positions: Sequence[int], requested: RequestedNodes, pod: Pod, view: IndexReaders) -> int:
    """The first of the positions that the in-tree plugins would prefer beyond our rules. O(positions × preferences)."""
    is_known, cpu, memory = requested.view is not None, pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0)
    signature, best, found = pod.signature, (-inf, 0, 0.0), positions[0]
    for position in positions:
        node = requested.node(position)
        if node is None:
            continue
        number = position if is_known else view.known.get(node.name)
        free = 0.0 if number is None else _free_share(node.allocatable, view.requested(number), cpu, memory)
        weight = _preference(node, signature) if signature.preferred_nodes else 0
        untolerated = _untolerated(node, signature) if node.taints else 0
        if (weight, -untolerated, free) > best:
            best, found = (weight, -untolerated, free), position
    return found


def _preference(node: Node, signature: PodSignature) -> int:
    """The weights of the pod's preferred terms that match the node (NodeAffinity)."""
    return sum(each.weight for each in signature.preferred_nodes if each.term.matches(node.name, node.labels))


def _untolerated(node: Node, signature: PodSignature) -> int:
    """How many taints PreferNoSchedule of the node the pod does not tolerate (TaintToleration)."""
    soft = [taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE]
    return sum(not any(each.tolerates(taint) for each in signature.tolerations) for taint in soft)


def _free_share(offered: Resources, in_use: Resources, cpu: int, memory: int) -> float:
    """The shares of CPU and of memory that stay free with the pod, added (NodeResourcesFit, LeastAllocated)."""
    free = 0.0
    if there := offered.get(CPU):
        free += 1 - (in_use.get(CPU, 0) + cpu) / there
    if there := offered.get(MEMORY):
        free += 1 - (in_use.get(MEMORY, 0) + memory) / there
    return free


def find_node_elsewhere(pod: Pod, view: IndexReaders, settings: Settings, seed: int) -> tuple[str, bool]:
    """The best node of the whole cluster that passes our rules and node fit, or "" where there is none.

    For a pod with a slot that is the node of its slot, if it still passes.

    The second value tells whether any node passes *our* rules: where none does, only a change of what they depend on can
    help. A pod with needs that the index does not hold (volumes, devices) gets no node, as they cannot be
    checked. O(nodes) at worst; where most nodes pass it reads a few hundred, as there may be a hundred thousand.
    """
    pod = effective_pod(pod, view, settings)
    compiled = view.compiled(pod.signature)
    frame = WorstCaseFrame(IndexFrame(), view) if view.is_undetermined(compiled) else IndexFrame()
    filters = catalog.prepare_filters(pod, compiled, view, frame)
    if filters.rejects_every_node:
        return "", False
    names = view.node_names  # not copied; those without a node have no position
    search = Search(compiled, filters, RequestedNodes(names, IndexFrame(), view), view, settings)
    start = seed % max(len(names), 1)
    if pod.has_unseen_needs:
        return "", bool(best_passing(search, 1, start))
    fit = catalog.NODE_FIT.prepare_filter(pod, compiled, view, IndexFrame())
    own = view.reserved.node_of(pod.uid)  # where its group was placed with the pod there: before any better node
    if own in view.known and filters.reason(view.known[own]) is None and fit.reason(view.known[own]) is None:
        return own, True
    seen = tried = 0
    for most in (_FIRST_TRIED, _FIRST_RANKED, len(names)):
        ranked = best_passing(search, most, start)
        for _, number in ranked[seen:]:
            reason = fit.reason(number)
            if reason is None:
                return view.node_names[number], True
            tried += reason in (Reason.NO_ROOM, Reason.HOST_PORTS)
            if tried >= TRIED:
                return "", True
        seen = len(ranked)
        if seen < most:
            break
    return "", seen > 0
