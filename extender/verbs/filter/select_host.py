"""The hosts to answer: one node in decisive placement, else a shortlist of the best nodes or all that pass.

Where a pod's place can change what others may do, decisive placement answers exactly one node: its place is known at
once, and no other question has to wait for it. It does so too where our rules prefer nodes: then the scheduler need not
ask for scores. The choice is the best under our own score, then by what the in-tree plugins would have looked at:
preferred node affinity, PreferNoSchedule taints, free resources. Answers are short on purpose: the length of an answer
costs the scheduler more than our decision does.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.index.view import ClusterView, CompiledConstraints
from extender.model.objects import Node, Pod
from extender.model.resources import CPU, MEMORY
from extender.model.taints import PREFER_NO_SCHEDULE
from extender.settings import Settings
from extender.verbs.search.ranking import Ranked, Search, best_passing
from extender.verbs.search.scoring import has_points

# How many equals are compared by their free resources. Two random choices already level a load well; a few more level
# it better, and all 500 would cost more than the rest of the decision.
COMPARED = 5


def answers_one(compiled: CompiledConstraints, view: ClusterView, settings: Settings) -> bool:
    """Whether a question is answered with one node. Such pods are all for which prioritize has anything to say."""
    return settings.placement == "decisive" and (view.is_touched(compiled.signature) or has_points(compiled, settings))


def select_hosts(search: Search, pod: Pod, seed: int, avoid: str) -> Sequence[str]:
    """Names that pass, in the order in which they should be tried; empty where none does. O(names × clauses) at worst."""
    requested, settings, filters = search.requested, search.settings, search.filters
    if filters.rejects_every_node:
        return ()
    most = settings.answers.shortlist
    if len(requested) > 1 and answers_one(search.compiled, search.view, settings):
        return requested.names_at(select_host(search, pod, seed % len(requested), avoid))
    if most and len(requested) > most:
        return requested.names_at([node for _, node in best_passing(search, most, seed % len(requested))])
    nodes = requested.positions()
    if filters.passes_all and len(nodes) == len(requested):
        return requested.names
    return requested.names_at(filters.passing(nodes))


def select_host(search: Search, pod: Pod, turn: int, avoid: str) -> list[int]:
    """The position to answer, as a list of one, or an empty list where no node passes.

    ``avoid`` is the node that the pod was last sent to without arriving: it is chosen only where nothing else passes.
    """
    requested = search.requested
    looks_at_all = bool(pod.signature.preferred_nodes)
    ranked = best_passing(search, len(requested) if looks_at_all else min(COMPARED, len(requested)), turn)
    if avoid and len(ranked) > 1:
        avoided = requested.position(avoid)
        ranked = [item for item in ranked if item[1] != avoided]
    equals = _equals(ranked)
    if len(equals) <= 1:
        return equals
    return [max(equals, key=lambda position: _standing(pod, search.view, requested.node(position)))]


def _equals(ranked: Ranked) -> list[int]:
    """The positions that share the best rank."""
    if not ranked:
        return []
    best = ranked[0][0]
    return [node for rank, node in ranked if rank >= best]


def _standing(pod: Pod, view: ClusterView, node: Node | None) -> tuple[int, int, float]:
    """How well a node suits the pod beyond our rules; greater is better."""
    if node is None:
        return (0, 0, 0.0)
    signature = pod.signature
    liked = shunned = 0
    if signature.preferred_nodes:
        liked = sum(each.weight for each in signature.preferred_nodes if each.term.matches(node.name, node.labels))
    for taint in node.taints:
        if taint.effect == PREFER_NO_SCHEDULE and not any(each.tolerates(taint) for each in signature.tolerations):
            shunned += 1
    return (liked, -shunned, _free_share(pod, view, node))


def _free_share(pod: Pod, view: ClusterView, node: Node) -> float:
    """The share of CPU and of memory that stays free with the pod on the node, added, as NodeResourcesFit prefers it."""
    number = view.known.get(node.name)
    if number is None:
        return 0.0
    offered, in_use, wanted = node.allocatable, view.requested(number), pod.requests
    free = 0.0
    for name in (CPU, MEMORY):
        if there := offered.get(name):
            free += 1 - (in_use.get(name, 0) + wanted.get(name, 0)) / there
    return free
