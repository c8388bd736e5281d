"""Nominated pods by node, by their status or by a preemption plan; and rejected pods.

A nomination is ``status.nominatedNodeName`` of a pod without a node (KEP-5278). An in-memory nomination belongs to a
plan. It counts from the moment the plan is submitted, and takes precedence over the status. Both end when the pod gets
a node. Invariant: a pod is filed under at most one node, which `_node_of` holds.

The scheduler retries a rejected pod on events that it watches. It does not watch namespace labels, Services, owners of
workloads, or the end of our assumptions. When one of these changes, rejected pods are reviewed, and requeued if they
would pass.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from extender.model.bounded import DeletedPods
from extender.model.objects import Pod

MOST_REJECTED: Final = 20_000

DependencyVersion: TypeAlias = Hashable
"""The version of everything that a rejection depends on; compared only. None: it depends on undetermined pods."""

_NO_PODS: Mapping[str, Pod] = {}


@dataclass(frozen=True, slots=True)
class InMemoryNomination:
    """A node for a pod, once the victims (UIDs) are deleted. The pod counts there while the nomination ``holds``."""

    node: str
    victims: frozenset[str] = frozenset()
    holds: bool = True


class Nominations:
    """Nominated pods by node name and UID. ``pods``: the pods that the watch shows.

    ``version`` grows with every change.

    ``concerned``: UIDs of pods that are nominated, by status or in memory. Only their changes matter here.
    """

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        self.by_node: dict[str, dict[str, Pod]] = {}
        self.in_memory: dict[str, InMemoryNomination] = {}
        self.version = 0
        self.concerned: set[str] = set()
        self._node_of: dict[str, str] = {}

    def change(self, uid: str, pod: Pod | None) -> None:
        """Applies a change of a pod that is ``concerned`` or has a nominated node. None: it is deleted. O(1)."""
        self._file(uid, pod)

    def nominate_in_memory(self, pod: Pod, node: str, victims: Collection[str]) -> None:
        """The pod counts as nominated to the node, whatever its status says, until ``release_nomination``."""
        self.in_memory[pod.uid] = InMemoryNomination(node, frozenset(victims))
        # The watched pod if there is one: later events compare with it.
        self._file(pod.uid, self._pods.get(pod.uid, pod))

    def release_nomination(self, uid: str) -> None:
        """From now on the pod counts where its status nominates it. The plan continues."""
        nomination = self.in_memory.get(uid)
        if nomination is not None and nomination.holds:
            self.in_memory[uid] = replace(nomination, holds=False)
            self._file(uid, self._pods.get(uid))

    def end_nomination(self, uid: str) -> None:
        """The plan is over."""
        if self.in_memory.pop(uid, None) is not None:
            self._file(uid, self._pods.get(uid))

    def _file(self, uid: str, pod: Pod | None) -> None:
        node = self._wanted(uid, pod)
        old = self._node_of.pop(uid, "")
        if old:
            here = self.by_node[old]
            before = here.pop(uid)
            if not here:
                del self.by_node[old]
            # Only a change of the node or of the pod counts, because caches compare the version.
            self.version += node != old or before != pod
        else:
            self.version += bool(node)
        if node and pod is not None:
            self._node_of[uid] = node
            self.by_node.setdefault(node, {})[uid] = pod
        # A released nomination is followed too: its status may nominate the pod elsewhere while the plan continues.
        if node or uid in self.in_memory:
            self.concerned.add(uid)
        else:
            self.concerned.discard(uid)

    def _wanted(self, uid: str, pod: Pod | None) -> str:
        # A terminating pod will not be scheduled, so it holds no room on its nominated node.
        if pod is None or pod.node or pod.terminating or pod.finished:
            return ""
        # A plan takes precedence over the status while it holds.
        nomination = self.in_memory.get(uid)
        return nomination.node if nomination is not None and nomination.holds else pod.nominated_node

    def uncleared_node(self, uid: str) -> str:
        """The node of a pod's plan, while any victim exists; else empty. O(victims)."""
        nomination = self.in_memory.get(uid)
        if nomination is None or not any(victim in self._pods for victim in nomination.victims):
            return ""
        return nomination.node

    def plan_node(self, uid: str) -> str:
        """The node of a pod's plan, until the plan is over; else empty. O(1)."""
        nomination = self.in_memory.get(uid)
        return "" if nomination is None else nomination.node

    def leaving(self, node: str) -> list[Pod]:
        """The victims of all plans for the node that still exist. O(pods nominated to it + victims)."""
        nominated = self.by_node.get(node, _NO_PODS)
        planned = [nomination for uid in nominated if (nomination := self.in_memory.get(uid)) is not None]
        victims = {uid for nomination in planned if nomination.node == node for uid in nomination.victims}
        return [pod for uid in victims if (pod := self._pods.get(uid)) is not None]

    def statistics(self) -> dict[str, int]:
        """How many nominations are kept, and how many of them only in memory."""
        holding = sum(nomination.holds for nomination in self.in_memory.values())
        return {"nominations": len(self._node_of), "in_memory_nominations": holding}


class RejectedPods:
    """Rejected pods, oldest first. ``held``: by UID, with the version of what the rejection depends on.

    Bounded: above `MOST_REJECTED` the oldest pod of the namespace with most pods is dropped, so a tenant drops no
    other's pod.
    """

    def __init__(self, deleted: DeletedPods) -> None:
        self._deleted = deleted
        self._by_namespace: dict[str, dict[str, None]] = {}  # UIDs, the oldest first
        self.held: dict[str, tuple[Pod, DependencyVersion]] = {}

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[tuple[Pod, DependencyVersion]]:
        return iter(list(self.held.values()))

    def add(self, pod: Pod, version: DependencyVersion) -> None:
        """Records a rejection, unless the pod is deleted. O(1); O(namespaces) if the table is full."""
        if pod.uid in self._deleted:
            return
        self.discard(pod.uid)
        self.held[pod.uid] = pod, version
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = None
        # From the namespace with most pods, so a tenant cannot displace pods of others.
        if len(self.held) > MOST_REJECTED:
            largest = max(self._by_namespace.values(), key=len)
            self.discard(next(iter(largest)))

    def renew(self, uid: str, version: DependencyVersion) -> None:
        """The pod is still rejected, by a later version of what the rejection depends on. O(1)."""
        rejected = self.held.get(uid)
        if rejected is not None:
            self.held[uid] = rejected[0], version

    def discard(self, uid: str) -> None:
        """Drops a pod that passed, was bound or was deleted. O(1)."""
        rejected = self.held.pop(uid, None)
        if rejected is None:
            return
        namespace = rejected[0].namespace
        here = self._by_namespace[namespace]
        del here[uid]
        if not here:
            del self._by_namespace[namespace]
