"""WATCH: one stream of lines per watch, read from the table's history. Called by `apiserver/server.py`.

A watch has no queue, only its position in the history: a change wakes all watches, and each reads all changes since its
position. A watch that lags too far behind is ended without an error, as by a real API server.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.queries import Query, Selection
from extender.simulator.apiserver.store import Store, Table
from extender.simulator.json_objects import JsonObject

CHUNK = 500  # initial lines written at a time
_LONGEST = 3_600.0


class Watch:
    """The lines of one WATCH. It ends if it lags `slow_after` changes behind."""

    def __init__(self, store: Store, table: Table, query: Query, selection: Selection, *, slow_after: int) -> None:
        self.store = store
        self.table = table
        self.query = query
        self.selection = selection
        self.slow_after = slow_after
        self.wants_initial = query.initial_events if query.initial_events is not None else query.version == 0
        # Version 0 means "any version": the watch starts with the present objects, as from the watch cache.
        position = table.end if query.version == 0 or query.initial_events else table.position_of(query.version)
        self.is_expired = position is None
        self.position = position or 0
        if query.initial_events and query.version > store.version:
            raise api_errors.too_large_version(query.version, store.version)
        self._rows = table.latest() if self.wants_initial else []
        self.sent = store.version if self.wants_initial else query.version

    def expired_line(self) -> bytes:
        """The only line of a watch from a version before the history."""
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
        """The present objects, in parts; then a bookmark if the client requested it (KEP-3157)."""
        if not self.wants_initial:
            return
        rows = (stored for stored in self._rows if self.selection.holds(stored))
        while piece := list(islice(rows, CHUNK)):
            yield b"".join(map(self.selection.initial_line, piece))
        if self.query.initial_events and self.query.bookmarks:
            yield self.bookmark(self.sent, initial_events_end=True)
        self._rows = []

    def new_lines(self) -> list[bytes] | None:
        """The lines since the last call; None if this watch lags too far behind."""
        if self.table.end == self.position:
            return []
        if self.table.end - self.position > self.slow_after:
            return None
        changes = self.table.since(self.position)
        if changes is None:
            return None
        self.position = self.table.end
        line = self.selection.line
        # A watch may start at a future version; the changes before it are not sent.
        lines = [line(change) for change in changes if change.stored.version > self.sent]
        return [text for text in lines if text is not None]

    @property
    def may_bookmark(self) -> bool:
        """Whether the start version is reached. A watch from a future version gets no lines, as from the watch cache.

        The watch cache also omits the start version itself. That does not matter in a real cluster, where renewals of
        Leases advance the version all the time.
        """
        return self.store.version >= self.sent

    def bookmark(self, version: int | None = None, *, initial_events_end: bool = False) -> bytes:
        """A BOOKMARK: all changes up to its version have been sent."""
        metadata: JsonObject = {"resourceVersion": str(self.store.version if version is None else version)}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        zero = {} if self.selection.metadata_only else self.selection.kind.zero
        body = orjson.dumps({"metadata": metadata, **zero})
        return b'{"type":"BOOKMARK","object":%s%s}\n' % (self.selection.opening, body[1:])


class WatchTimer:
    """Wakes a watch: on a change, for a bookmark, or at its timeout."""

    def __init__(self, watch: Watch, bookmark_every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wake.set()  # there may be changes since the start version
        self._stop = watch.table.listen(self._wake.set)
        self.ends_at = self._loop.time() + (watch.query.timeout or _LONGEST)
        self._every = bookmark_every if watch.query.bookmarks else _LONGEST
        self._next = self._loop.time() + self._every

    def wake(self) -> None:
        """Wakes the watch now."""
        self._wake.set()

    def close(self) -> None:
        """Stops listening to the table."""
        self._stop()

    @property
    def is_over(self) -> bool:
        """Whether the watch's own timeout has passed."""
        return self._loop.time() >= self.ends_at

    async def bookmark_due(self) -> bool:
        """Waits for a change, the next bookmark or the timeout. Returns whether a bookmark is due."""
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
