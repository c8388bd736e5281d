"""Recounts everything from the objects alone and names every difference from the running counts.

First the tables are compared, pod by pod and signature by signature: the pods on each node, the nodes of the pods of a
signature, the labels it is filed under, the terms it carries. Then each group is recounted from the signatures that the
tables name for it, so that a group costs what it holds. No membership and no count is trusted. O(pods + groups) in all.
Used after every step of the property tests, after the bench, and on the running index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import Group
from extender.index.counts.namespace_budgets import Amounts, constraint_set, needs_of
from extender.index.counts.selections import PodSelector, Selection, TermSelection, shared_anchor
from extender.index.counts.signature_counts import SignatureCounts
from extender.index.counts.spread_counts import SpreadKey
from extender.index.counts.term_counts import OwnerGroup
from extender.index.nodes.matches import NodeMatches
from extender.model.objects import Node, Pod, PodSignature
from extender.model.resources import PODS, total

T = TypeVar("T")

# Each of these takes a few milliseconds.
_NODES_A_STEP = 50
_PODS_A_STEP = 2000
_GATED_PODS_A_STEP = 500
_SIGNATURES_A_STEP = 50
_GROUPS_A_STEP = 50

Check = Callable[[], list[str]]
_Carriers = dict[OwnerGroup, list[SignatureCounts]]


def audit(index: ClusterIndex) -> list[str]:
    """One line per difference; empty when every count is true and always was. O(pods + groups)."""
    repaired = [f"the index had to be rebuilt {index.drifts} times"] if index.drifts else []
    return [*repaired, *(line for check in audit_steps(index) for line in check())]


def audit_steps(index: ClusterIndex) -> Iterator[Check]:
    """The audit cut into steps that may be run one at a time, with changes in between.

    A step takes some pods, nodes, signatures or groups. Those that were deleted before their step are skipped.
    """
    yield from _pod_steps(index)
    yield partial(_check_assumed, index)
    yield partial(_check_reserved, index)
    yield index.gated.wrong_groups
    for uids in _slices(index.gated.followed(), _GATED_PODS_A_STEP):
        yield partial(index.gated.wrong_pods, uids)
    yield partial(_check_charged, index, index.assumed.held)
    yield from (partial(index.quotas.differences, namespace) for namespace in index.quotas.namespaces())
    yield from [partial(_check_budget, index, namespace) for namespace in index.namespace_budgets.by_namespace]
    yield partial(_check_carriers, index)
    for numbers in _slices(range(len(index.topology.nodes)), _NODES_A_STEP):
        yield partial(_check_nodes, index, numbers)
    carriers: _Carriers = {}
    for signatures in _slices(list(index.counts.signatures), _SIGNATURES_A_STEP):
        yield partial(_check_signatures, index, signatures, carriers)
    yield partial(_check_anchors, index)
    for matches in list(index.topology.matches()):
        yield partial(_check_matches, index, matches)
    for selection, groups in list(index.counts.terms.acquired()):
        for some in _slices(groups, _GROUPS_A_STEP):
            yield partial(_check_acquired, index, selection, some)
    for owner in list(index.counts.terms.owned()):
        yield partial(_check_owned, index, owner, carriers)
    for _, spread_key, spread in list(index.counts.spreads.acquired()):
        yield partial(_check_spread, index, spread_key, spread)


def _pod_steps(index: ClusterIndex) -> Iterator[Check]:
    for uids in _slices(list(index.pods), _PODS_A_STEP):
        yield partial(_check_pods, index, uids)
        yield partial(_check_charged, index, uids)
    for uids in _slices(list(index.unplaced), _PODS_A_STEP):
        yield partial(_check_unplaced, index, uids)


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


# -- the tables ---------------------------------------------------------------------------------------------------------


def _check_pods(index: ClusterIndex, uids: Iterable[str]) -> list[str]:
    """That pods with a node are filed under it and count in the budget of their namespace, and the others among those without."""
    pods = [pod for uid in uids if (pod := index.pods.get(uid)) is not None]
    found = [pod for pod in pods if pod.node]
    problems = [f"pod {pod.full_name}: is not on {pod.node}" for pod in found if not _is_on_its_node(index, pod)]
    unheld = [pod for pod in found if not index.namespace_budgets.is_held(pod.signature)]
    problems += [f"pod {pod.full_name}: does not count in the budget of its namespace" for pod in unheld]
    missing = [pod for pod in pods if not pod.node and index.unplaced.get(pod.uid) is not pod]
    return problems + [f"pod {pod.full_name}: is not among those without a node" for pod in missing]


def _check_unplaced(index: ClusterIndex, uids: Iterable[str]) -> list[str]:
    """That no other pods are among those without a node."""
    held = [uid for uid in uids if uid in index.unplaced]
    wrong = [uid for uid in held if (pod := index.pods.get(uid)) is None or pod.node]
    return [f"pod {uid}: is among those without a node" for uid in wrong]


def _check_budget(index: ClusterIndex, namespace: str) -> list[str]:
    """That a namespace uses what its signatures need together, and that these have pods. O(their constraints)."""
    use = index.namespace_budgets.by_namespace.get(namespace)
    if use is None:
        return []
    name, pods = f"budget of namespace {namespace}", index.counts.compiler.pods
    problems = [
        f"{name}: {len(gone)} signatures without a pod {what}"
        for what, held in (("count", use.held), ("wait", use.waiting))
        if (gone := [each for each in held if each not in pods])
    ]
    needs = [needs_of(each) for each in {constraint_set(each): each for each in use.held}.values()]
    true = Amounts(
        len({part for each in needs for part in each.selectors}),
        len({part for each in needs for part in each.topology_keys}),
        len({part for each in needs for part in each.cross_namespace_terms}),
        sum(each.compile_steps for each in needs),
    )
    if use.amounts != true:
        problems.append(f"{name}: {use.amounts} in use, should be {true}")
    return problems


def _check_assumed(index: ClusterIndex) -> list[str]:
    """The same of the pods that are assumed on one node."""
    found = (assumed.pod for assumed in index.assumed.held.values() if assumed.pod.node)
    return [f"assumed pod {pod.full_name}: is not on {pod.node}" for pod in found if not _is_on_its_node(index, pod)]


def _check_reserved(index: ClusterIndex) -> list[str]:
    """That every slot is one of a pod that waits for a node, and that the sums by namespace are right. O(slots)."""
    reserved, problems = index.reserved, []
    for node, pods in reserved.by_node.items():
        for uid, pod in pods.items():
            if index.pods.get(uid) is None or index.pods[uid].node or reserved.node_of(uid) != node:
                problems.append(f"slot of pod {pod.full_name} on {node}: is not to be there")
        true = total([*(pod.requests for pod in pods.values()), {PODS: len(pods)}])
        if true != reserved.totals.get(node):
            problems.append(f"slots on {node}: {reserved.totals.get(node)} counted, {true} there")
    filed = sum(map(len, reserved.by_node.values()))
    if filed != len(reserved.held):
        problems.append(f"slots: {filed} are filed by node, {len(reserved.held)} by pod")
    namespaces = {held.pod.namespace for held in reserved.held.values()}
    for namespace in namespaces:
        pods_there = [held.pod for held in reserved.held.values() if held.pod.namespace == namespace]
        true = total([*(pod.requests for pod in pods_there), {PODS: len(pods_there)}])
        if true != reserved.room_of(namespace):
            problems.append(f"room reserved for {namespace}: {reserved.room_of(namespace)} counted, {true} there")
    return problems


def _is_on_its_node(index: ClusterIndex, pod: Pod) -> bool:
    number = index.topology.find(pod.node)
    return number is not None and pod.uid in index.nodes.pods_on(number)


def _check_charged(index: ClusterIndex, uids: Iterable[str]) -> list[str]:
    """That the placed pods with affinity across namespaces count for quotas."""
    if not index.quotas.settings.enabled:
        return []
    found = (pod for uid in uids if (pod := index.quotas.placed(uid)) is not None)
    return [f"pod {pod.full_name}: does not count for quotas" for pod in found if not index.quotas.holds(pod)]


def _check_carriers(index: ClusterIndex) -> list[str]:
    """That what nodes offer is added up, and their label keys are known: the terms over all others have no groups.

    O(nodes × labels).
    """
    offered = total(node.allocatable for node in index.topology.nodes if node is not None)
    if offered != index.topology.offered:
        return [f"what nodes offer: {index.topology.offered} counted, {offered} there"]
    carried = {label for node in index.topology.nodes if node is not None for label in node.labels}
    return [
        f"label {label}: nodes carry it, or do not, against what is known"
        for label in carried ^ index.topology.carried()
    ]


def _check_nodes(index: ClusterIndex, numbers: Sequence[int]) -> list[str]:
    """That the pods on some nodes are those of the table or assumed, and are counted there by their signatures.

    And that the room beside them is right, where it is counted.
    """
    problems = [] if index.room is None else index.room.differences(numbers)
    for number in numbers:
        pods = index.nodes.pods_on(number).values()
        strangers = [pod for pod in pods if not _is_held(index, pod)]
        problems += [f"pod {pod.full_name}: is on {index.topology.names[number]}, and not held" for pod in strangers]
        true = Counter((pod.signature, pod.terminating) for pod in pods)
        counted = {key: _placed(index, key, number) for key in true}
        if true != counted or any(pod.node != index.topology.names[number] for pod in pods):
            problems.append(
                f"pods on {index.topology.names[number]}: {sum(counted.values())} counted, {true.total()} there"
            )
    return problems


def _is_held(index: ClusterIndex, pod: Pod) -> bool:
    assumed = index.assumed.held.get(pod.uid)
    return index.pods.get(pod.uid) == pod or (assumed is not None and assumed.pod == pod)


def _placed(index: ClusterIndex, key: tuple[PodSignature, bool], number: int) -> int:
    counts_of_signature = index.counts.signatures.find(key[0], terminating=key[1])
    return counts_of_signature.nodes.get(number, 0) if counts_of_signature else 0


def _check_signatures(index: ClusterIndex, signatures: Sequence[SignatureCounts], carriers: _Carriers) -> list[str]:
    """That some signatures are filed where they are looked for, counted where their pods are, and owners of their terms.

    Records in ``carriers`` which signatures carry a term, once for each time, for `_check_owned`.
    """
    problems = []
    for counts_of_signature in signatures:
        signature = counts_of_signature.signature
        if not _is_kept(index, counts_of_signature):
            continue
        name = f"a signature of {signature.namespace}"
        if not index.counts.signatures.is_filed(counts_of_signature):
            problems.append(f"{name}: is not filed under its namespace and labels")
        if any(
            pods != _pods_of(index, counts_of_signature, number) for number, pods in counts_of_signature.nodes.items()
        ):
            problems.append(f"{name}: is counted where its pods are not")
        owners = [
            group
            for group, times in counts_of_signature.groups.items()
            if isinstance(group, OwnerGroup) and index.counts.terms.is_owned(group)
            for _ in range(times)
        ]
        true = Counter(
            each
            for each in index.counts.terms.carried_terms(counts_of_signature)
            if not index.counts.terms.lacks_group(each)
        )
        if Counter((each.role, each.term, each.weight) for each in owners) != true:
            problems.append(f"{name}: is not counted once for each of its terms")
        for group in owners:
            carriers.setdefault(group, []).append(counts_of_signature)
    return problems


def _check_anchors(index: ClusterIndex) -> list[str]:
    """That the label keys by which signatures are found are those that selections anchor on. O(groups)."""
    selections: set[Selection] = {selection for selection, _ in index.counts.terms.acquired()}
    selections |= {selection for selection, _, _ in index.counts.spreads.acquired()}
    true = Counter(each.anchor.key for each in selections if each.anchor is not None)
    running = index.counts.signatures.label_users()
    return [
        f"label {key}: {running.get(key, 0)} selections anchor on it, should be {true[key]}"
        for key in sorted(true.keys() | running.keys())
        if true[key] != running.get(key, 0)
    ]


def _is_kept(index: ClusterIndex, counts_of_signature: SignatureCounts) -> bool:
    return (
        index.counts.signatures.find(counts_of_signature.signature, terminating=counts_of_signature.terminating)
        is counts_of_signature
    )


def _check_matches(index: ClusterIndex, matches: NodeMatches) -> list[str]:
    """That what is known of nodes for pods that policies hold to some is true."""
    return [
        f"node {index.topology.names[number]}: is admitted, or is not, against policies" for number in matches.wrong()
    ]


def _pods_of(index: ClusterIndex, counts_of_signature: SignatureCounts, number: int) -> int:
    """How many pods of a signature are on a node."""
    here = index.nodes.pods_on(number).values()
    return sum(
        pod.terminating == counts_of_signature.terminating and pod.signature == counts_of_signature.signature
        for pod in here
    )


# -- the groups ---------------------------------------------------------------------------------------------------------


def _pods_by_value(index: ClusterIndex, topology_key: str, signatures: Iterable[SignatureCounts]) -> Counter[str]:
    """Pods by the label's value of their node, those of a signature as often as it is given."""
    true: Counter[str] = Counter()
    for counts_of_signature in signatures:
        for number, pods in counts_of_signature.nodes.items():
            node = index.topology.nodes[number]
            if node is not None and topology_key in node.labels:
                true[node.labels[topology_key]] += pods
    return true


