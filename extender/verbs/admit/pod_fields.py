"""The scheduling fields of a pod while policies are applied to them, and the changes of each policy.

- At admission the fields are read from the JSON of a pod spec. Changed fields are written back to it, and the JSON patch is the
  difference.
- At scheduling the lists come from an existing pod, with model objects as elements (`verbs/effective_pod.py`).

Both use the same code, so a directive has the same meaning at both moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from typing import Any, Final, Self

from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import ConflictPolicy, FailurePolicy, InjectedItem, JsonObject, Policy, PolicyKey, Size
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.verbs.admit.json_edits import drop, get, missing_parents, put
from extender.verbs.admit.term_product import AdmissionBudget, JoinedTerm, own_terms
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.node_terms import NODE_TERMS, counts_of, item_key, lengths_of, node_term, size_of
from extender.wire.policies.policy_validation import limit_name

GATES: Final = "schedulingGates"
SCALARS: Final = ("nodeName", "schedulerName", "priorityClassName")
TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_SELECTOR: Final = ("nodeSelector",)
_SHOWN: Final = 64
_LAST_READ: Final = 500  # elements of a list that is above a limit


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
    - ``rejects_excess``: a pod above a limit is rejected when it is scheduled (offload mode).
    """

    limits: ConstraintLimits = DEFAULT_LIMITS
    max_terms: int = 64
    rejects_excess: bool = True
    max_policies: int = 100

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


