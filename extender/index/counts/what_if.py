"""A what-if on the live counts: pods taken away, put back, or standing where they do not, and all undone in the end.

For the dry run of a preemption, which asks the same rules as the filter does, once per pod that it might spare. It
is one synchronous block, so nobody else ever sees the counts in between; versions of groups are restored too, so what
was remembered of answers stays good.
"""

from __future__ import annotations

from extender.index.counts.domains import Topology
from extender.index.counts.groups import Group
from extender.index.counts.signature_counts import SignatureTable
from extender.model.objects import Pod


class WhatIf:
    """The changes of one what-if. ``undo`` must be called before anything else happens to the index."""

    def __init__(self, topology: Topology, signatures: SignatureTable) -> None:
        self._topology = topology
        self._signatures = signatures
        self._taken: dict[str, Pod] = {}
        self._standing: list[tuple[Pod, int]] = []
        self._versions: dict[int, tuple[Group, int]] = {}

    def take(self, pod: Pod) -> None:
        """The pod, which stands on its node, does not count any more. O(groups that count it)."""
        if pod.uid not in self._taken:
            self._taken[pod.uid] = pod
            self._count(pod, -1)

    def put_back(self, pod: Pod) -> None:
        """A pod that was taken counts again."""
        if self._taken.pop(pod.uid, None) is not None:
            self._count(pod, 1)

    def stand(self, pod: Pod, node: int) -> None:
        """A pod that has no node counts on this one. Ask for questions afterwards: its own terms may be new ones."""
        self._remember(pod)
        self._signatures.put(pod.signature, False, node, 1)
        self._standing.append((pod, node))

    def leave(self) -> None:
        """All pods that were made to stand are gone again."""
        while self._standing:
            pod, node = self._standing.pop()
            self._signatures.put(pod.signature, False, node, -1)

    def undo(self) -> None:
        """Everything is as it was."""
        self.leave()
        for pod in list(self._taken.values()):
            self.put_back(pod)
        for group, version in self._versions.values():
            group.version = version
        self._versions.clear()

    def _count(self, pod: Pod, sign: int) -> None:
        counts_of_signature = self._signatures.find(pod.signature, terminating=pod.terminating)
        if counts_of_signature is None:
            return
        number = self._topology.number(pod.node)
        for group, times in counts_of_signature.groups.items():
            self._versions.setdefault(id(group), (group, group.version))
            group.add(number, sign * times)

    def _remember(self, pod: Pod) -> None:
        counts_of_signature = self._signatures.find(pod.signature, terminating=False)
        for group in counts_of_signature.groups if counts_of_signature is not None else ():
            self._versions.setdefault(id(group), (group, group.version))
