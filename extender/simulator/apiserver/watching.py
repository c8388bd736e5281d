"""WATCH: one stream of lines per watcher, read from the table's history at the watcher's own place.

There is no queue per watcher and no task per event: a change wakes the watchers, and each takes all that is new in
one go. A watcher that lags further behind than the history reaches is cut with a plain end of the stream, as the
real server cuts slow watchers. Called by `apiserver/server.py`.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.queries import Query, Selection
from extender.simulator.apiserver.store import Store, Table
from extender.simulator.json_objects import JsonObject

CHUNK = 500  # initial lines joined at a time
_LONGEST = 3_600.0


class Watch:
    """The lines of one WATCH; `slow_after` changes behind, it is over."""

    def __init__(self, store: Store, table: Table, query: Query, selection: Selection, *, slow_after: int) -> None:
        self.store = store
        self.table = table
        self.query = query
        self.selection = selection
        self.slow_after = slow_after
        self.wants_initial = query.initial_events if query.initial_events is not None else query.version == 0
        place = table.end if query.version == 0 or query.initial_events else table.place_of(query.version)
        self.is_expired = place is None
        self.place = place or 0
        if query.initial_events and query.version > store.version:
            raise api_errors.too_large_version(query.version, store.version)
        self._rows = table.latest() if self.wants_initial else []
        self.sent = store.version if self.wants_initial else query.version

    def expired_line(self) -> bytes:
        """The one line of a watch from a version that is no longer known."""
        message = f"too old resource version: {self.query.version} ({self.table.floor})"
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Expired",
            "code": 410,
        }
        return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"

    def initial(self) -> Iterator[bytes]:
        """What is there already, in pieces; ends with a bookmark where the watcher asked for one (KEP-3157)."""
        if not self.wants_initial:
            return
        rows = (stored for stored in self._rows if self.selection.holds(stored))
        while piece := list(islice(rows, CHUNK)):
            yield b"".join(map(self.selection.initial_line, piece))
        if self.query.initial_events and self.query.bookmarks:
            yield self.bookmark(self.sent, initial_events_end=True)
        self._rows = []

    def news(self) -> list[bytes] | None:
        """The lines since the last call; None when this watcher is too slow to be served on."""
        if self.table.end == self.place:
            return []
        if self.table.end - self.place > self.slow_after:
            return None
        changes = self.table.since(self.place)
        if changes is None:
            return None
        self.place = self.table.end
        line = self.selection.line
        # A watch may start at a version still to come: what lies before it is not for this watcher.
        lines = [line(change) for change in changes if change.stored.version > self.sent]
        return [text for text in lines if text is not None]

    @property
    def may_bookmark(self) -> bool:
        """Whether there is anything to say. A watch from a version still to come is told nothing, as by the real cache.

        That one also holds back the very version that was asked for; but in a real cluster, where Leases are renewed
        all the time, the version never stands still.
        """
        return self.store.version >= self.sent

    def bookmark(self, version: int | None = None, *, initial_events_end: bool = False) -> bytes:
        """A BOOKMARK: everything up to its version has been sent."""
        metadata: JsonObject = {"resourceVersion": str(self.store.version if version is None else version)}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        zero = {} if self.selection.metadata_only else self.selection.kind.zero
        body = orjson.dumps({"metadata": metadata, **zero})
        return b'{"type":"BOOKMARK","object":%s%s}\n' % (self.selection.opening, body[1:])


class Pulse:
    """Tells a watch when to look again: on a change, for a bookmark, or because its time is up."""

    def __init__(self, watch: Watch, bookmark_every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wake.set()  # there may be news since the version that the watch starts from
        self._stop = watch.table.listen(self._wake.set)
        self.ends_at = self._loop.time() + (watch.query.timeout or _LONGEST)
        self._every = bookmark_every if watch.query.bookmarks else _LONGEST
        self._next = self._loop.time() + self._every

    def wake(self) -> None:
        """Have the watch look again now."""
        self._wake.set()

    def close(self) -> None:
        """Listen no longer."""
        self._stop()

    @property
    def is_over(self) -> bool:
        """Whether the watch's own timeout has passed."""
        return self._loop.time() >= self.ends_at

    async def bookmark_due(self) -> bool:
        """Wait for a change or for the clock; whether a bookmark is due."""
        try:
            async with asyncio.timeout_at(min(self._next, self.ends_at)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        if self._loop.time() < self._next:
            return False
        self._next = self._loop.time() + self._every
        return True
