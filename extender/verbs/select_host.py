"""The hosts to answer: one node in decisive placement, else a shortlist of the best nodes or all that pass.

Decisive placement answers exactly one node in three cases:

1. The node of the pod can change the result for other pods. With one node in the answer the node is known at once, so no other
   request has to wait for the pod.
2. Our rules have scores for the pod. With one node in the answer the scheduler need not request the scores.
3. ``answers.names`` is ``one``, and the index knows all that the profile's score plugins compare (`knows_scores`). kube-scheduler
   scores nothing if one node is left, which costs it less than a cycle without an extender.

In the third case the sum of the score plugins decides (`_best_by_plugins`). In the others the node is chosen by these criteria in
order; each decides among the nodes that the criteria before it leave equal:

1. our own score;
2. the scores of the in-tree plugins: preferred node affinity, PreferNoSchedule taints, requested resources;
3. the node that the scheduler offered the longest time ago (`verbs/offered_nodes.py`).

Answers are short on purpose, because the length of an answer costs the scheduler more time than our decision takes.

Where every requested node is rejected, a node outside of the scheduler's sample may still take the pod. Example: of 5,000 nodes
kube-scheduler asks about 500. A pod that fits only on another node stays pending until unrelated events move the sample
(measured). `find_node_elsewhere` finds such a node. A nomination makes the scheduler try it first, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import compress
from typing import Final

from msgspec.structs import replace

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.nodes.requested_shares import NodeShares, SharesView
from extender.index.view import ClusterView
from extender.model.constraints.labels import NO_LABELS
from extender.model.constraints.node_affinity import NodeTable
from extender.model.constraints.taints import PREFER_NO_SCHEDULE, Taint
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.resources import CPU, MEMORY, scored_requests, share_of_unit
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.rules.rule import MAX_SCORE
from extender.settings.configuration import Settings
from extender.settings.rules import ScoringStrategy
from extender.verbs.effective_pod import effective_pod
from extender.verbs.kept_nodes import KeptNodes
from extender.verbs.ranking import best_equals, best_passing
from extender.verbs.request import WINDOW, RequestedNodes, RequestSearch, every_node, prepared
from extender.verbs.slots.exchange import GroupTrial, trial_of

# How many equal nodes are enough to choose from by resources. Names are read by the hundred, so mostly there are more.
ENOUGH = 32

# How many nodes `find_node_elsewhere` tries that pass our rules and have too little room, best first, before it gives up.
TRIED = 64
# How many passing nodes of the whole cluster are ranked at first, because mostly one of a few has room; then more, then all.
_FIRST_TRIED, _FIRST_RANKED = 8, 4 * TRIED
_NONE: AbstractSet[int] = frozenset()


def answers_one(compiled: CompiledConstraints, view: ClusterView, settings: Settings) -> bool:
    """Whether a request is answered with one node (see the module).

    With several schedulers each request is: the node is known at once, so no other scheduler's pod gets the same room.
    """
    if settings.placement != "decisive":
        return False
    if settings.schedulers == "many":
        return True
    return view.is_touched(compiled.signature) or bool(catalog.scoring_rules(compiled, settings.rules))


def select_hosts(search: RequestSearch, pod: Pod, seed: int, avoid: str) -> Sequence[str]:
    """The names to answer, best first; empty where no node passes. O(names × clauses) at worst."""
    requested, settings, filters = search.requested, search.settings, search.filters
    if filters.rejects_every_node:
        return ()
    # 1. A pod with a slot: the nodes on which the rest of its pod group still fits.
    if search.view.reserved.by_node and (trial := trial_of(pod, search.view)) is not None:
        hosts = _hosts_that_leave_room(search, pod, seed, avoid, trial)
        if hosts:
            return hosts
    most = settings.answers.shortlist
    # 2. Decisive placement: one node.
    if settings.placement == "decisive" and len(requested) > 1:
        start, by_rules = seed % len(requested), _is_of_rules(search, pod)
        if not by_rules and requested.view is not None and knows_scores(pod, settings):
            return _best_by_plugins(search, pod, start, avoid)
        if by_rules or settings.schedulers == "many":
            return requested.names_at(select_host(search, pod, start, avoid))
    # 3. A shortlist. Nodes that nothing tells apart are taken from a random name on, without a search: this is the usual request.
    if most and len(requested) > most:
        start = seed % len(requested)
        if _are_alike(search, pod):
            return requested.known_from(start, most)
        return requested.names_at(_shortlist(search, pod, most, start))
    # 4. All nodes that pass. The request's own list goes into the answer where all of them do.
    nodes = requested.positions()
    if filters.passes_all and len(nodes) == len(requested):
        return requested.names
    return requested.names_at(filters.passing(nodes))


def knows_scores(pod: Pod, settings: Settings) -> bool:
    """Whether a pod that no rule touches gets one node, because the index knows all that the score plugins compare for it. O(1)."""
    answers, rules = settings.answers, settings.rules
    if answers.names != "one" or answers.scores.others or answers.scoring_strategy == "Ignored":
        return False
    # The plugin of a disabled rule scores in the scheduler. VolumeBinding and DynamicResources score pods with such needs.
    return rules.inter_pod_affinity.enabled and rules.topology_spread.enabled and not pod.has_unseen_needs


def _are_alike(search: RequestSearch, pod: Pod) -> bool:
    """Whether neither our rules nor the pod's preferences tell one node from another."""
    is_free = search.filters.passes_all and not pod.signature.preferred_nodes
    scoring = catalog.scoring_rules(search.compiled, search.settings.rules)
    return is_free and not scoring and not _reluctant(search, pod)


