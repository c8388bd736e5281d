"""The scheduling fields of a pod while policies are applied to them, and what each policy did.

At admission they are read from the JSON of a pod spec, and what has changed is written back to it: the JSON patch is the
difference. At scheduling the lists are those of a pod that exists, with model objects as elements (`verbs/effective_pod.py`). So a
directive has one meaning at both moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from typing import Any, Final

from extender.model.policies import ConflictPolicy, Item, JsonObject, Policy, PolicyKey, Size
from extender.settings.limits import Limits
from extender.verbs.admit.json_edits import drop, get, missing_parents, put
from extender.verbs.admit.term_product import Budget, JoinedTerm, own_terms
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.node_terms import NODE_TERMS, counts_of, item_key, lengths_of, node_term, size_of
from extender.wire.policies.policy_validation import limit_name

GATES: Final = "schedulingGates"
SCALARS: Final = ("nodeName", "schedulerName", "priorityClassName")
TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_SELECTOR: Final = ("nodeSelector",)
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pod and a policy that contradict each other in one field; ``resolution``: what was done."""

    policy: PolicyKey
    field: str
    message: str
    resolution: ConflictPolicy


class RejectedError(Exception):
    """A conflict with a policy that rejects pods for it."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(f"{conflict.policy}: {conflict.field}: {conflict.message}")
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class Bounds:
    """``limits``: what a pod may have in all. ``max_terms``: how many required node terms policies may make of it."""

    limits: Limits = DEFAULT_LIMITS
    max_terms: int = 64


@dataclass(slots=True)
class Changes:
    """What one policy did to a pod. ``added`` and ``replaced`` are part of the annotation: see `injected`."""

    policy: Policy
    added: JsonObject = field(default_factory=dict)
    replaced: JsonObject = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    terms_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the policy left the pod as it was."""
        return not (self.added or self.replaced or self.terms_changed)

    def has(self, resolution: ConflictPolicy) -> bool:
        """Whether a conflict was resolved in this way."""
        return any(each.resolution is resolution for each in self.conflicts)

    def absorb_gate(self, other: Changes) -> None:
        """Takes over what the same policy did for the moment of release."""
        for name, items in other.added.items():
            self.added[name] = [*self.added.get(name, ()), *items]
        self.conflicts += other.conflicts

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
    """The lists of a pod that exists, by path: model objects, with keys that equal elements share; and the pod's size."""

    lists: Mapping[str, Sequence[Item]]
    size: Size


