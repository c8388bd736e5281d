"""The state of an index as changes that turn an empty index into an equal one; and applying recorded changes.

Policies are not included, because the index keeps what they direct, not the objects. A recorder records them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf

from extender.index.cluster import ClusterIndex
from extender.model.changes import (
    Assumption,
    AssumptionEnd,
    Change,
    DomainTimes,
    LaterAttempt,
    Nomination,
    NominationEnd,
    NominationRelease,
    ObjectChange,
    PolicyRecheck,
    Reservation,
    ReservationEnd,
)
from extender.model.objects import Object


def state_of(index: ClusterIndex) -> Iterator[Change]:
    """The changes, in an order in which each can be applied.

    They show the moment of the call, even if they are read later. Pods are in the order in which their node holds them,
    because preemption chooses among equal victims by it.

    The call copies references: O(objects), some 50 ms with 1,500,000 pods. The pods are copied into a tuple for each node,
    because the garbage collector visits a tuple once. It would visit a list of a million in each collection, for 50 ms.
    """
    numbers = range(len(index.topology.nodes))
    nodes = [node for node in index.topology.nodes if node is not None]
    workloads, budgets = index.workloads.objects, index.budgets.objects
    first: list[Object] = [*index.namespaces.objects.values(), *nodes, *workloads.values(), *budgets.values()]
    first += index.domains.objects.values()
    for table in index.tables:
        first += table.objects.values()
    by_node = [tuple(index.view.pods_on(number).values()) for number in numbers]
    assumed = frozenset(index.assumed.held)  # on a node too, and as the watch shows them among the unplaced pods
    placed = (pod for pods in by_node for pod in pods if pod.uid not in assumed)
    objects = chain(first, list(index.placements), placed, tuple(index.unplaced.values()))
    return chain(map(ObjectChange, objects), _claims(index))


def _claims(index: ClusterIndex) -> list[Change]:
    """Assumed pods, nominations of running plans, reserved room, and since when topology domains are unavailable."""
    changes: list[Change] = [index.domains.times()] if index.domains.now else []
    for assumed in index.assumed.held.values():
        pod = index.pods.get(assumed.pod.uid, assumed.pod)
        changes.append(Assumption(pod, assumed.nodes, assumed.doubted))
    for uid, nomination in index.nominations.in_memory.items():
        if uid in index.pods:
            changes.append(Nomination(index.pods[uid], nomination.node, tuple(sorted(nomination.victims))))
        if not nomination.holds:
            changes.append(NominationRelease(uid))
    changes += [Reservation(group, index.reserved.slots_of(group)) for group in index.reserved.keys]
    return changes


def apply_change(index: ClusterIndex, change: Change) -> None:
    """Applies a change that another index has recorded. Times do not matter here, because nothing expires by itself."""
    match change:
        case ObjectChange(obj, is_deleted):
            index.delete(obj) if is_deleted else index.upsert(obj)
        case Assumption() | AssumptionEnd() | LaterAttempt():
            _apply_assumption(index, change)
        case Nomination(pod, node, victims):
            index.nominate_in_memory(pod, node, victims)
        case NominationRelease(uid):
            index.release_nomination(uid)
        case NominationEnd(uid):
            index.end_nomination(uid)
        case Reservation(group, slots):
            index.reserved.reserve(group, slots, inf)
        case ReservationEnd(group):
            index.reserved.release(group)
        case PolicyRecheck() | DomainTimes():
            _apply_upkeep(index, change)


def _apply_assumption(index: ClusterIndex, change: Assumption | AssumptionEnd | LaterAttempt) -> None:
    match change:
        case Assumption(pod, nodes, doubted):
            index.assume(pod, nodes, 0.0, doubted=doubted)
        case AssumptionEnd(uid, unreported):
            index.assumed.forget(uid) if unreported else index.assumed.discard(uid)
        case LaterAttempt(uid, passed):
            index.assumed.note_attempt(uid, 0.0, passed=passed)


def _apply_upkeep(index: ClusterIndex, change: PolicyRecheck | DomainTimes) -> None:
    if isinstance(change, DomainTimes):
        index.domains.restore(change.now, change.since)
        return
    counts = index.counts.signatures.find(change.signature, terminating=change.terminating)
    if counts is not None:
        index.counts.recheck_policies(counts)