def _shortlist(search: RequestSearch, pod: Pod, most: int, start: int) -> list[int]:
    """Up to ``most`` positions that pass, best first: by our own score, then by the pod's preferred node terms.

    kube-scheduler scores only the nodes of the answer, so the answer must hold the nodes that it would prefer. Nodes with
    PreferNoSchedule taints come last, and only where the list is not full without them.
    """
    reluctant = _reluctant(search, pod)
    if not reluctant:
        return _best_for_scheduler(search, pod, most, start)
    positions = _best_for_scheduler(replace(search, excluded=reluctant), pod, most, start)
    if len(positions) < most:
        passing = _best_for_scheduler(search, pod, len(search.requested), start)
        positions += [position for position in passing if position in reluctant][: most - len(positions)]
    return positions


def _reluctant(search: RequestSearch, pod: Pod) -> AbstractSet[int]:
    """The positions with a taint PreferNoSchedule that the pod does not tolerate.

    O(1) where no node has such taints, else O(different taints × tolerations + nodes that have them).
    """
    if search.requested.view is None:
        nodes = search.requested.nodes
        return {
            position for position, node in enumerate(nodes) if node.taints and untolerated_preferences(node.taints, pod)
        }
    soft = search.view.soft_taints
    if not soft:
        return _NONE
    tolerates = bool(pod.signature.tolerations)
    reluctant = [nodes for taints, nodes in soft.items() if not tolerates or untolerated_preferences(taints, pod)]
    return reluctant[0] if len(reluctant) == 1 else frozenset[int]().union(*reluctant)


def _best_for_scheduler(search: RequestSearch, pod: Pod, most: int, start: int) -> list[int]:
    """As `_shortlist`, but nodes with PreferNoSchedule taints rank like all others."""
    signature, requested = pod.signature, search.requested
    if not signature.preferred_nodes:
        return [node for _, node in best_passing(search, most, start)]

    ranked = best_passing(search, len(requested), start)
    preferences = node_preferences([requested.node(position) for _, position in ranked], signature)
    order = sorted(range(len(ranked)), key=lambda at: (ranked[at][0], preferences[at]), reverse=True)
    return [ranked[at][1] for at in order[:most]]


def _is_of_rules(search: RequestSearch, pod: Pod) -> bool:
    """Whether decisive placement answers one node for a reason of its own: a rule is touched or has scores, or the pod has a slot.

    A sibling may have to move to another slot for a pod with a slot.
    """
    view, compiled = search.view, search.compiled
    if view.is_touched(compiled.signature) or catalog.scoring_rules(compiled, search.settings.rules):
        return True
    return bool(view.reserved.node_of(pod.uid))


