"""Recounts everything from the objects alone, and names every difference from the running counts.

1. The tables are compared pod by pod and signature by signature: the pods on each node, the nodes of a signature's
   pods, the labels that the signature is filed under, the terms that its pods have.
2. Each group is recounted from the signatures in these tables, so a group costs what it holds.

No membership and no count is trusted. O(pods + groups) in all. Used after every step of the property tests, after the
bench, and on the running index.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from extender.index.claims.reserved import is_move
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import CountGroup, SelectedGroup, SignatureCounts
from extender.index.counts.namespace_budgets import Amounts, NamespaceUse, Needs, constraint_set, needs_of
from extender.index.counts.selections import Selection
from extender.index.counts.term_counts import OwnerGroup
from extender.index.nodes.domains import DomainScope, Inclusion, NodeMatches
from extender.index.tables import Check
from extender.model.objects import Node, Pod, PodSignature
from extender.model.resources import PODS, add, total
from extender.model.units import times

T = TypeVar("T")

# Each of these takes a few milliseconds.
_NODES_A_STEP = 50
_ADDED_A_STEP = 40_000  # labels and resources of nodes
_BUDGETED_A_STEP = 1000  # signatures
_PLACES_A_STEP = 1000  # nodes with pods of a signature
_PODS_A_STEP = 5000
_GATED_PODS_A_STEP = 500
_SIGNATURES_A_STEP = 50
_GROUPS_A_STEP = 50
_PLACES_COUNTED_A_STEP = 10_000  # nodes with pods of a signature

Carriers = dict[OwnerGroup, list[SignatureCounts]]
Places = tuple[Sequence[int], Sequence[int]]


def audit(index: ClusterIndex) -> list[str]:
    """One line per difference. Empty if every count is true, and was since the start. O(pods + groups)."""
    repaired = [f"the index had to be rebuilt {times(index.drifts)}"] if index.drifts else []
    return [*repaired, *(line for check in audit_steps(index) for line in check())]


def audit_steps(index: ClusterIndex) -> Iterator[Check]:
    """The audit in steps that may be run one at a time, with changes in between.

    A step takes some pods, nodes, signatures or groups. What is deleted before its step is skipped. No table of all
    pods is copied, because copying a million takes 40 ms and each garbage collection would visit the copy.
    """
    yield from _pod_steps(index)
    yield partial(_check_assumed, index)
    yield partial(_check_reserved, index)
    yield index.domains.wrong_counts
    yield index.gated.wrong_groups
    for uids in _slices(index.gated.followed(), _GATED_PODS_A_STEP):
        yield partial(index.gated.wrong_pods, uids)
    for table in index.tables:
        yield partial(table.check_pods, index.assumed.held)
        yield from table.checks()
    for namespace in list(index.namespace_budgets.by_namespace):
        yield from _Budget(index, namespace).steps()
    yield from _node_steps(index)
    carriers: Carriers = {}
    for signatures in _slices(list(index.counts.signatures), _SIGNATURES_A_STEP):
        yield partial(_check_signatures, index, signatures, carriers)
    for places in _places(index):
        yield partial(_check_places, index, places)
    yield partial(_check_anchors, index)
    yield from _group_steps(index, carriers)


def _pod_steps(index: ClusterIndex) -> Iterator[Check]:
    for pods in index.pods.parts:
        for start in range(0, len(pods), _PODS_A_STEP):
            yield partial(_check_pods, index, pods, start)
    for start in range(0, len(index.unplaced), _PODS_A_STEP):
        yield partial(_check_unplaced, index, start)


def _node_steps(index: ClusterIndex) -> Iterator[Check]:
    numbers = range(len(index.topology.nodes))
    carried = _Carried(index)
    for many in _by_size(index.topology.nodes):
        yield partial(carried.add, many)
        yield from [partial(_check_matches, index, matches, many) for matches in index.topology.matches()]
    for numbered in _slices(numbers, _NODES_A_STEP):
        yield partial(_check_nodes, index, numbered)


def _by_size(nodes: Sequence[Node | None]) -> Iterator[Sequence[int]]:
    """The numbers of all nodes, in parts with about so many labels and resources."""
    first = size = 0
    for number, node in enumerate(nodes):
        size += 1 if node is None else 1 + len(node.labels) + len(node.allocatable)
        if size >= _ADDED_A_STEP:
            yield range(first, number + 1)
            first, size = number + 1, 0
    if first < len(nodes):
        yield range(first, len(nodes))


# -- the tables --------------------------------------------------------------------------------------------------------


def _check_pods(index: ClusterIndex, table: dict[str, Pod], start: int) -> list[str]:
    """Checks the pods from a place in a part of the table on, each against its node or against the pods without a node.

    A pod with a node also counts in the budget of its namespace, and in tables of features. If pods before the place were deleted
    meanwhile, some pods are left to the next round.
    """
    uids = list(part(table, start, _PODS_A_STEP))
    pods = [table[uid] for uid in uids]
    placed = [pod for pod in pods if pod.node]
    problems = [f"pod {pod.full_name}: is not on {pod.node}" for pod in placed if not _is_on_its_node(index, pod)]
    unheld = [pod for pod in placed if not index.namespace_budgets.is_held(pod.signature)]
    problems += [f"pod {pod.full_name}: does not count in the budget of its namespace" for pod in unheld]
    missing = [pod for pod in pods if not pod.node and index.unplaced.get(pod.uid) is not pod]
    problems += [f"pod {pod.full_name}: is not among those without a node" for pod in missing]
    return problems + [line for table in index.tables for line in table.check_pods(uids)]


def _check_unplaced(index: ClusterIndex, start: int) -> list[str]:
    uids = list(part(index.unplaced, start, _PODS_A_STEP))
    wrong = [uid for uid in uids if (pod := index.pods.get(uid)) is None or pod.node]
    return [f"pod {uid}: is among those without a node" for uid in wrong]


def part(table: dict[str, Pod], start: int, size: int) -> Iterable[str]:
    """Some keys of a dictionary. It is walked from its nearer end: 10 ms for half a million."""
    remaining = max(0, len(table) - start)  # 0 if the table has shrunk since the steps were planned
    if start <= remaining:
        return islice(table, start, start + size)
    return islice(reversed(table), max(0, remaining - size), remaining)


class _Budget:
    """Checks that a namespace's use equals the sum of its signatures, and that each of these signatures has pods.

    O(their constraints).

    There may be ten thousands of signatures. If they change between the first step and the last, nothing is compared.
    """

    def __init__(self, index: ClusterIndex, namespace: str) -> None:
        self._index = index
        self._namespace = namespace
        self._held: list[PodSignature] = []
        self._needs: dict[Hashable, Needs] = {}

    def steps(self) -> Iterator[Check]:
        """Steps of some signatures each."""
        use = self._index.namespace_budgets.by_namespace.get(self._namespace)
        last = 0 if use is None else max(0, len(use.held) - 1) // _BUDGETED_A_STEP
        # All steps read the list that the first step copies: the dictionary may change between two steps.
        for number in range(last + 1):
            yield partial(self._add, number * _BUDGETED_A_STEP, is_last=number == last)

    def _add(self, start: int, *, is_last: bool) -> list[str]:
        use = self._index.namespace_budgets.by_namespace.get(self._namespace)
        if use is None:
            return []
        if not start:
            self._held = list(use.held)
        for signature in self._held[start : None if is_last else start + _BUDGETED_A_STEP]:
            key = constraint_set(signature)
            if key not in self._needs:
                self._needs[key] = needs_of(signature)
        # Signatures may have come or gone since the first step. Then the sums may differ, and that is no drift.
        return self._compare(use) if is_last and list(use.held) == self._held else []

    def _compare(self, use: NamespaceUse) -> list[str]:
        name, pods = f"budget of namespace {self._namespace}", self._index.counts.compiler.pods
        problems = [
            f"{name}: {len(gone)} signatures without a pod {verb}"
            for verb, held in (("count", use.held), ("wait", use.waiting))
            if (gone := [signature for signature in held if signature not in pods])
        ]
        needs = self._needs.values()
        selectors = set().union(*(need.selectors for need in needs))
        problems += [f"{name}: {problem}" for problem in use.overlaps.problems(selectors)]
        true = Amounts(
            len(selectors),
            len(set().union(*(need.topology_keys for need in needs))),
            len(set().union(*(need.cross_namespace_terms for need in needs))),
            sum(need.compile_steps for need in needs),
        )
        if use.amounts != true:
            problems.append(f"{name}: {use.amounts} in use, should be {true}")
        return problems


def _check_assumed(index: ClusterIndex) -> list[str]:
    """`_check_pods` for pods that are assumed on one node."""
    pods = (assumed.pod for assumed in index.assumed.held.values() if assumed.pod.node)
    return [f"assumed pod {pod.full_name}: is not on {pod.node}" for pod in pods if not _is_on_its_node(index, pod)]


def _check_reserved(index: ClusterIndex) -> list[str]:
    """Checks that every slot belongs to a pod that waits for a node, and the sums by namespace. O(slots).

    A pod that is moved is on a node, or deleted already, until its replacement has the slot.
    """
    reserved, problems = index.reserved, []
    for node, pods in reserved.by_node.items():
        for uid, pod in pods.items():
            shown, group = index.pods.get(uid), reserved.group_of(uid)
            is_moved = group is not None and is_move(group)
            if reserved.node_of(uid) != node or not (is_moved or (shown is not None and not shown.node)):
                problems.append(f"slot of pod {pod.full_name} on {node}: should not exist")
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


class _Carried:
    """Checks the sum of what nodes offer, and the label keys that nodes have: terms over other keys have no groups.

    O(nodes × labels). If a node changes between the first step and the last, nothing is compared.
    """

    def __init__(self, index: ClusterIndex) -> None:
        self._topology = index.topology
        self._version = -1
        self._offered: dict[str, int] = {}
        self._labels: set[str] = set()

    def add(self, numbers: Sequence[int]) -> list[str]:
        """Adds some nodes, and compares after the last."""
        if not numbers[0]:
            self._version = self._topology.version
        nodes = [
            node for number in numbers if number < len(self._topology.nodes) and (node := self._topology.nodes[number])
        ]
        add(self._offered, total(node.allocatable for node in nodes))
        for node in nodes:
            self._labels.update(node.labels)
        return self._compare() if numbers[-1] >= len(self._topology.nodes) - 1 else []

    def _compare(self) -> list[str]:
        topology = self._topology
        if self._version != topology.version:
            return []
        if self._offered != topology.offered:
            return [f"what nodes offer: {topology.offered} counted, {self._offered} there"]
        # Terms over a label key that is missing here would get no group, so they would count nothing.
        wrong = self._labels ^ topology.carried()
        return [
            f"label {label}: is counted as a label of nodes and no node has it, or the other way round"
            for label in wrong
        ]


def _check_nodes(index: ClusterIndex, numbers: Sequence[int]) -> list[str]:
    """Checks that pods on some nodes are in the table or assumed there, and are counted by their signatures.

    Also checks the sum of their requests, and free room if it is counted.
    """
    problems = index.shares.differences(numbers)
    if index.room is not None:
        problems += index.room.differences(numbers)
    problems += [
        f"node {index.topology.names[number]}: is filed under other taints than it has"
        for number in index.topology.wrong_soft_taints(numbers)
    ]
    for number in numbers:
        pods = index.nodes.pods_on(number).values()
        strangers = [pod for pod in pods if not _is_held(index, pod)]
        problems += [f"pod {pod.full_name}: is on {index.topology.names[number]}, and not held" for pod in strangers]
        # A signature has two entries, because spread constraints do not count terminating pods and pod affinity does.
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


def _check_signatures(index: ClusterIndex, signatures: Sequence[SignatureCounts], carriers: Carriers) -> list[str]:
    """Checks that some signatures are filed where they are looked up, and are owners of their terms.

    Records in ``carriers`` the signatures that have each term, repeated as often as they have it, for `_check_owned`.
    """
    problems = []
    for counts_of_signature in signatures:
        signature = counts_of_signature.signature
        if not _is_kept(index, counts_of_signature):
            continue
        name = f"a signature of {signature.namespace}"
        if not index.counts.signatures.is_filed(counts_of_signature):
            problems.append(f"{name}: is not filed under its namespace and labels")
        owners = [
            group
            for group, times in counts_of_signature.groups.items()
            # A group may be dropped between two steps of the audit. A dropped group is compared with nothing.
            if isinstance(group, OwnerGroup) and index.counts.terms.is_owned(group)
            for _ in range(times)
        ]
        true = Counter(
            term
            for term in index.counts.terms.carried_terms(counts_of_signature)
            if not index.counts.terms.lacks_group(term)
        )
        if Counter((owner.role, owner.term, owner.weight) for owner in owners) != true:
            problems.append(f"{name}: is not counted once for each of its terms")
        for group in owners:
            carriers.setdefault(group, []).append(counts_of_signature)
    return problems


def _places(index: ClusterIndex) -> Iterator[list[tuple[SignatureCounts, Sequence[int]]]]:
    """Signatures with the nodes that they are counted on, in parts of about equal size."""
    places: list[tuple[SignatureCounts, Sequence[int]]] = []
    size = 0
    for counts_of_signature in list(index.counts.signatures):
        for numbers in _slices(tuple(counts_of_signature.nodes), _PLACES_A_STEP):
            # The node numbers are a copy: pods may be bound before the step runs.
            places.append((counts_of_signature, numbers))
            size += len(numbers)
            if size >= _PLACES_A_STEP:
                yield places
                places, size = [], 0
    yield places


def _check_places(index: ClusterIndex, places: Iterable[tuple[SignatureCounts, Sequence[int]]]) -> list[str]:
    return [
        f"a signature of {signature_counts.signature.namespace}: is counted where its pods are not"
        for signature_counts, numbers in places
        if _is_kept(index, signature_counts)
        and any(
            signature_counts.nodes.get(number, 0) != _pods_of(index, signature_counts, number) for number in numbers
        )
    ]


def _check_anchors(index: ClusterIndex) -> list[str]:
    """Checks that signatures are filed by exactly the label keys that selections anchor on. O(groups)."""
    selections = [selection for selection, _ in index.counts.selections.acquired()]
    true = Counter(selection.anchor.key for selection in selections if selection.anchor is not None)
    running = index.counts.signatures.label_users()
    return [
        f"label {key}: {running.get(key, 0)} selections anchor on it, should be {true[key]}"
        for key in sorted(true.keys() | running.keys())
        if true[key] != running.get(key, 0)
    ]


def _check_matches(index: ClusterIndex, matches: NodeMatches, numbers: Sequence[int]) -> list[str]:
    """Checks the known verdicts on nodes for pods that policies constrain."""
    return [
        f"node {index.topology.names[number]}: has a wrong verdict of policies" for number in matches.wrong(numbers)
    ]


def _pods_of(index: ClusterIndex, counts_of_signature: SignatureCounts, number: int) -> int:
    here = index.nodes.pods_on(number).values()
    return sum(
        pod.terminating == counts_of_signature.terminating and pod.signature == counts_of_signature.signature
        for pod in here
    )


# -- groups, each recounted from the signatures in the tables ----------------------------------------------------------


def _group_steps(index: ClusterIndex, carriers: Carriers) -> Iterator[Check]:
    """A step for some groups, and more steps for groups that count many pods. ``carriers``: see `_check_signatures`."""
    large = _Recounts(index)
    for selection, groups in list(index.counts.selections.acquired()):
        for several in _slices(groups, _GROUPS_A_STEP):
            yield partial(_check_selected, index, selection, several, large)
            yield from large.steps()
    for owner in list(index.counts.terms.owned()):
        yield partial(_check_owned, index, owner, carriers, large)
        yield from large.steps()


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _is_kept(index: ClusterIndex, counts_of_signature: SignatureCounts) -> bool:
    return (
        index.counts.signatures.find(counts_of_signature.signature, terminating=counts_of_signature.terminating)
        is counts_of_signature
    )


class _Recount:
    """Counts the pods of one group by the domain of their node. A signature that is given twice counts twice.

    ``counted``: for each signature the numbers of nodes, and its pods on each. O(signatures × their nodes), however
    many nodes the cluster has.
    """

    def __init__(self, name: str, group: CountGroup, counted: Sequence[Places], nodes: Sequence[Node | None]) -> None:
        self._name = name
        self._key = group.key.key
        self._inclusion = group.column.inclusion if isinstance(group.column, DomainScope) else Inclusion()
        # By label value, not by domain number: a number may be reused for another value between two steps.
        self._running = {group.key.value(domain): count for domain, count in group.counts.items()}
        self._left = deque(counted)
        self._nodes = nodes
        self._true: Counter[str] = Counter()

    @property
    def is_done(self) -> bool:
        return not self._left

    def go_on(self, most: int) -> list[str]:
        """Counts the pods of about so many places, at least of one signature.

        Returns the differences after the last.
        """
        pods: Counter[int] = Counter()
        while self._left and most > 0:
            numbers, counts = self._left.popleft()
            most -= len(numbers)
            # One pod on each node is the usual case, and `update` counts it in native code.
            pods.update(numbers)
            if sum(counts) != len(counts):  # most nodes have one pod of a signature
                for number, count in zip(numbers, counts, strict=True):
                    pods[number] += count - 1
        self._add(pods)
        return self._differences() if self.is_done else []

    def _add(self, pods: Mapping[int, int]) -> None:
        key, nodes, missing = self._key, self._nodes, "" if self._inclusion.missing_as_empty else None
        for number in self._inclusion.admitted("", pods, nodes):
            node = nodes[number]
            value = None if node is None else node.labels.get(key, missing) if key else node.name
            if value is not None:
                self._true[value] += pods[number]

    def _differences(self) -> list[str]:
        running, true = self._running, self._true
        return [
            f"{self._name}: {value!r} is counted {running.get(value, 0)} times, should be {true.get(value, 0)}"
            for value in sorted(true.keys() | running.keys())
            if true.get(value, 0) != running.get(value, 0)
        ]


class _Recounts:
    """The groups of one step. Groups with few pods are counted at once, others from a copy, in steps that follow.

    Copying a million places takes 15 ms and 16 MB; counting their pods takes 400 ms.
    """

    def __init__(self, index: ClusterIndex) -> None:
        self._index = index
        self._waiting: deque[_Recount] = deque()

    def steps(self) -> Iterator[Check]:
        """The remaining steps. Each must be run before the next is taken."""
        while self._waiting:
            yield self._go_on

    def count(self, named: Sequence[tuple[str, CountGroup]], signatures: Iterable[SignatureCounts]) -> list[str]:
        """The differences of groups that count the same signatures; empty if they are counted later."""
        nodes = self._index.topology.nodes
        counted = [(tuple(signature.nodes), tuple(signature.nodes.values())) for signature in signatures]
        size = sum(len(numbers) for numbers, _ in counted)
        if size * len(named) > _PLACES_COUNTED_A_STEP:
            nodes = nodes.copy()
            self._waiting += [_Recount(name, group, counted, nodes) for name, group in named]
            return []
        return [line for name, group in named for line in _Recount(name, group, counted, nodes).go_on(size + 1)]

    def _go_on(self) -> list[str]:
        recount = self._waiting[0]
        lines = recount.go_on(_PLACES_COUNTED_A_STEP)
        if recount.is_done:
            self._waiting.popleft()
        return lines


def _check_selected(
    index: ClusterIndex, selection: Selection, groups: Sequence[SelectedGroup], recounts: _Recounts
) -> list[str]:
    """Checks some groups of one selection. Their members are looked up once for all of them."""
    kept = [group for group in groups if index.counts.selections.is_acquired(group)]
    if not kept:
        return []
    kind, where = "term group", ""
    if not selection.counts_terminating:
        kind, where = "spread group", f" in {', '.join(selection.fixed_namespaces() or ())}"
    # A group is live exactly while some node has its topology key. Otherwise its counts are empty or out of date.
    asleep = [group for group in kept if (group in selection.live) is not bool(group.column.filled)]
    if asleep:
        return [
            f"{kind} over {group.key.key}{where}: is live and no node has the key, or the other way round"
            for group in asleep
        ]
    required = [clause for wanted in selection.pod_selectors for clause in wanted.selector.requirements]
    if selection.anchor is not None and selection.anchor not in required:
        return [f"{kind}{where}: is filed under {selection.anchor}, which its pods need not carry"]
    # All namespaces on purpose: the namespaces of the selection are one of the facts that are checked.
    reachable = index.counts.signatures.reachable(selection.anchor, None)
    selected = [signature for signature in reachable if _selects(index, selection, signature)]
    named = [(f"{kind} over {group.key.key or 'each node'}{where}", group) for group in kept]
    return recounts.count(named, selected)


def _selects(index: ClusterIndex, selection: Selection, counted: SignatureCounts) -> bool:
    signature = counted.signature
    labels = index.namespaces.labels(signature.namespace)
    selects = all(wanted.selects(signature.namespace, signature.labels, labels) for wanted in selection.pod_selectors)
    return selects and (selection.counts_terminating or not counted.terminating)


def _check_owned(index: ClusterIndex, group: OwnerGroup, carriers: Carriers, recounts: _Recounts) -> list[str]:
    if not index.counts.terms.is_owned(group):
        return []
    name = f"inverse group ({group.role.value}) over {group.key.key}"
    if index.counts.terms.is_offered(group) is not bool(group.key.filled):
        return [f"{name}: is part of compiled constraints and no node has the key, or the other way round"]
    noted = [signature for signature in carriers.get(group, ()) if _is_kept(index, signature)]
    if len(noted) != group.users:  # more signatures have come since
        noted = [
            signature
            for counts_of_signature in index.counts.signatures
            for signature in [counts_of_signature] * counts_of_signature.groups.get(group, 0)
        ]
    return recounts.count([(name, group)], noted)
