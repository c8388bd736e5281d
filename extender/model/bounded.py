"""A cache bounded in bytes, for results that are cheap to make again, such as parsed templates.

A bound by number says nothing about memory when one key can be a megabyte. So each entry has a size, what is larger
than a fair share of the whole is not kept at all, and each new entry evicts those that have not been used.
`shrink` and `Few` are for tables that have no bound: they hold what exists. `DeletedPods` is bounded by number, and `PreparedValue`
holds one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Container, Generator, Hashable, Iterable, Iterator
from functools import wraps
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple

# No entry may be larger than this part of the cache: one that is would push out many that are used more often.
FAIR_SHARE: Final = 16

# A dictionary takes some 100 bytes an entry when it has just grown. Up to `_SMALL` it is left as it is.
_SMALL: Final = 16 * 2**10
_EMPTY_BYTES_AN_ENTRY: Final = 800

_BUCKETS, _SLOTS = 2048, 16  # of `DeletedPods`
MOST_DELETED: Final = _BUCKETS * _SLOTS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Ts = TypeVarTuple("Ts")


# Work that others may run in between of: it yields after each step, and returns the result.
Steps: TypeAlias = Generator[None, None, V]


# A set of distinct items in the order in which they were added, most of the time one or two: `with_item`, `without_item`.
Few: TypeAlias = dict[K, None] | tuple[K, ...]
_MOST_IN_TUPLE: Final = 4  # a tuple of them takes a quarter of the memory of a set, and is as fast to search


def with_item(items: Few[K], item: K) -> Few[K]:
    """The items and one more, to be put in the place of the items. O(1)."""
    if isinstance(items, dict):
        items[item] = None
        return items
    if item in items:
        return items
    return dict.fromkeys((*items, item)) if len(items) == _MOST_IN_TUPLE else (*items, item)


def without_item(items: Few[K], item: K) -> Few[K]:
    """The items less one, if it is there, to be put in the place of the items. Amortised O(1)."""
    if isinstance(items, dict):
        items.pop(item, None)
        shrink(items)
        return items if len(items) > 1 else tuple(items)
    return tuple(each for each in items if each != item)


def in_turns(queues: Iterable[Iterable[V]]) -> Iterator[V]:
    """The first item of each queue, then the second of each, and so on: where queues of many share what is bounded."""
    waiting = [iter(queue) for queue in queues]
    while waiting:
        left = []
        for queue in waiting:
            for item in queue:
                yield item
                left.append(queue)
                break
        waiting = left


class _Entry(Generic[V]):
    """``in_use``: it has been looked up since it was made, or since it was last considered for eviction."""

    __slots__ = ("in_use", "size", "value")

    def __init__(self, value: V, size: int) -> None:
        self.value = value
        self.size = size
        self.in_use = False


def shrink(table: dict[Any, Any]) -> None:
    """Gives back the memory of a table from which most entries were deleted: a dictionary does not do so by itself.

    To be called after deletions, while nothing iterates over the table. Amortised O(1), 0.1 µs if it is full enough.
    """
    size = sys.getsizeof(table)
    if size > _SMALL and size > _EMPTY_BYTES_AN_ENTRY * len(table):
        entries = list(table.items())
        table.clear()
        table.update(entries)


class BoundedCache(Generic[K, V]):
    """At most ``most_bytes`` of entries, by the sizes that they are put with; 0 keeps nothing.

    Eviction is by second chance: an entry that was looked up since it was last considered stays for one more round. It
    costs a look-up one write of a flag; keeping the exact order of use would cost it two writes to the table.
    """

    def __init__(self, most_bytes: int, fair_share: int = FAIR_SHARE) -> None:
        self.bytes = 0
        self._most_bytes = most_bytes
        self._largest = most_bytes // fair_share
        self._held: dict[K, _Entry[V]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """The value of a key, None where it is not kept. O(1)."""
        entry = self._held.get(key)
        if entry is None:
            return None
        entry.in_use = True
        return entry.value

    def put(self, key: K, value: V, size: int) -> None:
        """Keeps a value in place of an earlier one, unless it is too large; then the key has none. Amortised O(1)."""
        self.discard(key)
        if size > self._largest:
            return
        while self.bytes + size > self._most_bytes:  # before it is added: nothing has looked it up yet
            self._drop_one()
        self._held[key] = _Entry(value, size)
        self.bytes += size

    def discard(self, key: K) -> None:
        """Drops a key. O(1)."""
        entry = self._held.pop(key, None)
        if entry is not None:
            self.bytes -= entry.size

    def _drop_one(self) -> None:
        """Drops the first that is not in use; those before it go to the end."""
        while True:
            key = next(iter(self._held))
            entry = self._held[key]
            if not entry.in_use:
                self.discard(key)
                return
            entry.in_use = False
            self._held[key] = self._held.pop(key)


class SharedTexts(dict[str, str]):
    """One object for equal texts, as all pods of a node have its name: `shared[text]`. O(1), as fast as `sys.intern`.

    Python 3.12 never frees a text that `sys.intern` was called with, so tenants could make the process grow by labels that no
    other object has. Here a full table is emptied: what is looked up again is shared from then on.
    """

    MOST: Final = 2**17
    LONGEST: Final = 128  # characters; longer texts are rarely those of many objects

    def __missing__(self, text: str) -> str:
        """Adds a text that was not looked up since the table was empty."""
        if len(text) > self.LONGEST:
            return text
        if len(self) >= self.MOST:
            self.clear()
        self[text] = text
        return text


# One string object for equal strings: the names of nodes, namespaces and resources, and labels.
shared: Final = SharedTexts().__getitem__
# Names of one object that are shared; more are unlikely to occur in other objects.
SHARED_NAMES: Final = 200


class PreparedValue(Generic[K, V]):
    """What was made in steps of a value that is too large to be read at once, until it is read; only the last one.

    `read` makes at once what was not prepared.
    """

    def __init__(self, make: Callable[[K], Steps[V]]) -> None:
        self._make = make
        self._held: tuple[K, V] | None = None

    def prepare(self, key: K) -> Steps[None]:
        """Makes it. Raises what making it raises."""
        self._held = None
        self._held = key, (yield from self._make(key))

    def read(self, key: K) -> V:
        """What was made of an equal value, which is then dropped, or what is made now."""
        held = self._held
        if held is not None and held[0] == key:
            self._held = None
            return held[1]
        return at_once(self._make(key))


def at_once(steps: Steps[V]) -> V:
    """The result of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: V = end.value
            return result


