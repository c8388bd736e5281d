"""Lines and pages to typed objects, a slice at a time, so that a burst never holds the loop for long.

Synchronous and without I/O; ``list_watch`` gives way to others between slices. What cannot be decoded is counted and
named once in the log, never raised: one strange object must not blind us to the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from extender.kube.feed_status import FeedProgress
from extender.kube.timing import Clock
from extender.model.objects import Object
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.kinds import Event, Kind, Status

_LOG = logging.getLogger(__name__)
_MOST_NAMES_REMEMBERED: Final = 10_000
_IS_GONE: Final = {"ADDED": False, "MODIFIED": False, "DELETED": True}

T = TypeVar("T", bound=Object)


@dataclass(slots=True)
class Slice(Generic[T]):
    """What one slice of lines gave. It ends early at a mark: the end of the initial events, an ERROR, or a lost change.

    ``changes``: (object, whether it is gone), in order. ``version``: of the last event or bookmark, empty with none.
    ``end``: index of the first line not looked at.
    """

    changes: list[tuple[T, bool]]
    version: str = ""
    end: int = 0
    initial_events_end: bool = False
    failure: Status | None = None
    lost_change: bool = False


class _IdentityJson(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _ObjectJson(msgspec.Struct):
    metadata: _IdentityJson = msgspec.field(default_factory=_IdentityJson)


class _LineJson(msgspec.Struct):
    type: str = ""
    object: _ObjectJson = msgspec.field(default_factory=_ObjectJson)


class _ListMetaJson(msgspec.Struct, rename={"resource_version": "resourceVersion", "next": "continue"}):
    resource_version: str | None = None
    next: str | None = None


class PageJson(msgspec.Struct):
    """A page of a LIST whose items are still bytes."""

    metadata: _ListMetaJson = msgspec.field(default_factory=_ListMetaJson)
    items: list[msgspec.Raw] | None = None


_LINES = msgspec.json.Decoder(_LineJson)
_OBJECTS = msgspec.json.Decoder(_ObjectJson)
_PAGES = msgspec.json.Decoder(PageJson)


class SliceDecoder(Generic[T]):
    """Decodes for one kind under two bounds per slice: a number of events and a time on the loop."""

    def __init__(self, kind: Kind[T], progress: FeedProgress, clock: Clock, most: int, seconds: float) -> None:
        self._kind = kind
        self._progress = progress
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._named: set[str] = set()

    def decode_lines(self, lines: Sequence[bytes], start: int) -> Slice[T]:
        """Decode from ``start`` until a bound or a mark is reached; at least one line if there is one."""
        taken: Slice[T] = Slice([])
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, min(start + self._most, len(lines))):
            taken.end = position + 1
            try:
                event = self._kind.decode_event(lines[position])
            except WireError as error:
                self._note_line(lines[position], error, taken)
            else:
                self._add(event, taken)
            if taken.initial_events_end or taken.failure or taken.lost_change or now() >= deadline:
                break
        return taken

    def split_page(self, body: bytes) -> PageJson:
        """The items of a page, still bytes: about a millisecond per megabyte. Raises ``WireError`` if it is no list."""
        try:
            return _PAGES.decode(body)
        except UNREADABLE as error:
            raise WireError("", f"no list of {self._kind.name}: {from_msgspec(error)}") from None

    def decode_items(self, items: Sequence[msgspec.Raw], start: int, into: list[T]) -> int:
        """Decode items of a page until a bound is reached; returns the index of the first one not looked at."""
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, len(items)):
            raw = bytes(items[position])
            try:
                into.append(self._kind.decode_object(raw))
            except WireError as error:
                self._note(_identity(raw), error)
            if now() >= deadline:
                return position + 1
        return len(items)

    @staticmethod
    def _add(event: Event[T], taken: Slice[T]) -> None:
        if event.object is not None:
            gone = _IS_GONE.get(event.type)
            if gone is None:
                taken.lost_change = True  # a type that this version of the API does not have
                return
            taken.changes.append((event.object, gone))
        elif event.type == "ERROR":
            taken.failure = event.status or Status()
            return
        taken.initial_events_end = event.initial_events_end
        taken.version = event.resource_version or taken.version

    def _note_line(self, line: bytes, error: WireError, taken: Slice[T]) -> None:
        """Count it. A deletion, or a line of which nothing can be read, is a change that only a new list brings back."""
        try:
            found = _LINES.decode(line)
        except UNREADABLE:
            found = _LineJson()
        meta = found.object.metadata
        taken.lost_change = found.type != "BOOKMARK" and (found.type not in {"ADDED", "MODIFIED"} or not meta.name)
        taken.version = meta.resource_version or taken.version
        self._note(meta, error)

    def _note(self, meta: _IdentityJson, error: WireError) -> None:
        self._progress.decode_errors += 1
        name = f"{meta.namespace}/{meta.name}".strip("/") or "(no name)"
        if name not in self._named and len(self._named) < _MOST_NAMES_REMEMBERED:
            self._named.add(name)
            _LOG.warning("%s %s cannot be read and is left out: %s", self._kind.name, name, error)


def _identity(raw: bytes) -> _IdentityJson:
    try:
        return _OBJECTS.decode(raw).metadata
    except UNREADABLE:
        return _IdentityJson()