def short(value: Any) -> str:
    """A value for a message, cut at 64 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Held:
    """An existing pod: its lists by path, and its size.

    The elements are model objects; equal elements have equal keys. ``excess``: the limit that the pod is above, or empty.
    """

    lists: Mapping[str, Sequence[InjectedItem]]
    size: Size
    excess: str = ""


class PodFields:
    """The current fields. A field is read at its first use, replaced as a whole, and never changed in place.

    - ``excess``: the limit that the pod is above by itself, or empty. Then its lists are not read, and policies add at most
      directives that select nodes (`is_unlimited`).
    - ``held``: the lists of an existing pod, in place of the lists of the spec.
    - ``apart``: required node terms of policies that a node must match beside the pod's own.
    - ``claims``: the fields that have the value of a policy.

    Reading all fields costs O(scheduling fields of the spec), once.
    """

    def __init__(self, spec: JsonObject, bounds: Bounds, budget: AdmissionBudget, held: Held | None = None) -> None:
        self.bounds = bounds
        self.budget = budget
        self.scalars: dict[str, Any] = {name: spec.get(name) or "" for name in SCALARS}
        self._own_selector: Mapping[str, str] = spec.get("nodeSelector") or {}
        self.node_selector = self._own_selector
        self.own_terms: Any = get(spec, TERMS_PATH)
        self.apart: tuple[NodeAffinity, ...] = ()
        self._spec = spec
        self.held = held
        self._own_lists: dict[str, Sequence[InjectedItem]] = {} if held is None else dict(held.lists)
        self._lists: dict[str, Sequence[InjectedItem]] = {}  # changed lists
        self._keys: dict[str, set[str]] = {}
        self._own: list[JoinedTerm] | None = None
        self._terms: list[JoinedTerm] | None = None
        self.claims: dict[str, None] = {}
        self._size: Size | None = None if held is None else held.size
        # The size of directives that are applied beyond the pod's limits (`is_unlimited`). They have a limit of their
        # own.
        self._let = Size()
        self._most = Size(*(getattr(bounds.limits, name) for name in Size._fields))
        if held is not None:
            self.excess = held.excess
        else:
            self.excess = self._excess(lengths_of(spec)) or self._excess(counts_of(spec))
        self.reads_terms = held is not None or not self.excess or self._has_few_terms()

    def _has_few_terms(self) -> bool:
        terms = self.own_terms if isinstance(self.own_terms, list) else []
        few = len(terms) <= self.bounds.limits.node_selector_terms
        return few and not self._excess(counts_of(put({}, TERMS_PATH, terms)))

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
        return self._own_items(path) if items is None else items

    def _own_items(self, path: str) -> Sequence[InjectedItem]:
        items = self._own_lists.get(path)
        if items is None:
            values = get(self._spec, path.split(".")) if self.held is None else None
            read = values[len(self._unread(path)) :] if isinstance(values, list) else ()
            items = self._own_lists[path] = [InjectedItem(value, _key(path, value), Size()) for value in read]
        return items

    def _unread(self, path: str) -> list[Any]:
        """The elements of a list that are not read, because the pod is above a limit: all but the last ones.

        Policies append their elements, so these are among the last ones when the pod is reviewed again.
        """
        values = get(self._spec, path.split(".")) if self.excess and path != GATES else None
        return values[:-_LAST_READ] if isinstance(values, list) else []

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
            values = self.own_terms if isinstance(self.own_terms, list) and self.reads_terms else []
            self._own = own_terms(node_term(value if isinstance(value, dict) else {}) for value in values)
        return self._own

    @terms.setter
    def terms(self, terms: list[JoinedTerm]) -> None:
        self._terms = terms

    @property
    def has_new_terms(self) -> bool:
        """Whether the required node terms were changed."""
        return self._terms is not None

    # ---- what changed, as JSON

    @property
    def spec(self) -> JsonObject:
        """The spec with all changes. Unchanged parts are the same objects as before. O(changes)."""
        spec = self._with_terms
        for path, items in self._lists.items():
            spec = put(spec, path.split("."), [*self._unread(path), *(item.value for item in items)])
        if self.node_selector is not self._own_selector:
            spec = put(spec, _SELECTOR, dict(self.node_selector))
        for name, value in self.scalars.items():
            if value != (spec.get(name) or ""):
                spec = put(spec, (name,), value)
        return spec

    @property
    def required_terms(self) -> list[JsonObject] | None:
        """The required node terms as JSON; None where there are none."""
        terms: list[JsonObject] | None = get(self._with_terms, TERMS_PATH)
        return terms

    @property
    def _with_terms(self) -> JsonObject:
        if self._terms is None:
            return self._spec
        return (
            put(self._spec, TERMS_PATH, [term.value for term in self._terms])
            if self._terms
            else drop(self._spec, TERMS_PATH[:-1])
        )

    @property
    def created(self) -> list[str]:
        """The dotted paths of lists and objects that were created in the spec."""
        return list(dict.fromkeys(name for path in self._written() for name in missing_parents(self._spec, path)))

    def _written(self) -> Iterator[tuple[str, ...]]:
        if self._terms:
            yield TERMS_PATH
        yield from (tuple(path.split(".")) for path in self._lists)
        if self.node_selector is not self._own_selector:
            yield _SELECTOR

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
        return not policy.key.namespace and (self.held is not None or not self.bounds.rejects_excess)

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
        size = (self._let if is_let else self.size).plus(growth)
        above = self._excess(size, growth)
        if is_let and not above:
            self._let = size
        if not (self.excess or above):
            self._size = self.size.plus(growth)
        return above

    def _excess(self, size: Size, growth: Size | None = None) -> str:
        """The text of the first exceeded limit; empty where there is none. With a growth only limits count that it adds to."""
        if all(map(le, size, self._most)):
            return ""
        # Example: a pod is above nodeSelectorTerms already. A toleration does not add to that, so it is not left out
        # for it.
        for name, count, more, most in zip(Size._fields, size, growth or size, self._most, strict=True):
            if count > most and more > 0:
                return f"{count} in the pod, {limit_name(name)} is {getattr(self.bounds.limits, name)}"
        return ""

    @property
    def size(self) -> Size:
        """The size of the pod now, as limits count it."""
        if self._size is None:
            self._size = size_of(self._spec)
        return self._size


def _key(path: str, value: Any) -> str:
    return str(value.get("name")) if path == GATES and isinstance(value, dict) else item_key(path, value)