def cached(
    most_bytes: int, size_of: Callable[[*Ts], int], fair_share: int = FAIR_SHARE
) -> Callable[[Callable[[*Ts], V]], Callable[[*Ts], V]]:
    """Decorates a function of hashable arguments, given by position, whose result is never None; as ``lru_cache`` does.

    ``size_of`` the arguments is about how many bytes they and the result hold.
    """

    def decorate(make: Callable[[*Ts], V]) -> Callable[[*Ts], V]:
        cache: BoundedCache[tuple[*Ts], V] = BoundedCache(most_bytes, fair_share)
        get, put = cache.get, cache.put

        @wraps(make)
        def look_up(*args: *Ts) -> V:
            found = get(args)
            if found is None:
                found = make(*args)
                put(args, found, size_of(*args))
            return found

        return look_up

    return decorate


class DeletedPods:
    """The UIDs of the pods that were deleted last: in each bucket of hashes the last `_SLOTS`, so at least some 10,000 in all.

    The scheduler may send a filter request for a pod whose deletion its watch has not shown yet. No later event would end an
    assumption or a recorded rejection of such a pod, so neither may begin. UIDs are never reused.

    Hashes in one array made beforehand, and no object for each: a small one that is made while a pod is taken apart
    would take the place of the pod, and keep the allocator from returning that memory. The hash is seeded, so a
    UID is mistaken for another once in 10**15 times.
    """

    def __init__(self, pods: Container[str]) -> None:
        """``pods``: the UIDs of those that exist. An API server that is restored from a backup has deleted ones again."""
        self._pods = pods
        self._held = array("q", bytes(8 * MOST_DELETED))

    def __contains__(self, uid: object) -> bool:
        mark, start = _place(uid)
        return mark in self._held[start : start + _SLOTS] and uid not in self._pods

    def add(self, uid: str) -> None:
        """Records a deletion. O(1)."""
        mark, start = _place(uid)
        bucket = self._held[start : start + _SLOTS]
        if mark not in bucket:
            self._held[start + 1 : start + _SLOTS] = bucket[:-1]
            self._held[start] = mark


def _place(uid: object) -> tuple[int, int]:
    """The hash of a UID, never 0, and where its bucket begins."""
    mark = hash(uid) or 1
    return mark, mark % _BUCKETS * _SLOTS
