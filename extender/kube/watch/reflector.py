"""Lists, then watches, every object of one kind, and calls an event handler, for as long as the task runs.

Implements ``tasks.ports.ObjectReflector``. One task runs it; after a failure a new run begins with a new list.

What it relies on (API concepts, KEP-3157; measured on 1.36 where noted):
1. A watch continues from a resourceVersion of a list, an event or a bookmark; never from "0" or "", which mean "any
   version". Versions are compared for equality only.
2. A normal end is no error: timeoutSeconds is over, or the reader was too slow in a burst (measured). A watch from the
   last version misses nothing. After 410, as status or as event, only a new list is complete.
3. The version advances after the handler has handled the changes, so that changes before a failure are sent again.
4. The handler gets a list when it is complete, all objects at once.
5. Only events that were read are known: `backlog` says up to when.
6. A server that was restored from a backup filters all events up to the version of the watch, bookmarks too: it sends
   nothing. It answers 504 to a list that must not be older than that version, so each watch is preceded by such a list
   of a single object. A refused connection and a second silence in a row also lead to a new list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Raw

from extender.kube.errors import Expired, KubeError, Refused, TooLarge
from extender.kube.session import ByteStream, Connection
from extender.kube.timing import Backoff, Clock
from extender.kube.watch.backlog import Backlog
from extender.kube.watch.decoding import Listed, Slice, SliceDecoder
from extender.kube.watch.lenient_decoding import decode_page_leniently, simplify_in_steps
from extender.kube.watch.line_splitter import LineSplitter, LineTooLongError
from extender.kube.watch.options import WatchOptions
from extender.kube.watch.reflector_status import Phase, ReflectorProgress, ReflectorStatus, RestartReason
from extender.kube.watch.watch_end import WatchEnd, end_of_error, end_of_status, refuses_watch_list
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.kinds import Kind

_LOG = logging.getLogger(__name__)
_NO_VERSION: Final = frozenset({"", "0"})
_SHORT_WATCH: Final = 1.0  # a watch that ends before this without an event counts as a failure
_OUTAGES: Final = frozenset({RestartReason.REFUSED, RestartReason.UNDECODABLE, RestartReason.OVERSIZED})
_SMALLER_PAGES: Final = 4  # what a page's limit is divided by when the page was too large
_LARGER_PAGES: Final = 16  # and multiplied by for the next list, when a list expired half-way
_LARGEST_LIMIT: Final = 10**6
_INITIAL_TRIES: Final = 3  # streaming lists that may break off before one list is read in pages

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", contravariant=True)


class EventHandler(Protocol[T_contra]):
    """What the reflector calls. Both may wait, which delays the events of this kind only."""

    async def replace(self, objects: Sequence[T_contra], unreadable: Collection[str] = ()) -> None:
        """Replaces all objects of the kind. Objects under the keys ``unreadable`` stay as they were last read."""

    async def apply(self, changes: Sequence[tuple[T_contra, bool]]) -> None:
        """(object, whether it is is_deleted), in order. The same change may come twice, after a cut."""


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
        self._progress = ReflectorProgress(kind.name)
        self._decoder = SliceDecoder(kind, self._progress, clock, options.batch_events, options.slice_seconds)
        self._backlog = Backlog()
        self._streams_lists = options.watch_list
        self._unreadable: set[str] = set()
        self._initial_failures = 0
        self._page_limit = options.page_limit
        self._doubtful_ends = 0
        self._had_event = False
        self._has_news = False  # an event or a bookmark, since `last_heard` moved on
        self._is_listing = False

    @property
    def last_heard(self) -> float:
        """The time up to which every change has been handled; read often, so without a whole status."""
        return self._progress.last_heard

    @property
    def is_behind(self) -> bool:
        """Whether changes have arrived that the handler has not handled. Read for every request."""
        return self._backlog.is_behind

    async def wait_until_handled(self) -> None:
        """Waits until the handler has handled all that has arrived by now."""
        await self._backlog.wait_until_handled()

    @property
    def outage(self) -> str:
        """Why changes are known to be missed now, empty otherwise; read as often."""
        return self._progress.outage

    def status(self) -> ReflectorStatus:
        """The status now."""
        return self._progress.snapshot()

    async def run(self, handler: EventHandler[T]) -> None:
        """Calls ``handler`` until cancelled. Raises only what the handler raises."""
        self._progress.resource_version = ""  # the handler may not have handled the last events of an earlier run
        try:
            while True:
                begun, self._had_event = self._clock.now(), False
                end = await self._round(handler)
                if end is not None:
                    await self._pause(end, self._clock.now() - begun)
        finally:
            self._progress.outage = f"the reflector of {self.name} has ended"

    async def _round(self, handler: EventHandler[T]) -> WatchEnd | None:
        """One watch from the last version, or one list; None when a list is complete and the watch can begin."""
        self._is_listing = False
        if self._progress.resource_version not in _NO_VERSION:
            return await self._watch(handler)
        self._progress.phase, self._progress.listed, self._progress.page = Phase.LISTING, 0, 0
        self._progress.list_begun = self._clock.now()
        if self._streams_lists and self._initial_failures < _INITIAL_TRIES:
            return await self._stream_list(handler)
        self._is_listing = True
        return await self._list(handler)

    async def _pause(self, end: WatchEnd, lasted: float) -> None:
        """Decides between watch and list after an end, then waits as long as it requires."""
        progress = self._progress
        progress.restarts[end.why] += 1
        text = end.text
        if end.why is RestartReason.REFUSED:
            text = f"{'list' if self._is_listing else 'watch'} of {self.name} refused: {text}"
        if end.why in _OUTAGES:
            progress.outage = text
        self._doubtful_ends = self._doubtful_ends + 1 if end.doubtful and not self._had_event else 0
        if end.relist or self._doubtful_ends > 1:
            progress.resource_version, self._doubtful_ends = "", 0
        is_normal = end.why is RestartReason.ENDED and (self._had_event or lasted >= _SHORT_WATCH)
        if is_normal or (self._had_event and end.why not in _OUTAGES):  # a bookmark before each bad line is no recovery
            self._backoff.reset()
        if is_normal or end.at_once:
            return
        progress.phase, progress.error = Phase.WAITING, text
        wait = max(self._backoff.next(), end.retry_after)
        _LOG.warning("%s: %s (%s), again in %.1f s", self.name, end.why, text, wait)
        await self._clock.sleep(wait)

    # -- lists --------------------------------------------------------------------------------------------------

    async def _list(self, handler: EventHandler[T]) -> WatchEnd | None:
        """A consistent LIST in pages."""
        begun, listed = self._clock.now(), Listed[T]()
        try:
            version = await self._read_pages(listed)
        except Expired as error:
            # The error offers a token for the rest at a newer version. A list of two versions would keep objects that were
            # deleted in between. Instead it starts again, in larger pages, of which fewer can expire.
            if self._progress.page > 0:
                self._page_limit = min(self._page_limit * _LARGER_PAGES, _LARGEST_LIMIT)
            return end_of_error(error)
        except KubeError as error:
            return end_of_error(error)
        except WireError as error:
            return WatchEnd(RestartReason.UNDECODABLE, str(error), relist=True)
        if version in _NO_VERSION:
            return WatchEnd(RestartReason.BAD_VERSION, "the list names no resourceVersion", relist=True)
        self._page_limit = self._options.page_limit
        await self._replace(handler, listed, version, begun)
        return None

    async def _read_pages(self, listed: Listed[T]) -> str:
        limit, token, tokens = self._page_limit, "", set[int]()
        while True:
            try:
                body = await self._read_page(limit, token)
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // _SMALLER_PAGES)
                continue
            page = await decode_page_leniently(body)
            await self._decode_items(page.items, listed)
            self._progress.bytes_read += len(body)
            self._progress.page += 1
            self._progress.listed = len(listed.objects)
            limit, token = min(limit * _SMALLER_PAGES, self._page_limit), page.continue_token
            if not token:
                return page.resource_version
            tokens.add(hash(token))
            if len(tokens) < self._progress.page or len(tokens) >= self._options.most_pages:
                raise WireError("metadata.continue", f"the list does not end: {self._progress.page:,} pages so far")

    async def _read_page(self, limit: int, token: str) -> bytes:
        query = {"limit": str(limit), "continue": token} if token else {"limit": str(limit)}
        options = self._options
        return await self._connection.call(
            "GET", self._kind.path, query=query, limit=options.list_timeout, largest=options.largest_page
        )

    async def _decode_items(self, items: list[bytes | Raw], listed: Listed[T]) -> None:
        at, is_simplified = 0, False
        while at < len(items):
            at, is_simplified = self._decoder.decode_items(items, at, listed, is_simplified=is_simplified)
            if is_simplified:
                items[at] = await simplify_in_steps(bytes(items[at]))
            await asyncio.sleep(0)

    async def _replace(self, handler: EventHandler[T], listed: Listed[T], version: str, as_of: float) -> None:
        """Passes a complete list to the handler; ``as_of`` is the last moment at which it was certainly current."""
        progress, objects = self._progress, list(listed.objects.values())
        self._unreadable = listed.unreadable
        progress.unreadable = len(listed.unreadable)
        await handler.replace(objects, frozenset(listed.unreadable))
        progress.relists += progress.synced
        progress.synced, progress.error, progress.last_heard = True, "", as_of
        progress.resource_version = version
        self._initial_failures = 0
        _LOG.info("%s: %d listed, resourceVersion %s", self.name, len(objects), version)

    # -- watches ------------------------------------------------------------------------------------------------

    async def _stream_list(self, handler: EventHandler[T]) -> WatchEnd:
        """A streaming list, which continues as the watch (KEP-3157)."""
        self._initial_failures += 1
        try:
            query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return await self._follow(handler, query, Listed())
        except KubeError as error:
            if self._progress.phase is Phase.LISTING and refuses_watch_list(error):
                return self._without_watch_list(str(error))
            return end_of_error(error)

    def _without_watch_list(self, text: str) -> WatchEnd:
        _LOG.info("%s: no streaming lists here, reading pages: %s", self.name, text)
        self._streams_lists = False
        return WatchEnd(RestartReason.NO_WATCH_LIST, text, relist=True, at_once=True)

    async def _watch(self, handler: EventHandler[T]) -> WatchEnd:
        try:
            await self._confirm_version()
            return await self._follow(handler, {"resourceVersion": self._progress.resource_version}, None)
        except KubeError as error:
            return end_of_error(error)

    async def _confirm_version(self) -> None:
        """Asks the server whether it has reached the version of the watch; it answers as soon as it has."""
        query = {"limit": "1", "resourceVersion": self._progress.resource_version}
        query["resourceVersionMatch"] = "NotOlderThan"
        try:
            await self._connection.call("GET", self._kind.path, query=query, limit=self._options.confirm_timeout)
        except Refused as error:
            _LOG.debug("%s: cannot confirm the resourceVersion: %s", self.name, error)  # the watch itself may work

    async def _follow(self, handler: EventHandler[T], query: dict[str, str], initial: Listed[T] | None) -> WatchEnd:
        """Read one watch to its end. ``initial`` collects the objects of a streaming list until they are complete."""
        options, now = self._options, self._clock.now
        seconds = round(self._rng.uniform(options.watch_shortest, options.watch_longest))
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        begun, until = now(), now() + seconds + options.watch_slack
        splitter = LineSplitter(options.longest_line)
        async with self._connection.stream(self._kind.path, query) as stream:
            if initial is None:
                self._progress.phase, self._progress.outage = Phase.WATCHING, ""
            self._backlog.begin(stream.unread)
            self._has_news = False
            try:
                while True:
                    is_initial = self._progress.phase is Phase.LISTING
                    bound = begun + options.initial_seconds if is_initial else until
                    silence = options.initial_silence if is_initial else options.max_silence
                    chunk = await self._read(stream, min(silence, bound - now()))
                    if chunk is None and is_initial:
                        return self._without_watch_list("the initial events had no end")
                    if chunk is None:
                        return WatchEnd(
                            RestartReason.SILENT, f"nothing for {silence:.0f} s", doubtful=True, at_once=True
                        )
                    if not chunk:
                        return WatchEnd(RestartReason.ENDED, "the server ended the watch")
                    end = await self._handle_lines(splitter.split(chunk), handler, initial, begun)
                    if end:
                        return end
            except LineTooLongError as error:
                return WatchEnd(RestartReason.OVERSIZED, str(error), relist=True)
            finally:
                self._backlog.end()

    async def _read(self, stream: ByteStream, patience: float) -> bytes | None:
        chunk = await stream.read(max(patience, 0.0))
        if chunk:
            self._progress.bytes_read += len(chunk)
            self._backlog.note_received(len(chunk), self._clock.now())
        return chunk

    async def _handle_lines(
        self, lines: list[bytes], handler: EventHandler[T], initial: Listed[T] | None, begun: float
    ) -> WatchEnd | None:
        """Passes the events of a chunk to the handler in slices; a WatchEnd if reading on is useless."""
        at, is_simplified = 0, False
        while at < len(lines):
            taken = self._decoder.decode_lines(lines, at, is_simplified=is_simplified)
            at, is_simplified = taken.end, taken.must_simplify
            self._progress.events += len(taken.changes)
            if initial is not None and self._progress.phase is Phase.LISTING:
                await self._collect(taken, handler, initial, begun)
            else:
                await self._apply(taken, handler)
            if taken.failure:
                return end_of_status(taken.failure)
            if taken.lost_change:
                return WatchEnd(RestartReason.UNDECODABLE, "a change could not be read", relist=True)
            if is_simplified:
                lines[at] = await simplify_in_steps(lines[at])
            await asyncio.sleep(0)  # reading does not yield while data is waiting
        known = self._backlog.note_handled()
        if known is not None and self._has_news:
            self._progress.last_heard, self._has_news = known, False
        return None

    async def _apply(self, taken: Slice[T], handler: EventHandler[T]) -> None:
        _note_unreadable(taken, self._unreadable)
        self._progress.unreadable = len(self._unreadable)
        if taken.changes:
            await handler.apply(taken.changes)
        if taken.version not in _NO_VERSION:
            self._progress.resource_version = taken.version
            self._progress.error = ""
            self._had_event = self._has_news = True

    async def _collect(self, taken: Slice[T], handler: EventHandler[T], initial: Listed[T], begun: float) -> None:
        _note_unreadable(taken, initial.unreadable)
        for found, is_deleted in taken.changes:
            if is_deleted:
                initial.objects.pop(found.key, None)
            else:
                initial.objects[found.key] = found
        self._progress.listed = len(initial.objects)
        if taken.initial_events_end:
            await self._replace(handler, initial, taken.version, begun)
            self._progress.phase, self._progress.outage = Phase.WATCHING, ""
            initial.objects.clear()


def _note_unreadable(taken: Slice[T], unreadable: set[str]) -> None:
    """Keep the keys of the objects that cannot be read now."""
    if taken.unreadable:
        unreadable.add(taken.unreadable)
    if unreadable:
        unreadable.difference_update(found.key for found, _ in taken.changes)
