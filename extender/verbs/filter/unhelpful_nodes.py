"""Nodes on which removing pods was found not to help, so that a herd of refused pods costs no dry runs at every event.

By node and not by question, since each question comes with another window of names: a node is tried once for each kind
of pod, until something changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from extender.index.view import ClusterView, NodeNumber
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.rules.catalog import dependency_version

_MOST_BYTES: Final = 8 * 2**20
_OVERHEAD: Final = 500

_Grounds: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Tried:
    """Valid for one question while neither its counts nor the claims on nodes have changed; a byte for each node."""

    grounds: _Grounds
    nodes: bytearray


class UnhelpfulNodeCache:
    """By shape and priority, the nodes that were tried in vain, as long as all of it fits in ``most_bytes``."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._held: BoundedCache[tuple[PodSignature, int], _Tried] = BoundedCache(most_bytes)

    def without(self, pod: Pod, nodes: list[NodeNumber], view: ClusterView) -> list[NodeNumber]:
        """Those of the nodes that have not been tried in vain. O(nodes)."""
        known = self._held.get((pod.signature, pod.priority))
        if known is None or known.grounds != _grounds(pod, view):
            return nodes
        tried = known.nodes
        return [node for node in nodes if not tried[node]]

    def add(self, pod: Pod, nodes: Iterable[NodeNumber], view: ClusterView) -> None:
        """Remembers that nothing helps on these nodes, for as long as nothing changes. O(nodes)."""
        grounds, key = _grounds(pod, view), (pod.signature, pod.priority)
        known = self._held.get(key)
        if known is None or known.grounds != grounds:
            known = _Tried(grounds, bytearray(len(view.node_names)))
        for node in nodes:
            known.nodes[node] = True
        self._held.put(key, known, len(known.nodes) + pod.signature.size + _OVERHEAD)


def _grounds(pod: Pod, view: ClusterView) -> _Grounds:
    compiled = view.compiled(pod.signature)
    return compiled.serial, dependency_version(compiled, view), view.claims_version
