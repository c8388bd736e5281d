"""The GroupPlacements that the watch shows, by group. Written by the index alone.

A name is made from the group, so one group has one object. An object of another name that names the same group was not
written by us, and is not found.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.index.objects.changes import Subscribers
from extender.model.bounded import shrink
from extender.model.group_placements import GroupPlacement, placement_name
from extender.model.release import GroupKey


class Placements:
    """Subscribers are told of each object that comes, changes or goes."""

    def __init__(self) -> None:
        self.changes: Subscribers[GroupPlacement] = Subscribers()
        self._by_key: dict[str, GroupPlacement] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[GroupPlacement]:
        return iter(self._by_key.values())

    def of(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group. O(1)."""
        found = self._by_key.get(f"{group.namespace}/{placement_name(group)}")
        return found if found is not None and found.group == group else None

    def change(self, placement: GroupPlacement, *, is_gone: bool) -> bool:
        """Applies an object as it is now; False where it is the same. O(1)."""
        old = self._by_key.get(placement.key)
        new = None if is_gone else placement
        if old == new:
            return False
        if new is None:
            self._by_key.pop(placement.key, None)
            shrink(self._by_key)
        else:
            self._by_key[placement.key] = new
        self.changes.notify(old, new)
        return True

    def statistics(self) -> dict[str, int]:
        """Sizes, for metrics."""
        return {"group_placements": len(self._by_key)}
