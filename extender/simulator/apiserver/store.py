"""The objects of the simulated API server: one version counter, and a table with its history for each kind.

Objects are stored as JSON, so that a LIST joins bytes and a change is encoded once for all watches. No HTTP, no await: a
write is done, and its listeners are notified, when the call returns.
"""

import random
import sys
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.kinds import KINDS, ServedKind, key_of, kind_of
from extender.simulator.json_objects import JsonObject, node_of, timestamp
from extender.simulator.process_usage import OtherWork

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_LONGEST_KEPT = 16 * 1024  # bytes of a watch line that is cached
SNAPSHOTS = 8  # versions kept for LISTs in progress; an older one is rebuilt from the history


class Stored(NamedTuple):
    """An object at one version: key, version, JSON, and for a pod its node."""

    key: str
    version: int
    body: bytes
    node: str

    def read(self) -> JsonObject:
        """A new copy, which may be changed."""
        obj: JsonObject = orjson.loads(self.body)
        return obj


class ServedChange:
    """One change of an object: the new state and the previous one."""

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
        """The watch line, encoded at the first use and shared by all watches. Long lines are not cached."""
        line = self._line or watch_line(self.type, self.prefix, self.stored.body)
        if len(line) <= _LONGEST_KEPT:
            self._line = line
        return line


def object_prefix(kind: ServedKind) -> bytes:
    """The start of a complete object of that kind. Stored bodies omit it, as the items of a LIST do."""
    return b'{"kind":"%s","apiVersion":"%s",' % (kind.kind.encode(), kind.api_version.encode())


def complete(kind: ServedKind, body: bytes) -> bytes:
    """A stored body as a complete object."""
    return object_prefix(kind) + body[1:]


