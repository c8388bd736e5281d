"""The objects of the embedded control plane: one version counter, one table and one history per kind.

Objects are kept as encoded JSON, so that a LIST joins bytes and a change is encoded once for all watchers. Nothing
here knows HTTP, and nothing here awaits: a write is done when the call returns, and its watchers have been told.
"""

import random
import sys
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.kinds import KINDS, Kind, key_of, kind_of
from extender.simulator.json_objects import JsonObject, node_of, timestamp

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_LONGEST_KEPT = 16 * 1024  # bytes of a watch line
SNAPSHOTS = 8  # paged LISTs in progress at one time; an older one is rebuilt from the history


class Stored(NamedTuple):
    """An object as it stood at one version: its key, that version, its JSON, and for a pod its node."""

    key: str
    version: int
    body: bytes
    node: str

    def read(self) -> JsonObject:
        """A fresh copy, free to be changed."""
        obj: JsonObject = orjson.loads(self.body)
        return obj


class Change:
    """One step of a kind's history: what an object became, and what it was."""

    __slots__ = ("_line", "at", "prefix", "previous", "stored", "type")

    def __init__(self, kind: str, stored: Stored, previous: Stored | None, prefix: bytes, at: float) -> None:
        self.type = kind
        self.stored = stored
        self.previous = previous
        self.prefix = prefix
        self.at = at
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The watch line, encoded on first use and shared by all watchers; a long one is not kept beside its body."""
        line = self._line or watch_line(self.type, self.prefix, self.stored.body)
        if len(line) <= _LONGEST_KEPT:
            self._line = line
        return line


def object_prefix(kind: Kind) -> bytes:
    """The opening of a complete object of that kind; bodies are stored without it, as LIST items come."""
    return b'{"kind":"%s","apiVersion":"%s",' % (kind.kind.encode(), kind.api_version.encode())


def complete(kind: Kind, body: bytes) -> bytes:
    """A stored body as an object that stands alone."""
    return object_prefix(kind) + body[1:]


def watch_line(event: str, prefix: bytes, body: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%s","object":%s%s}\n' % (event.encode(), prefix, body[1:])


class Table:
    """The objects of one kind and the last `capacity` changes made to them.

    Fact 1: `changes[i]` has the absolute number `dropped + i`; a reader keeps such a number as its place.
    Fact 2: `floor` is the version of the newest change that is no longer kept, so history is complete after it.
    Fact 3: versions rise from the place `begun` on. What lies before it was numbered before the counter was set back:
    readers in this process, which go by places, can still read it; a request that names a version cannot.
    """

    def __init__(self, kind: Kind, capacity: int) -> None:
        self.kind = kind
        self.capacity = capacity
        self.objects: dict[str, Stored] = {}
        self.changes: list[Change] = []
        self.dropped = 0
        self.floor = 0
        self.begun = 0
        self._keys: list[str] | None = []
        self._prefix = object_prefix(kind)
        self._listeners: list[Callable[[], None]] = []
        self._snapshots: dict[int, list[Stored]] = {}
        self._latest: list[Stored] | None = None

    @property
    def end(self) -> int:
        """The place after the newest change."""
        return self.dropped + len(self.changes)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called after each change; call the answer to stop that."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def since(self, place: int) -> list[Change] | None:
        """The changes from a place on; None when some of them are no longer kept."""
        return None if place < self.dropped else self.changes[place - self.dropped :]

    def place_of(self, version: int) -> int | None:
        """The place after everything up to that version; None when history does not reach back so far."""
        if version < self.floor:
            return None
        first = max(0, self.begun - self.dropped)
        return self.dropped + bisect_right(self.changes, version, first, key=lambda change: change.stored.version)

    def record(self, event: str, stored: Stored, at: float) -> None:
        """Take one change in and tell the listeners."""
        previous = self.objects.get(stored.key)
        if event == DELETED:
            del self.objects[stored.key]
        else:
            self.objects[stored.key] = stored
        self._keep_order(event, stored.key)
        self._latest = None
        self.changes.append(Change(event, stored, previous, self._prefix, at))
        # Trimmed in strides: deleting from the front of a list costs its length.
        if len(self.changes) > self.capacity * 5 // 4:
            self.forget(len(self.changes) - self.capacity)
        for wake in self._listeners:
            wake()

    def fill(self, rows: Iterable[Stored], version: int) -> None:
        """Take many objects in at once, without history: readers of older versions have to list again."""
        if self._listeners:
            raise RuntimeError(f"{self.kind.plural}: load before anyone watches; these objects would be missed")
        self.objects.update((stored.key, stored) for stored in rows)
        self._keys = self._latest = None
        self._snapshots.clear()
        self.forget(len(self.changes))
        self.floor = version

    def forget(self, count: int) -> None:
        """Drop the oldest changes, and the snapshots that only they could explain."""
        if count:
            if self.dropped + count > self.begun:
                self.floor = self.changes[count - 1].stored.version
            del self.changes[:count]
            self.dropped += count
        for version in [version for version in self._snapshots if version < self.floor]:
            del self._snapshots[version]

    def renumber(self, rows: Iterable[Stored], version: int) -> None:
        """Take the same objects in under other versions: for watchers history begins here, at that version."""
        self.objects = {stored.key: stored for stored in rows}
        self._snapshots.clear()
        self._latest = None
        self.begun, self.floor = self.end, version

    def latest(self) -> list[Stored]:
        """All objects now, in the order of their keys. The list is shared: read it only."""
        if self._latest is None:
            if self._keys is None:
                self._keys = sorted(self.objects)
            self._latest = [self.objects[key] for key in self._keys]
        return self._latest

    def at(self, version: int) -> list[Stored] | None:
        """All objects as they stood at that version; None when it lies before the history."""
        if version < self.floor:
            return None
        place = self.place_of(version)
        if place == self.end:
            return self.latest()
        if version not in self._snapshots:
            self._snapshots[version] = self._undo((place or 0) - self.dropped)
        return self._snapshots[version]

    def keep(self, version: int, rows: list[Stored]) -> None:
        """Remember the objects as they stood at that version, for the pages to come."""
        self._snapshots[version] = rows
        while len(self._snapshots) > SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]

    def _undo(self, start: int) -> list[Stored]:
        rows = dict(self.objects)
        for change in reversed(self.changes[start:]):
            if change.previous is None:
                rows.pop(change.stored.key, None)
            else:
                rows[change.stored.key] = change.previous
        return [rows[key] for key in sorted(rows)]

    def _keep_order(self, event: str, key: str) -> None:
        if self._keys is None or event == MODIFIED:
            return
        if event == ADDED:
            insort(self._keys, key)
        else:
            del self._keys[bisect_right(self._keys, key) - 1]


class Store:
    """All tables, under one counter of versions."""

    def __init__(self, *, history: int = 20_000, seed: int = 0, past: int = 1) -> None:
        self.version = past
        self.worked = 0.0
        self.tables = {kind: Table(kind, history) for kind in KINDS}
        self._rng = random.Random(seed)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Adds the processor time of the block to `worked`: what a real API server would do in a process of its own."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self.worked += time.thread_time() - begun

    def table(self, kind: Kind) -> Table:
        """The table of one kind."""
        return self.tables[kind]

    def find(self, kind: Kind, key: str) -> Stored:
        """One object; ApiError 404 when it is not there."""
        stored = self.tables[kind].objects.get(key)
        if stored is None:
            raise api_errors.not_found(kind, key.rpartition("/")[2])
        return stored

    def put(self, kind: Kind, obj: JsonObject) -> Stored:
        """Write an object, new or changed, under the next version (which is set in it)."""
        key = key_of(kind, obj)
        stored = self._encode(kind, key, obj)
        table = self.tables[kind]
        table.record(MODIFIED if key in table.objects else ADDED, stored, time.monotonic())
        return stored

    def remove(self, kind: Kind, key: str) -> Stored:
        """Take an object away; its last state carries the version of the removal, as watchers expect."""
        stored = self._encode(kind, key, self.find(kind, key).read())
        self.tables[kind].record(DELETED, stored, time.monotonic())
        return stored

    def load(self, objects: Iterable[JsonObject]) -> int:
        """Fill the store with complete objects before anyone watches; gives their number.

        About 5 µs an object. Fields which the API server sets itself are filled in where they are missing.
        """
        rows: dict[Kind, list[Stored]] = {}
        created = timestamp()
        for obj in objects:
            kind = kind_of(obj)
            metadata = obj["metadata"]
            metadata.setdefault("uid", self.new_uid())
            metadata.setdefault("creationTimestamp", created)
            body = {name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}}
            rows.setdefault(kind, []).append(self._encode(kind, key_of(kind, obj), body))
        for kind, stored in rows.items():
            self.tables[kind].fill(stored, self.version)
        return sum(map(len, rows.values()))

    def compact(self) -> None:
        """Forget all history: watches and pages from before now get 410 Expired."""
        for table in self.tables.values():
            table.forget(len(table.changes))
            table.floor = self.version

    def begin_again(self) -> None:
        """Count versions from 1 again, as after a restore: the objects stay, their history is gone.

        An earlier version lies in the future until the counter reaches it again; from then on the two cannot be told
        apart. A store can be given a past, so that this takes long.
        """
        self.version = 1
        tables = self.tables.items()
        rows = {
            kind: [self._encode(kind, key, old.read()) for key, old in table.objects.items()] for kind, table in tables
        }
        for kind, table in tables:
            table.renumber(rows[kind], self.version)

    def new_uid(self) -> str:
        """A uid from the seed, in the usual form."""
        text = f"{self._rng.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def _encode(self, kind: Kind, key: str, obj: JsonObject) -> Stored:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        node = node_of(obj) if kind.plural == "pods" else ""
        # Copied: orjson leaves its oversized buffer behind each result, seven times the bytes that are in use.
        return Stored(key, self.version, bytes(memoryview(orjson.dumps(obj))), sys.intern(node))


def read_version(text: str) -> int:
    """A resourceVersion from a query; empty counts as 0. ApiError when it is no number."""
    if not text:
        return 0
    if not text.isdecimal():
        raise api_errors.malformed_version(text)
    return int(text)
