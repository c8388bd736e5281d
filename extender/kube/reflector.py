"""Keeps somebody told of every object of one kind: list, then watch, for as long as the task runs.

Speaks the protocol and nothing else: what the objects mean, and where they go, is the sink's affair. Fits
``tasks.ports.ObjectReflector`` by shape. One task runs it; if that task dies, a new run begins with a new list.

Facts it rests on (API concepts, KEP-3157; measured on 1.36 where said):
1. A watch goes on from a resourceVersion that a list, an event or a bookmark gave; never from "0" or "", which mean
   "whatever you have". Versions are compared for equality only.
2. A plain end is normal: timeoutSeconds is over, or we were too slow in a burst (measured). Going on from the last
   version misses nothing. After 410, as status or as event, only a new list does.
3. The version moves on when the sink has taken the changes, not before: whatever breaks in between is sent again.
4. Until a new list is complete the sink knows nothing of it; it then gets all objects at once.
5. What was read is what is known: `backlog` says up to when.
6. A server that came back with an older history (restored from a backup) filters everything up to our version, bookmarks
   too: it is silent. A list that must not be older than our version it refuses with 504, so each watch is preceded by
   one of a single object. We also list again when nobody took our call, and after the second silence in a row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from random import Random
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Raw

from extender.kube.backlog import Backlog
from extender.kube.decoding import Listed, Slice, SliceDecoder
from extender.kube.errors import Expired, KubeError, Refused, TooLarge
from extender.kube.lines import LineSplitter, LineTooLongError
from extender.kube.options import WatchOptions
from extender.kube.reflector_status import Phase, ReflectorProgress, ReflectorStatus, RestartReason
from extender.kube.session import ByteStream, Connection
from extender.kube.simplifying import readable_page, simplified
from extender.kube.timing import Backoff, Clock
from extender.kube.watch_end import WatchEnd, end_of_error, end_of_status, refuses_watch_list
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.kinds import Kind

_LOG = logging.getLogger(__name__)
_NO_VERSION: Final = frozenset({"", "0"})
_SHORT_WATCH: Final = 1.0  # a watch that ends before this and has told nothing counts as a failure
_OUTAGES: Final = frozenset({RestartReason.REFUSED, RestartReason.UNDECODABLE, RestartReason.OVERSIZED})
_SMALLER_PAGES: Final = 4  # what a page's limit is divided by when the page was too large
_LARGER_PAGES: Final = 16  # and multiplied by for the next list, when a list expired half-way
_LARGEST_LIMIT: Final = 10**6
_INITIAL_TRIES: Final = 3  # streaming lists that may break off before one list is read in pages

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", contravariant=True)


class EventHandler(Protocol[T_contra]):
    """Who is told. Both may wait, which holds this kind's stream back and nothing else."""

    async def replace(self, objects: Sequence[T_contra], unreadable: Collection[str] = ()) -> None:
        """These are all objects of the kind now, and those of these keys, which stay as they were last read."""

    async def apply(self, changes: Sequence[tuple[T_contra, bool]]) -> None:
        """(object, whether it is gone), in order. The same change may come twice, after a cut."""


