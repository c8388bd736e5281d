"""Compiled constraints: for each signature of an incoming pod the groups that it needs, kept for its further replicas.

They stay true without an update, as their groups are counted incrementally. Parts are corrected when *which* groups
they need may have changed: terms of existing pods came or went, a namespace was relabelled, or a Service or owner from
which default constraints are deduced changed. The groups of the pod's own terms change only when a node carries a key
that no node carried before.

Bounded in number and in bytes, with second-chance eviction: exact least-recently-used order would cost each request
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

from extender.index.counts.groups import GroupView, SpreadGroupView
from extender.index.counts.namespace_budgets import NamespaceBudgets
from extender.index.counts.selections import TermSelection
from extender.index.counts.signature_counts import SignatureTable
from extender.index.counts.spread_counts import SpreadCounts, SpreadKey, default_constraints, hard_key, soft_key
from extender.index.counts.term_counts import Role, TermCounts
from extender.index.nodes.matches import NodeMatches
from extender.index.nodes.topology import Topology
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.workloads import Workloads
from extender.model.bounded import shrink
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.spread import SpreadConstraint, SpreadConstraints
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import Excess, Namespace, PodSignature, Workload
from extender.model.policies import Enforced
from extender.settings.rules import Rules

_Versions = tuple[int, int, int, int]
"""Of the terms that existing pods carry, of namespaces, of workloads, and of the label keys that nodes carry."""

MOST_COMPILED = 10_000
MOST_BYTES = 96 * 2**20
"""The most that all of them may hold, estimated when each is compiled. In a cluster of more than 670,000 pods it is more."""
BYTES_A_POD = 150  # 2,000 workloads of 750 pods need 150 MiB; with less room each request compiles its constraints anew
# Idle: no pod has the signature now. That is the usual case, as a binding adds labels of the node's topology to a pod
# (KEP-4742): the signature of pending pods is theirs only for moments. 2,000 workloads of 75 pods each need 39 MiB. The
# bytes grow with the pods of the cluster, so that those of a workload are kept for its next replica, and those of pods
# that left nothing behind are not.
MOST_IDLE = 4_000
IDLE_BYTES = 4 * 2**20
IDLE_BYTES_A_POD = 300
_SERIALS = count(1)  # of all indexes, so that a rebuilt index does not give a number again
_BYTES_A_GROUP = 1_000
_BYTES_A_COUNT = 100
_BYTES_A_CELL = 8


@dataclass(frozen=True, slots=True)
class CompiledSpread:
    """A constraint with its group; ``self_match`` is 1 where the constraint selects the incoming pod itself."""

    constraint: SpreadConstraint
    group: SpreadGroupView
    self_match: int


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A group that adds ``weight`` points for each pod counted in the node's domain (negative: takes them away)."""

    weight: int
    group: GroupView


