"""Compiled constraints: for each signature of an incoming pod the groups that it needs, kept for its further replicas.

Each rule declares what it counts by a `Counted` of its own. The index makes it for a signature on first use, and shares
the groups. They stay true without an update, because groups are counted incrementally. A part is made again when
something that it read may have changed: terms of existing pods were added or removed, the namespace was relabelled, a
Service or owner from which default constraints are deduced changed, or a node has a label key that no node had before.

Bounded in number and in bytes, with second-chance eviction, because an exact least-recently-used order would cost each
request more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Self, TypeVar

from extender.index.counts.groups import GroupView, SelectedGroup, SignatureTable, SpreadGroup, SpreadGroupView
from extender.index.counts.namespace_budgets import NamespaceBudgets
from extender.index.counts.selections import PodSelector, Selections
from extender.index.counts.term_counts import TermCounts, TermGroupView
from extender.index.nodes.domains import Inclusion, NodeMatches
from extender.index.nodes.topology import Topology
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.workloads import Workloads
from extender.model.bounded import shrink
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.selectors import LabelSelector
from extender.model.objects import Excess, Namespace, PodSignature
from extender.settings.rules import Rules

C = TypeVar("C", bound="Counted")

_Versions = tuple[int, int, int, int]
"""Versions of existing pods' terms, of namespaces, of workloads, and of the label keys that nodes have."""

MOST_COMPILED = 10_000
MOST_BYTES = 96 * 2**20
"""Bytes of all compiled constraints, estimated when each is compiled. Grows in clusters of more than 670,000 pods."""
# 2,000 workloads of 750 pods need 150 MiB. With less room each request would compile its constraints again.
BYTES_A_POD = 150
# Idle: no pod has the signature now. That is the usual case, because a binding adds labels of the node's topology to a
# pod (KEP-4742), so pending pods have their signature only for moments. 2,000 workloads of 75 pods each need 39 MiB.
# The bytes grow with the pods of the cluster: enough to keep a workload's constraints for its next replica, but not
# the constraints of pods that are gone.
MOST_IDLE = 4_000
IDLE_BYTES = 4 * 2**20
IDLE_BYTES_A_POD = 300
_SERIALS = count(1)  # for all indexes, so that a rebuilt index does not repeat a number
_BYTES_A_GROUP = 1_000
_BYTES_A_COUNT = 100
_BYTES_A_CELL = 8


class Counted(ABC):
    """What a rule reads of the counts for pods of one signature: a frozen dataclass of groups, compared by value."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """Requests the groups from ``counts``; None if the rule counts nothing for such pods.

        O(constraints of the pod).
        """

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """The groups that the rule's filter depends on."""
        return ()

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """The groups that the rule's score depends on."""
        return ()

    @property
    def filters(self) -> bool:
        """Whether the rule may reject a node."""
        return bool(self.filter_groups or self.error)

    @property
    def filter_key(self) -> object:
        """Equal while the filter reads the same groups in the same way; scores may differ."""
        return self

    @property
    def used_fields(self) -> tuple[str, ...]:
        """For each constraint with an optional field whose use is counted: the field."""
        return ()

    @property
    def error(self) -> str:
        """Why no node can take such a pod, whatever is counted: its constraints cannot be parsed."""
        return ""


