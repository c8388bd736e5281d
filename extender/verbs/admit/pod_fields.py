"""The scheduling fields of a pod while policies are applied to them, and the changes of each policy.

- `json_edits`: at admission the fields are read from the JSON of a pod spec, and changed fields are written back to it.
- `signature_fields`: at scheduling the fields are those of an existing pod.

`NodeDirectives` applies the directives about nodes. Node selector pairs add up with the pod's. Required terms are joined with the
pod's into one list (`term_product`). Both may contradict the pod, or each other, so that no node can match: then it is a conflict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, le, sub
from typing import Any, Final, Self

from extender.model.constraints.clauses import LABEL, Clause, are_contradictory
from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import (
    ConflictPolicy,
    FailurePolicy,
    InjectedItem,
    JsonObject,
    NodeTerm,
    Policy,
    PolicyKey,
    Size,
)
from extender.model.units import cut
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.verbs.admit.term_product import (
    CLAUSES_READ,
    AdmissionBudget,
    JoinedTerm,
    TooManyTermsError,
    impossible_term,
    is_satisfied,
    join,
    policy_terms,
)
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.node_terms import NODE_TERMS
from extender.wire.policies.policy_validation import limit_name

GATES: Final = "schedulingGates"
TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_SHOWN: Final = 64
_BESIDE_PAIR: Final = len('"":"",')


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A pod and a policy that contradict each other in one field, and how it was resolved.

    A limit that leaves no room for a directive is a conflict too: its ``resolution`` is the policy's `failurePolicy`.
    """

    policy: PolicyKey
    field: str
    message: str
    resolution: ConflictPolicy | FailurePolicy


class RejectedError(Exception):
    """Raised for a conflict with a policy that rejects pods for it, or for a limit on a policy that must not fail."""

    def __init__(self, conflict: FieldConflict) -> None:
        super().__init__(f"{conflict.policy}: {conflict.field}: {conflict.message}")
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one injection.

    - ``limits``: the limits of a pod.
    - ``max_terms``: how many required node terms a pod may have after policies were joined with it.
    - ``max_policies``: how many policies are applied to one pod.
    - ``most``: the limits as a size.
    - ``rejects_excess``: a pod above a limit is rejected when it is scheduled (offload mode).
    """

    limits: ConstraintLimits = DEFAULT_LIMITS
    max_terms: int = 64
    rejects_excess: bool = True
    max_policies: int = 100
    most: Size = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reads the limits once, because each growth of each pod is compared with them."""
        object.__setattr__(self, "most", Size(*(getattr(self.limits, name) for name in Size._fields)))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The bounds of the configuration."""
        policies = settings.policies
        return cls(settings.limits, policies.max_terms, settings.mode == "offload", policies.max_per_pod)


@dataclass(slots=True)
class Changes:
    """The changes of one policy to a pod. ``added`` and ``replaced`` go into the annotation: see `injected`."""

    policy: Policy
    added: JsonObject = field(default_factory=dict)
    replaced: JsonObject = field(default_factory=dict)
    conflicts: list[FieldConflict] = field(default_factory=list)
    terms_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the policy left the pod as it was."""
        return not (self.added or self.replaced or self.terms_changed)

    def has(self, *resolutions: ConflictPolicy | FailurePolicy) -> bool:
        """Whether a conflict was resolved in one of these ways."""
        return any(conflict.resolution in resolutions for conflict in self.conflicts)

    def fields(self) -> list[str]:
        """The fields that the policy changed, for people."""
        names = [*self.added, *(name for name in self.replaced if name not in self.added)]
        return [*names, NODE_TERMS] if self.terms_changed else names


def have(changes: Iterable[Changes], resolution: ConflictPolicy) -> bool:
    """Whether a conflict of one of the policies was resolved in this way."""
    return any(change.has(resolution) for change in changes)


def made(changes: Iterable[Changes]) -> list[Changes]:
    """The changes of the policies that changed the pod."""
    return [change for change in changes if not change.is_empty]


def titles(changes: Iterable[Changes]) -> Iterator[str]:
    """Each policy that changed the pod, with its generation and the fields."""
    for change in made(changes):
        yield f"{change.policy.key}@{change.policy.generation}: {', '.join(change.fields())}"