@dataclass(frozen=True, slots=True)
class CompiledConstraints:
    """All that the rules read for pods of one signature, compiled once; it stays true because its groups do.

    ``serial`` is the same for as long as a filter result depends on the same groups in the same way. A cache keys its
    entries by that number and not by the groups, which are large and must be released with the compiled constraints.

    ``affinity``: one group per topology key of required terms, each counting the pods that match *all* required terms
    at once. ``anti``: one per distinct required anti-affinity term, those of ``anti_terms``. ``inverse``: required anti-affinity of existing
    pods that selects these pods. ``preferences``: own preferred terms; ``inverse_preferences``: existing pods'
    preferred terms; ``inverse_required``: existing pods' required affinity terms, all that select these pods.
    ``excess``: the pod is to be rejected, as it is above a limit; then all groups are empty. ``is_empty``: none of these.
    ``required_nodes`` and ``preferred_nodes`` (with weights) are what scheduling policies add, if they add any.
    """

    signature: PodSignature
    affinity: tuple[GroupView, ...] = ()
    matches_itself: bool = False
    anti: tuple[GroupView, ...] = ()
    inverse: tuple[GroupView, ...] = ()
    preferences: tuple[WeightedGroup, ...] = ()
    inverse_preferences: tuple[WeightedGroup, ...] = ()
    inverse_required: tuple[GroupView, ...] = ()
    hard: tuple[CompiledSpread, ...] = ()
    soft: tuple[CompiledSpread, ...] = ()
    soft_needs_all_keys: bool = True
    affinity_errors: tuple[str, ...] = ()
    hard_error: str = ""
    soft_error: str = ""
    required_nodes: NodeMatches | None = None
    preferred_nodes: tuple[tuple[int, NodeMatches], ...] = ()
    excess: Excess | None = None
    anti_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    serial: int = field(default=0, compare=False)
    is_empty: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Notes whether there is any constraint, which every request reads."""
        groups = (self.affinity, self.anti, self.inverse, self.inverse_required, self.hard, self.soft)
        preferences = (self.preferences, self.inverse_preferences)
        failures = (self.affinity_errors, self.hard_error, self.soft_error, self.excess)
        object.__setattr__(self, "is_empty", not any((*groups, *preferences, *failures)))

    def filter_groups(self) -> tuple[GroupView, ...]:
        """Every group that a filter result depends on."""
        return (*self.affinity, *self.anti, *self.inverse, *(each.group for each in self.hard))

    def filters_as(self, other: CompiledConstraints) -> bool:
        """Whether a filter result depends on the same groups in the same way; scores may differ. O(groups)."""
        return (
            self.affinity == other.affinity
            and self.matches_itself == other.matches_itself
            and self.anti == other.anti
            and self.hard == other.hard
            and set(map(id, self.inverse)) == set(map(id, other.inverse))
        )


@dataclass(slots=True)
class _Compiled:
    """Compiled constraints, what their parts depend on, and what must be released when they are dropped.

    While ``versions`` are the current ones nothing can have changed. ``namespace`` is the pod's as it was read: its
    labels decide which terms of existing pods select the pod. ``workloads`` is what default constraints were deduced
    from. ``lacks_groups``: own terms over keys that no node carried have no group yet. ``size`` is an estimate of bytes.
    ``is_admitted``: the budget of the namespace need not be asked before the signature has its first pod again.
    ``in_use``: used again since they were made or last considered for eviction. ``nodes``: what policies require of nodes.
    """

    compiled: CompiledConstraints
    versions: _Versions
    namespace: Namespace | None
    workloads: tuple[int, Workload | None]
    required: TermSelection | None = None
    terms: list[tuple[TermSelection, list[str]]] = field(default_factory=list)
    lacks_groups: bool = False
    is_admitted: bool = False
    spreads: list[SpreadKey] = field(default_factory=list)
    nodes: list[NodeMatches] = field(default_factory=list)
    size: int = 0
    in_use: bool = False


class ConstraintCompiler:
    """Compiled constraints by signature, in the order in which they are considered for eviction."""

    _signatures: SignatureTable
    _terms: TermCounts
    _spreads: SpreadCounts
    _topology: Topology

    def __init__(self, rules: Rules, namespaces: Namespaces, workloads: Workloads, budgets: NamespaceBudgets) -> None:
        self._rules = rules
        self._budgets = budgets
        self._namespaces = namespaces
        self._workloads = workloads
        self._defaults = default_constraints(rules)

    def start(self, signatures: SignatureTable, terms: TermCounts, spreads: SpreadCounts, topology: Topology) -> None:
        """Begins with new and empty tables; each signature is compiled again when it is next needed."""
        self._signatures = signatures
        self._terms = terms
        self._spreads = spreads
        self._topology = topology
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
        """The compiled constraints of a signature, compiled or corrected if needed. Nothing is compiled for a pod above a limit."""
        if signature.excess is not None:
            return CompiledConstraints(signature, excess=signature.excess if self._budgets.rejects_excess else None)
        known = self._compiled.get(signature)
        if known is None or not known.is_admitted:
            excess = self._budgets.admit(signature, self._pods, is_compiled=known is not None)
            if excess is not None:
                return CompiledConstraints(signature, excess=excess)
        if known is None:
            return self._add(signature)
        known.is_admitted = signature.shown is None
        known.in_use = True
        if known.versions != self._versions():
            self._correct(known)
        return known.compiled

    def _add(self, signature: PodSignature) -> CompiledConstraints:
        self._signatures.pin(signature, 1)  # may make inverse groups, so before the versions are taken
        made = self._compile(signature)
        made.size = _size(made.compiled) + sum(each.size // each.users for each in made.nodes)
        self._bytes += made.size
        most = max(MOST_BYTES, BYTES_A_POD * self._every_pod)
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
        """The size of all: their own sizes, and the columns of scopes, which they share."""
        return self._bytes + _BYTES_A_CELL * self._spreads.scope_cells

    def _correct(self, known: _Compiled) -> None:
        """Corrects the parts whose dependencies changed. O(terms) after a namespace, else O(inverse terms)."""
        compiled, signature, versions = known.compiled, known.compiled.signature, self._versions()
        parts: dict[str, object] = {}
        namespace = self._namespaces.objects.get(signature.namespace)
        if versions[1] != known.versions[1]:
            for selection, _ in known.terms:
                self._terms.refresh(selection)
        given_back: list[tuple[TermSelection, list[str]]] = []
        if versions[3] != known.versions[3] and known.lacks_groups:
            given_back, known.terms = known.terms, []
            parts |= self._affinity(signature, known)
        elif namespace is not known.namespace:
            parts["matches_itself"] = _matches_itself(known.required, signature)
        if versions[0] != known.versions[0] or namespace is not known.namespace:
            parts |= self._inverse(signature)
        workloads = self._workloads.selector_dependencies(signature)
        if self._deduces(signature) and workloads != known.workloads:
            old_spreads, known.spreads = known.spreads, []
            parts |= self._spread(signature, known)
            self._release((), old_spreads)
        self._release(given_back, ())
        known.versions, known.namespace, known.workloads = versions, namespace, workloads
        if any(getattr(compiled, name) != part for name, part in parts.items()):
            changed = replace(compiled, **parts)  # type: ignore[arg-type]  # by name
            known.compiled = changed if changed.filters_as(compiled) else replace(changed, serial=next(_SERIALS))

    @property
    def pods(self) -> Mapping[PodSignature, int]:
        """How many pods each signature has; it changes with every pod that comes or goes."""
        return self._pods

    def count_pod(self, signature: PodSignature, sign: int) -> None:
        """Adds a pod of a signature (``sign`` 1) or removes it (-1). O(1).

        Constraints of signatures without a pod are idle. They are kept for the next replica within bounds of their own,
        and the one that has been idle for longest is dropped first.
        """
        self._every_pod += sign
        pods = self._pods.get(signature, 0) + sign
        if pods:
            self._pods[signature] = pods
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
        while self._idle_bytes > most or len(self._idle) > MOST_IDLE:
            self._drop(next(iter(self._idle)))

    def _leave_idle(self, signature: PodSignature) -> None:
        if signature in self._idle:
            del self._idle[signature]
            self._idle_bytes -= self._compiled[signature].size

    def _least_used(self) -> PodSignature:
        """The first that is not in use; those before it get their second chance. Amortised O(1)."""
        while True:
            signature, compiled = next(iter(self._compiled.items()))
            if not compiled.in_use:
                return signature
            compiled.in_use = False
            self._compiled[signature] = self._compiled.pop(signature)

    def _versions(self) -> _Versions:
        terms = self._terms
        return (terms.inverse_version, self._namespaces.version, self._workloads.version, terms.carried_version)

    def _drop(self, signature: PodSignature) -> None:
        self._leave_idle(signature)
        compiled = self._compiled.pop(signature)
        self._bytes -= compiled.size
        self._signatures.pin(signature, -1)
        self._release(compiled.terms, compiled.spreads)
        for matches in compiled.nodes:
            self._topology.release_matches(matches)
        shrink(self._compiled)

    def _release(self, terms: Iterable[tuple[TermSelection, list[str]]], spreads: Iterable[SpreadKey]) -> None:
        """Gives groups back; in a correction after the new ones are acquired, so that those that both need live on."""
        for selection, keys in terms:
            self._terms.release(selection, keys)
        for spread in spreads:
            self._spreads.release(spread)

    def _compile(self, signature: PodSignature) -> _Compiled:
        namespace = self._namespaces.objects.get(signature.namespace)
        held = _Compiled(
            CompiledConstraints(signature),
            self._versions(),
            namespace,
            self._workloads.selector_dependencies(signature),
            is_admitted=signature.shown is None,
        )
        parts: dict[str, object] = {}
        # What policies add to a pod that exists is not known to the in-tree plugins, so it is decided here in any case.
        is_enforced = signature.enforced is not None
        if self._rules.inter_pod_affinity.enabled or is_enforced:
            parts |= self._affinity(signature, held)
        parts |= self._inverse(signature)
        if self._rules.topology_spread.enabled or is_enforced:
            parts |= self._spread(signature, held)
        if signature.enforced is not None:
            parts |= self._enforced_nodes(signature.enforced, held)
        held.compiled = CompiledConstraints(signature, **parts, serial=next(_SERIALS))  # type: ignore[arg-type]  # by name
        return held

    def _enforced_nodes(self, enforced: Enforced, held: _Compiled) -> dict[str, object]:
        """The nodes that policies require and prefer. O(terms)."""
        acquire = self._topology.acquire_matches
        required = None if enforced.nodes.admits_all else acquire(enforced.nodes)
        preferred = tuple((each.weight, acquire(NodeAffinity(terms=(each.term,)))) for each in enforced.preferred)
        held.nodes = [*(() if required is None else (required,)), *(nodes for _, nodes in preferred)]
        return {"required_nodes": required, "preferred_nodes": preferred}

    def _affinity(self, signature: PodSignature, held: _Compiled) -> dict[str, object]:
        """The groups of a pod's own terms.

        An anti-affinity or preferred term over a key that no node carries concerns no node, and gets no group before one
        does. Required affinity over such a key rejects every node, so it has all its groups.
        """
        wanted, is_carried = signature.affinity, self._terms.is_carried
        anti = dict.fromkeys(term for term in wanted.required_anti if is_carried(term.topology_key))
        preferences = [
            (sign * preferred.weight, preferred.term)
            for sign, terms in ((1, wanted.preferred), (-1, wanted.preferred_anti))
            for preferred in terms
        ]
        held.lacks_groups = not all(is_carried(term.topology_key) for term in wanted.required_anti) or not all(
            is_carried(term.topology_key) for _, term in preferences
        )
        affinity: list[GroupView] = []
        if wanted.required:
            # Every term counts the pods that match all of them, so terms over the same key share one group.
            keys = list(dict.fromkeys(term.topology_key for term in wanted.required))
            held.required = self._terms.acquire(wanted.required, keys)
            held.terms.append((held.required, keys))
            affinity = [held.required.groups[key] for key in keys]
        return {
            "affinity": tuple(affinity),
            "affinity_errors": wanted.errors,
            "matches_itself": _matches_itself(held.required, signature),
            "anti": tuple(self._group(term, held) for term in anti),
            "anti_terms": tuple(anti),
            "preferences": tuple(
                WeightedGroup(weight, self._group(term, held))
                for weight, term in preferences
                if is_carried(term.topology_key)
            ),
        }

    def _group(self, term: AffinityTerm, held: _Compiled) -> GroupView:
        key = term.topology_key
        selection = self._terms.acquire((term,), (key,))
        if held.terms and held.terms[-1][0] is selection:  # many terms may differ in their key only
            held.terms[-1][1].append(key)
        else:
            held.terms.append((selection, [key]))
        return selection.groups[key]

    def _inverse(self, signature: PodSignature) -> dict[str, object]:
        """Existing pods' terms. Without the rule only those that policies add, which the in-tree plugin does not know."""
        settings = self._rules.inter_pod_affinity
        found = self._terms.selecting(signature, of_policies=not settings.enabled)
        parts: dict[str, object] = {"inverse": tuple(g for g in found if g.role is Role.REQUIRED_ANTI)}
        ignores = settings.ignore_preferred_terms_of_existing_pods and not signature.affinity.has_preferences
        if ignores or not settings.enabled:
            return parts
        signs = {Role.PREFERRED: 1, Role.PREFERRED_ANTI: -1}
        parts["inverse_preferences"] = tuple(
            WeightedGroup(signs[g.role] * g.weight, g) for g in found if g.role in signs
        )
        if settings.hard_pod_affinity_weight:
            parts["inverse_required"] = tuple(g for g in found if g.role is Role.REQUIRED)
        return parts

    def _spread(self, signature: PodSignature, held: _Compiled) -> dict[str, object]:
        constraints, needs_all = self._constraints(signature)
        hard_keys = _keys_of(tuple(c.topology_key for c in constraints.hard))
        soft_keys = _keys_of(tuple(c.topology_key for c in constraints.soft))

        def compile_one(constraint: SpreadConstraint, key: SpreadKey) -> CompiledSpread:
            held.spreads.append(key)
            return CompiledSpread(
                constraint, self._spreads.acquire(key), int(constraint.selector.matches(signature.labels))
            )

        return {
            "hard": tuple(compile_one(c, hard_key(signature, c, hard_keys)) for c in constraints.hard),
            "soft": tuple(
                compile_one(c, soft_key(signature, c, soft_keys, needs_all=needs_all)) for c in constraints.soft
            ),
            "soft_needs_all_keys": needs_all,
            "hard_error": constraints.hard_error,
            "soft_error": constraints.soft_error,
        }

    def _constraints(self, signature: PodSignature) -> tuple[SpreadConstraints, bool]:
        """The constraints in force, and whether scoring ignores nodes that lack a key (not under System defaults)."""
        if not self._deduces(signature):
            return signature.spread, True
        selector = self._workloads.default_selector(signature)
        if selector is None:
            return SpreadConstraints(), True
        made = [constraint.with_selector(selector) for constraint in self._defaults]
        hard, soft = tuple(c for c in made if c.hard), tuple(c for c in made if not c.hard)
        return SpreadConstraints(hard, soft), self._rules.topology_spread.defaulting_type != "System"

    def _deduces(self, signature: PodSignature) -> bool:
        """Whether default constraints apply to a pod, which are deduced from workloads."""
        return self._rules.topology_spread.enabled and bool(self._defaults) and not signature.spread.own

    def statistics(self) -> dict[str, int]:
        """How many are kept."""
        return {"compiled_constraints": len(self._compiled)}


@lru_cache(maxsize=256)
def _keys_of(topology_keys: tuple[str, ...]) -> frozenset[str]:
    """One set for all templates with the same keys: each spread group has it in its identity."""
    return frozenset(topology_keys)


def _size(compiled: CompiledConstraints) -> int:
    """An estimate of bytes: the signature, and the groups of its own terms with their counts. O(groups).

    A group is charged to each of its users, its counts to all of them together. Those of existing pods' terms are
    charged to none, as these pods need them.
    """
    own = (
        *compiled.affinity,
        *compiled.anti,
        *(each.group for each in compiled.preferences),
        *(each.group for each in (*compiled.hard, *compiled.soft)),
    )
    counts = sum(len(group.counts) // max(group.users, 1) for group in own)
    return 2 * compiled.signature.size + _BYTES_A_GROUP * (1 + len(own)) + _BYTES_A_COUNT * counts


def _matches_itself(required: TermSelection | None, signature: PodSignature) -> bool:
    """Whether pods of this signature match all their required terms themselves: the first-pod rule. O(terms)."""
    return required is not None and required.selects_labels(signature.namespace, dict(signature.labels))
