"""A table of the simulated API server whose existing objects are generated when they are read, and never held.

A million pods of 4 KB would take more memory than what is measured. A page of a LIST, or a part of a streaming list,
generates its rows and forgets them. Objects that are written later are held as usual.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from extender.simulator.apiserver.kinds import Kind
from extender.simulator.apiserver.store import Change, Stored, Table

Generate = Callable[[int, str], Stored]
"""The row of a number, with this key."""


class GeneratedTable(Table):
    """Rows 0 to `count` - 1 are generated. Their keys, which no request can name, come before all others.

    They never change, so each version of the table has them. An event of one is sent with `announce`, and the next list
    shows the object as it was before.
    """

    def __init__(self, kind: Kind, capacity: int, count: int, generate: Generate) -> None:
        super().__init__(kind, capacity)
        self._count = count
        self._generate = generate

    def announce(self, event: str, stored: Stored, at: float) -> None:
        """Sends an event of a generated object to the watches."""
        self._append(Change(event, stored, None, self._prefix, at))

    def latest(self) -> Sequence[Stored]:
        """All objects now, ordered by key."""
        return _Rows(self._count, self._generate, super().latest())

    def at(self, version: int) -> Sequence[Stored] | None:
        """All objects at that version; None if it is before the history."""
        rows = super().at(version)
        return rows if rows is None or isinstance(rows, _Rows) else _Rows(self._count, self._generate, rows)


class _Rows(Sequence[Stored]):
    """Generated rows, then held ones. O(1) memory beyond the held ones; a slice generates its rows."""

    def __init__(self, count: int, generate: Generate, held: Sequence[Stored]) -> None:
        self._count = count
        self._generate = generate
        self._held = held

    def __len__(self) -> int:
        return self._count + len(self._held)

    @overload
    def __getitem__(self, place: int) -> Stored: ...

    @overload
    def __getitem__(self, place: slice) -> list[Stored]: ...

    def __getitem__(self, place: int | slice) -> Stored | list[Stored]:
        if isinstance(place, slice):
            return [self._row(number) for number in range(*place.indices(len(self)))]
        return self._row(range(len(self))[place])

    def __iter__(self) -> Iterator[Stored]:
        return map(self._row, range(len(self)))

    def _row(self, number: int) -> Stored:
        if number >= self._count:
            return self._held[number - self._count]
        return self._generate(number, f" {number:09d}")