def _size_of(terms: Sequence[JoinedTerm]) -> Size:
    sizes = (part.size for term in terms for part in (*term.term.parts, *term.added))
    return Size(*map(sum, zip(Size(node_selector_terms=len(terms)), *sizes, strict=True)))


def _sum(one: Size, other: Size) -> Size:
    return Size(*map(add, one, other))


def _json_length(pairs: Mapping[str, str]) -> int:
    """The length of node selector pairs as JSON. Keys and values of labels need no escape."""
    return 1 + sum(len(key) + len(value) + _BESIDE_PAIR for key, value in pairs.items())


def short(value: Any) -> str:
    """A value for a message, cut at 64 characters."""
    return cut(str(value), _SHOWN)


class PodFields(ABC):
    """The scheduling fields of a pod as values of the model. A field is read at its first use, and replaced as a whole.

    `SpecFields` reads a pod under review, and writes its JSON. `SignatureFields` reads an existing pod, and makes its effective
    signature. Both differ only in how they read and write, so a directive has the same meaning at both moments.

    - ``excess``: the limit that the pod is above by itself, or empty. Then its lists are not read, and policies add at most
      directives that select nodes (`is_unlimited`).
    - ``reads_terms``: whether the required node terms are read although the pod is above a limit.
    - ``exists``: the pod exists, so directives do not make it larger.
    - ``apart``: required node terms of policies that a node must match beside the pod's own.
    - ``claims``: the fields that have the value of a policy.
    """

    exists = False
    excess = ""
    reads_terms = True

    def __init__(
        self, bounds: Bounds, budget: AdmissionBudget, scalars: Mapping[str, str], node_selector: dict[str, str]
    ) -> None:
        self.bounds = bounds
        self.budget = budget
        self.scalars = dict(scalars)
        self.node_selector = node_selector
        self.apart: tuple[NodeAffinity, ...] = ()
        self.claims: dict[str, None] = {}
        self._own_lists: dict[str, Sequence[InjectedItem]] = {}
        self._lists: dict[str, Sequence[InjectedItem]] = {}  # changed lists
        self._keys: dict[str, set[str]] = {}
        self._own: list[JoinedTerm] | None = None
        self._terms: list[JoinedTerm] | None = None
        self._size: Size | None = None
        # The size of directives that are applied beyond the pod's limits (`is_unlimited`). They have a limit of their
        # own.
        self._let = Size()

    @abstractmethod
    def _read_terms(self) -> Iterable[NodeTerm]:
        """The pod's own required node terms."""

    @abstractmethod
    def _read_items(self, path: str) -> Sequence[InjectedItem]:
        """The pod's own elements of a list."""

    @abstractmethod
    def _read_size(self) -> Size:
        """The pod's own size."""

    def save(self) -> tuple[Any, ...]:
        """The state for `restore`. O(fields)."""
        claims = len(self.claims)
        sizes = self._size, self._let
        return self.scalars, self.node_selector, dict(self._lists), self._terms, self.apart, sizes, claims

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Takes back every change since `save`."""
        self.scalars, self.node_selector, self._lists, self._terms, self.apart, sizes, claims = saved
        self._size, self._let = sizes
        while len(self.claims) > claims:
            self.claims.popitem()
        self._keys = {}  # made anew when they are needed

    # ---- fields

    def set_scalar(self, name: str, value: str) -> None:
        """Sets one of the scalar fields."""
        self.scalars = {**self.scalars, name: value}

    def items(self, path: str) -> Sequence[InjectedItem]:
        """The elements of a list, empty where there is none."""
        items = self._lists.get(path)
        if items is None:
            items = self._own_lists.get(path)
        if items is None:
            items = self._own_lists[path] = self._read_items(path)
        return items

    def known(self, path: str) -> set[str]:
        """The keys of the elements of a list."""
        keys = self._keys.get(path)
        if keys is None:
            keys = self._keys[path] = {item.key for item in self.items(path)}
        return keys

    def append(self, path: str, items: Sequence[InjectedItem]) -> None:
        """Appends elements to a list. O(elements)."""
        known = self.known(path)
        self._lists[path] = [*self.items(path), *items]
        known.update(item.key for item in items)

    def replace(self, path: str, items: Sequence[InjectedItem]) -> None:
        """Replaces a list."""
        self._lists[path] = items
        self._keys.pop(path, None)

    @property
    def terms(self) -> list[JoinedTerm]:
        """The required node terms; empty where there are none."""
        if self._terms is not None:
            return self._terms
        if self._own is None:
            self._own = [JoinedTerm(term, term.clauses, number) for number, term in enumerate(self._read_terms())]
        return self._own

    @terms.setter
    def terms(self, terms: list[JoinedTerm]) -> None:
        self._terms = terms

    # ---- conflicts and limits

    def claim(self, where: str) -> None:
        """Marks a field as set by a policy, so that a later policy does not override it."""
        self.claims[where] = None

    def conflict(self, changes: Changes, where: str, message: str) -> ConflictPolicy:
        """Records a conflict. Returns the resolution, or raises `RejectedError`."""
        resolution = changes.policy.conflict_policy
        # Override is about the pod's own values. Between policies the order decides.
        if where in self.claims and resolution is ConflictPolicy.OVERRIDE:
            resolution = ConflictPolicy.KEEP_POD
            message = f"{message}; a policy that applies first has set this value"
        conflict = FieldConflict(changes.policy.key, where, message, resolution)
        if resolution is ConflictPolicy.REJECT:
            raise RejectedError(conflict)
        changes.conflicts.append(conflict)
        return resolution

    def leave_out(self, changes: Changes, where: str, message: str) -> None:
        """Records a directive for which a limit leaves no room. Raises `RejectedError` if the policy must not fail."""
        conflict = FieldConflict(changes.policy.key, where, message, changes.policy.failure_policy)
        if conflict.resolution is FailurePolicy.FAIL:
            raise RejectedError(conflict)
        changes.conflicts.append(conflict)

    def is_unlimited(self, policy: Policy) -> bool:
        """Whether a cluster policy's directives about nodes are applied although the pod is at a limit.

        Else a tenant could fill the pod up to the limit, so that the policy has no room. It is safe in two cases: an existing pod
        does not grow by directives, and in augment mode no pod is rejected for its size.
        """
        return not policy.key.namespace and (self.exists or not self.bounds.rejects_excess)

    def fits(self, growth: Size, where: str, changes: Changes, *, selects_nodes: bool = False) -> bool:
        """Whether the pod stays within the limits if it grows by a size. If not, the policy fails and the pod stays unchanged."""
        above = self.grow(growth, changes.policy, selects_nodes=selects_nodes)
        if above:
            self.leave_out(changes, where, above)
        return not above

    def grow(self, growth: Size, policy: Policy, *, selects_nodes: bool) -> str:
        """Adds to the size of the pod. Returns the limit that forbids it, or an empty text.

        In offload mode a pod above a limit would be rejected. Unlimited directives are measured without the pod's own size.
        """
        is_let = selects_nodes and self.is_unlimited(policy)
        if self.excess and not is_let:
            return self.excess
        size = _sum(self._let if is_let else self.size, growth)
        above = self.excess_of(size, growth)
        if is_let and not above:
            self._let = size
        if not (self.excess or above):
            self._size = _sum(self.size, growth) if is_let else size
        return above

    def excess_of(self, size: Size, growth: Size | None = None) -> str:
        """The text of the first exceeded limit; empty where there is none. With a growth only limits count that it adds to."""
        if all(map(le, size, self.bounds.most)):
            return ""
        # Example: a pod is above nodeSelectorTerms already. A toleration does not add to that, so it is not left out
        # for it.
        for name, count, more, most in zip(Size._fields, size, growth or size, self.bounds.most, strict=True):
            if count > most and more > 0:
                return f"{count} in the pod, {limit_name(name)} is {getattr(self.bounds.limits, name)}"
        return ""

    @property
    def size(self) -> Size:
        """The size of the pod now, as limits count it."""
        if self._size is None:
            self._size = self._read_size()
        return self._size


class NodeDirectives:
    """The part of an injection that decides on which nodes a pod may run: node selector and required node terms."""

    def __init__(self, fields: PodFields) -> None:
        self._fields = fields
        self._witness: int | None = None  # the position of a term that the node selector does not exclude
        self._unread = CLAUSES_READ  # so many more clauses may be read to find contradictions

    def forget_witness(self) -> None:
        """Call it after terms or the node selector were replaced."""
        self._witness = None

    def add_node_selector(self, pairs: Mapping[str, str], changes: Changes) -> None:
        """Adds the pairs whose keys are missing. A conflict: the key has another value, or no required term admits the pair."""
        # Pairs are checked one by one against the pod and the pairs before them (`merged`), then added together or not at all: a part
        # of them would select nodes that neither the pod nor the policy directs.
        fields = self._fields
        present = fields.node_selector
        added: dict[str, str] = {}
        merged = ChainMap(added, present)
        for key, value in pairs.items():
            if present.get(key) != value and self._is_to_be_written(key, value, merged, changes):
                added |= {key: value}
        replaced = {key: present[key] for key in added if key in present}
        fresh = {key: value for key, value in added.items() if key not in present}
        size = Size(pod_bytes=_json_length(fresh), node_requirements=len(fresh)) if fresh else Size()
        if added and fields.fits(size, "nodeSelector", changes, selects_nodes=True):
            changes.added["nodeSelector"] = added
            if replaced:
                changes.replaced["nodeSelector"] = {**changes.replaced.get("nodeSelector", {}), **replaced}
            fields.node_selector = {**present, **added}
        elif added:
            added, self._witness = {}, None
        for key, value in pairs.items():
            if added.get(key, present.get(key)) == value:
                fields.claim(f"nodeSelector[{key}]")

    def _is_to_be_written(self, key: str, value: str, present: Mapping[str, str], changes: Changes) -> bool:
        """Whether to write a pair that is missing or has another value: there is no conflict, or the policy overrides."""
        if key in present:
            message = f'the pod has "{short(present[key])}", the policy "{short(value)}"'
            if self._fields.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
                return False
        if changes.policy.conflict_policy is ConflictPolicy.COMBINE:
            return True
        if not self._unread or self._admits(key, value, present):
            return True
        message = f'no required node term of the pod admits {short(key)}="{short(value)}"'
        if self._fields.conflict(changes, NODE_TERMS, message) is not ConflictPolicy.OVERRIDE:
            return False
        self._replace_terms([], changes)
        return True

    def _admits(self, key: str, value: str, present: Mapping[str, str]) -> bool:
        """Whether a required term can match together with one more pair. Also True where no term could match before.

        Cost: the position of one term that can match is remembered (the witness). Pairs are only added, so a term before the witness
        can never match again. So all pairs of all policies together cost O(terms + pairs), until the terms change.
        """
        terms = self._fields.terms
        pairs = {name: text for name, text in present.items() if name != key} if key in present else present
        if self._witness is None or key in present:
            self._witness = self._first_possible(terms, 0, pairs)
        at = self._witness
        if at == len(terms) or self._is_possible(terms[at], {key: value}, about=key):
            return True
        at = self._first_possible(terms, at + 1, {**pairs, key: value})
        if at < len(terms):
            self._witness = at
        return at < len(terms)

    def _first_possible(self, terms: list[JoinedTerm], start: int, pairs: Mapping[str, str]) -> int:
        """The position of the first term, from ``start`` on, that can match together with the pairs; else the number of terms."""
        return next((at for at in range(start, len(terms)) if self._is_possible(terms[at], pairs)), len(terms))

    def _is_possible(self, term: JoinedTerm, pairs: Mapping[str, str], about: str = "") -> bool:
        """Whether a node can match a term together with the pairs. ``about``: read only the term's clauses about this key.

        Always True once the budget of clauses is spent: reading on would delay the admission.
        """
        self._unread -= 1 + len(term.clauses)
        if self._unread < 0:
            # For good: else a small term would still be read after a large one, and answers would depend on sizes of terms.
            self._unread = 0
            return True
        clauses = [clause for clause in term.clauses if clause.key == about] if about else term.clauses
        if not clauses:
            return bool(term.clauses)
        keys = {clause.key for clause in clauses if clause.source == LABEL} & pairs.keys()
        # Most terms have one clause, which contradicts itself only as an upper bound.
        if not keys and len(clauses) == 1 and next(iter(clauses)).operator != Operator.LT:
            return True
        selected = (Clause(LABEL, key, "In", (str(pairs[key]),)) for key in keys)
        return not are_contradictory([*clauses, *selected])

    def join_terms(self, changes: Changes) -> None:
        """Requires nodes that match the pod's terms and the policy's terms. A conflict: no such node, or too many terms."""
        fields, mine = self._fields, self._fields.terms
        theirs = changes.policy.directives.required_node_terms or ()
        try:
            joined, message = self._joined(mine, theirs, changes.policy)
        except TooManyTermsError as error:
            self._hold_apart(changes, str(error))
            return
        if joined is mine and mine:
            fields.claim(NODE_TERMS)
            return
        resolution = fields.conflict(changes, NODE_TERMS, message) if message else ConflictPolicy.COMBINE
        if resolution is ConflictPolicy.OVERRIDE:
            self._override(policy_terms(theirs), changes)
        elif resolution is ConflictPolicy.COMBINE:
            self._replace_terms(joined or impossible_term(mine, theirs), changes)

    def _hold_apart(self, changes: Changes, message: str) -> None:
        """Handles terms that cannot be joined with the pod's terms. A pod that exists must match both lists, each by itself."""
        fields, policy = self._fields, changes.policy
        if not (fields.exists and fields.is_unlimited(policy)):
            fields.leave_out(changes, NODE_TERMS, message)
            return
        nodes = policy.directives.nodes  # its terms are indexed already
        fields.apart = (*fields.apart, NodeAffinity(terms=nodes.terms) if nodes.node_selector else nodes)
        changes.terms_changed = True

    def _joined(
        self, mine: list[JoinedTerm], theirs: Sequence[NodeTerm], policy: Policy
    ) -> tuple[list[JoinedTerm], str]:
        """Both lists joined, and the text of the conflict, empty without one. Raises `TooManyTermsError`."""
        # 1. The terms are not read, because the pod is above a limit. 2. The pod is at the limit of requirements: nothing can be added,
        # which is fine if nothing is lacking. 3. Joining. It is a conflict only if the policy makes the pod impossible: a pod whose own
        # terms match no node stays as it is.
        fields, bounds = self._fields, self._fields.bounds
        if not fields.reads_terms:
            raise TooManyTermsError(fields.excess)
        most = bounds.limits.node_requirements
        if mine and not fields.is_unlimited(policy) and fields.size.node_requirements >= most:
            if is_satisfied(mine, theirs):
                return mine, ""
            raise TooManyTermsError(f"no further requirement fits, {limit_name('node_requirements')} is {most}")
        joined = join(mine, theirs, bounds.max_terms, fields.budget.share(policy.key)) if mine else policy_terms(theirs)
        if joined is mine or self._can_match(joined) or (mine and not self._can_match(mine)):
            return joined, ""
        return joined, "no node can match the pod's requirements and the policy's"

    def _override(self, terms: list[JoinedTerm], changes: Changes) -> None:
        """Replaces the pod's terms by the policy's. Removes node selector pairs of the pod with which none of them can match."""
        fields = self._fields
        if not self._can_match(terms):
            keys = {part.key for term in terms for part in term.clauses}
            present = fields.node_selector
            kept = {k: v for k, v in present.items() if k not in keys or f"nodeSelector[{k}]" in fields.claims}
            if not self._can_match(terms, kept):  # pairs of earlier policies exclude the terms, and stay
                return
            changes.replaced["nodeSelector"] = {key: present[key] for key in present if key not in kept}
            fields.node_selector, self._witness = kept, None
        self._replace_terms(terms, changes)

    def _can_match(self, terms: list[JoinedTerm], pairs: Mapping[str, str] | None = None) -> bool:
        """Whether a node can match one of the terms together with a node selector. ``pairs``: None for the pod's selector."""
        if pairs is None:
            pairs = self._fields.node_selector
        return any(self._is_possible(term, pairs) for term in terms)

    def _replace_terms(self, terms: list[JoinedTerm], changes: Changes) -> None:
        if above := self._fields.grow(self._growth(terms), changes.policy, selects_nodes=True):
            self._hold_apart(changes, above)
            return
        self._fields.terms, self._witness = terms, None
        self._fields.claim(NODE_TERMS)
        changes.terms_changed = True

    def _growth(self, terms: list[JoinedTerm]) -> Size:
        """The size of the terms minus the size of the present terms. O(requirements)."""
        return Size(*map(sub, _size_of(terms), _size_of(self._fields.terms)))