def watch_line(event: str, prefix: bytes, body: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%s","object":%s%s}\n' % (event.encode(), prefix, body[1:])


class Table:
    """The objects of one kind and their last `capacity` changes.

    Fact 1: `changes[i]` has the position `dropped + i`; readers remember positions.
    Fact 2: `floor` is the version of the newest dropped change, so the history after it is complete.
    Fact 3: versions increase from the position `reset_at` on. Earlier changes have versions from before a reset: readers
    in this process, which use positions, can still read them; requests, which use versions, cannot.
    """

    def __init__(self, kind: ServedKind, capacity: int) -> None:
        self.kind = kind
        self.capacity = capacity
        self.objects: dict[str, Stored] = {}
        self.changes: list[ServedChange] = []
        self.dropped = 0
        self.floor = 0
        self.reset_at = 0
        self._keys: list[str] | None = []
        self._prefix = object_prefix(kind)
        self._listeners: list[Callable[[], None]] = []
        self._snapshots: dict[int, Sequence[Stored]] = {}
        self._latest: list[Stored] | None = None

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self.dropped + len(self.changes)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` after each change, until the returned function is called."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def since(self, position: int) -> list[ServedChange] | None:
        """The changes from a position on; None if some of them were dropped."""
        return None if position < self.dropped else self.changes[position - self.dropped :]

    def position_of(self, version: int) -> int | None:
        """The position after the changes up to that version; None if the history does not reach back so far."""
        if version < self.floor:
            return None
        # Versions before the reset are larger than those after it, so the binary search must not see them.
        first = max(0, self.reset_at - self.dropped)
        return self.dropped + bisect_right(self.changes, version, first, key=lambda change: change.stored.version)

    def record(self, event: str, stored: Stored, at: float) -> None:
        """Applies a change and notifies the listeners."""
        previous = self.objects.get(stored.key)
        if event == DELETED:
            del self.objects[stored.key]
        else:
            self.objects[stored.key] = stored
        self._keep_order(event, stored.key)
        self._latest = None
        self._append(ServedChange(event, stored, previous, self._prefix, at))

    def _append(self, change: ServedChange) -> None:
        """Adds a change to the history and notifies the listeners."""
        self.changes.append(change)
        # Dropped in batches: deleting from the front of a list costs O(length).
        if len(self.changes) > self.capacity * 5 // 4:
            self.forget(len(self.changes) - self.capacity)
        for wake in self._listeners:
            wake()

    def fill(self, rows: Iterable[Stored], version: int) -> None:
        """Adds many objects without history: readers of older versions have to list again."""
        # Listeners see changes only, so they would miss objects that are loaded now.
        if self._listeners:
            raise RuntimeError(f"{self.kind.plural}: load objects before the first watch, which would miss them")
        self.objects.update((stored.key, stored) for stored in rows)
        self._keys = self._latest = None
        self._snapshots.clear()
        self.forget(len(self.changes))
        self.floor = version

    def forget(self, count: int) -> None:
        """Drops the oldest changes, and the snapshots of versions before them."""
        if count:
            # Changes before the reset have versions of another history, so they do not move the floor.
            if self.dropped + count > self.reset_at:
                self.floor = self.changes[count - 1].stored.version
            del self.changes[:count]
            self.dropped += count
        for version in [version for version in self._snapshots if version < self.floor]:
            del self._snapshots[version]

    def renumber(self, rows: Iterable[Stored], version: int) -> None:
        """Replaces the objects by the same ones with other versions. The history for watches starts at `version`."""
        self.objects = {stored.key: stored for stored in rows}
        self._snapshots.clear()
        self._latest = None
        self.reset_at, self.floor = self.end, version

    def latest(self) -> Sequence[Stored]:
        """All objects now, ordered by key. The list is shared: do not change it."""
        if self._latest is None:
            if self._keys is None:
                self._keys = sorted(self.objects)
            self._latest = [self.objects[key] for key in self._keys]
        return self._latest

    def at(self, version: int) -> Sequence[Stored] | None:
        """All objects at that version; None if it is before the history."""
        if version < self.floor:
            return None
        position = self.position_of(version)
        if position == self.end:
            return self.latest()
        if version not in self._snapshots:
            self._snapshots[version] = self._undo((position or 0) - self.dropped)
        return self._snapshots[version]

    def keep(self, version: int, rows: Sequence[Stored]) -> None:
        """Keeps the objects of that version for the next pages."""
        self._snapshots[version] = rows
        while len(self._snapshots) > SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]

    def _undo(self, start: int) -> list[Stored]:
        rows = dict(self.objects)
        for change in reversed(self.changes[start:]):
            # An object that this change created did not exist before it.
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
            # The list stays sorted, so a list request sorts nothing.
            del self._keys[bisect_right(self._keys, key) - 1]


class Store:
    """All tables, with one counter of versions."""

    def __init__(self, *, history: int = 20_000, seed: int = 0, initial_version: int = 1) -> None:
        self.version = initial_version
        self.other_work = OtherWork()  # of the API server and of all clients but the extender
        self.tables = {kind: Table(kind, history) for kind in KINDS}
        self._rng = random.Random(seed)

    def table(self, kind: ServedKind) -> Table:
        """The table of one kind."""
        return self.tables[kind]

    def find(self, kind: ServedKind, key: str) -> Stored:
        """One object. Raises ApiError 404 if it does not exist."""
        stored = self.tables[kind].objects.get(key)
        if stored is None:
            raise api_errors.not_found(kind, key.rpartition("/")[2])
        return stored

    def put(self, kind: ServedKind, obj: JsonObject) -> Stored:
        """Writes an object, new or changed, and sets its next version."""
        key = key_of(kind, obj)
        stored = self._encode(kind, key, obj)
        table = self.tables[kind]
        # Whether the key exists, not what the caller intends, decides about the event: watchers must see a valid sequence.
        table.record(MODIFIED if key in table.objects else ADDED, stored, time.monotonic())
        return stored

    def remove(self, kind: ServedKind, key: str) -> Stored:
        """Removes an object. Its last state has the version of the removal, as in a DELETED event."""
        stored = self._encode(kind, key, self.find(kind, key).read())
        self.tables[kind].record(DELETED, stored, time.monotonic())
        return stored

    def load(self, objects: Iterable[JsonObject]) -> int:
        """Fills the store with complete objects before the first watch, and returns their number. 5 µs per object.

        Missing fields that the API server sets are filled in.
        """
        rows: dict[ServedKind, list[Stored]] = {}
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
        """Drops all history: watches and pages of earlier versions get 410 Expired."""
        for table in self.tables.values():
            table.forget(len(table.changes))
            table.floor = self.version

    def reset_versions(self, first: int = 1) -> None:
        """Restarts the versions at a lower one, as a restore from a backup does: keeps the objects and drops their history.

        An old version is in the future until the counter reaches it again; then the two cannot be distinguished.
        `initial_version` delays that.
        """
        self.version = first
        tables = self.tables.items()
        rows = {
            kind: [self._encode(kind, key, old.read()) for key, old in table.objects.items()] for kind, table in tables
        }
        # After the versions of all kinds: the history of each kind starts at the version of the last object.
        for kind, table in tables:
            table.renumber(rows[kind], self.version)

    def new_uid(self) -> str:
        """A UID from the seed."""
        text = f"{self._rng.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def _encode(self, kind: ServedKind, key: str, obj: JsonObject) -> Stored:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        node = node_of(obj) if kind.plural == "pods" else ""
        # Copied, because the result of orjson keeps its buffer, which is up to seven times larger.
        return Stored(key, self.version, bytes(memoryview(orjson.dumps(obj))), sys.intern(node))


def read_version(text: str) -> int:
    """Parses a resourceVersion of a query; empty is 0. Raises ApiError if it is not a number."""
    if not text:
        return 0
    if not text.isdecimal():
        raise api_errors.malformed_version(text)
    return int(text)
