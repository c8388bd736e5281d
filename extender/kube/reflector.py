"""Lists, then watches, every object of one kind, and calls an event handler, for as long as the task runs.

One task runs it; after a failure a new run begins with a new list.

What it relies on (API concepts, KEP-3157; facts marked "measured" on 1.36):
1. A watch continues from a resourceVersion of a list, an event or a bookmark. It never continues from "0" or "", which
   mean "any version". Versions are compared for equality only.
2. A normal end is no error: timeoutSeconds is over, or the reader was too slow in a burst (measured). A watch from the
   last version misses nothing. After 410, as status or as event, only a new list is complete.
3. The version advances after the handler has handled the changes, so that changes before a failure are sent again.
4. The handler gets a list when it is complete, all objects at once.
5. Only events that were read are known: `backlog` says up to when.
6. A server that was restored from a backup sends nothing: it filters all events and bookmarks up to the version of the
   watch. But a list that must not be older than that version is answered with 504. So each watch is preceded by such a
   list of one object. A refused connection, and a second silence in a row, also lead to a new list.
7. A custom resource whose CRD is not installed is answered with 404. An API server that does not know its CRDs yet
   answers 503 (k8s.io/apiextensions-apiserver, since 1.22). So a repeated 404 means that there are no such objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from extender.kube.byte_stream import Backlog, ByteStream
from extender.kube.decoding import (
    NOT_MADE,
    LineSplitter,
    LineTooLongError,
    Listed,
    Slice,
    SliceDecoder,
    simplify_in_steps,
)
from extender.kube.errors import (
    LONGEST_RETRY_AFTER,
    NO_CONNECTION,
    Expired,
    KubeError,
    NotFound,
    Rejected,
    Throttled,
    TooLarge,
)
from extender.kube.listing import ListReader
from extender.kube.reflector_status import ReflectorPhase, ReflectorStatus, RestartReason, WatchOptions
from extender.kube.session import Connection
from extender.kube.timing import Backoff, Clock, in_steps
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.objects.kinds import Kind, Status

_LOG = logging.getLogger(__name__)
_LONGEST_VERSION: Final = 256  # characters; a longer version could exceed a server's limit of a request line
_SHORT_WATCH: Final = 1.0  # seconds; a shorter watch without an event counts as a failure
_MOST_SHORT_ROUNDS: Final = 10  # normal ends in a row that need no pause
_SHORT_PAUSE: Final = 0.1
_OUTAGES: Final = frozenset({RestartReason.REJECTED, RestartReason.UNDECODABLE, RestartReason.OVERSIZED})
_NOT_SERVED_AFTER: Final = 2  # answers 404 in a row
# Bytes of a chunk whose lines are decoded and applied in one step: at most 2 ms, and no line needs a step of its own.
_AT_ONCE_BYTES: Final = 2**14
_INITIAL_TRIES: Final = 3  # streaming lists that may break off before one list is read in pages

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", contravariant=True)


class EventHandler(Protocol[T_contra]):
    """What the reflector calls. ``replace`` and ``apply`` may wait. That delays the events of this kind only.

    A few changes that have arrived alone are applied by ``apply_one``, in the step in which their bytes arrive.
    """

    def held(self, key: str) -> Object | None:
        """The object that is held under a key. A later list replaces an equal object by it, to save memory."""

    async def replace(self, objects: Mapping[str, T_contra], unreadable: Collection[str] = ()) -> None:
        """Replaces all objects of the kind, by key.

        Objects under the keys ``unreadable`` stay as they were last read.
        """

    async def apply(self, changes: Sequence[tuple[T_contra, bool]]) -> None:
        """Applies (object, whether it was deleted), in order. After a lost connection a change may be repeated."""

    def apply_one(self, obj: T_contra, *, is_deleted: bool) -> None:
        """Applies one change at once, as ``apply``."""


class Reflector(Generic[T]):
    """The reflector of one kind."""

    def __init__(self, connection: Connection, kind: Kind[T], options: WatchOptions, clock: Clock, rng: Random) -> None:
        self.name = kind.name
        self._connection = connection
        self._kind = kind
        self._options = options
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(options.backoff, rng)
        self.status = ReflectorStatus(kind.name)
        self._decoder = SliceDecoder(kind, self.status, clock, options.batch_events, options.slice_seconds)
        self._lists = ListReader(connection, kind, options, self.status, self._decoder)
        self.backlog = Backlog()
        self._streams_lists = options.watch_list
        self._unreadable: set[str] = set()
        self._initial_failures = 0
        self._doubtful_ends = 0
        self._was_away = False  # the last round got no usable answer
        self._short_rounds = 0
        self._not_found = 0  # answers 404 in a row
        self._had_event = False
        self._has_news = False  # an event or a bookmark came after `last_heard` was set
        self._is_listing = False

    async def run(self, handler: EventHandler[T]) -> None:
        """Calls ``handler`` until cancelled. Raises only what the handler raises."""
        self.status.resource_version = ""  # the handler may not have handled the last events of an earlier run
        try:
            while True:
                begun, self._had_event = self._clock.now(), False
                end = await self._round(handler)
                self._not_found = self._not_found + 1 if end is not None and end.not_served else 0
                if self._kind.is_custom and self._not_found >= _NOT_SERVED_AFTER:
                    await self._go_without(handler, begun)
                if end is not None:
                    await self._pause(end, self._clock.now() - begun)
        finally:
            self.status.outage = f"the reflector of {self.name} has ended"

    async def _round(self, handler: EventHandler[T]) -> WatchEnd | None:
        """One watch from the last version, or one list; None when a list is complete and the watch can begin."""
        self._is_listing = False
        if _can_continue_from(self.status.resource_version):
            return await self._watch(handler)
        self.status.phase, self.status.listed, self.status.page = ReflectorPhase.LISTING, 0, 0
        self.status.list_begun = self._clock.now()
        if self._streams_lists and self._initial_failures < _INITIAL_TRIES:
            return await self._stream_list(handler)
        self._is_listing = True
        return await self._list(handler)

    async def _go_without(self, handler: EventHandler[T], as_of: float) -> None:
        """The resource is not served, so there are no objects. The list is tried again, as after any rejection."""
        status = self.status
        if not status.not_served:
            text = "the API server does not serve this kind, so none of it is in effect; is its CRD installed?"
            _LOG.error(text, extra={"kind": self.name})
            self._unreadable, status.unreadable, status.resource_version = set(), 0, ""
            await handler.replace({}, frozenset())
            status.not_served = status.synced = True
        status.last_heard, status.outage = as_of, ""

    async def _pause(self, end: WatchEnd, lasted: float) -> None:
        """Decides between watch and list after an end, then waits as long as needed.

        1. The version is dropped, so that a list follows, if the end says so, or after two ends in a row that may be
           due to the version.
        2. A normal end continues at once. After many short rounds it pauses, because a server that ends each watch
           after one event would keep the reflector busy.
        3. Any other end waits with back-off. The back-off starts again after an event, unless changes may be missed: a
           bookmark before each bad line is no recovery. It also starts again with the first answer after an outage.
        """
        status = self.status
        status.restarts[end.why] += 1
        self._short_rounds = self._short_rounds + 1 if lasted < _SHORT_WATCH else 0
        text = end.text
        if end.why is RestartReason.REJECTED:
            text = f"{'list' if self._is_listing else 'watch'} of {self.name} rejected: {text}"
        if end.why in _OUTAGES and not (status.not_served and end.not_served):
            status.outage = text
        # Case 1.
        self._doubtful_ends = self._doubtful_ends + 1 if end.doubtful and not self._had_event else 0
        if end.relist or self._doubtful_ends > 1:
            status.resource_version, self._doubtful_ends = "", 0
        # Case 2. A short watch without an event is no normal end: a server that ends each watch at once would cause a
        # busy loop.
        is_normal = end.why is RestartReason.ENDED and (self._had_event or lasted >= _SHORT_WATCH)
        if is_normal or (self._had_event and end.why not in _OUTAGES):
            self._backoff.reset()
        if is_normal or end.at_once:
            if self._short_rounds > _MOST_SHORT_ROUNDS:
                await self._clock.sleep(_SHORT_PAUSE)
            return
        # Case 3.
        status.phase, status.error = ReflectorPhase.WAITING, text
        is_away = end.why is RestartReason.UNREACHABLE
        if self._was_away and not is_away:
            self._backoff.reset()
        self._was_away = is_away
        wait = max(self._backoff.next(), end.retry_after)
        fields = {"kind": self.name, "reason": str(end.why), "problem": text, "wait_seconds": round(wait, 1)}
        _LOG.warning("watch interrupted", extra=fields)
        await self._clock.sleep(wait)

    # -- lists --------------------------------------------------------------------------------------------------

    async def _list(self, handler: EventHandler[T]) -> WatchEnd | None:
        """A consistent LIST in pages."""
        begun, listed = self._clock.now(), Listed[T](handler.held)
        try:
            version = await self._lists.read(listed)
        except KubeError as error:
            return end_of_error(error)
        except WireError as error:
            return WatchEnd(RestartReason.UNDECODABLE, str(error), relist=True)
        if not _can_continue_from(version):
            return WatchEnd(RestartReason.BAD_VERSION, "the list names no resourceVersion of use", relist=True)
        await self._replace(handler, listed, version, begun)
        return None

    async def _replace(self, handler: EventHandler[T], listed: Listed[T], version: str, as_of: float) -> None:
        """Passes a complete list to the handler. ``as_of``: the last moment at which it was certainly current."""
        status, count = self.status, len(listed.objects)
        self._unreadable = listed.unreadable
        status.unreadable = len(listed.unreadable)
        await handler.replace(listed.objects, frozenset(listed.unreadable))
        await listed.release()
        status.relists += status.synced
        status.synced, status.error, status.last_heard, status.not_served = True, "", as_of, False
        status.resource_version = version
        self._initial_failures = 0
        fields = {"kind": self.name, "objects": count, "resource_version": version[:_LONGEST_VERSION]}
        _LOG.info("listed", extra=fields)

    # -- watches ------------------------------------------------------------------------------------------------

    async def _stream_list(self, handler: EventHandler[T]) -> WatchEnd:
        """A streaming list that continues as the watch (KEP-3157)."""
        self._initial_failures += 1
        try:
            query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return await self._follow(handler, query, Listed[T](handler.held))
        except KubeError as error:
            if self.status.phase is ReflectorPhase.LISTING and rejects_watch_list(error):
                return self._without_watch_list(str(error))
            return end_of_error(error)

    def _without_watch_list(self, text: str) -> WatchEnd:
        _LOG.info("no streaming lists here, reading pages", extra={"kind": self.name, "problem": text})
        self._streams_lists = False
        return WatchEnd(RestartReason.NO_WATCH_LIST, text, relist=True, at_once=True)

    async def _watch(self, handler: EventHandler[T]) -> WatchEnd:
        try:
            await self._confirm_version()
            return await self._follow(handler, {"resourceVersion": self.status.resource_version}, None)
        except KubeError as error:
            return end_of_error(error)

    async def _confirm_version(self) -> None:
        """Waits until the API server has reached the version of the watch, with a list of one object."""
        query = {"limit": "1", "resourceVersion": self.status.resource_version}
        query["resourceVersionMatch"] = "NotOlderThan"
        try:
            await self._connection.call("GET", self._kind.path, query=query, limit=self._options.confirm_timeout)
        except Rejected as error:
            # The watch itself may still work.
            _LOG.debug("cannot confirm the resourceVersion", extra={"kind": self.name, "problem": str(error)})

    async def _follow(self, handler: EventHandler[T], query: dict[str, str], initial: Listed[T] | None) -> WatchEnd:
        """Reads one watch to its end. ``initial`` collects the objects of a streaming list until they are complete."""
        options, now = self._options, self._clock.now
        seconds = round(self._rng.uniform(options.watch_shortest, options.watch_longest))
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        begun, until = now(), now() + seconds + options.watch_slack
        splitter = LineSplitter(options.longest_line)
        patience = partial(self._patience, begun, until)
        handle = partial(self._handle_at_once, splitter, handler)
        async with self._connection.stream(self._kind.path, query) as stream:
            if initial is None:
                self.status.phase, self.status.outage = ReflectorPhase.WATCHING, ""
            self.backlog.begin(stream)
            self._has_news = False
            try:
                while True:
                    chunk = await self._read(stream, patience, handle)
                    if chunk is None:
                        return self._end_of_silence()
                    if not chunk:
                        return WatchEnd(RestartReason.ENDED, "the server ended the watch")
                    # A chunk of megabytes may have many parts: other tasks run in between.
                    for part, lines in enumerate(splitter.split_parts(chunk)):
                        if part:
                            await asyncio.sleep(0)
                        end = await self._handle_lines(lines, handler, initial, begun)
                        if end:
                            return end
                    self._note_handled()
            except _WatchEndedError as ended:
                return ended.end
            except LineTooLongError as error:
                return WatchEnd(RestartReason.OVERSIZED, str(error), relist=True)
            finally:
                self.backlog.end()

    def _patience(self, begun: float, until: float) -> float:
        """The seconds to wait for a chunk. Two bounds: silence, and the end of the initial events or of the watch."""
        options, now = self._options, self._clock.now()
        if self.status.phase is ReflectorPhase.LISTING:
            # The initial events may take longer, the more objects have come.
            seconds = options.initial_seconds + self.status.listed * options.initial_seconds_per_object
            return max(min(options.initial_silence, begun + seconds - now), 0.0)
        return max(min(options.max_silence, until - now), 0.0)

    def _end_of_silence(self) -> WatchEnd:
        # Without an end of the initial events, the server has ignored the request for a streaming list.
        if self.status.phase is ReflectorPhase.LISTING:
            return self._without_watch_list("the initial events had no end")
        text = f"nothing for {self._options.max_silence:.0f} s"
        return WatchEnd(RestartReason.SILENT, text, doubtful=True, at_once=True)

    async def _read(
        self, stream: ByteStream, patience: Callable[[], float], handle: Callable[[bytes], bool]
    ) -> bytes | None:
        """The next chunk that the task must handle."""
        if self.status.phase is ReflectorPhase.WATCHING:
            stream.shorten()
            chunk = await stream.read_unhandled(patience, handle)
        else:
            chunk = await stream.read(patience())
        if chunk:
            self._note_read(chunk)
        return chunk

    def _note_read(self, chunk: bytes) -> None:
        self.status.bytes_read += len(chunk)
        self.backlog.note_received(len(chunk), self._clock.now())

    def _handle_at_once(self, splitter: LineSplitter, handler: EventHandler[T], chunk: bytes) -> bool:
        """Handles a short chunk of whole lines without a pause: mostly one event. Returns False for any other chunk.

        Raises ``_WatchEndedError`` if the watch cannot be read further.
        """
        if len(chunk) > _AT_ONCE_BYTES or splitter.holds_part or not chunk.endswith(b"\n"):
            return False
        self._note_read(chunk)
        lines, at = splitter.split(chunk), 0
        while at < len(lines):
            taken = self._decoder.decode_lines(lines, at)
            at = taken.end
            self.status.events += len(taken.changes)
            self._note_unreadable(taken)
            for obj, is_deleted in taken.changes:
                handler.apply_one(obj, is_deleted=is_deleted)
            self._note_version(taken)
            if end := _end_of(taken):
                raise _WatchEndedError(end)
        self._note_handled()
        return True

    async def _handle_lines(
        self, lines: list[bytes], handler: EventHandler[T], initial: Listed[T] | None, begun: float
    ) -> WatchEnd | None:
        """Passes the events of a chunk to the handler in slices.

        Returns a WatchEnd if the watch cannot be read further.
        """
        at, made = 0, NOT_MADE
        while at < len(lines):
            taken = self._decoder.decode_lines(lines, at, made)
            at, made = taken.end, taken.must_be
            self.status.events += len(taken.changes)
            if initial is not None and self.status.phase is ReflectorPhase.LISTING:
                await self._collect(taken, handler, initial, begun)
            else:
                await self._apply(taken, handler)
            if end := _end_of(taken):
                return end
            if made == "prepared":
                await in_steps(self._kind.prepare_event(lines[at]))
            elif made == "simplified":
                lines[at] = await simplify_in_steps(lines[at])
            if at < len(lines):
                await asyncio.sleep(0)
        if not lines:  # a chunk may have many parts without a line: other tasks run in between
            await asyncio.sleep(0)
        return None

    def _note_handled(self) -> None:
        known = self.backlog.note_handled()
        if known is not None and self._has_news:
            self.status.last_heard, self._has_news = known, False

    async def _apply(self, taken: Slice[T], handler: EventHandler[T]) -> None:
        self._note_unreadable(taken)
        if taken.is_large:
            await asyncio.sleep(0)
        if taken.changes:
            await handler.apply(taken.changes)
        self._note_version(taken)

    def _note_unreadable(self, taken: Slice[T]) -> None:
        _note_unreadable(taken, self._unreadable)
        self.status.unreadable = len(self._unreadable)

    def _note_version(self, taken: Slice[T]) -> None:
        if _can_continue_from(taken.version):
            self.status.resource_version = taken.version
            self.status.error = ""
            self._had_event = self._has_news = True

    async def _collect(self, taken: Slice[T], handler: EventHandler[T], initial: Listed[T], begun: float) -> None:
        _note_unreadable(taken, initial.unreadable)
        for item, is_deleted in taken.changes:
            if is_deleted:
                initial.objects.discard(item.key)
            else:
                initial.add(item)
        self.status.listed = len(initial.objects)
        if taken.initial_events_end:
            await self._replace(handler, initial, taken.version, begun)
            self.status.phase, self.status.outage = ReflectorPhase.WATCHING, ""


def _can_continue_from(version: str) -> bool:
    """Whether a watch can begin at a resourceVersion; "0" stands for any."""
    return 0 < len(version) <= _LONGEST_VERSION and version != "0"


def _note_unreadable(taken: Slice[T], unreadable: set[str]) -> None:
    unreadable |= taken.unreadable
    if unreadable:
        unreadable.difference_update(item.key for item, _ in taken.changes)


# -- how a list or a watch ends ---------------------------------------------------------------------------------------
# https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """Why a list or watch ended."""

    why: RestartReason
    text: str = ""
    # A new list is needed.
    relist: bool = False
    # The pause in seconds that the server requests.
    retry_after: float = 0.0
    # The resourceVersion may be the cause; after one such end the watch is retried, after two it is relisted.
    doubtful: bool = False
    # The next round needs no back-off.
    at_once: bool = False
    # The API server does not know the resource.
    not_served: bool = False


class _WatchEndedError(Exception):
    """Raised where the lines of a chunk end the watch, and no task waits for their end."""

    def __init__(self, end: WatchEnd) -> None:
        super().__init__(end.text)
        self.end = end


def _end_of(taken: Slice[T]) -> WatchEnd | None:
    """The end that a slice of lines leads to; None if the watch can be read further."""
    if taken.failure:
        return end_of_status(taken.failure)
    if taken.lost_change:
        return WatchEnd(RestartReason.UNDECODABLE, "a change could not be read", relist=True)
    return None


def end_of_error(error: KubeError) -> WatchEnd:
    """The end of a request that was rejected, or of a stream that broke off."""
    text, wait = str(error), error.retry_after
    if isinstance(error, Expired):
        return WatchEnd(RestartReason.EXPIRED, text, relist=True)
    if isinstance(error, TooLarge):
        return WatchEnd(RestartReason.OVERSIZED, text, relist=True)
    if isinstance(error, Throttled):
        return WatchEnd(RestartReason.THROTTLED, text, retry_after=wait)
    if error.status and _blames_version(text):
        # Measured: an unknown resourceVersion is answered with 500, a future one with 504.
        return WatchEnd(RestartReason.BAD_VERSION, text, relist=True, retry_after=wait)
    if isinstance(error, Rejected | NotFound):
        return WatchEnd(RestartReason.REJECTED, text, not_served=isinstance(error, NotFound))
    # After an outage a server may return from a backup with an older history. The version of the watch is then in its
    # future, and it sends nothing until its history reaches that version.
    was_away = error.reason == NO_CONNECTION
    doubtful = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return WatchEnd(RestartReason.UNREACHABLE, text, relist=was_away, retry_after=wait, doubtful=doubtful)


def end_of_status(status: Status) -> WatchEnd:
    """The end after an ERROR event. The stream ends and its version is lost, so every code leads to a new list."""
    expired = status.code == HTTPStatus.GONE or status.reason in {"Expired", "Gone"}
    return WatchEnd(
        RestartReason.EXPIRED if expired else RestartReason.ERROR_EVENT,
        f"{status.code} {status.message or status.reason or 'no message'}",
        relist=True,
        retry_after=min(float(status.retry_after_seconds), LONGEST_RETRY_AFTER),
    )


def rejects_watch_list(error: KubeError) -> bool:
    """Whether the server knows no streaming lists: it calls the request invalid, or if it is very old, malformed."""
    return error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}


def _blames_version(text: str) -> bool:
    folded = text.casefold()
    return "resourceversion" in folded or "resource version" in folded
