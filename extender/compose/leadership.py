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

from extender.kube.session import Session
from extender.kube.timing import Clock
from extender.kube.watch_freshness import WatchFreshness
from extender.kube.writer import Writer
from extender.settings import LeaderElection
from extender.tasks.leader_election import LeaderElectionOptions, LeaderElector
from extender.tasks.leader_state import AlwaysLeader, LeaderWriter, run_while_leading
from extender.tasks.ports import ClusterWriter
from extender.tasks.readiness import ReplicaState
from extender.tasks.reflectors import Reflectors
from extender.tasks.takeover import Takeover
from extender.telemetry.metrics import Metrics
from extender.wire.kinds import PODS

RELEASE_SECONDS: Final = 5.0

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Replica:
    """Whose turn it is. ``takeover`` and ``leadership`` are None where we are the only one."""

    leadership: LeaderElector | None = None
    takeover: Takeover | None = None

    @property
    def state(self) -> ReplicaState | None:
        """For readiness."""
        return self.takeover

    def jobs(self) -> list[tuple[str, Run]]:
        """What keeps the Lease and sees hand-overs through."""
        if self.leadership is None or self.takeover is None:
            return []
        return [("leader election", self.leadership.run), ("takeover", self.takeover.run)]

    def run_while_leading(self, run: Run) -> Run:
        """A job that writes: it runs while it is our turn."""
        return run if self.takeover is None else partial(run_while_leading, self.takeover, run)

    def guard(self, writer: ClusterWriter) -> ClusterWriter:
        """A writer that refuses what is not ours to write, or no longer."""
        return LeaderWriter(writer, self.takeover or AlwaysLeader())

    async def release(self) -> None:
        """The last step before the watches are closed: the next replica need not wait for the Lease to run out."""
        if self.leadership is not None:
            await self.leadership.release()


SINGLE_REPLICA: Final = Replica()


def replica_of(
    settings: LeaderElection,
    namespace: str,
    session: Session,
    reflectors: Reflectors,
    clock: Clock,
    rng: Random,
    metrics: Metrics,
) -> Replica:
    """Our side of the Lease, with requests that take at most half of the time in which it must be renewed.

    ``namespace`` holds the Lease where the settings name none.
    """
    if not settings.enabled:
        return SINGLE_REPLICA
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    # By the connections for reading: those for writing may all be waiting, and must not cost us the Lease.
    leases = Writer(
        session.reads, settings.lease_name, identity, limit=settings.renew_deadline / 2, observe=metrics.record_write
    )
    options = LeaderElectionOptions(
        namespace=settings.lease_namespace or namespace,
        name=settings.lease_name,
        identity=identity,
        lease_duration=int(settings.lease_duration),
        renew_deadline=settings.renew_deadline,
        retry_period=settings.retry_period,
    )
    leadership = LeaderElector(leases, options, clock, rng, partial(datetime.now, UTC), lambda: reflectors.is_ready)
    takeover = Takeover(
        leadership,
        lambda: reflectors.statuses()[PODS.name].resource_version,
        WatchFreshness(session.reads, PODS, clock),
        clock,
        settings.takeover_wait,
    )
    metrics.report_leadership(lambda: leadership.is_leader, lambda: leadership.takeovers, lambda: takeover.gap)
    return Replica(leadership, takeover)