def _hosts_that_leave_room(search: RequestSearch, pod: Pod, seed: int, avoid: str, trial: GroupTrial) -> Sequence[str]:
    """The names to answer for a pod with a slot: only nodes on which the rest of its pod group still fits, best first.

    Empty where the node of the pod's slot does not pass. Other nodes are tried, best first, as far as the trial has time.
    """
    requested, filters = search.requested, search.filters
    own = requested.position(trial.own) if trial.own in requested.names else None
    if own is None or filters.reason(own) is not None:
        return ()
    start = seed % len(requested)
    if search.settings.placement != "decisive":
        names = requested.names_at(_shortlist(search, pod, search.settings.answers.shortlist or len(requested), start))
        allowed = [name for name in names if trial.allows(name)]
        return allowed if trial.own in allowed else [*allowed, trial.own]
    # Decisive placement: the best node, if its trial allows it; else the best of the others. The slot itself needs no trial.
    tried = set[int]()
    while trial.has_time and (chosen := select_host(replace(search, excluded=tried), pod, start, avoid)):
        if trial.allows(requested.names_at(chosen)[0]):
            return requested.names_at(chosen)
        tried.update(chosen)
    return (trial.own,)


def select_host(search: RequestSearch, pod: Pod, start: int, avoid: str) -> Sequence[int]:
    """The position to answer, as a list of one, or an empty list where no node passes.

    ``avoid``: the node of an earlier answer, where the pod was not bound. Nodes are chosen in this order:

    1. nodes without PreferNoSchedule taints that the pod does not tolerate, except ``avoid``;
    2. nodes with such taints, because TaintToleration has more weight than each of our rules;
    3. ``avoid``.
    """
    # Three searches at most, each with more nodes. `avoided` is None where the node was deleted.
    reluctant = _reluctant(search, pod)
    avoided = search.requested.position(avoid) if avoid else None
    excluded = search.excluded
    others = excluded if avoided is None else excluded | {avoided}
    if reluctant and (chosen := _select(replace(search, excluded=reluctant | others), pod, start)):
        return chosen
    if avoided is not None and (
        chosen := _select(replace(search, excluded=others), pod, start, weighs_taints=bool(reluctant))
    ):
        return chosen
    return _select(search, pod, start, weighs_taints=bool(reluctant))


def _select(search: RequestSearch, pod: Pod, start: int, *, weighs_taints: bool = False) -> Sequence[int]:
    """The best position that is not excluded, as a list of one. ``weighs_taints``: PreferNoSchedule taints are part of the score."""
    strategy = search.settings.answers.scoring_strategy
    if pod.signature.preferred_nodes or weighs_taints:
        equals: Sequence[int] = _weighed_best(search, pod, start)
    else:
        equals = best_equals(search, ENOUGH, start)
        if search.watch is not None:
            search.watch.switch(None)
    if len(equals) <= 1:
        return equals
    # Seldom offered nodes come first only where passing nodes are scarce: where all nodes of a window pass, enough are left for
    # the pods that come next.
    names = len(search.requested)
    all_read = names if names < 2 * WINDOW else WINDOW
    is_scarce = len(equals) < all_read and not search.filters.passes_all and search.requested.view is not None
    offered = search.offered if is_scarce and strategy != "MostAllocated" else None
    near: Sequence[int] = equals
    if strategy != "Ignored":
        preferred = _preferred_by_resources(equals, search, pod, strategy)
        near = (preferred,) if offered is None else _equally_free(equals, preferred, search.view.shares)
    return near[:1] if offered is None else (offered.choose(near, equals, len(search.view.node_names)),)


