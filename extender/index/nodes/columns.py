"""A number for each node, in memory that depends on how many nodes have one.

Every topology key and every scope has a column, and a pod may name any keys. So a column without a node costs nothing
(all such columns share one list of zeros). A column with few nodes is a dictionary. Only a column with many nodes is a
list by node number, which is fastest to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)

# An entry of a dictionary takes about ten times the memory of a list's. Between the two bounds a column keeps its form.
_DENSE, _SPARSE = 16, 32


class ByNumber(Protocol[T_co]):
    """A value for each node number: a list, an array, or a `SparseColumn`."""

    def __getitem__(self, node: int, /) -> T_co:
        """The value of a node. O(1)."""


NodeNumber = int
DomainNumber = int
Column = ByNumber[DomainNumber]
"""A domain number for each node number: 0 for a node that is in no domain."""


class SparseColumn(dict[int, int]):
    """Number by node number for the few nodes that have one; 0 for every other."""

    __slots__ = ()

    def __missing__(self, _node: int) -> int:
        """A node without a number."""
        return 0


class ColumnView:
    """What readers see of a `NodeColumn`: a number other than 0 for ``filled`` nodes.

    ``of_node`` is replaced when their share of all nodes changes much, so do not keep it while nodes change.
    """

    __slots__ = ("_zeros", "filled", "of_node")
    of_node: Column

    def __init__(self, zeros: list[int]) -> None:
        self._zeros = zeros
        self.filled = 0
        self.of_node = zeros


class NodeColumn(ColumnView):
    """A column that can be written. ``zeros`` is shared by all columns, and has one entry for each node number."""

    __slots__ = ()
    of_node: list[int] | SparseColumn

    def fill(self, node: int, number: int) -> int:
        """Sets the number of a node (0: none) and returns its previous number. Amortised O(1)."""
        old = self.of_node[node]
        if old == number:
            return old
        self.filled += bool(number) - bool(old)
        # Before the write: an empty column is the shared list of zeros, which must never be written.
        self._fit()
        column = self.of_node
        if number:
            column[node] = number
        elif isinstance(column, SparseColumn):
            column.pop(node, None)
        elif column is not self._zeros:
            column[node] = 0
        return old

    def fill_all(self, of_node: dict[int, int]) -> None:
        """Fills an empty column with the numbers of all nodes that have one. O(such nodes); O(nodes) for a list."""
        self.filled = len(of_node)
        if self.filled * _DENSE <= len(self._zeros):
            self.of_node = SparseColumn(of_node) if of_node else self._zeros
            return
        self.of_node = dense = self._zeros.copy()
        for node, number in of_node.items():
            dense[node] = number

    def numbered(self) -> Sequence[int]:
        """The nodes with a number. O(nodes)."""
        column = self.of_node
        return list(column) if isinstance(column, SparseColumn) else list(compress(range(len(column)), column))

    def copy_numbers(self, other: NodeColumn) -> None:
        """Fills an empty column with the numbers of another column that shares the zeros."""
        self.filled, column = other.filled, other.of_node
        if column is not self._zeros:
            self.of_node = SparseColumn(column) if isinstance(column, SparseColumn) else column.copy()

    def _fit(self) -> None:
        size, column = len(self._zeros), self.of_node
        is_dense = isinstance(column, list) and column is not self._zeros
        # Three forms: the shared zeros, a dictionary, a list. Between the two bounds the form stays, so that a column
        # does not alternate.
        if not self.filled:
            self.of_node = self._zeros
        elif self.filled * _DENSE > size:
            if not is_dense:
                self.of_node = dense = self._zeros.copy()
                for node, number in column.items() if isinstance(column, SparseColumn) else ():
                    dense[node] = number
        elif column is self._zeros:
            self.of_node = SparseColumn()
        elif isinstance(column, list) and self.filled * _SPARSE < size:
            self.of_node = SparseColumn((node, number) for node, number in enumerate(column) if number)

    def resize(self) -> None:
        """After a change of the shared list, makes this list as long. No node beyond its end is in the column."""
        column, size = self.of_node, len(self._zeros)
        if isinstance(column, list) and column is not self._zeros:
            del column[size:]
            column.extend([0] * (size - len(column)))

    @property
    def cells(self) -> int:
        """How many entries this column alone takes; for bounds and tests."""
        return 0 if self.of_node is self._zeros else len(self.of_node)
