"""Which nodes kube-scheduler offers seldom, learnt from its requests, so that pods go there while they can.

In a large cluster kube-scheduler asks about a sample of the nodes. Each sample starts where the last one ended, but two or more
threads look at runs of nodes side by side and stop together, so some nodes between two samples are passed over round after
round, and others are in two samples of each round. Where each answer takes a node away (anti-affinity), a choice at random
leaves those that are seldom offered to the end. Then pods are rejected on whole samples though nodes are free, and each needs
a nomination and a second cycle: 91 of 6,000 pods on 6,000 equal nodes, 19 where each gets the node that was not offered for the
longest time; 93 and 10 of 3,000 on 3,000 (`python -m tests.tools.sampling --fill`).

https://kubernetes.io/docs/concepts/scheduling-eviction/scheduler-perf-tuning/#how-the-scheduler-iterates-over-nodes
"""

from __future__ import annotations

from collections.abc import Sequence


class OfferedNodes:
    """When each node was last among nodes to choose from, by node number: a count of choices, 8 bytes a node."""

    __slots__ = ("_last", "_now")

    def __init__(self) -> None:
        self._last: list[int] = []
        self._now = 0

    def choose(self, candidates: Sequence[int], offered: Sequence[int], numbers: int) -> int:
        """The candidate that was not offered for the longest time, the first of several; all ``offered`` are, from now on.

        ``numbers``: how many node numbers there are. O(candidates + offered).
        """
        last = self._last
        if len(last) != numbers:
            del last[numbers:]
            last.extend([0] * (numbers - len(last)))
        chosen = min(candidates, key=last.__getitem__)
        self._now = now = self._now + 1
        for node in offered:
            last[node] = now
        return chosen