def find_node_elsewhere(pod: Pod, view: ClusterView, settings: Settings, seed: int) -> tuple[str, bool]:
    """The best node of the whole cluster that passes our rules and node fit, or ""; and whether any node passes our rules.

    1. For a pod with a slot it is the node of the slot, if that node still passes.
    2. A node that filter keeps for nominated pods does not pass: filter would reject the pod there again.
    3. A pod with needs that the index does not hold (volumes, devices) gets no node, because they cannot be checked.
    4. The second value is False where no node passes our rules: then only a change that these rules depend on can help.

    O(nodes) at worst. Where most nodes pass it reads a few hundred of them. A node with nominated pods costs a dry run.
    """
    pod = effective_pod(pod, view, settings)
    search = prepared(pod, every_node(view), view, settings)
    filters, names = search.filters, view.node_names
    if filters.rejects_every_node:
        return "", False
    start = seed % max(len(names), 1)
    if pod.has_unseen_needs:
        return "", bool(best_passing(search, 1, start))
    fit = catalog.NODE_FIT.prepare_filter(pod, search.compiled, view, IndexFrame())
    kept = KeptNodes(pod, view, settings)

    def obstacle(number: NodeNumber) -> Reason | None:
        reason = fit.reason(number)
        return Reason.NOMINATED if reason is None and names[number] in kept else reason

    # The node of the slot comes before any better node, because the slots of the siblings were found with the pod there.
    own = view.reserved.node_of(pod.uid)
    if own in view.known and filters.reason(view.known[own]) is None and obstacle(view.known[own]) is None:
        return own, True
    # Each round ranks more nodes from the start, so the first `seen` of them are known already. Nodes without room are counted: in a
    # full cluster the search must not check every node.
    seen = tried = 0
    for most in (_FIRST_TRIED, _FIRST_RANKED, len(names)):
        ranked = best_passing(search, most, start)
        for _, number in ranked[seen:]:
            reason = obstacle(number)
            if reason is None:
                return names[number], True
            tried += reason in (Reason.NO_ROOM, Reason.HOST_PORTS, Reason.NOMINATED)
            if tried >= TRIED:
                return "", True
        seen = len(ranked)
        if seen < most:
            break
    return "", seen > 0


# -- what in-tree plugins would have preferred ------------------------------------------------------------------------

# Where filter answers one node, the in-tree plugins have no choice left. So their preferences are applied here:
#
# 0. For a pod that no rule touches the weighted sum of all plugins decides, by `answers.scores`. The rest is about other pods.
# 1. NodeAffinity and TaintToleration are added to our own score, with the weights of kube-scheduler's defaults. It costs time
#    for two kinds of pods only: pods with preferred node terms, and pods for which only nodes with PreferNoSchedule taints are left.
# 2. Resources decide only among equal nodes. Their plugins have half the weight of one of our rules, and to score all nodes
#    by them costs more than it is worth.
# 3. ImageLocality is left out, because the index does not know images.

_NODE_AFFINITY: Final = 2
_TAINT_TOLERATION: Final = 3
TAINT_POINTS: Final = _TAINT_TOLERATION * MAX_SCORE
"""What a node without taints PreferNoSchedule gets (TaintToleration)."""

# A pod that takes less than this share of the emptiest node goes there. For a larger pod each node is compared with the pod on
# it, which takes four look-ups a node in place of one.
_SMALL: Final = 0.03


# So many different shares are scored at once, because to leave some out costs two more passes.
_FEW_SHARES: Final = 16


