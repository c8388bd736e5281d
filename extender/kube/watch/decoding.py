"""Lines and pages to typed objects, a slice at a time, so that a burst never holds the loop for long.

Synchronous and without I/O; ``reflector`` gives way to others between slices. What cannot be decoded is counted and
named once in the log, never raised: one invalid object must not hide the others.

What the decoder rejects is decoded again in a simpler form (`wire.simplify`). That may take long, so a slice ends
before it, and ``reflector`` has the line or item simplified in turns.

An object that even then cannot be read keeps counting as it was last read, until a readable version or its deletion
comes; one that never was readable does not count at all. Its node cannot have changed, and a pod too many is refused
rather than placed wrongly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from msgspec import Raw

from extender.kube.timing import Clock
from extender.kube.watch.reflector_status import ReflectorProgress
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.kinds import Event, Identity, Kind, Status, decode_identity, decode_line_identity

_LOG = logging.getLogger(__name__)
_MOST_NAMES_REMEMBERED: Final = 10_000
_IS_DELETED: Final = {"ADDED": False, "MODIFIED": False, "DELETED": True}

T = TypeVar("T", bound=Object)


@dataclass(slots=True)
class Slice(Generic[T]):
    """What one slice of lines gave. It ends early at a mark: the end of the initial events, an ERROR, or a lost change.

    ``unreadable``: key of an object that cannot be read, before the ``changes``: (object, whether it was deleted), in order.
    ``version``: of the last event or bookmark, empty with none. ``end``: index of the first line not looked at.
    ``must_simplify``: that line was rejected, and must be passed again simplified.
    """

    changes: list[tuple[T, bool]]
    unreadable: str = ""
    version: str = ""
    end: int = 0
    must_simplify: bool = False
    initial_events_end: bool = False
    failure: Status | None = None
    lost_change: bool = False


@dataclass(slots=True)
class Listed(Generic[T]):
    """A list as far as it was read: objects by key, and the keys of those that exist and cannot be read."""

    objects: dict[str, T] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)


class SliceDecoder(Generic[T]):
    """Decodes for one kind under two bounds per slice: a number of events and a time on the loop."""

    def __init__(self, kind: Kind[T], progress: ReflectorProgress, clock: Clock, most: int, seconds: float) -> None:
        self._kind = kind
        self._progress = progress
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._named: set[str] = set()

    def decode_lines(self, lines: Sequence[bytes], start: int, *, is_simplified: bool = False) -> Slice[T]:
        """Decode from ``start`` until a bound or a mark is reached; at least one line if there is one.

        ``is_simplified``: the first line cannot be made any simpler.
        """
        taken: Slice[T] = Slice([])
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, min(start + self._most, len(lines))):
            taken.end = position + 1
            try:
                event = self._kind.decode_event(lines[position])
            except WireError as error:
                if not is_simplified or position > start:
                    taken.end, taken.must_simplify = position, True
                    break
                self._note_line(lines[position], error, taken)
            else:
                self._add(event, taken)
            if taken.initial_events_end or taken.failure or taken.lost_change or now() >= deadline:
                break
        return taken

    def decode_items(
        self, items: Sequence[bytes | Raw], start: int, into: Listed[T], *, is_simplified: bool = False
    ) -> tuple[int, bool]:
        """Decode items of a page until a bound is reached: the first index not looked at, and whether to simplify it."""
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, len(items)):
            raw = bytes(items[position])
            try:
                found = self._kind.decode_object(raw)
            except WireError as error:
                if not is_simplified or position > start:
                    return position, True
                self._note_item(raw, error, into)
            else:
                into.objects[found.key] = found
            if now() >= deadline:
                return position + 1, False
        return len(items), False

    @staticmethod
    def _add(event: Event[T], taken: Slice[T]) -> None:
        if event.object is not None:
            is_deleted = _IS_DELETED.get(event.type)
            if is_deleted is None:
                taken.lost_change = True  # a type that this version of the API does not have
                return
            taken.changes.append((event.object, is_deleted))
        elif event.type == "ERROR":
            taken.failure = event.status or Status()
            return
        taken.initial_events_end = event.initial_events_end
        taken.version = event.resource_version or taken.version

    def _note_line(self, line: bytes, error: WireError, taken: Slice[T]) -> None:
        """Count it. A line of which not even the type and the name can be read may be a change: only a list brings it."""
        try:
            event, identity = decode_line_identity(line)
        except WireError:
            event, identity = "", Identity()
        is_deleted = _IS_DELETED.get(event)
        if event != "BOOKMARK" and (is_deleted is None or not identity.name):
            taken.lost_change = True
        elif is_deleted:
            taken.changes.append((self._kind.named(identity), True))
        elif event != "BOOKMARK":
            taken.unreadable = self._kind.named(identity).key
        taken.version = identity.resource_version or taken.version
        self._note(identity, error)

    def _note_item(self, item: bytes, error: WireError, into: Listed[T]) -> None:
        try:
            identity = decode_identity(item)
        except WireError:
            identity = Identity()
        if identity.name:
            into.unreadable.add(self._kind.named(identity).key)
        self._note(identity, error)

    def _note(self, identity: Identity, error: WireError) -> None:
        self._progress.decode_errors += 1
        name = f"{identity.namespace}/{identity.name}".strip("/") or "(no name)"
        if name not in self._named and len(self._named) < _MOST_NAMES_REMEMBERED:
            self._named.add(name)
            _LOG.warning(
                "%s %s cannot be read and counts as it was last read, if ever: %s", self._kind.name, name, error
            )