def _check_acquired(index: ClusterIndex, selection: TermSelection, groups: Sequence[Group]) -> list[str]:
    """Some groups of one selection, whose members are found once for all of them."""
    kept = [group for group in groups if index.counts.terms.is_acquired(selection, group)]
    if not kept:
        return []
    asleep = [group for group in kept if (group in selection.live) is not bool(group.column.filled)]
    if asleep:
        return [f"term group over {group.key.key}: is live, or is not, against what nodes carry" for group in asleep]
    reachable = index.counts.signatures.reachable(shared_anchor(selection.pod_selectors), None)
    selected = [each for each in reachable if _selects(index, selection, each.signature)]
    return [
        line
        for group in kept
        for line in _compare(f"term group over {group.key.key}", _pods_by_value(index, group.key.key, selected), group)
    ]


def _selects(index: ClusterIndex, selection: TermSelection, signature: PodSignature) -> bool:
    return all(
        _covers(index, wanted, signature) and wanted.selector.matches(signature.labels)
        for wanted in selection.pod_selectors
    )


def _covers(index: ClusterIndex, wanted: PodSelector, signature: PodSignature) -> bool:
    if wanted.covers_all or signature.namespace in wanted.namespaces:
        return True
    labels = index.namespaces.labels(signature.namespace)
    return wanted.namespace_selector is not None and labels is not None and wanted.namespace_selector.matches(labels)