class PodFields:
    """The fields as they are now. Each is read when it is first asked for, replaced as a whole, and never changed in place.

    ``excess`` names a limit that the pod is above by itself: then its lists are not read, and nothing is injected. ``held``: the
    lists of a pod that exists, in place of those of the spec. Reading all costs O(the spec's scheduling fields), once.
    """

    def __init__(self, spec: JsonObject, bounds: Bounds, budget: Budget, held: Held | None = None) -> None:
        self.bounds = bounds
        self.budget = budget
        self.scalars: dict[str, Any] = {name: spec.get(name) or "" for name in SCALARS}
        self.node_selector: Mapping[str, str] = spec.get("nodeSelector") or {}
        self._own_selector = self.node_selector
        self.own_terms: Any = get(spec, TERMS_PATH)
        self._spec = spec
        self._held = held
        self._own_lists: dict[str, Sequence[Item]] = {} if held is None else dict(held.lists)
        self._lists: dict[str, Sequence[Item]] = {}  # those that were changed
        self._keys: dict[str, set[str]] = {}
        self._own: list[JoinedTerm] | None = None
        self._terms: list[JoinedTerm] | None = None
        self._claims: dict[str, None] = {}
        self._size: Size | None = None if held is None else held.size
        self._most = Size(*(getattr(bounds.limits, name) for name in Size._fields))
        self.excess = "" if held is not None else self._excess(lengths_of(spec)) or self._excess(counts_of(spec))

    def save(self) -> tuple[Any, ...]:
        """What `restore` needs. O(fields)."""
        return self.scalars, self.node_selector, dict(self._lists), self._terms, self._size, len(self._claims)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Takes back every change since `save`."""
        self.scalars, self.node_selector, self._lists, self._terms, self._size, claims = saved
        while len(self._claims) > claims:
            self._claims.popitem()
        self._keys = {}  # made anew when they are needed

    # ---- fields

    def set_scalar(self, name: str, value: str) -> None:
        """Sets one of the scalar fields."""
        self.scalars = {**self.scalars, name: value}

    def items(self, path: str) -> Sequence[Item]:
        """The elements of a list, empty where there is none."""
        found = self._lists.get(path)
        return self._own_items(path) if found is None else found

    def _own_items(self, path: str) -> Sequence[Item]:
        found = self._own_lists.get(path)
        if found is None:
            values = get(self._spec, path.split(".")) if self._held is None else None
            made = (Item(each, _key(path, each), Size()) for each in values or ()) if isinstance(values, list) else ()
            found = self._own_lists[path] = list(made)
        return found

    def known(self, path: str) -> set[str]:
        """The keys of the elements that stand in a list."""
        found = self._keys.get(path)
        if found is None:
            found = self._keys[path] = {each.key for each in self.items(path)}
        return found

    def append(self, path: str, items: Sequence[Item]) -> None:
        """Appends elements to a list. O(elements)."""
        known = self.known(path)
        self._lists[path] = [*self.items(path), *items]
        known.update(each.key for each in items)

    def replace(self, path: str, items: Sequence[Item]) -> None:
        """Puts another list in the place of one."""
        self._lists[path] = items
        self._keys.pop(path, None)

    @property
    def terms(self) -> list[JoinedTerm]:
        """The required node terms; empty where there are none."""
        if self._terms is not None:
            return self._terms
        if self._own is None:
            values = self.own_terms if isinstance(self.own_terms, list) else []
            self._own = own_terms(node_term(each if isinstance(each, dict) else {}) for each in values)
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
        """The spec with all that was changed. Parts that were not changed are the same objects as before. O(changes)."""
        spec = self._with_terms
        for path, items in self._lists.items():
            spec = put(spec, path.split("."), [each.value for each in items])
        if self.node_selector is not self._own_selector:
            spec = put(spec, _SELECTOR, self.node_selector)
        for name, value in self.scalars.items():
            if value != (spec.get(name) or ""):
                spec = put(spec, (name,), value)
        return spec

    @property
    def required_terms(self) -> list[JsonObject] | None:
        """The required node terms as JSON; None where there are none."""
        found: list[JsonObject] | None = get(self._with_terms, TERMS_PATH)
        return found

    @property
    def _with_terms(self) -> JsonObject:
        if self._terms is None:
            return self._spec
        return (
            put(self._spec, TERMS_PATH, [each.value for each in self._terms])
            if self._terms
            else drop(self._spec, TERMS_PATH[:-1])
        )

    @property
    def created(self) -> list[str]:
        """The dotted paths of lists and objects that the spec did not have."""
        return list(dict.fromkeys(name for path in self._written() for name in missing_parents(self._spec, path)))

    def _written(self) -> Iterator[tuple[str, ...]]:
        if self._terms:
            yield TERMS_PATH
        yield from (tuple(path.split(".")) for path in self._lists)
        if self.node_selector is not self._own_selector:
            yield _SELECTOR

    # ---- conflicts and limits

    def claim(self, where: str) -> None:
        """Notes that a policy's value stands in a field: a policy that applies later does not override it."""
        self._claims[where] = None

    def is_claimed(self, where: str) -> bool:
        """Whether a field has the value of a policy."""
        return where in self._claims

    def conflict(self, changes: Changes, where: str, message: str) -> ConflictPolicy:
        """Records a conflict; returns how it is resolved, or raises `RejectedError`."""
        resolution = changes.policy.conflict_policy
        if where in self._claims and resolution is ConflictPolicy.OVERRIDE:
            resolution = ConflictPolicy.KEEP_POD
            message = f"{message}; that is the value of a policy that applies first"
        found = Conflict(changes.policy.key, where, message, resolution)
        if resolution is ConflictPolicy.REJECT:
            raise RejectedError(found)
        changes.conflicts.append(found)
        return resolution

    def fits(self, growth: Size, where: str, changes: Changes) -> bool:
        """Whether the pod stays within the limits with so much more; else it is a conflict, and the pod stays as it is.

        A pod above a limit would be rejected in offload mode.
        """
        size = self.size.plus(growth)
        if above := self._excess(size, growth):
            self.conflict(changes, where, above)
            return False
        self._size = size
        return True

    def _excess(self, size: Size, growth: Size | None = None) -> str:
        """The first limit that is exceeded, and that grows where a growth is given; empty where there is none."""
        if all(map(le, size, self._most)):
            return ""
        for name, count, more, most in zip(Size._fields, size, growth or size, self._most, strict=True):
            if count > most and more > 0:
                return f"{count} in the pod, {limit_name(name)} is {getattr(self.bounds.limits, name)}"
        return ""

    def has_room_for_requirements(self) -> bool:
        """Whether one more requirement about nodes stays within the limits."""
        return self.size.node_requirements < self._most.node_requirements

    @property
    def size(self) -> Size:
        """What the pod counts against the limits now."""
        if self._size is None:
            self._size = size_of(self._spec)
        return self._size


def _key(path: str, value: Any) -> str:
    return str(value.get("name")) if path == GATES and isinstance(value, dict) else item_key(path, value)
