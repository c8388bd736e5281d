"""Which domains have no room for pods of one kind, kept until room may have become free there.

A domain without room stays without: pods that come take more of it. Only a node that changed, or that a pod has left, can give its
domain room again. So a decision looks at these nodes, and not at 5,000 domains that are as full as they were.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

MOST_KINDS: Final = 2000  # of pods, each with a topology key
MOST_FULL: Final = 200_000  # domains of all kinds together; 10 MB


class FullDomains:
    """What is known for one kind of pods. ``full`` are domains by number, ``total`` how often room had become free when they were.

    ``left`` are the other domains, as of the version of the nodes. ``fitting``: for some of them the node that had room last.
    """

    __slots__ = ("_version", "fitting", "full", "left", "total")

    def __init__(self) -> None:
        self.full: set[int] = set()
        self.left: set[int] = set()
        self.fitting: dict[int, int] = {}
        self.total = self._version = -1

    def refresh(self, total: int, freed: Iterable[int] | None, domains: Mapping[int, int], version: int) -> None:
        """Room has become free so often; ``freed`` are the domains since, None where they are not known.

        ``domains`` are all, at a version of the nodes. O(freed), and O(domains) after a change of a node.
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


class FullDomainTable:
    """What is known for all kinds of pods; all of it is dropped where it becomes too much."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, FullDomains] = {}
        self._added = 0  # domains since it was empty: at least as many as there are

    def __len__(self) -> int:
        return len(self._kinds)

    def of(self, kind: Hashable) -> FullDomains:
        """What is known for a kind, kept from now on."""
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= MOST_KINDS:
                self.clear()
            found = self._kinds[kind] = FullDomains()
        return found

    def add(self, known: FullDomains, domain: int) -> None:
        """A domain is full. Amortised O(1)."""
        known.full.add(domain)
        known.left.discard(domain)
        self._added += 1
        if self._added > MOST_FULL:
            self._added = sum(len(each.full) for each in self._kinds.values())
            if self._added > MOST_FULL // 2:
                self.clear()

    def clear(self) -> None:
        """Nothing is known any more; what was given stays right, and is kept no longer."""
        self._kinds.clear()
        self._added = 0
