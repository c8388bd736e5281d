"""One of several replicas put together: the Lease, the hand-over, and what runs and writes only while we lead.

Called by `service`. Without leader election there is one service and one term, from its start to its end.
"""

import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Final

from extender.kube.comparing import Comparing
from extender.kube.session import Session
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.settings import LeaderElection
from extender.tasks.feeding import Feeding
from extender.tasks.handing_over import HandOver
from extender.tasks.leading import Leadership, LeadingOptions
from extender.tasks.ports import ClusterWriter
from extender.tasks.readiness import Replica as Turn
from extender.tasks.terms import AlwaysLeading, LeaderWriter, run_in_terms
from extender.telemetry.metrics import Metrics
from extender.wire.kinds import PODS

RELEASE_SECONDS: Final = 5.0

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Replica:
    """Whose turn it is. ``hand_over`` and ``leadership`` are None where we are the only one."""

    leadership: Leadership | None = None
    hand_over: HandOver | None = None

    @property
    def turn(self) -> Turn | None:
        """For readiness."""
        return self.hand_over

    def jobs(self) -> list[tuple[str, Run]]:
        """What keeps the Lease and sees hand-overs through."""
        if self.leadership is None or self.hand_over is None:
            return []
        return [("leadership", self.leadership.run), ("hand-over", self.hand_over.run)]

    def in_terms(self, run: Run) -> Run:
        """A job that writes: it runs while it is our turn."""
        return run if self.hand_over is None else partial(run_in_terms, self.hand_over, run)

    def writing(self, writer: ClusterWriter) -> ClusterWriter:
        """A writer that refuses what is not ours to write, or no longer."""
        return LeaderWriter(writer, self.hand_over or AlwaysLeading())

    async def release(self) -> None:
        """The last step before the watches are closed: the next replica need not wait for the Lease to run out."""
        if self.leadership is not None:
            await self.leadership.release()


SOLE: Final = Replica()


def replica_of(
    settings: LeaderElection,
    namespace: str,
    session: Session,
    feeding: Feeding,
    clock: Clock,
    chance: Random,
    metrics: Metrics,
) -> Replica:
    """Our side of the Lease, with requests that take at most half of the time in which it must be renewed.

    ``namespace`` holds the Lease where the settings name none.
    """
    if not settings.enabled:
        return SOLE
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    # By the connections for reading: those for writing may all be waiting, and must not cost us the Lease.
    leases = Writer(
        session.reads, settings.lease_name, identity, limit=settings.renew_deadline / 2, observe=metrics.wrote
    )
    options = LeadingOptions(
        namespace=settings.lease_namespace or namespace,
        name=settings.lease_name,
        identity=identity,
        lease_duration=int(settings.lease_duration),
        renew_deadline=settings.renew_deadline,
        retry_period=settings.retry_period,
    )
    leadership = Leadership(leases, options, clock, chance, partial(datetime.now, UTC), lambda: feeding.is_ready)
    hand_over = HandOver(
        leadership,
        lambda: feeding.statuses()[PODS.name].resource_version,
        Comparing(session.reads, PODS, clock),
        clock,
        settings.hand_over_wait,
    )
    metrics.report_leadership(lambda: leadership.is_leader, lambda: leadership.terms, lambda: hand_over.gap)
    return Replica(leadership, hand_over)
