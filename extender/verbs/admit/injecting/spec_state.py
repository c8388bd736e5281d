"""A pod spec while policies are applied to it: its size, what stands in its lists, and what it may still have."""

from __future__ import annotations

from operator import le
from typing import Any

from extender.model.policies import ConflictPolicy, JsonObject, Size
from extender.verbs.admit.injecting.budget import Budget
from extender.verbs.admit.injecting.changes import Bounds, Changes, Conflict, RejectedError
from extender.verbs.admit.injecting.spec_edits import get, missing_parents, put
from extender.wire.policies.node_terms import counts_of, item_key, lengths_of, size_of
from extender.wire.policies.policy_validation import limit_name


class SpecState:
    """The spec as it is now, which is replaced and never changed in place; ``created`` are paths that were missing.

    ``excess`` names a limit that the pod is above by itself: then its lists are not read, and nothing is injected.

    Reading the spec's sizes and lists costs O(its scheduling fields), once.
    """

    def __init__(self, spec: JsonObject, bounds: Bounds, budget: Budget) -> None:
        self.spec = spec
        self.bounds = bounds
        self.budget = budget
        self.created: list[str] = []
        self._keys: dict[str, set[str]] = {}
        self._claims: dict[str, None] = {}
        self._size: Size | None = None
        self._most = Size(*(getattr(bounds.limits, name) for name in Size._fields))
        self.excess = self._excess(lengths_of(spec)) or self._excess(counts_of(spec))

    def save(self) -> tuple[Any, ...]:
        """What `restore` needs. O(1)."""
        return self.spec, self._size, len(self.created), len(self._claims)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Takes back every change since `save`."""
        self.spec, self._size, created, claims = saved
        del self.created[created:]
        while len(self._claims) > claims:
            self._claims.popitem()
        self._keys = {}  # made anew when they are needed

    def put(self, names: tuple[str, ...], value: Any) -> None:
        """Sets a field, and notes which parents it had to make."""
        self.created += (path for path in missing_parents(self.spec, names) if path not in self.created)
        self.spec = put(self.spec, names, value)

    def list(self, names: tuple[str, ...]) -> list[Any]:
        """A list of the spec, empty where there is none. The caller must not change it."""
        found = get(self.spec, names)
        return found if isinstance(found, list) else []

    def known(self, path: str) -> set[str]:
        """The keys of the elements that stand in a list; adding an element means adding its key."""
        found = self._keys.get(path)
        if found is None:
            found = self._keys[path] = {item_key(path, each) for each in self.list(tuple(path.split(".")))}
        return found

    def forget_known(self, path: str) -> None:
        """After an element was replaced."""
        self._keys.pop(path, None)

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
            resolution, message = (
                ConflictPolicy.KEEP_POD,
                f"{message}; that is the value of a policy that applies first",
            )
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
        """What the spec counts against the limits now."""
        if self._size is None:
            self._size = size_of(self.spec)
        return self._size
