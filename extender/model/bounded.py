"""A cache bounded in bytes, for results that are cheap to make again, such as parsed templates.

A bound by number says nothing about memory, because one key can be a megabyte. So each entry has a size. A value larger
than a fair share of the cache is not kept. Each new entry evicts entries that were not looked up.

Also here: `shrink`, `DictInParts`, `DictInOrder` and `Few` for tables without a bound, `DeletedPods` (bounded by number),
`PreparedValue` (one value).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import (
    Callable,
    Container,
    Generator,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from functools import wraps
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, overload

# No entry may be larger than this part of the cache: a larger entry would evict many that are used more often.
FAIR_SHARE: Final = 16

# A dictionary takes some 100 bytes an entry when it has just grown. Up to `_SMALL` it is left as it is.
_SMALL: Final = 16 * 2**10
_EMPTY_BYTES_AN_ENTRY: Final = 800

_PARTS: Final = 29  # of `DictInParts`: each hexadecimal digit has a part of its own

_BUCKETS, _SLOTS = 2048, 16  # of `DeletedPods`
MOST_DELETED: Final = _BUCKETS * _SLOTS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")


# Work in steps: it yields after each step, so that other work may run in between, and returns the result at the end.
Steps: TypeAlias = Generator[None, None, V]


# A set of distinct items in the order in which they were added, mostly one or two: see `with_item`, `without_item`.
Few: TypeAlias = dict[K, None] | tuple[K, ...]
_MOST_IN_TUPLE: Final = 4  # a tuple of four takes a quarter of the memory of a set, and is as fast to search


def with_item(items: Few[K], item: K) -> Few[K]:
    """The items and one more. The caller stores the result in place of ``items``. O(1)."""
    if isinstance(items, dict):
        items[item] = None
        return items
    if item in items:
        return items
    return dict.fromkeys((*items, item)) if len(items) == _MOST_IN_TUPLE else (*items, item)


def few_of(items: Sequence[K]) -> Few[K]:
    """The items, which are distinct, as if they were added one by one. O(items)."""
    return tuple(items) if len(items) <= _MOST_IN_TUPLE else dict.fromkeys(items)


def without_item(items: Few[K], item: K) -> Few[K]:
    """The items without one, if it is there. The caller stores the result in place of ``items``. Amortised O(1)."""
    if isinstance(items, dict):
        items.pop(item, None)
        shrink(items)
        # A tuple again at one item only, although four fit into a tuple: an item that comes and goes at the bound
        # would otherwise convert the table each time.
        return items if len(items) > 1 else tuple(items)
    return tuple(kept for kept in items if kept != item)


def in_turns(queues: Iterable[Iterable[V]]) -> Iterator[V]:
    """The first item of each queue, then the second of each, and so on: fair where the total is bounded."""
    waiting = [iter(queue) for queue in queues]
    while waiting:
        nonempty = []
        for queue in waiting:
            for item in queue:
                yield item
                nonempty.append(queue)
                break
        waiting = nonempty


class _Entry(Generic[V]):
    """``in_use``: it was looked up after it was added, or after it was last considered for eviction."""

    __slots__ = ("in_use", "size", "value")

    def __init__(self, value: V, size: int) -> None:
        self.value = value
        self.size = size
        self.in_use = False


def shrink(table: dict[Any, Any], small: int = _SMALL) -> None:
    """Gives back the memory of a table from which most entries were deleted: a dictionary does not do so by itself.

    A table of up to ``small`` bytes stays as it is.

    To be called after deletions, while nothing iterates over the table. Amortised O(1), 0.1 µs if it is full enough.
    """
    size = sys.getsizeof(table)
    if size > small and size > _EMPTY_BYTES_AN_ENTRY * len(table):
        entries = list(table.items())
        # Refilled in place, because others hold the table.
        table.clear()
        table.update(entries)


class _Parts(Mapping[str, V]):
    """A dictionary in parts, because a dictionary that grows is copied in one step: 70 ms for 1,400,000 entries."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[dict[str, V]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)

    def values(self) -> ValuesView[V]:
        """As of a dictionary."""
        return _Values(self)

    def items(self) -> ItemsView[str, V]:
        """As of a dictionary."""
        return _Items(self)


class DictInOrder(_Parts[V]):
    """Its entries are in the order in which they were added. A look-up costs O(entries / ``most``): a few parts.

    The part that grows holds at most ``most`` entries.
    """

    __slots__ = ("_most",)

    parts: list[dict[str, V]]

    def __init__(self, most: int = 2**18) -> None:
        super().__init__([{}])
        self._most = most

    def __getitem__(self, key: str) -> V:
        for part in self.parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        for part in self.parts:  # noqa: SIM110 - a generator would cost twice as much
            if key in part:
                return True
        return False

    def __setitem__(self, key: str, value: V) -> None:
        for part in self.parts:
            if key in part:
                part[key] = value
                return
        if len(part) == self._most:
            part = {}
            self.parts.append(part)
        part[key] = value

    def discard(self, key: str) -> None:
        """Deletes a key, if it is there."""
        for part in self.parts:
            part.pop(key, None)


