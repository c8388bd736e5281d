"""Whether a request can be answered now: how current the index is, the state of the replica, and named blockers.

Implements what the server reads for each request and for its health checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from extender.kube.timing import Clock

if TYPE_CHECKING:  # it makes the `Freshness` of its handlers
    from extender.tasks.reflectors import KindHandler


class Part(Protocol):
    """A part of the service with readiness checks."""

    @property
    def is_ready(self) -> bool:
        """All its checks pass."""

    @property
    def is_stale(self) -> bool:
        """It was ready, and misses recent changes of the cluster."""

    def checks(self) -> Mapping[str, str]:
        """By check its problem; empty is a pass."""


class ReplicaState(Protocol):
    """Whether this one of several replicas may answer."""

    @property
    def is_ready(self) -> bool:
        """It leads, and knows every pod that the earlier leader passed."""

    @property
    def is_leader(self) -> bool:
        """It is certain, at this moment, that no other replica leads."""

    @property
    def problem(self) -> str:
        """Why it could not lead; empty where it could."""

    def checks(self) -> Mapping[str, str]:
        """By check its problem; empty is a pass."""


class Freshness:
    """Whether the index is complete and current. Made by `Reflectors`, which sets ``synced`` once every kind is listed."""

    def __init__(
        self,
        handlers: Sequence[KindHandler],
        synced: asyncio.Event,
        clock: Clock,
        stale_after: float,
        readable: Callable[[], Container[int]],
    ) -> None:
        """``stale_after``: seconds without any event after which a kind is stale.

        ``readable`` returns the descriptors of the watches' sockets that hold unread bytes.
        """
        self._handlers = handlers
        self._statuses = [handler.status for handler in handlers]
        self._backlogs = [handler.backlog for handler in handlers]
        self._readable = readable
        self._synced = synced
        self._clock = clock
        self._stale_after = stale_after

    @property
    def is_ready(self) -> bool:
        """Every kind is listed and watched, and none is stale. Read for every request."""
        if not self._synced.is_set():
            return False
        oldest = self._clock.now() - self._stale_after
        for status in self._statuses:  # noqa: SIM110 - a generator would cost twice as much
            if status.last_heard < oldest or status.outage:
                return False
        return True

    @property
    def is_stale(self) -> bool:
        """Every kind was listed, but changes are missed, or a kind had no event for too long."""
        return self._synced.is_set() and not self.is_ready

    def checks(self) -> dict[str, str]:
        """By kind its problem; empty is a pass."""
        now = self._clock.now()
        return {handler.name: handler.missing(now, self._stale_after) for handler in self._handlers}

    def lag(self) -> float | None:
        """Age of the oldest kind: seconds since its last watch event or bookmark; None until every kind is listed."""
        if not self._synced.is_set():
            return None
        now = self._clock.now()
        return max((handler.status.lag(now) for handler in self._handlers), default=None)

    def handlers_of(self, kinds: Collection[str]) -> list[KindHandler]:
        """The handlers of these kinds."""
        return [handler for handler in self._handlers if handler.name in kinds]

    async def catch_up(self) -> None:
        """Waits until the events that have arrived at the socket by now are in the index.

        Costs one system call if there are none. Under a flood it waits for the events that have arrived at the call, not for
        later ones.
        """
        readable = self._readable()
        for backlog in [backlog for backlog in self._backlogs if backlog.may_be_behind(readable)]:
            await backlog.wait_until_handled()


class ListedOnce:
    """Ready once these kinds were listed completely. For admission: an old policy is better than none."""

    def __init__(self, freshness: Freshness, kinds: Collection[str]) -> None:
        self._handlers = freshness.handlers_of(kinds)
        self._freshness = freshness

    @property
    def is_ready(self) -> bool:
        """Every kind has been listed. Read for every request."""
        return all(handler.is_listed for handler in self._handlers)

    @property
    def is_stale(self) -> bool:
        """Missed changes do not count."""
        return False

    def checks(self) -> dict[str, str]:
        """By kind its problem; empty is a pass."""
        problems = self._freshness.checks()
        return {handler.name: "" if handler.is_listed else problems[handler.name] for handler in self._handlers}


class Readiness:
    """Ready to answer when every part is and nothing blocks: ``block("shutdown", "the service is stopping")``.

    ``replica``: the state of this replica among several; None if it is the only one.
    ``beside``: what else the pod serves. The pod is ready when all parts and ``beside`` are, even while another replica
    leads. So a rollout ends the old replicas only after the new ones can replace them.

    ``remarks``: remarks by the name of a check that always passes; an empty remark is left out.
    """

    def __init__(
        self,
        *parts: Part,
        replica: ReplicaState | None = None,
        beside: Sequence[Part] = (),
        remarks: Mapping[str, Callable[[], str]] = MappingProxyType({}),
    ) -> None:
        self._parts = parts
        self._beside = beside
        self._replica = replica
        self._remarks = remarks
        self._blockers: dict[str, str] = {}

    def block(self, name: str, reason: str) -> None:
        """Not ready from now on, for this reason."""
        self._blockers[name] = reason

    @property
    def is_ready(self) -> bool:
        """Read for every request."""
        if not self._is_unblocked:
            return False
        for part in self._parts:  # noqa: SIM110 - a generator would cost twice as much
            if not part.is_ready:
                return False
        return True

    @property
    def is_stale(self) -> bool:
        """Only recent changes of the cluster are missing. Read for every request."""
        stale = [part.is_stale for part in self._parts if not part.is_ready]
        # A part that was never ready is not stale, and then no answer may be given by old data.
        return bool(stale) and all(stale) and self._is_unblocked

    @property
    def is_current(self) -> bool:
        """Whether the index is current, whether or not this replica may answer the scheduler."""
        return all(part.is_ready or part.is_stale for part in self._parts)

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still go out. Blockers do not count: what is in flight is finished."""
        return self._replica is None or self._replica.is_leader

    @property
    def _is_unblocked(self) -> bool:
        return not self._blockers and (self._replica is None or self._replica.is_ready)

    def checks(self) -> dict[str, str]:
        """The problem of each check; empty is a pass. A problem keeps the scheduler from being answered."""
        problems: dict[str, str] = {}
        for part in self._parts:
            problems.update(part.checks())
        if self._replica is not None:
            problems.update(self._replica.checks())
        return problems | self._blockers

    def pod_checks(self) -> tuple[dict[str, str], dict[str, str]]:
        """The checks of the pod, as `checks`; and a remark of passing checks, such as which replica leads."""
        problems, remarks = self.checks(), dict[str, str]()
        # A standby is a healthy pod, so its check passes with a remark. A replica that cannot reach the Lease does not
        # pass.
        if self._replica is not None and not self._replica.problem:
            remarks = {name: text for name, text in self._replica.checks().items() if text}
        remarks |= {name: text for name, read in self._remarks.items() if (text := read())}
        for part in self._beside:
            problems.update(part.checks())
        return problems | dict.fromkeys(remarks, ""), remarks
