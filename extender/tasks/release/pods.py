"""Releases one pod: reads it, makes the patch for what it is now, and sends it. Repeats where the result is unknown.

A patch that was not answered may have been applied. The pod is read before each try, so the patch is sent only while the pod
has the gate, and repeating it does no harm. What an answer means is that of the API conventions:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#http-status-codes
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, Rejected, Throttled
from extender.kube.timing import Backoff, BackoffOptions
from extender.model.release import Decision
from extender.tasks.leadership.state import LeadershipLost
from extender.tasks.namespace_limiter import NamespaceLimiter
from extender.tasks.ports import Clock
from extender.verbs.release.progress import Inexpressible, release_patch

JsonObject = dict[str, Any]

MOST_TRIES: Final = 5


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


class PodStore(Protocol):
    """Reads and patches pods."""

    async def get_pod(self, pod: PodRef) -> JsonObject:
        """The pod that has this name now."""

    async def release_pod(self, pod: PodRef, patch: JsonObject) -> JsonObject:
        """Applies a patch that carries UID and version."""


class PodReleaser:
    """Releases pods under one rate limiter, with at most two requests for each try."""

    def __init__(
        self, store: PodStore, rate_limiter: NamespaceLimiter, clock: Clock, backoff: BackoffOptions, rng: Random
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
