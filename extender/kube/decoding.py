"""Bytes of a list or watch to typed objects: lines, then objects, a slice at a time.

No slice holds the event loop for long, because decoding is synchronous: ``reflector`` yields to other tasks between
slices. An object that cannot be decoded is counted and logged once, never raised: one invalid object must not hide the
others.

1. What the decoder rejects is decoded again in a simpler form (`wire/objects/simplify.py`). That may take long, so the
   slice ends before the line or item, and it is simplified in steps.
2. An object that still cannot be read counts as it was last read, until a readable version or its deletion comes. Its
   node cannot have changed, and a pod too many rejects a node instead of placing a pod wrongly.
3. An object that never was readable does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeAlias, TypeVar, cast

from msgspec import Raw

from extender.kube.reflector_status import ReflectorStatus
from extender.kube.timing import Clock, in_steps
from extender.model.bounded import DictInOrder
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.objects.kinds import (
    Identity,
    Kind,
    Page,
    Status,
    WatchEvent,
    decode_identity,
    decode_line_identity,
    decode_page,
)
from extender.wire.objects.simplify import simplified, simplify

_LOG = logging.getLogger(__name__)
_SMALL_LINE: Final = 2**14  # bytes; simplifying a longer line would exceed the time of a slice
LARGE_LINE: Final = 2**17  # bytes; such a line is prepared, decoded and applied in separate steps
_PART_BYTES: Final = 2**18
_COUNTED_A_STEP: Final = 2**21  # bytes
_RELEASED_A_STEP: Final = 20_000  # at 0.1 µs
_MOST_NAMES_REMEMBERED: Final = 10_000
# What happens to a line or an item before it is decoded. A line to be simplified is prepared first.
Made: TypeAlias = Literal["", "prepared", "simplified"]
NOT_MADE: Final[Made] = ""
_IS_DELETED: Final = {"ADDED": False, "MODIFIED": False, "DELETED": True}

T = TypeVar("T", bound=Object)


class LineTooLongError(Exception):
    """Raised when a line exceeds its limit. The stream cannot be read further."""


class LineSplitter:
    """Returns the complete lines of the chunks split so far; bytes after the last newline wait for the rest.

    ``longest``: the limit of a line in bytes. So at most a line and one chunk are held. Each chunk is split once and
    each long line joined once: the cost is linear in the bytes, however they are cut. 20 MB in 64 KiB pieces are 320
    appends and a join.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._held = 0

    @property
    def holds_part(self) -> bool:
        """Whether bytes wait for the rest of their line."""
        return bool(self._pieces)

    def split_parts(self, chunk: bytes) -> Iterator[list[bytes]]:
        """The lines of a chunk, part by part, because a chunk of megabytes may be all newlines, at 30 ns each."""
        for start in range(0, len(chunk), _PART_BYTES):
            yield self.split(chunk[start : start + _PART_BYTES])

    def split(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, in order, without newline and without empty ones."""
        # Mostly a chunk is one line. To take it as it is saves 1.3 µs.
        if not self._pieces and 0 < (end := chunk.find(b"\n")) == len(chunk) - 1 and end <= self._longest:
            return [chunk[:end]]
        lines = chunk.split(b"\n")
        if self._held + len(lines[0]) > self._longest or max(map(len, lines)) > self._longest:
            raise LineTooLongError(f"a line is longer than {self._longest:,} bytes")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._held = 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
        return [line for line in lines if line]


@dataclass(slots=True)
class Slice(Generic[T]):
    """The result of one slice of lines.

    It ends early at a mark: the end of the initial events, an ERROR, or a lost change.
    """

    # (object, whether it was deleted), in order. They follow the objects under ``unreadable``.
    changes: list[tuple[T, bool]]
    # Keys of objects that cannot be read.
    unreadable: set[str] = field(default_factory=set)
    # The version of the last event or bookmark; empty without one.
    version: str = ""
    # Index of the first line that was not decoded, and what must happen to that line first: prepared if it is large,
    # simplified if the decoder rejected it.
    end: int = 0
    must_be: Made = ""
    # The one change is from a large line.
    is_large: bool = False
    initial_events_end: bool = False
    failure: Status | None = None
    lost_change: bool = False


@dataclass(slots=True)
class Listed(Generic[T]):
    """A list as far as it was read: objects by key, and the keys of objects that exist and cannot be read.

    ``held`` returns the object that the handler holds under a key. If it is equal, it replaces the object that was
    read. So a repeated list of a million pods takes the memory of their keys, not of the pods.
    """

    held: Callable[[str], Object | None]
    objects: DictInOrder[T] = field(default_factory=DictInOrder)
    unreadable: set[str] = field(default_factory=set)

    def add(self, item: T) -> None:
        """Adds an object, or the equal object that the handler holds."""
        key, held = item.key, self.held(item.key)
        if held is not None and held == item:
            key, item = held.key, cast("T", held)  # the held key too: a pod's key is the text that the pod itself has
        self.objects[key] = item

    async def release(self) -> None:
        """Empties the list part by part, because freeing a million entries at once takes 20 ms."""
        for part in self.objects.parts:
            while part:
                for _ in range(min(_RELEASED_A_STEP, len(part))):
                    part.popitem()
                await asyncio.sleep(0)


class SliceDecoder(Generic[T]):
    """Decodes for one kind, at most so many events and so many seconds per slice."""

    def __init__(self, kind: Kind[T], status: ReflectorStatus, clock: Clock, most: int, seconds: float) -> None:
        self._kind = kind
        self._status = status
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._named: set[str] = set()

    def decode_lines(self, lines: Sequence[bytes], start: int, made: Made = "") -> Slice[T]:
        """Decodes from ``start`` to a bound or a mark. At least one line, unless the first line must be prepared.

        ``made``: what has happened to the first line already.

        1. A large line must be prepared first: the slice ends before it. Prepared, it is a slice of its own.
        2. A rejected line that is long must be simplified first: the slice ends before it.
        3. A rejected short line is simplified here. If the slice has changes, it ends before the line, because an
           earlier change may concern the object, and keys in ``unreadable`` count as before all changes.
        """
        taken: Slice[T] = Slice([])
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, min(start + self._most, len(lines))):
            taken.end = position + 1
            line, done = lines[position], made if position == start else ""
            if len(line) >= LARGE_LINE:
                if not done:
                    taken.end, taken.must_be = position, "prepared"
                    break
                taken.is_large = True
            may_simplify = done != "simplified"
            try:
                event = self._kind.decode_event(line)
            except WireError as error:
                if may_simplify and len(line) > _SMALL_LINE:
                    taken.end, taken.must_be = position, "simplified"
                    break
                if taken.changes:  # case 3
                    taken.end = position
                    break
                self._add_unreadable(simplified(line) if may_simplify else line, error, taken)
            else:
                self._add(event, taken)
            if taken.is_large or taken.initial_events_end or taken.failure or taken.lost_change or now() >= deadline:
                break
        return taken

    def decode_items(
        self, items: Sequence[bytes | Raw], start: int, into: Listed[T], made: Made = ""
    ) -> tuple[int, Made]:
        """Decodes items of a page to a bound.

        Returns the index of the first item not decoded, and what must happen to it first.
        """
        now, deadline = self._clock.now, self._clock.now() + self._seconds
        for position in range(start, len(items)):
            raw, done = bytes(items[position]), made if position == start else ""
            if len(raw) >= LARGE_LINE and not done:
                return position, "prepared"
            try:
                item = self._kind.decode_object(raw)
            except WireError as error:
                if done != "simplified":
                    return position, "simplified"
                self._note_item(raw, error, into)
            else:
                into.add(item)
            if now() >= deadline:
                return position + 1, ""
        return len(items), ""

    @staticmethod
    def _add(event: WatchEvent[T], taken: Slice[T]) -> None:
        if event.object is not None:
            is_deleted = _IS_DELETED.get(event.type)
            if is_deleted is None:
                taken.lost_change = True  # an event type of a later API version
                return
            taken.changes.append((event.object, is_deleted))
        elif event.type == "ERROR":
            taken.failure = event.status or Status()
            return
        taken.initial_events_end = event.initial_events_end
        taken.version = event.resource_version or taken.version

    def _add_unreadable(self, line: bytes, error: WireError, taken: Slice[T]) -> None:
        try:
            event = self._kind.decode_event(line)
        except WireError:
            self._note_line(line, error, taken)
        else:
            self._add(event, taken)

    def _note_line(self, line: bytes, error: WireError, taken: Slice[T]) -> None:
        """Counts an unreadable line.

        If even its type or name is unreadable, a change may be lost: only a list can restore it.
        """
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
            taken.unreadable.add(self._kind.named(identity).key)
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
        self._status.decode_errors += 1
        name = f"{identity.namespace}/{identity.name}".strip("/") or "(no name)"
        if name not in self._named and len(self._named) < _MOST_NAMES_REMEMBERED:
            self._named.add(name)
            fields = {"kind": self._kind.name, "object": name, "problem": str(error)}
            _LOG.warning("object cannot be read and counts as it was last read, if ever", extra=fields)


async def decode_page_leniently(body: bytes, *, is_single: bool = False) -> Page:
    """A page of a LIST. One item that is nested too deeply makes the whole page unreadable, so the page is simplified.

    ``is_single``: it has one item. Raises ``WireError`` if the body is no page.
    """
    try:
        return decode_page(body, is_single=is_single)
    except WireError:
        return decode_page(await simplify_in_steps(body), is_single=is_single)


async def values_in(body: bytes, most: int) -> int:
    """An upper bound of the items of a page, less one: its commas, up to about ``most``.

    0.4 ms a megabyte, in steps.
    """
    commas = 0
    for start in range(0, len(body) if len(body) > most else 0, _COUNTED_A_STEP):
        commas += body.count(b",", start, start + _COUNTED_A_STEP)
        if commas > most:
            break
        await asyncio.sleep(0)
    return commas


async def decode_identity_leniently(body: bytes) -> Identity:
    """Name, namespace and UID of an object. Raises ``WireError`` if the body is no object."""
    try:
        return decode_identity(body)
    except WireError:
        return decode_identity(await simplify_in_steps(body))


async def simplify_in_steps(body: bytes) -> bytes:
    """The document without the fields that no decision reads."""
    return await in_steps(simplify(body))