def _check_owned(index: ClusterIndex, group: OwnerGroup, carriers: _Carriers) -> list[str]:
    if not index.counts.terms.is_owned(group):
        return []
    name = f"inverse group ({group.role.value}) over {group.key.key}"
    if index.counts.terms.is_offered(group) is not bool(group.key.filled):
        return [f"{name}: is part of compiled constraints, or is not, against what nodes carry"]
    noted = [each for each in carriers.get(group, ()) if _is_kept(index, each)]
    if len(noted) != group.users:  # others have come since
        noted = [
            each
            for counts_of_signature in index.counts.signatures
            for each in [counts_of_signature] * counts_of_signature.groups.get(group, 0)
        ]
    true = _pods_by_value(index, group.key.key, noted)
    return _compare(name, true, group)


def _check_spread(index: ClusterIndex, key: SpreadKey, group: Group) -> list[str]:
    if not index.counts.spreads.is_acquired(key, group):
        return []
    true: Counter[str] = Counter()
    for counts_of_signature in index.counts.signatures.reachable(key.selector.anchor(), (key.namespace,)):
        signature = counts_of_signature.signature
        counts = (
            not counts_of_signature.terminating and not key.selector.is_empty and signature.namespace == key.namespace
        )
        if counts and key.selector.matches(signature.labels):
            for number, pods in counts_of_signature.nodes.items():
                value = _spread_value(index.topology.nodes[number], key)
                if value is not None:
                    true[value] += pods
    return _compare(f"spread group over {key.topology_key or 'each node'} in {key.namespace}", true, group)


def _spread_value(node: Node | None, key: SpreadKey) -> str | None:
    """The domain in which a node's pods count for the group, None where they do not."""
    if node is None or not key.inclusion.admits(node):
        return None
    if not key.topology_key:
        return node.name
    return node.labels.get(key.topology_key, "" if key.inclusion.missing_as_empty else None)


def _compare(name: str, true: Counter[str], group: Group) -> list[str]:
    running = {group.key.value(domain): count for domain, count in group.counts.items()}
    return [
        f"{name}: {value!r} is counted {running.get(value, 0)} times, should be {true.get(value, 0)}"
        for value in sorted(true.keys() | running.keys())
        if true.get(value, 0) != running.get(value, 0)
    ]