def _weighed_best(search: RequestSearch, pod: Pod, start: int) -> list[int]:
    """The passing positions with most points of our rules, preferred node affinity and soft taints together.

    O(names × (terms + taints)), as each plugin's score is relative to the best of all that pass.
    """
    requested, signature = search.requested, pod.signature
    passing = search.all_passing(start)
    rules = search.settings.rules
    own = catalog.points(search.compiled, search.view, requested.frame, passing, rules, search.watch).of
    nodes = [requested.node(position) for position in passing]
    weights = node_preferences(nodes, signature)
    taints = [0 if node is None else untolerated_preferences(node.taints, pod) for node in nodes]
    most, worst = max(weights, default=0) or 1, max(taints, default=0) or 1
    points = [
        own.get(position, 0)
        + affinity_points(weight, most)
        + _TAINT_TOLERATION * (MAX_SCORE - MAX_SCORE * count // worst)
        for position, weight, count in zip(passing, weights, taints, strict=True)
    ]
    best = max(points, default=0)
    return [position for position, total in zip(passing, points, strict=True) if total == best]


def affinity_points(weight: int, most: int) -> int:
    """What a node gets for preferred terms of this weight, where one gets the most for ``most`` (NodeAffinity)."""
    return _NODE_AFFINITY * (MAX_SCORE * weight // most)


def node_preferences(nodes: Sequence[Node | None], signature: PodSignature) -> list[int]:
    """For each node the sum of the weights of the pod's preferred terms that match it (NodeAffinity). O(nodes × clauses)."""
    weights = [0] * len(nodes)
    if not signature.preferred_nodes:
        return weights
    table = NodeTable([("", NO_LABELS) if node is None else (node.name, node.labels) for node in nodes])
    for preference in signature.preferred_nodes:
        for at in compress(range(len(nodes)), preference.term.matching(table)):
            weights[at] += preference.weight
    return [0 if node is None else weight for node, weight in zip(nodes, weights, strict=True)]


def untolerated_preferences(taints: Sequence[Taint], pod: Pod) -> int:
    """How many of the taints PreferNoSchedule the pod does not tolerate (TaintToleration)."""
    tolerations = pod.signature.tolerations
    soft = [taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE]
    return sum(not any(toleration.tolerates(taint) for toleration in tolerations) for taint in soft)


def _best_by_plugins(search: RequestSearch, pod: Pod, start: int, avoid: str) -> Sequence[str]:
    """The passing name with the highest sum of the profile's score plugins, as a list of one; the first of equals. O(names).

    ``avoid`` is chosen only if no other node passes. Points are not rounded to integers as in kube-scheduler, which takes any of
    the nodes that rounding makes equal.
    """
    view, names = search.view, search.passing_names(start)
    of_node = view.shares.of_node
    try:
        shares = list(map(of_node.__getitem__, names))
    except KeyError:  # names of nodes that the index does not know
        names = [name for name in names if name in of_node]
        shares = [of_node[name] for name in names]
    if avoid and avoid in names:
        names = [name for name in names if name != avoid] or names
        shares = [of_node[name] for name in names]
    if not names:
        return []
    different = list(dict.fromkeys(shares))  # each once, in the order of the names: equal nodes are scored once
    preferred, reluctant = pod.signature.preferred_nodes, _reluctant(search, pod)
    if preferred or reluctant:
        loss = dict(zip(different, _resource_loss(different, search.settings, pod), strict=True))
        best = _best_with_preferences(names, [loss[each] for each in shares], reluctant, search, pod)
    else:
        best = shares.index(_best_shares(different, search.settings, pod))
    return [view.node_names[view.known[names[best]]]]  # the string of the index: the pod keeps it


def _best_with_preferences(
    names: Sequence[str], lost: list[float], reluctant: AbstractSet[int], search: RequestSearch, pod: Pod
) -> int:
    """Which of the names is the best, where preferred node affinity and PreferNoSchedule taints count too. O(names × (terms + taints)).

    ``lost``: what each name loses by its resources.
    """
    scores, known = search.settings.answers.scores, search.view.known
    positions = [known[name] for name in names]
    nodes = [search.view.node(position) for position in positions]
    if pod.signature.preferred_nodes:
        weights = node_preferences(nodes, pod.signature)
        most = max(weights) or 1
        of = [scores.node_affinity * (MAX_SCORE * weight // most) for weight in weights]
        lost = [less - points for less, points in zip(lost, of, strict=True)]
    if reluctant:
        counts = [
            0 if node is None or position not in reluctant else untolerated_preferences(node.taints, pod)
            for position, node in zip(positions, nodes, strict=True)
        ]
        worst = max(counts) or 1
        of = [scores.taint_toleration * (MAX_SCORE * count // worst) for count in counts]
        lost = [less + points for less, points in zip(lost, of, strict=True)]
    return lost.index(min(lost))


def _best_shares(different: Sequence[NodeShares], settings: Settings, pod: Pod) -> NodeShares:
    """The shares of the node that loses least by its resources; the first of equals. O(different shares).

    Of many, shares that lose more without the pod than the emptiest node with it are left out first. Not where the pod may win
    points: MostAllocated, or much weight for balance.
    """
    if len(different) == 1:
        return different[0]
    scores = settings.answers.scores
    fit, uneven = scores.node_resources_fit, scores.node_resources_balanced_allocation
    if (
        len(different) > _FEW_SHARES
        and fit
        and 2 * fit >= uneven
        and settings.answers.scoring_strategy != "MostAllocated"
    ):
        totals = [shares.total for shares in different]
        emptiest = different[totals.index(min(totals))]
        most = _resource_loss((emptiest,), settings, pod)[0] / (MAX_SCORE / 2 * fit)
        different = [shares for shares in different if shares.total <= most] or [emptiest]
    lost = _resource_loss(different, settings, pod)
    return different[lost.index(min(lost))]


def _resource_loss(different: Sequence[NodeShares], settings: Settings, pod: Pod) -> list[float]:
    """What nodes lose of the points of NodeResourcesFit and NodeResourcesBalancedAllocation, beside a constant. O(different shares).

    LeastAllocated takes 50 points of weight 1 for each requested share, MostAllocated gives as much. Balanced allocation takes 25
    for what the pod adds to the difference of the shares. See `index/nodes/requested_shares.py`.
    """
    answers = settings.answers
    cpu, memory = map(float, scored_requests(pod.requests))
    more_cpu, more_memory = float(pod.requests.get(CPU, 0)), float(pod.requests.get(MEMORY, 0))
    fit = MAX_SCORE / 2 * answers.scores.node_resources_fit
    if answers.scoring_strategy == "MostAllocated":
        fit = -fit
    # A pod without requests leaves the difference as it is, and balanced allocation does not score it either.
    uneven = MAX_SCORE / 4 * answers.scores.node_resources_balanced_allocation
    return [
        fit * (shares.total + cpu * (one := shares.per_cpu) + memory * (byte := shares.per_memory))
        + uneven * (abs((before := shares.lean) + more_cpu * one - more_memory * byte) - abs(before))
        for shares in different
    ]


def _preferred_by_resources(
    positions: Sequence[int], search: RequestSearch, pod: Pod, strategy: ScoringStrategy
) -> int:
    """The position that NodeResourcesFit and balanced allocation prefer with the pod on it; the first of equals. O(positions).

    LeastAllocated: the node whose larger requested share (of CPU and memory) is the smallest. MostAllocated: the node whose
    smaller share is the largest. See `index/nodes/requested_shares.py`.

    With LeastAllocated a small pod goes to the node that is the emptiest without it: no other node can be better by more than
    the share that the pod takes.
    """
    requested, view = search.requested, search.view
    shares: SharesView = search.shares or view.shares
    if requested.view is None:
        shares = _SharesOfRequest(positions, requested, view)
    cpu, memory = scored_requests(pod.requests)
    if strategy == "MostAllocated":
        return max(positions, key=lambda node: _smaller(*_with_pod(shares, node, cpu, memory)))
    first = min(positions, key=shares.larger.__getitem__)
    if max(_with_pod(shares, first, cpu, memory)) - shares.larger[first] < _SMALL:
        return first
    # As `_with_pod`, written out: a call for each node would cost more than the arithmetic.
    cpus, memories, per_cpu, per_memory = shares.cpu, shares.memory, shares.per_cpu, shares.per_memory
    larger = [
        max((cpus[node] + cpu) * per_cpu[node], (memories[node] + memory) * per_memory[node]) for node in positions
    ]
    return positions[larger.index(min(larger))]


def _equally_free(positions: Sequence[int], preferred: int, shares: SharesView) -> list[int]:
    """The positions of nodes with the size and the requested share of the preferred node. O(positions)."""
    larger, per_cpu, per_memory = shares.larger, shares.per_cpu, shares.per_memory
    share, size = larger[preferred], (per_cpu[preferred], per_memory[preferred])
    return [node for node in positions if larger[node] == share and (per_cpu[node], per_memory[node]) == size]


def _with_pod(shares: SharesView, node: int, cpu: int, memory: int) -> tuple[float, float]:
    """The requested shares of CPU and memory on the node after this much more is requested there."""
    return (shares.cpu[node] + cpu) * shares.per_cpu[node], (shares.memory[node] + memory) * shares.per_memory[node]


def _smaller(cpu: float, memory: float) -> float:
    """The smaller share. A node that does not offer a resource has share 0 of it: then the share of the other resource."""
    return min(cpu, memory) or max(cpu, memory)


class _SharesOfRequest:
    """The columns of `RequestedShares` by position, for a request with whole nodes: the index may not know these nodes."""

    def __init__(self, positions: Sequence[int], requested: RequestedNodes, view: ClusterView) -> None:
        self.cpu: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.per_cpu: dict[int, float] = {}
        self.per_memory: dict[int, float] = {}
        self.larger: dict[int, float] = {}
        for position in positions:
            node = requested.nodes[position]
            number = view.known.get(node.name)
            self.cpu[position] = 0 if number is None else view.shares.cpu[number]
            self.memory[position] = 0 if number is None else view.shares.memory[number]
            self.per_cpu[position] = share_of_unit(node.allocatable, CPU)
            self.per_memory[position] = share_of_unit(node.allocatable, MEMORY)
            self.larger[position] = max(_with_pod(self, position, 0, 0))