class Reflector(Generic[T]):
    """The feed of one kind."""

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
        self._doubts = 0
        self._heard = False
        self._has_told = False  # an event or a bookmark, since `last_heard` moved on
        self._is_listing = False

    @property
    def last_heard(self) -> float:
        """When what the sink has taken last was the truth; asked often, so without a whole status."""
        return self._progress.last_heard

    @property
    def is_behind(self) -> bool:
        """Whether the server has told more than the sink has taken. Asked for every question."""
        return self._backlog.is_behind

    async def caught_up(self) -> None:
        """Wait until the sink has taken all that has arrived by now."""
        await self._backlog.caught_up()

    @property
    def outage(self) -> str:
        """Why changes are missed now, empty where none are known to be; asked as often."""
        return self._progress.outage

    def status(self) -> ReflectorStatus:
        """Where the feed stands now."""
        return self._progress.snapshot()

    async def run(self, sink: EventHandler[T]) -> None:
        """Tell ``sink`` of everything until cancelled. Raises only what the sink raises."""
        self._progress.resource_version = ""  # whatever an earlier run has told may not have been taken
        try:
            while True:
                begun, self._heard = self._clock.now(), False
                ending = await self._round(sink)
                if ending is not None:
                    await self._pause(ending, self._clock.now() - begun)
        finally:
            self._progress.outage = f"the feed of {self.name} has ended"

    async def _round(self, sink: EventHandler[T]) -> WatchEnd | None:
        """One watch from where we are, or one list; None when a list is complete and the watch can begin."""
        self._is_listing = False
        if self._progress.resource_version not in _NO_VERSION:
            return await self._watch(sink)
        self._progress.phase, self._progress.listed, self._progress.page = Phase.LISTING, 0, 0
        self._progress.list_begun = self._clock.now()
        if self._streams_lists and self._initial_failures < _INITIAL_TRIES:
            return await self._stream_list(sink)
        self._is_listing = True
        return await self._list(sink)

    async def _pause(self, ending: WatchEnd, lasted: float) -> None:
        """Draw the conclusions of an ending, then wait as long as it asks."""
        progress = self._progress
        progress.restarts[ending.why] += 1
        text = ending.text
        if ending.why is RestartReason.REFUSED:
            text = f"{'list' if self._is_listing else 'watch'} of {self.name} refused: {text}"
        if ending.why in _OUTAGES:
            progress.outage = text
        self._doubts = self._doubts + 1 if ending.doubtful and not self._heard else 0
        if ending.relist or self._doubts > 1:
            progress.resource_version, self._doubts = "", 0
        is_normal = ending.why is RestartReason.ENDED and (self._heard or lasted >= _SHORT_WATCH)
        if is_normal or (self._heard and ending.why not in _OUTAGES):  # a bookmark before each bad line heals nothing
            self._backoff.reset()
        if is_normal or ending.at_once:
            return
        progress.phase, progress.error = Phase.WAITING, text
        wait = max(self._backoff.next(), ending.retry_after)
        _LOG.warning("%s: %s (%s), again in %.1f s", self.name, ending.why, text, wait)
        await self._clock.sleep(wait)

    # -- lists --------------------------------------------------------------------------------------------------

    async def _list(self, sink: EventHandler[T]) -> WatchEnd | None:
        """A consistent LIST in pages."""
        begun, listed = self._clock.now(), Listed[T]()
        try:
            version = await self._read_pages(listed)
        except Expired as error:
            # The error offers a token for the rest as it is now. A list glued together so keeps objects that were
            # deleted in between, for good. Instead begin again, in larger pages, of which fewer can expire.
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
        await self._replace(sink, listed, version, begun)
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
            page = await readable_page(body)
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
                items[at] = await simplified(bytes(items[at]))
            await asyncio.sleep(0)

    async def _replace(self, sink: EventHandler[T], listed: Listed[T], version: str, as_of: float) -> None:
        """Hand over a complete list; ``as_of`` is the last moment at which it was surely the truth."""
        progress, objects = self._progress, list(listed.objects.values())
        self._unreadable = listed.unreadable
        progress.unreadable = len(listed.unreadable)
        await sink.replace(objects, frozenset(listed.unreadable))
        progress.relists += progress.synced
        progress.synced, progress.error, progress.last_heard = True, "", as_of
        progress.resource_version = version
        self._initial_failures = 0
        _LOG.info("%s: %d listed, resourceVersion %s", self.name, len(objects), version)

    # -- watches ------------------------------------------------------------------------------------------------

    async def _stream_list(self, sink: EventHandler[T]) -> WatchEnd:
        """A streaming list, which goes on as the watch (KEP-3157)."""
        self._initial_failures += 1
        try:
            query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return await self._follow(sink, query, Listed())
        except KubeError as error:
            if self._progress.phase is Phase.LISTING and refuses_watch_list(error):
                return self._without_watch_list(str(error))
            return end_of_error(error)

    def _without_watch_list(self, text: str) -> WatchEnd:
        _LOG.info("%s: no streaming lists here, reading pages: %s", self.name, text)
        self._streams_lists = False
        return WatchEnd(RestartReason.NO_WATCH_LIST, text, relist=True, at_once=True)

    async def _watch(self, sink: EventHandler[T]) -> WatchEnd:
        try:
            await self._confirm_version()
            return await self._follow(sink, {"resourceVersion": self._progress.resource_version}, None)
        except KubeError as error:
            return end_of_error(error)

    async def _confirm_version(self) -> None:
        """Have the server say that it has come as far as our version; one that has not, but soon will, answers then."""
        query = {"limit": "1", "resourceVersion": self._progress.resource_version}
        query["resourceVersionMatch"] = "NotOlderThan"
        try:
            await self._connection.call("GET", self._kind.path, query=query, limit=self._options.confirm_timeout)
        except Refused as error:
            _LOG.debug("%s: cannot confirm our resourceVersion: %s", self.name, error)  # the watch itself may work

    async def _follow(self, sink: EventHandler[T], query: dict[str, str], initial: Listed[T] | None) -> WatchEnd:
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
            self._has_told = False
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
                    ending = await self._take(splitter.feed(chunk), sink, initial, begun)
                    if ending:
                        return ending
            except LineTooLongError as error:
                return WatchEnd(RestartReason.OVERSIZED, str(error), relist=True)
            finally:
                self._backlog.end()

    async def _read(self, stream: ByteStream, patience: float) -> bytes | None:
        chunk = await stream.read(max(patience, 0.0))
        if chunk:
            self._progress.bytes_read += len(chunk)
            self._backlog.received(len(chunk), self._clock.now())
        return chunk

    async def _take(
        self, lines: list[bytes], sink: EventHandler[T], initial: Listed[T] | None, begun: float
    ) -> WatchEnd | None:
        """Pass on what a chunk brought, slice by slice; an Ending if there is no use in reading on."""
        at, is_simplified = 0, False
        while at < len(lines):
            taken = self._decoder.decode_lines(lines, at, is_simplified=is_simplified)
            at, is_simplified = taken.end, taken.must_simplify
            self._progress.events += len(taken.changes)
            if initial is not None and self._progress.phase is Phase.LISTING:
                await self._collect(taken, sink, initial, begun)
            else:
                await self._apply(taken, sink)
            if taken.failure:
                return end_of_status(taken.failure)
            if taken.lost_change:
                return WatchEnd(RestartReason.UNDECODABLE, "a change could not be read", relist=True)
            if is_simplified:
                lines[at] = await simplified(lines[at])
            await asyncio.sleep(0)  # reading does not give way while data is waiting
        known = self._backlog.taken()
        if known is not None and self._has_told:
            self._progress.last_heard, self._has_told = known, False
        return None

    async def _apply(self, taken: Slice[T], sink: EventHandler[T]) -> None:
        _note_unreadable(taken, self._unreadable)
        self._progress.unreadable = len(self._unreadable)
        if taken.changes:
            await sink.apply(taken.changes)
        if taken.version not in _NO_VERSION:
            self._progress.resource_version = taken.version
            self._progress.error = ""
            self._heard = self._has_told = True

    async def _collect(self, taken: Slice[T], sink: EventHandler[T], initial: Listed[T], begun: float) -> None:
        _note_unreadable(taken, initial.unreadable)
        for found, gone in taken.changes:
            if gone:
                initial.objects.pop(found.key, None)
            else:
                initial.objects[found.key] = found
        self._progress.listed = len(initial.objects)
        if taken.initial_events_end:
            await self._replace(sink, initial, taken.version, begun)
            self._progress.phase, self._progress.outage = Phase.WATCHING, ""
            initial.objects.clear()


def _note_unreadable(taken: Slice[T], unreadable: set[str]) -> None:
    """Keep the keys of the objects that cannot be read now."""
    if taken.unreadable:
        unreadable.add(taken.unreadable)
    if unreadable:
        unreadable.difference_update(found.key for found, _ in taken.changes)
