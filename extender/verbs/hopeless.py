"""Nodes on which removing pods was found not to help, so that a herd of refused pods costs no dry runs at every event.

By node and not by question, since each question comes with another window of names: a node is tried once for each kind
of pod, until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from extender.index.view import ClusterView, NodeNumber, Question
from extender.model.objects import Pod, PodShape

MOST_KINDS = 1000


@dataclass(frozen=True, slots=True)
class _Tried:
    """Valid for one question while neither its counts nor the claims on nodes have changed; a byte for each node."""

    grounds: tuple[Question, int, int]
    nodes: bytearray


class HopelessNodes:
    """By shape and priority, the nodes that were tried in vain; of the ``MOST_KINDS`` that were added last."""

    def __init__(self) -> None:
        self._held: dict[tuple[PodShape, int], _Tried] = {}

    def without(self, pod: Pod, nodes: list[NodeNumber], view: ClusterView) -> list[NodeNumber]:
        """Those of the nodes that have not been tried in vain. O(nodes)."""
        known = self._held.get((pod.shape, pod.priority))
        if known is None or known.grounds != _grounds(pod, view):
            return nodes
        tried = known.nodes
        return [node for node in nodes if not tried[node]]

    def add(self, pod: Pod, nodes: Iterable[NodeNumber], view: ClusterView) -> None:
        """Remembers that nothing helps on these nodes, for as long as nothing changes. O(nodes)."""
        grounds, key = _grounds(pod, view), (pod.shape, pod.priority)
        known = self._held.pop(key, None)
        if known is None or known.grounds != grounds:
            known = _Tried(grounds, bytearray(len(view.node_names)))
        for node in nodes:
            known.nodes[node] = True
        self._held[key] = known
        if len(self._held) > MOST_KINDS:
            del self._held[next(iter(self._held))]


def _grounds(pod: Pod, view: ClusterView) -> tuple[Question, int, int]:
    question = view.question(pod.shape)
    return question, view.grounds(question), view.claims_version