class DictInParts(_Parts[V]):
    """Its parts are by the last character of the key. A look-up is O(1).

    A part takes 4 to 8 ms to grow, as a UID ends with one of 16 digits. The parts are not by a hash, so the order of the
    entries is the same in each process: by part, then as they were added.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(tuple({} for _ in range(_PARTS)))

    def part(self, key: str) -> dict[str, V]:
        """The part that has a key, if any has. O(1)."""
        return self.parts[ord(key[-1:] or "0") % _PARTS]

    def __getitem__(self, key: str) -> V:
        return self.part(key)[key]

    @overload
    def get(self, key: str) -> V | None: ...
    @overload
    def get(self, key: str, default: V | D) -> V | D: ...
    def get(self, key: str, default: V | D | None = None) -> V | D | None:
        """As of a dictionary. O(1)."""
        return self.parts[ord(key[-1:] or "0") % _PARTS].get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.part(key)

    # As `part`, without its call: for each event.

    def __setitem__(self, key: str, value: V) -> None:
        self.parts[ord(key[-1:] or "0") % _PARTS][key] = value

    def pop(self, key: str) -> V | None:
        """Deletes a key, and gives back the memory of a part from which most entries were deleted. Amortised O(1)."""
        part = self.parts[ord(key[-1:] or "0") % _PARTS]
        value = part.pop(key, None)
        shrink(part, _SMALL // _PARTS)
        return value


class _Values(ValuesView[V]):
    """Without a look-up for each key."""

    _mapping: _Parts[V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(part.values() for part in self._mapping.parts)


class _Items(ItemsView[str, V]):
    """Without a look-up for each key."""

    _mapping: _Parts[V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return chain.from_iterable(part.items() for part in self._mapping.parts)


class BoundedCache(Generic[K, V]):
    """At most ``most_bytes`` of entries, by the sizes that they are put with; 0 keeps nothing.

    Eviction is by second chance: an entry that was looked up since it was last considered stays for one more round.
    This costs a look-up one write of a flag. The exact order of use would cost it two writes to the table.
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
        """Keeps a value in place of an earlier one. A value that is too large is not kept, nor is the earlier one.

        Amortised O(1).
        """
        self.discard(key)
        if size > self._largest:
            return
        # Before the entry is added: as an unused entry it would be evicted itself.
        while self.bytes + size > self._most_bytes:
            self._drop_one()
        self._held[key] = _Entry(value, size)
        self.bytes += size

    def discard(self, key: K) -> None:
        """Drops a key. O(1)."""
        entry = self._held.pop(key, None)
        if entry is not None:
            self.bytes -= entry.size

    def _drop_one(self) -> None:
        """Drops the first entry that is not in use; used entries before it move to the end."""
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

    Python 3.12 never frees an interned text, so with `sys.intern` tenants could make the process grow by labels that no
    other object has. A full table here is emptied; texts that are looked up again are shared from then on.
    """

    MOST: Final = 2**17
    LONGEST: Final = 128  # characters; longer texts rarely occur in many objects

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
    """The last result that was made in steps, until it is read. For values that are too large to be parsed in one step.

    `read` makes in one step a value that was not prepared.
    """

    def __init__(self, make: Callable[[K], Steps[V]]) -> None:
        self._make = make
        self._held: tuple[K, V] | None = None

    def prepare(self, key: K) -> Steps[None]:
        """Makes the value of a key, step by step. Raises what the maker raises."""
        # First, so that two large values are never in memory together.
        self._held = None
        self._held = key, (yield from self._make(key))

    def read(self, key: K) -> V:
        """The prepared value of an equal key, which is then dropped; without one, makes the value now."""
        held = self._held
        if held is not None and held[0] == key:
            self._held = None
            return held[1]
        return at_once(self._make(key))


def at_once(steps: Generator[object, None, V]) -> V:
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
    """Decorates a function of hashable, positional arguments whose result is never None, as ``lru_cache`` does.

    ``size_of(*args)``: roughly how many bytes the arguments and the result hold.
    """

    def decorate(make: Callable[[*Ts], V]) -> Callable[[*Ts], V]:
        cache: BoundedCache[tuple[*Ts], V] = BoundedCache(most_bytes, fair_share)
        get, put = cache.get, cache.put

        @wraps(make)
        def look_up(*args: *Ts) -> V:
            value = get(args)
            if value is None:
                value = make(*args)
                put(args, value, size_of(*args))
            return value

        return look_up

    return decorate


class DeletedPods:
    """The UIDs of the pods that were deleted last: of each bucket of hashes the last `_SLOTS`, at least 10,000 in all.

    The scheduler may send a filter request for a pod after its deletion, because its own watch lags. Such a pod must
    not get an assumption or a recorded rejection: no later event would end them. UIDs are never reused.

    The hashes stand in one array that is made beforehand, without an object for each. A small object that is made while
    a deleted pod is freed would take the place of the pod, and the allocator could not return that memory. The hash is
    seeded: a UID is mistaken for another once in 10**15 times.
    """

    def __init__(self, pods: Container[str]) -> None:
        """``pods``: the UIDs of existing pods. After a restore from a backup the API server has deleted pods again."""
        self._pods = pods
        self._held = array("q", bytes(8 * MOST_DELETED))

    def __contains__(self, uid: object) -> bool:
        mark, start = _place(uid)
        return mark in self._held[start : start + _SLOTS] and uid not in self._pods

    def add(self, uid: str) -> None:
        """Records a deletion. O(1)."""
        mark, start = _place(uid)
        bucket = self._held[start : start + _SLOTS]
        # The newest first: the oldest of the bucket falls out at its end.
        if mark not in bucket:
            self._held[start + 1 : start + _SLOTS] = bucket[:-1]
            self._held[start] = mark


def _place(uid: object) -> tuple[int, int]:
    """The hash of a UID, never 0, and where its bucket begins."""
    mark = hash(uid) or 1
    return mark, mark % _BUCKETS * _SLOTS
