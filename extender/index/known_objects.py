"""The objects of one kind that the index holds, to find what a complete list changes. Called by `tasks/reflectors.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from extender.model.bounded import shrink
from extender.model.objects import Object, Pod


class ObjectIndex(Protocol):
    """What takes changes of objects. Both return whether anything that decisions read has changed."""

    def upsert(self, obj: Object) -> bool:
        """Takes in a new or changed object."""

    def delete(self, obj: Object) -> bool:
        """Removes an object."""


class KnownObjects:
    """The objects of one kind that the index holds, by key: what a complete list changes, and nothing more.

    The event handler of the kind owns one and is its only writer. A list of 150,000 unchanged pods takes a fifth of a
    second to compare, so the comparison can be interrupted after each object; then only the differences are applied.
    """

    def __init__(self, index: ObjectIndex) -> None:
        self._index = index
        self._objects: dict[str, Object] = {}

    def find(self, key: str) -> Object | None:
        """The object under a key. O(1)."""
        return self._objects.get(key)

    def put(self, found: Object, *, is_deleted: bool) -> bool:
        """Passes one change on; False if nothing that the index reads has changed, and then the index's object is kept."""
        key = found.uid if type(found) is Pod else found.key  # most events are of pods, and a property costs a call
        if is_deleted:
            self._objects.pop(key, None)
            shrink(self._objects)
            return self._index.delete(found)
        changed = self._index.upsert(found)
        if changed or key not in self._objects:
            self._objects[key] = found
        return changed

    def differences(
        self, objects: Mapping[str, Object], unreadable: Collection[str]
    ) -> Iterator[tuple[Object, bool] | None]:
        """(object, whether it is deleted) for each change that makes ``objects`` all there is; None for each unchanged one.

        ``unreadable``: keys of objects that exist as well and cannot be read: they stay as they are, if they are known.
        Deletions come last. Nothing is applied. The caller may pause after each step, and may ``put`` what a step gave, but
        nothing else in between. No list or set of all keys is made: of a million it takes 40 ms at once, and each garbage
        collection visits them.
        """
        for key, found in objects.items():
            held = self._objects.get(key)
            yield None if held is found or held == found else (found, False)
        gone = []
        for key in self._objects:
            if key not in objects and key not in unreadable:
                gone.append(key)
            yield None
        for key in gone:
            yield self._objects[key], True
