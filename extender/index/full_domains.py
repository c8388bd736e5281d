"""Which domains have no room for pods of one kind, kept until room may have become free there.

A domain without room stays full when pods come. Only a node that changed, or that a pod left, can give its domain room
again. So a decision visits these nodes, not 5,000 domains that are as full as before.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final

MOST_KINDS: Final = 2000  # of pods, each with a topology key
MOST_FULL: Final = 200_000  # domains of all kinds together; 10 MB


class FullDomains:
    """What is known for one kind of pods."""

    __slots__ = ("_most_left", "_version", "fitting", "full", "left", "total")

    def __init__(self) -> None:
        # Full domains by number, and the value of `DomainsView.freed_total` for which they are right.
        self.full: set[int] = set()
        # The other domains, as of the version of the nodes, and how many they were since their table was made.
        self.left: set[int] = set()
        self._most_left = 0
        # For some of them, the node that had room last.
        self.fitting: dict[int, int] = {}
        self.total = self._version = -1

    def refresh(self, total: int, freed: Iterable[int] | None, domains: Mapping[int, int], version: int) -> None:
        """Brings it up to date.

        ``freed``: the domains where room may have become free since; None if they are not known.

        ``domains``: all domains, at a version of the nodes. O(freed); O(domains) after a change of a node.
        """
        if freed is None:
            self.full.clear()
        else:
            changed = self.full.intersection(freed)
            self.full -= changed
            self.left |= changed
        self.total = total
        if freed is None or self._version != version:
            self._version = version
            self.left = {domain for domain in domains if domain not in self.full}
            self._most_left = 0
        self._most_left = max(self._most_left, len(self.left))

    def add(self, domains: Collection[int]) -> None:
        """The domains are full. Amortised O(their number)."""
        self.full.update(domains)
        self.left.difference_update(domains)
        # A set keeps its table when entries leave, and a reader of ``left`` would pay for every domain that was in it.
        if len(self.left) < self._most_left // 4:
            self.left = set(self.left)
            self._most_left = len(self.left)


class FullDomainTable:
    """What is known for all kinds of pods. If it becomes too much, all of it is dropped."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, FullDomains] = {}
        self._added = 0  # domains added since the table was empty: an upper bound of its size

    def __len__(self) -> int:
        return len(self._kinds)

    def of(self, kind: Hashable) -> FullDomains:
        """What is known for a kind, kept from now on."""
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= MOST_KINDS:
                self.clear()
            known = self._kinds[kind] = FullDomains()
        return known

    def add(self, known: FullDomains, *domains: int) -> None:
        """The domains are full. Amortised O(their number)."""
        known.add(domains)
        self._added += len(domains)
        if self._added > MOST_FULL:
            # The counter is an upper bound, so domains are counted before everything is dropped.
            self._added = sum(len(known_kind.full) for known_kind in self._kinds.values())
            if self._added > MOST_FULL // 2:
                self.clear()

    def clear(self) -> None:
        """Forgets everything. Objects that readers hold stay right, but are not kept."""
        self._kinds.clear()
        self._added = 0
