"""Writes what a release consists of: the GroupPlacement with the decision and its status, and the patch of each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from random import Random
from typing import Any, Final, NamedTuple

from extender.index.gated import Placements
from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, Rejected, Throttled
from extender.kube.timing import Backoff, BackoffOptions, Clock
from extender.kube.writer import ReleaseObjects
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.objects import Pod
from extender.model.release import Decision, GroupKey
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.leader_election import LeadershipLost
from extender.verbs.release.progress import Inexpressible, release_patch
from extender.wire.policies.group_placements import decision_body, undecided_body

JsonObject = dict[str, Any]

MOST_TRIES: Final = 5
_AT_ONCE: Final = 500


class Result(StrEnum):
    """How the release of a pod ended. A label of the metric: a closed set."""

    RELEASED = "released"
    ALREADY = "already"  # without the gate when it was read
    GONE = "gone"  # deleted, or the name belongs to another pod
    REFUSED = "refused"  # 422, or no patch can narrow it: it would be refused again
    FORBIDDEN = "forbidden"  # 403: RBAC, or an admission plugin
    CONFLICT = "conflict"  # 409, each time
    UNKNOWN = "unknown"  # no answer, 429 or 5xx, each time


class Outcome(NamedTuple):
    """The result, and the text of the last error."""

    result: Result
    error: str = ""


class PodReleaser:
    """Releases pods under one rate limiter, with at most two requests for each try.

    A patch that was not answered may have been applied. The pod is read before each try, so the patch is sent only while the
    pod has the gate, and repeating it does no harm.
    """

    def __init__(
        self, store: ReleaseObjects, rate_limiter: RateLimiter, clock: Clock, backoff: BackoffOptions, rng: Random
    ) -> None:
        self._store = store
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._backoff = backoff
        self._rng = rng

    async def release(self, pod: PodRef, decision: Decision) -> Outcome:
        """Raises ``LeadershipLost``; every other failure is a result."""
        backoff, last = Backoff(self._backoff, self._rng), Outcome(Result.UNKNOWN)
        for number in range(MOST_TRIES):
            if number:
                await self._clock.sleep(backoff.next())
            try:
                async with self._rate_limiter.acquire(pod.namespace):
                    return await self._try(pod, decision)
            except Conflict as error:
                last = Outcome(Result.CONFLICT, str(error))
            except Throttled as error:
                last = Outcome(Result.UNKNOWN, str(error))
                await self._clock.sleep(error.retry_after)
            except LeadershipLost:
                raise
            except Rejected as error:
                is_forbidden = error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}
                return Outcome(Result.FORBIDDEN if is_forbidden else Result.REFUSED, str(error))
            except KubeError as error:
                last = Outcome(Result.UNKNOWN, str(error))
        return last

    async def release_all(self, pods: Sequence[Pod], decision: Decision) -> list[Outcome]:
        """The outcomes of all in their order; some hundred wait for the rate limiter at a time, as each is a task."""
        found: list[Outcome] = []
        for start in range(0, len(pods), _AT_ONCE):
            calls = (self.release(PodRef.of(pod), decision) for pod in pods[start : start + _AT_ONCE])
            found += await asyncio.gather(*calls)
        return found

    async def owner_of(self, pod: PodRef) -> dict[str, str] | None:
        """A reference to the controller of a pod; None where it has none, or where it cannot be read."""
        try:
            async with self._rate_limiter.acquire(pod.namespace):
                found = await self._store.get_pod(pod)
        except KubeError:
            return None
        owners = found["metadata"].get("ownerReferences") or ()
        fields = ("apiVersion", "kind", "name", "uid")
        return next(({name: str(each[name]) for name in fields} for each in owners if each.get("controller")), None)

    async def is_gated(self, pod: PodRef, gate: str) -> bool | None:
        """Whether the API server has the pod with the gate; None where it has no such pod. Raises ``KubeError``."""
        try:
            async with self._rate_limiter.acquire(pod.namespace):
                found = await self._store.get_pod(pod)
        except NotFound:
            return None
        if found["metadata"].get("uid") != pod.uid:
            return None
        return any(each.get("name") == gate for each in found["spec"].get("schedulingGates") or ())

    async def _try(self, pod: PodRef, decision: Decision) -> Outcome:
        try:
            found = await self._store.get_pod(pod)
            if found["metadata"].get("uid") != pod.uid:
                return Outcome(Result.GONE)
            patch = release_patch(found, decision)
            if patch is None:
                return Outcome(Result.ALREADY)
            if isinstance(patch, Inexpressible):
                return Outcome(Result.REFUSED, str(patch))
            await self._store.release_pod(pod, patch)
        except NotFound:
            return Outcome(Result.GONE)
        return Outcome(Result.RELEASED)


class PlacementWriter:
    """Writes decisions and their status to GroupPlacements. Each method raises ``KubeError``.

    A decision is written before the first pod of its group is touched. A decision that an earlier leader wrote and that the watch
    does not show yet stands. Between a write and its watch event the written object counts.
    """

    def __init__(
        self,
        store: ReleaseObjects,
        shown: Placements,
        rate_limiter: RateLimiter,
        utc_now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._shown = shown
        self._rate_limiter = rate_limiter
        self._utc_now = utc_now
        self._written: dict[GroupKey, GroupPlacement] = {}

    def find(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group, as it was written last or as the watch shows it."""
        return self._written.get(group) or self._shown.of(group)

    def observe(self, group: GroupKey) -> None:
        """The watch shows the object of a group anew: with the same decision it counts, and not the written one."""
        written, shown = self._written.get(group), self._shown.of(group)
        if (
            written is not None
            and shown is not None
            and shown.uid == written.uid
            and shown.decision == written.decision
        ):
            del self._written[group]

    def forget(self) -> None:
        """Another leader may have written since."""
        self._written.clear()

    async def decide(
        self, decision: Decision, replaces: Decision | None, owner: Mapping[str, str] | None = None
    ) -> Decision:
        """Writes a decision down; returns the one that stands. ``replaces``: the decision that may be overwritten."""
        group = decision.group
        async with self._rate_limiter.acquire(group.namespace):
            known = self.find(group)
            if known is None:
                try:
                    self._written[group] = await self._store.create_placement(decision_body(decision, owner=owner))
                except Conflict:
                    pass  # it exists; it is read below
                else:
                    return decision
            try:
                found, version = await self._store.get_placement(group.namespace, placement_name(group))
            except NotFound:
                self._written.pop(group, None)  # the watch shows one that was deleted
                self._written[group] = await self._store.create_placement(decision_body(decision, owner=owner))
                return decision
            stands = found.decision
            if stands is not None and stands != replaces:
                self._written[group] = found
                return stands
            self._written[group] = await self._store.update_placement(decision_body(decision, version, owner))
            return decision

    async def begin(self, group: GroupKey, gate: str, size: int) -> None:
        """Creates the object of a group that nothing is decided for, so that its status can tell why."""
        async with self._rate_limiter.acquire(group.namespace):
            try:
                self._written[group] = await self._store.create_placement(undecided_body(group, gate, size))
            except Conflict:
                found, _ = await self._store.get_placement(group.namespace, placement_name(group))
                self._written[group] = found

    async def tell(self, group: GroupKey, status: PlacementStatus, since: datetime | None = None) -> None:
        """Writes the status. Does nothing where there is no object."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            try:
                await self._store.patch_placement_status(known, status, since or self._utc_now())
            except (NotFound, Conflict):
                self._written.pop(group, None)
                raise

    async def delete(self, group: GroupKey) -> None:
        """Deletes the object of a group whose pods are gone."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            with suppress(NotFound, Conflict):
                await self._store.delete_placement(known)
            self._written.pop(group, None)
