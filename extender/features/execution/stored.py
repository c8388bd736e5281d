"""The moves whose replacements have no node yet, in the status of their policies: a new leader keeps their places.

The leader writes them before it evicts a pod (`status.execution.moves`), a policy at a time. An entry of a move that has ended
stays until moves of the policy are written again. So a new leader judges each entry by the pods of its controller (`recover`):

1. The pod runs on: it was not evicted. A pod of the controller has come since and has a node: the place is used. Nothing is kept.
2. Otherwise the place is kept, until ``claimTimeout`` after the begin of the move, or while the evicted pod terminates.

The room and the constraints of the replacement are those of a pod of the controller. If none is shown, the room is that of the
entry (`UnderWay.is_bare`); no other move begins meanwhile, because it could break the constraints of the replacement.

Only the account of the extender may write the status. What another writer of it could reach is bounded: `MOST_STORED` places for
each policy, on nodes with so much room, for pods of the namespace of a namespaced policy that it selects, for ``claimTimeout``
after a change of the leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Annotated, Final

import msgspec
from msgspec import Meta, structs

from extender.features.execution.blocks import LONGEST_END, PodWriter, UnderWay, pods_of
from extender.features.execution.broken import Place, WatchedPods, watching_policy
from extender.features.execution.directive import WatchedConstraint
from extender.features.execution.moves import Move
from extender.features.execution.schema import MOST_STORED
from extender.index.claims.reserved import move_key
from extender.index.cluster import ClusterIndex
from extender.kube.errors import KubeError
from extender.model.bounded import at_once
from extender.model.objects import Controller, Pod, PodSignature
from extender.model.policies import JsonObject, Policy, PolicyKey
from extender.model.release import MOST_RESOURCES, GroupKey
from extender.model.resources import PODS, QuantityError, Resources, parse_resources, quantity_text
from extender.model.units import rfc3339
from extender.settings.configuration import Settings

_SHORT: Final = Meta(min_length=1, max_length=253)


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `status.execution.moves`, and the pod that was evicted as far as the entry says."""

    namespace: Annotated[str, _SHORT]
    pod: Annotated[str, _SHORT]
    uid: Annotated[str, _SHORT]
    kind: Annotated[str, _SHORT]
    controller: Annotated[str, _SHORT]
    node: Annotated[str, _SHORT]
    target: Annotated[str, _SHORT]
    constraint: WatchedConstraint
    since: Annotated[datetime, Meta(tz=True)]
    requests: Annotated[dict[str, str], Meta(max_length=MOST_RESOURCES)] = {}

    def evicted(self) -> Pod:
        """The pod. Raises ``QuantityError``."""
        signature = PodSignature(self.namespace, controller=Controller("", self.kind, self.controller))
        requests = parse_resources(self.requests)
        return Pod(self.uid, self.pod, signature, node=self.node, terminating=True, requests=requests)

    def is_new(self, pod: Pod) -> bool:
        """Whether a pod of the controller has come since. A pod of a StatefulSet has the name of the pod that it replaces."""
        if pod.uid == self.uid or pod.terminating:
            return False
        if not pod.node or pod.name == self.pod:
            return True
        # The kubelet may not have seen it yet. Elsewhere this may last, for example on a node that is lost.
        return pod.node == self.target if pod.start_time is None else pod.start_time >= self.since


def _entry_of(key: GroupKey, move: Move, since: datetime) -> JsonObject:
    kind, _, controller = key.value.partition("/")
    requests = sorted(move.pod.requests.items())[:MOST_RESOURCES]
    return {
        "namespace": move.pod.namespace,
        "pod": move.pod.name,
        "uid": move.pod.uid,
        "kind": kind,
        "controller": controller,
        "node": move.pod.node,
        "target": move.target,
        "constraint": str(move.place.kind),
        "since": rfc3339(since),
        "requests": {name: quantity_text(name, amount) for name, amount in requests},
    }