@dataclass(frozen=True, slots=True)
class CompiledConstraints:
    """Everything that the rules read for pods of one signature, compiled once. It stays true because its groups do.

    ``serial`` is equal while a filter result depends on the same groups in the same way. Caches use this number as key,
    not the groups, because these are large and must be released with the compiled constraints. ``excess``: the pod must
    be rejected because it exceeds a limit; nothing is counted for it.
    """

    signature: PodSignature
    parts: Mapping[type[Counted], Counted] = field(default_factory=dict)
    excess: Excess | None = None
    serial: int = field(default=0, compare=False)
    filtering: frozenset[type[Counted]] = field(init=False, compare=False)
    used_fields: tuple[str, ...] = field(init=False, compare=False)
    is_plain: bool = field(init=False, compare=False)
    _filter_groups: tuple[GroupView, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Computes what every request reads: groups of filters, parts that may reject a node, fields in use."""
        groups = chain.from_iterable([part.filter_groups for part in self.parts.values()])
        object.__setattr__(self, "_filter_groups", tuple(groups))
        object.__setattr__(self, "filtering", frozenset([kind for kind, part in self.parts.items() if part.filters]))
        used = tuple(chain.from_iterable([part.used_fields for part in self.parts.values()]))
        object.__setattr__(self, "used_fields", used)
        affinity = self.signature.affinity
        has_constraints = self.parts or self.excess or not affinity.is_empty or affinity.cross_namespace
        object.__setattr__(self, "is_plain", not has_constraints)

    def get(self, kind: type[C]) -> C | None:
        """What one rule counts; None if it counts nothing for such pods. O(1)."""
        return self.parts.get(kind)  # type: ignore[return-value]  # filed by its own class

    def put(self, part: Counted) -> CompiledConstraints:
        """A copy in which the part replaces the part of its kind; for a dry run."""
        return CompiledConstraints(self.signature, {**self.parts, type(part): part}, self.excess, self.serial)

    def filter_groups(self) -> tuple[GroupView, ...]:
        """Every group that a filter result depends on."""
        return self._filter_groups

    def score_groups(self) -> Iterator[GroupView]:
        """Every group that a score depends on."""
        return chain.from_iterable([part.score_groups for part in self.parts.values()])

    @property
    def is_malformed(self) -> bool:
        """Whether constraints of the pod cannot be parsed."""
        return any(part.error for part in self.parts.values())


class Counting:
    """The requests of a `Counted` while it is made, kept until it is made again or dropped.

    ``groups`` and ``nodes`` were acquired and must be released. ``reads``: what else it depends on, with the value
    then.
    """

    __slots__ = ("_compiler", "groups", "kind", "nodes", "reads", "signature")

    def __init__(self, compiler: ConstraintCompiler, kind: type[Counted], signature: PodSignature) -> None:
        self._compiler = compiler
        self.kind = kind
        self.signature = signature
        self.groups: Sequence[SelectedGroup] = ()
        self.nodes: Sequence[NodeMatches] = ()
        self.reads: Sequence[tuple[Callable[[PodSignature], object], object]] = ()

    def pods(self, pod_selectors: Collection[PodSelector], *topology_keys: str) -> Sequence[GroupView]:
        """The existing pods that all selectors select, by domain of each key. O(selectors + keys)."""
        groups = self._compiler.selections.acquire(pod_selectors, topology_keys)
        self.groups = (*self.groups, *groups)
        return groups

    def living_pods(self, wanted: PodSelector, topology_key: str, inclusion: Inclusion) -> SpreadGroupView:
        """The selected pods that are not terminating, on the nodes that count, by domain.

        Empty key: each node is a domain.
        """
        (group,) = self._compiler.selections.acquire((wanted,), (topology_key,), inclusion, counts_terminating=False)
        assert isinstance(group, SpreadGroup)  # noqa: S101 (narrows the type of a group with an inclusion rule)
        self.groups = (*self.groups, group)
        return group

    def terms_that_select(self, *, of_policies: bool = False) -> Sequence[TermGroupView]:
        """The terms of existing pods that select these pods, with their counts.

        ``of_policies``: only terms of policies.
        """
        self._read(self._compiler.terms_version)
        self._read(self._compiler.namespace_of)
        return self._compiler.terms.selecting(self.signature, of_policies=of_policies)

    def selects_itself(self, pod_selectors: Collection[PodSelector]) -> bool:
        """Whether all selectors select these pods themselves. O(selectors)."""
        self._read(self._compiler.namespace_of)
        signature, namespace = self.signature, self._compiler.namespace_of(self.signature)
        labels = None if namespace is None else namespace.labels
        return all(wanted.selects(signature.namespace, signature.labels, labels) for wanted in pod_selectors)

    def is_carried(self, topology_key: str) -> bool:
        """Whether any node has the label key. A term over another key applies to no node, and needs no group yet."""
        is_carried = self._compiler.topology.is_carried(topology_key)
        # Read only if no node has the key. Later the term keeps its group, which counts nothing once the last node is
        # gone.
        if not is_carried:
            self._read(self._compiler.carried_version)
        return is_carried

    def deduced_selector(self) -> LabelSelector | None:
        """The pods that these pods' default constraints count, by their Services and owner; None if there are none."""
        self._read(self._compiler.workloads.selector_dependencies)
        return self._compiler.workloads.default_selector(self.signature)

    def nodes_matching(self, affinity: NodeAffinity) -> NodeMatches:
        """The nodes that a node affinity admits. O(1)."""
        matches = self._compiler.topology.acquire_matches(affinity)
        self.nodes = (*self.nodes, matches)
        return matches

    def _read(self, reader: Callable[[PodSignature], object]) -> None:
        if all(known != reader for known, _ in self.reads):
            self.reads = (*self.reads, (reader, reader(self.signature)))

    @property
    def is_stale(self) -> bool:
        """Whether anything that it depends on has changed. O(1)."""
        for reader, value in self.reads:
            now = reader(self.signature)
            # `is` first: most values are the same object as before, and comparing Namespace objects takes longer.
            if now is not value and now != value:
                return True
        return False


@dataclass(slots=True)
class _Compiled:
    """Compiled constraints, and what must be released with them."""

    compiled: CompiledConstraints
    # While they are current, nothing can have changed.
    versions: _Versions
    # The parts that hold or depend on anything.
    counted: Sequence[Counting]
    # The budget of the namespace is not asked until the signature has its first pod again.
    is_admitted: bool = False
    # Estimated bytes.
    size: int = 0
    # Used after it was made, or after it was last considered for eviction.
    in_use: bool = False


class ConstraintCompiler:
    """Compiled constraints by signature, in the order in which they are considered for eviction."""

    terms: TermCounts
    selections: Selections
    topology: Topology
    _signatures: SignatureTable

    def __init__(
        self,
        settings: Rules,
        kinds: Sequence[type[Counted]],
        namespaces: Namespaces,
        workloads: Workloads,
        budgets: NamespaceBudgets,
    ) -> None:
        """``kinds``: what the rules count."""
        self._settings = settings
        self._kinds = kinds
        self._budgets = budgets
        self._namespaces = namespaces
        self.workloads = workloads

    def start(self, signatures: SignatureTable, terms: TermCounts, selections: Selections, topology: Topology) -> None:
        """Starts with new, empty tables. Each signature is compiled again when it is next needed."""
        self._signatures = signatures
        self.terms = terms
        self.selections = selections
        self.topology = topology
        self._budgets.clear()
        self._compiled: dict[PodSignature, _Compiled] = {}
        self._bytes = 0
        self._pods: dict[PodSignature, int] = {}
        self._every_pod = 0
        self._idle: dict[PodSignature, None] = {}
        self._idle_bytes = 0

    def __len__(self) -> int:
        return len(self._compiled)

    def find(self, signature: PodSignature) -> CompiledConstraints:
        """The constraints of a signature, compiled or corrected if needed.

        Above a limit: only what policies enforce.
        """
        # 1. Above a limit of the pod: nothing is compiled, unless policies enforce something.
        if signature.excess is not None and signature.enforced is None:
            return CompiledConstraints(signature, excess=signature.excess if self._budgets.rejects_excess else None)
        known = self._compiled.get(signature)
        # 2. The budget of the namespace is asked once, and again after the signature has been without pods.
        if signature.excess is None and (known is None or not known.is_admitted):
            excess = self._budgets.admit(signature, self._pods, is_compiled=known is not None)
            if excess is not None:
                return CompiledConstraints(signature, excess=excess)
        # 3. New, or known: then stale parts are corrected.
        if known is None:
            return self._add(signature)
        # The mark is reset when a signature gets its first pod. No watched pod has an effective signature, so for such
        # a signature the budget is asked each time.
        known.is_admitted = signature.shown is None
        known.in_use = True
        if known.versions != self._versions():
            self._correct(known)
        return known.compiled

    def _add(self, signature: PodSignature) -> CompiledConstraints:
        # This may make groups of existing pods' terms, so the versions are taken afterwards.
        self._signatures.pin(signature, 1)
        made = self._compile(signature)
        made.size = _size(made)
        self._bytes += made.size
        most = max(MOST_BYTES, BYTES_A_POD * self._every_pod)
        # Before the new entry is added: as an unused entry it could be the first to go.
        while self._compiled and (len(self._compiled) >= MOST_COMPILED or self.bytes > most):
            self._drop(self._least_used())
        self._compiled[signature] = made
        return made.compiled

    def release(self, signature: PodSignature) -> None:
        """Drops the compiled constraints of a signature that no pod has. O(groups)."""
        if signature in self._compiled and signature not in self._pods:
            self._drop(signature)

    @property
    def bytes(self) -> int:
        """The size of all: their own sizes, and the columns of scopes, which are shared."""
        return self._bytes + _BYTES_A_CELL * self.topology.scope_cells

    def _correct(self, known: _Compiled) -> None:
        """Makes stale parts again. O(terms) after a change of a namespace, else O(stale parts)."""
        versions = self._versions()
        # Labels of namespaces changed: members of selections are corrected late, so here for the groups that will be
        # read.
        if versions[1] != known.versions[1]:
            for counting in known.counted:
                for group in counting.groups:
                    self.selections.refresh(group.selection)
        known.versions = versions
        stale = [counting for counting in known.counted if counting.is_stale]
        if not stale:
            return
        before, signature = known.compiled, known.compiled.signature
        made = {counting.kind: self._count(counting.kind, signature) for counting in stale}
        for counting in stale:  # after the new parts have acquired their groups, so that common groups are not dropped
            self._release(counting)
        known.counted = [made[counting.kind][1] if counting.kind in made else counting for counting in known.counted]
        all_parts = {kind: made[kind][0] if kind in made else before.get(kind) for kind in self._kinds}
        parts = {kind: part for kind, part in all_parts.items() if part is not None}
        if parts != before.parts:
            # If only scores changed, the serial stays, so cached filter results stay valid.
            same = all(_filter_key(parts.get(kind)) == _filter_key(before.get(kind)) for kind in made)
            serial = before.serial if same else next(_SERIALS)
            known.compiled = CompiledConstraints(signature, parts, serial=serial)

    @property
    def pods(self) -> Mapping[PodSignature, int]:
        """How many pods each signature has; changes with every pod that comes or goes."""
        return self._pods

    def count_pod(self, signature: PodSignature, sign: int) -> None:
        """Adds a pod of a signature (``sign`` 1) or removes it (-1). O(1).

        Constraints of signatures without a pod are idle. They are kept for the next replica, within bounds of their
        own; the one that has been idle for longest is dropped first.
        """
        self._every_pod += sign
        pods = self._pods.get(signature, 0) + sign
        if pods:
            self._pods[signature] = pods
            # The first pod: no longer idle, and the budget is asked again.
            if pods == sign:
                self._leave_idle(signature)
                if known := self._compiled.get(signature):
                    known.is_admitted = False
        else:
            del self._pods[signature]
            shrink(self._pods)
            self._budgets.release(signature)
            if known := self._compiled.get(signature):
                self._idle[signature] = None
                self._idle_bytes += known.size
        most = IDLE_BYTES + IDLE_BYTES_A_POD * self._every_pod
        # In the order in which they became idle.
        while self._idle_bytes > most or len(self._idle) > MOST_IDLE:
            # `_drop` removes the signature from `_idle` too, so the loop ends.
            self._drop(next(iter(self._idle)))

    def _leave_idle(self, signature: PodSignature) -> None:
        if signature in self._idle:
            del self._idle[signature]
            self._idle_bytes -= self._compiled[signature].size

    def _least_used(self) -> PodSignature:
        """The first entry that is not in use; used entries before it get a second chance. Amortised O(1)."""
        while True:
            signature, compiled = next(iter(self._compiled.items()))
            if not compiled.in_use:
                return signature
            compiled.in_use = False
            self._compiled[signature] = self._compiled.pop(signature)

    def _versions(self) -> _Versions:
        terms = self.terms
        return (terms.inverse_version, self._namespaces.version, self.workloads.version, terms.carried_version)

    def terms_version(self, _signature: PodSignature) -> int:
        """Grows when a term of existing pods starts or stops counting."""
        return self.terms.inverse_version

    def carried_version(self, _signature: PodSignature) -> int:
        """Grows when a node has a label key that no node had before."""
        return self.terms.carried_version

    def namespace_of(self, signature: PodSignature) -> Namespace | None:
        """The Namespace object of such pods; its labels decide which terms select them."""
        return self._namespaces.objects.get(signature.namespace)

    def _drop(self, signature: PodSignature) -> None:
        self._leave_idle(signature)
        compiled = self._compiled.pop(signature)
        self._bytes -= compiled.size
        self._signatures.pin(signature, -1)
        for counting in compiled.counted:
            self._release(counting)
        shrink(self._compiled)

    def _release(self, counted: Counting) -> None:
        self.selections.release(counted.groups)
        for matches in counted.nodes:
            self.topology.release_matches(matches)

    def _compile(self, signature: PodSignature) -> _Compiled:
        versions, is_admitted = self._versions(), signature.shown is None
        made = [(kind, *self._count(kind, signature)) for kind in self._kinds]
        parts = {kind: part for kind, part, _ in made if part is not None}
        counted = [counting for _, _, counting in made if counting.groups or counting.nodes or counting.reads]
        compiled = CompiledConstraints(signature, parts, serial=next(_SERIALS))
        return _Compiled(compiled, versions, counted, is_admitted)

    def _count(self, kind: type[Counted], signature: PodSignature) -> tuple[Counted | None, Counting]:
        counting = Counting(self, kind, signature)
        return kind.count(signature, counting, self._settings), counting

    def statistics(self) -> dict[str, int]:
        """How many are kept."""
        return {"compiled_constraints": len(self._compiled)}


def _filter_key(part: Counted | None) -> object:
    return None if part is None else part.filter_key


def _size(made: _Compiled) -> int:
    """Estimated bytes: the signature, and its groups with their counts. O(groups).

    Each user of a group is charged for the group; all users together are charged for its counts. Groups of existing
    pods' terms are charged to none, because those pods need them.
    """
    groups = [group for counting in made.counted for group in counting.groups]
    counts = sum(len(group.counts) // max(group.users, 1) for group in groups)
    # Verdicts of nodes are shared by all users of a node affinity, so each is charged its part.
    nodes = sum(matches.size // matches.users for counting in made.counted for matches in counting.nodes)
    return 2 * made.compiled.signature.size + _BYTES_A_GROUP * (1 + len(groups)) + _BYTES_A_COUNT * counts + nodes
