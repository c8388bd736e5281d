"""What the constraints of each namespace use together, and whether a pod fits into the budget of its namespace.

A signature counts while any pod has it, from the moment when one of its pods is on a node or its constraints are
needed. So the cost of one namespace's pods for all other pods is bounded, however many pods it has. The limits are:

1. selectors: groups and anchors;
2. overlapping selectors: counts that one event of a pod changes;
3. topology keys: columns of nodes;
4. terms that reach other namespaces: offered to pods there;
5. steps: the time to compile and correct constraints.

Pods on a node always count, even above a limit, because they exist. A signature that needs nothing new always fits, so
the replicas of a workload never wait for the budget. A signature that does not fit waits, and nothing of it is
compiled. When a signature of its namespace stops counting, the subscribers of ``changes`` are notified.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import nlargest
from typing import Final, NamedTuple, TypeVar

from extender.index.counts.overlaps import Overlaps
from extender.index.counts.selections import PodSelector, pod_selector
from extender.index.objects.changes import Subscribers
from extender.model.bounded import shrink
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm, may_reach_out, terms_of
from extender.model.objects import Excess, PodSignature
from extender.settings.limits import NamespaceLimits

K = TypeVar("K", bound=Hashable)


class Amounts(NamedTuple):
    """One number for each limit of `NamespaceLimits`, in the same order, except ``overlappingSelectors``."""

    selectors: int = 0
    topology_keys: int = 0
    cross_namespace_terms: int = 0
    compile_steps: int = 0


MOST_SHOWN: Final = 10  # namespaces in a metric, because each is a value of a label
OTHERS: Final = "(others)"  # no name of a namespace

LIMIT_NAMES: Final = ("selectors", "topologyKeys", "crossNamespaceTerms", "compileSteps", "overlappingSelectors")
_WHAT: Final = (
    "different selectors",
    "topology keys",
    "terms that reach other namespaces",
    "steps of compiling",
    "selectors that may select one pod",
)


_NOTHING: Final = (0,) * len(LIMIT_NAMES)


class Needs(NamedTuple):
    """What one set of constraints needs. ``selectors``: each with the namespaces that it applies to."""

    selectors: AbstractSet[PodSelector]
    topology_keys: AbstractSet[str]
    cross_namespace_terms: AbstractSet[AffinityTerm]
    compile_steps: int


class NamespaceUse:
    """What the signatures of one namespace use. ``held`` signatures count, ``waiting`` ones did not fit.

    ``crossing``: the ``held`` signatures that a quota for affinity across namespaces would concern.

    Signatures with the same constraints count once, because the pods of a StatefulSet differ in their labels.
    """

    __slots__ = (
        "_selectors",
        "_steps",
        "_terms",
        "_topology_keys",
        "_users",
        "crossing",
        "held",
        "overlaps",
        "waiting",
    )

    def __init__(self) -> None:
        self.held: dict[PodSignature, None] = {}
        self.crossing: dict[PodSignature, None] = {}
        self.waiting: dict[PodSignature, Excess] = {}
        self.overlaps = Overlaps()
        self._selectors: dict[PodSelector, int] = {}
        self._topology_keys: dict[str, int] = {}
        self._terms: dict[AffinityTerm, int] = {}
        self._steps = 0
        self._users: dict[Hashable, int] = {}

    @property
    def amounts(self) -> Amounts:
        """What is used. O(1)."""
        return Amounts(len(self._selectors), len(self._topology_keys), len(self._terms), self._steps)

    @property
    def used(self) -> tuple[int, ...]:
        """The use, and how many selectors may select one pod: a number for each of `LIMIT_NAMES`. O(1)."""
        return *self.amounts, self.overlaps.most

    def added_by(self, signature: PodSignature) -> tuple[int, ...]:
        """How much the use would grow if the signature counted.

        O(its constraints); O(1) if its constraints count already.
        """
        # Replica web-7 of a StatefulSet differs from web-6 in its labels only: the set of constraints is known.
        if constraint_set(signature) in self._users:
            return _NOTHING
        needs = needs_of(signature)
        return (
            _missing(needs.selectors, self._selectors),
            _missing(needs.topology_keys, self._topology_keys),
            _missing(needs.cross_namespace_terms, self._terms),
            needs.compile_steps,
            self.overlaps.added_by(needs.selectors),
        )

    def hold(self, signature: PodSignature) -> None:
        """The signature counts from now on."""
        self.held[signature] = None
        if signature.affinity.cross_namespace:
            self.crossing[signature] = None
        self.waiting.pop(signature, None)
        key = constraint_set(signature)
        users = self._users[key] = self._users.get(key, 0) + 1
        if users == 1:
            self._count(needs_of(signature), 1)

    def drop(self, signature: PodSignature) -> None:
        """A signature that counted does not count from now on."""
        del self.held[signature]
        self.crossing.pop(signature, None)
        shrink(self.held)
        key = constraint_set(signature)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._count(needs_of(signature), -1)
            shrink(self._users)

    def _count(self, needs: Needs, sign: int) -> None:
        self._steps += sign * needs.compile_steps
        change = self.overlaps.add if sign > 0 else self.overlaps.remove
        for selector in _add(self._selectors, needs.selectors, sign):
            change(selector)
        _add(self._topology_keys, needs.topology_keys, sign)
        _add(self._terms, needs.cross_namespace_terms, sign)

    @property
    def is_empty(self) -> bool:
        """Whether no signature counts or waits."""
        return not (self.held or self.waiting)


class NamespaceBudgets:
    """The use of every namespace whose pods have constraints, updated signature by signature.

    ``changes`` notifies of namespaces with waiting signatures whose use has fallen.
    """

    def __init__(self, limits: NamespaceLimits, *, rejects_excess: bool) -> None:
        """``rejects_excess``: pods above a limit, their own or of their namespace, are rejected.

        Otherwise such pods have no constraints, so every node passes, and they count above the limits.
        """
        self.rejects_excess = rejects_excess
        self._limits: Final = (
            limits.selectors,
            limits.topology_keys,
            limits.cross_namespace_terms,
            limits.compile_steps,
            limits.overlapping_selectors,
        )
        self.changes: Subscribers[str] = Subscribers()
        self._by_namespace: dict[str, NamespaceUse] = {}

    def clear(self) -> None:
        """Nothing counts from now on. Signatures are held again when they are next compiled, or seen on a node."""
        self._by_namespace = {}

    @property
    def by_namespace(self) -> Mapping[str, NamespaceUse]:
        """The use of each namespace that uses something, or has waiting signatures."""
        return self._by_namespace

    def is_held(self, signature: PodSignature) -> bool:
        """Whether the signature counts, or has nothing to count. O(1)."""
        use = self._by_namespace.get(signature.namespace)
        return (use is not None and signature in use.held) or not has_needs(signature)

    def hold(self, signature: PodSignature) -> None:
        """A pod of the signature is on a node, so it counts, even above the limits.

        O(its constraints), usually O(1).
        """
        if not self.is_held(signature):
            self._by_namespace.setdefault(signature.namespace, NamespaceUse()).hold(signature)

    def admit(self, signature: PodSignature, existing: Container[PodSignature], *, is_compiled: bool) -> Excess | None:
        """Makes a signature count because its constraints are needed. If it does not fit, it waits; returns why.

        ``existing``: the signatures that have pods. O(1) if the signature counts already, else O(its constraints).
        """
        # 1. An effective pod counts by the signature that the watch shows: policies do not use up a tenant's budget.
        shown = signature if signature.shown is None else signature.shown()
        if shown is None or self.is_held(shown):
            return None
        # 2. A question about a pod that does not exist ("where would this pod fit?"). It costs nothing more once its
        #    constraints are compiled. Before that it is checked like a pod, but neither counts nor waits.
        is_question = shown not in existing
        if is_question and is_compiled:
            return None
        use = self._by_namespace.get(shown.namespace) or NamespaceUse()
        excess = self._excess(shown, use) if self.rejects_excess else None
        if is_question:
            return excess
        # 3. A pod of the cluster: its signature counts from now on, or waits for others to stop counting.
        self._by_namespace[shown.namespace] = use
        if excess is None:
            use.hold(shown)
        else:
            use.waiting[shown] = excess
        return excess

    def _excess(self, signature: PodSignature, use: NamespaceUse) -> Excess | None:
        added = use.added_by(signature)
        for name, noun, used, more, most in zip(LIMIT_NAMES, _WHAT, use.used, added, self._limits, strict=True):
            # `more and`: a limit that is exceeded already (pods on nodes always count) does not stop a pod that adds
            # nothing.
            if more and used + more > most:
                where, limit = signature.namespace, f"perNamespace.{name}"
                text = f"namespace {where} uses {used} {noun} and the pod adds {more}, limits.{limit} is {most}"
                return Excess(limit, text, where)
        return None

    def release(self, signature: PodSignature) -> None:
        """The last pod of the signature is gone. O(its constraints); O(1) if it did not count."""
        use = self._by_namespace.get(signature.namespace)
        if use is None:
            return
        is_freed = signature in use.held
        if is_freed:
            use.drop(signature)
        elif use.waiting.pop(signature, None) is not None:
            shrink(use.waiting)
        if use.is_empty:
            del self._by_namespace[signature.namespace]
            shrink(self._by_namespace)
        # The freed part may be enough for a signature that waits, and nothing else would make its pods try again.
        elif is_freed and use.waiting:
            self.changes.notify(None, signature.namespace)

    def shares(self) -> dict[tuple[str, str], float]:
        """By namespace and limit, the share in use, for the namespaces that use most of any limit. O(namespaces)."""

        def greatest(item: tuple[str, NamespaceUse]) -> float:
            return max(self._shares_of(item[1]))

        fullest = nlargest(MOST_SHOWN, self._by_namespace.items(), key=greatest)
        return {
            (namespace, limit): share
            for namespace, use in fullest
            for limit, share in zip(LIMIT_NAMES, self._shares_of(use), strict=True)
        }

    def _shares_of(self, use: NamespaceUse) -> list[float]:
        return [used / most for used, most in zip(use.used, self._limits, strict=True)]

    def waiting_pods(self, pods: Mapping[PodSignature, int]) -> dict[str, float]:
        """How many pods wait: by namespace for those with most, and the sum for all others. O(namespaces + waiting).

        ``pods``: how many pods have each signature.
        """
        waiting: dict[str, float] = {
            namespace: sum(pods.get(signature, 0) for signature in use.waiting)
            for namespace, use in self._by_namespace.items()
            if use.waiting
        }
        shown = nlargest(MOST_SHOWN, waiting, key=waiting.__getitem__)
        others = sum(waiting.values()) - sum(waiting[name] for name in shown)
        return {OTHERS: others} | {name: waiting[name] for name in shown}

    def statistics(self) -> dict[str, int]:
        """How many signatures count, and how many wait. O(namespaces)."""
        uses = self._by_namespace.values()
        return {
            "budgeted_signatures": sum(len(use.held) for use in uses),
            "waiting_signatures": sum(len(use.waiting) for use in uses),
        }


def has_needs(signature: PodSignature) -> bool:
    """Whether pods of the signature have affinity terms or spread constraints themselves. O(1)."""
    affinity, spread = signature.affinity, signature.spread
    return bool(
        affinity.required
        or affinity.required_anti
        or affinity.preferred
        or affinity.preferred_anti
        or spread.hard
        or spread.soft
    )


def needs_of(signature: PodSignature) -> Needs:
    """What the constraints of a signature need. O(terms + requirements + values + namespaces).

    A step of compiling is a term, a constraint, a requirement, a value, or a listed namespace, because each is visited
    once.
    """
    own = (signature.namespace,)
    terms, constraints = set(terms_of(signature.affinity)), {*signature.spread.hard, *signature.spread.soft}
    selectors = {pod_selector(term) for term in terms}
    selectors |= {PodSelector(constraint.selector, own, None) for constraint in constraints}
    reaching = {term for term in terms if may_reach_out(term, signature.namespace)}
    keys = {term.topology_key for term in terms} | {constraint.topology_key for constraint in constraints}
    steps = len(terms) + len(constraints)
    steps += sum(_steps(term.selector) + _steps(term.namespace_selector) + len(term.namespaces) for term in terms)
    steps += sum(_steps(constraint.selector) for constraint in constraints)
    if any(constraint.honor_affinity for constraint in constraints):
        steps += _node_steps(signature.node_affinity)
    return Needs(selectors, keys, reaching, steps)


def constraint_set(signature: PodSignature) -> Hashable:
    """Equal for signatures of one namespace with equal needs. The node affinity decides which nodes spread counts."""
    spread = signature.spread
    nodes = signature.node_affinity if spread.hard or spread.soft else None
    return signature.affinity, spread, nodes


def _steps(selector: LabelSelector | None) -> int:
    return 0 if selector is None else sum(1 + len(requirement.values) for requirement in selector.requirements)


def _node_steps(nodes: NodeAffinity) -> int:
    terms = nodes.terms or ()
    return len(nodes.node_selector) + sum(
        1 + len(clause.values) for term in terms for clause in (*term.expressions, *term.fields)
    )


def _missing(keys: AbstractSet[K], counts: Mapping[K, int]) -> int:
    """How many keys are not in the counts. O(keys); ``keys - counts.keys()`` would visit every key of the counts."""
    return sum(key not in counts for key in keys)


def _add(counts: dict[K, int], keys: Iterable[K], sign: int) -> list[K]:
    """Counts each key once more, or with ``sign`` -1 once less. Returns keys whose entry was added or removed."""
    changed = []
    for key in keys:
        count = counts.get(key, 0) + sign
        # 0 to 1: the entry is new. 1 to 0: the entry goes. Falling from 2 to 1 changes neither.
        if (count == 1 and sign > 0) or not count:
            changed.append(key)
        if count:
            counts[key] = count
        else:
            del counts[key]
    shrink(counts)
    return changed