class StoredMoves:
    """Writes moves into the status of policies, and reads them for a new leader."""

    def __init__(
        self, index: ClusterIndex, settings: Settings, writer: PodWriter, utc_now: Callable[[], datetime]
    ) -> None:
        self._index = index
        self._settings = settings
        self._writer = writer
        self._utc_now = utc_now
        self._seen: set[str] = set()  # in this term

    def forget(self) -> None:
        """The term ends."""
        self._seen.clear()

    async def write(
        self, policies: Collection[PolicyKey], moves: Mapping[GroupKey, UnderWay], now: float
    ) -> dict[PolicyKey, KubeError]:
        """Writes the moves of these policies whose replacements have no node. Returns the errors. A write for each policy."""
        entries, errors = defaultdict[PolicyKey, list[JsonObject]](list), dict[PolicyKey, KubeError]()
        for claim, each in moves.items():
            if not each.is_bound:
                since = self._utc_now() - timedelta(seconds=now - each.began)
                entries[each.watched.policy.key].append(_entry_of(claim, each.move, since))
        for key in policies:
            try:
                await self._writer.write_moves(key, entries[key][:MOST_STORED])
            except KubeError as error:
                errors[key] = error
        return errors

    def recover(self, under_way: Collection[GroupKey], now: float) -> Iterator[tuple[GroupKey, UnderWay]]:
        """The moves of an earlier leader whose places are to be kept, each once in a term. O(entries + pods as `pods_of`)."""
        found: dict[GroupKey, tuple[Policy, _Entry, Pod]] = {}
        # The latest first: an entry of another policy may be left from an earlier move of the controller.
        for policy, entry in sorted(self._entries(), key=lambda each: each[1].since, reverse=True):
            try:
                pod = entry.evicted()
            except QuantityError:
                continue
            key = move_key(pod)
            if key is not None and key not in under_way and entry.uid not in self._seen:
                found.setdefault(key, (policy, entry, pod))
        pods = at_once(pods_of(found, self._index)) if found else {}
        for key, (policy, entry, pod) in found.items():
            if (move := self._recovered(policy, entry, pod, pods[key], now)) is not None:
                self._seen.add(entry.uid)
                yield key, move

    def complete(self, under_way: UnderWay, pod: Pod) -> bool:
        """The replacement is the first pod of the controller that is shown. Returns whether the policy watches it."""
        policy = under_way.watched.policy
        if watching_policy(pod.signature, self._index.view, self._settings) is not self._index.policies.get(policy.key):
            return False
        under_way.move = replace(under_way.move, pod=_stand_in(pod, under_way.move.pod))
        under_way.is_bare = False
        return True

    def _entries(self) -> Iterator[tuple[Policy, _Entry]]:
        """The entries that are young enough and of the namespace of their policy. Others are wrong, and ignored."""
        policies, wall = self._index.policies, self._utc_now()
        for key, stored in policies.moves.items():
            policy = policies.get(key)
            for each in stored if policy is not None and policy.execution is not None else ():
                try:
                    entry = msgspec.convert(each, _Entry)
                except msgspec.ValidationError:
                    continue
                is_young = abs((wall - entry.since).total_seconds()) < LONGEST_END
                if policy is not None and is_young and key.namespace in ("", entry.namespace):
                    yield policy, entry

    def _recovered(self, policy: Policy, entry: _Entry, pod: Pod, pods: Sequence[Pod], now: float) -> UnderWay | None:
        """The move as if this leader had begun it; None if its place is not to be kept."""
        index, view, key = self._index, self._index.view, move_key(pod)
        shown, new = index.pods.get(entry.uid), [other for other in pods if entry.is_new(other)]
        # The clocks of two leaders may differ: a time to come counts as now, so that a place is never kept for longer.
        age = max((self._utc_now() - entry.since).total_seconds(), 0.0)
        if age >= self._settings.execution.claim_timeout and shown is None:
            return None
        if shown is not None and (not shown.terminating or move_key(shown) != key):
            return None
        if any(other.node for other in new) or entry.uid in index.reserved.held:
            return None
        like = next(chain(() if shown is None else (shown,), new, pods), None)
        if like is None:
            if not _fits(pod.requests, self._allocatable(entry.target)):
                return None
        else:
            if watching_policy(like.signature, view, self._settings) is not policy:
                return None
            pod = _stand_in(like, pod)
        if policy.execution is None or entry.target not in view.known:
            return None
        known = frozenset(other.uid for other in pods) - {other.uid for other in new} | {entry.uid}
        broken = f"{entry.constraint} was broken"
        move = Move(pod, entry.target, policy.key, Place(entry.constraint, "", ""), broken, 0, ())
        watched = WatchedPods(pod.signature, policy, policy.execution, ())
        return UnderWay(move, watched, now - age, now - age, known, is_bare=like is None)

    def _allocatable(self, name: str) -> Resources:
        number = self._index.view.known.get(name)
        node = None if number is None else self._index.view.node(number)
        return {} if node is None else node.allocatable


def _stand_in(like: Pod, evicted: Pod) -> Pod:
    """The evicted pod, with the constraints and requests of another pod of its controller."""
    return structs.replace(like, uid=evicted.uid, name=evicted.name, node=evicted.node, terminating=True)


def _fits(requests: Resources, allocatable: Resources) -> bool:
    return allocatable.get(PODS, 0) > 0 and all(
        0 <= amount <= allocatable.get(name, 0) for name, amount in requests.items()
    )
