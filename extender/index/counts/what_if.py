"""Trials on the running counts: pods are removed, put back or placed, and everything is undone at the end.

The dry run of a preemption applies the rules of the filter, once per pod that it might spare. A trial is one
synchronous block, so that no other code sees the counts in between. Group versions are restored too, so that what
caches hold stays valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from extender.index.counts.counts import Counts
from extender.index.counts.groups import Group
from extender.index.counts.signature_counts import SignatureTable
from extender.index.nodes.topology import Topology
from extender.model.objects import Pod


class CountTrials:
    """Opens trials. ``pods`` are those that the watch shows, by UID."""

    def __init__(self, pods: Mapping[str, Pod], topology: Topology, counts: Counts) -> None:
        self._pods = pods
        self._topology = topology
        self._counts = counts

    @contextmanager
    def what_if(self) -> Iterator[WhatIf]:
        """Inside the block pods may be removed, put back or placed; all is undone when the block ends."""
        tried = WhatIf(self._topology, self._counts.signatures)
        try:
            yield tried
        finally:
            tried.undo()

    @contextmanager
    def without(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Inside the block the pods do not count. Compile constraints before it: a group made inside would count them."""
        with self.what_if() as tried:
            for pod in pods:
                held = self._pods.get(pod.uid)
                if held is not None and held.node:
                    tried.take(held)
            yield


class WhatIf:
    """The changes of one what-if. ``undo`` must be called before anything else happens to the index."""

    def __init__(self, topology: Topology, signatures: SignatureTable) -> None:
        self._topology = topology
        self._signatures = signatures
        self._taken: dict[str, Pod] = {}
        self._placed: list[tuple[Pod, int]] = []
        self._versions: dict[int, tuple[Group, int]] = {}

    def take(self, pod: Pod) -> None:
        """The pod, which is on a node, does not count any more. O(groups that count it)."""
        if pod.uid not in self._taken:
            self._taken[pod.uid] = pod
            self._count(pod, -1)

    def put_back(self, pod: Pod) -> None:
        """A pod that was taken counts again."""
        if self._taken.pop(pod.uid, None) is not None:
            self._count(pod, 1)

    def place(self, pod: Pod, node: int) -> None:
        """A pod that has no node counts on this one. Compile constraints after it: the terms of the pod may be new."""
        self._remember(pod)
        self._signatures.put(pod.signature, False, node, 1)
        self._placed.append((pod, node))

    def remove_last(self) -> None:
        """Takes out the pod that `place` placed last."""
        pod, node = self._placed.pop()
        self._signatures.put(pod.signature, False, node, -1)

    def remove_placed(self) -> None:
        """Takes out all pods that `place` placed."""
        while self._placed:
            self.remove_last()

    def undo(self) -> None:
        """Restores every count and version."""
        self.remove_placed()
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
