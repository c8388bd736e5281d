"""Builds leader election: the Lease, the takeover, and the jobs and writes that require leadership.

Called by `service`. Without leader election there is one replica and one term, from its start to its end.
"""

import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Final

from extender.kube.listing import WatchFreshness
from extender.kube.session import Session
from extender.kube.timing import Clock
from extender.kube.writer import WebhookObjects, Writer
from extender.settings.configuration import Settings
from extender.settings.jobs import LeaderElectionSettings
from extender.tasks.endpoints import LEADER_PORT, Endpoint, LeaderEndpoint
from extender.tasks.leader_election import LeaderElectionOptions, LeaderElector
from extender.tasks.readiness import ReplicaState
from extender.tasks.reflectors import Reflectors
from extender.tasks.takeover import Takeover
from extender.telemetry import catalogue
from extender.telemetry.metrics import Metrics
from extender.wire.api_calls import leader_slice
from extender.wire.objects.kinds import PODS
from extender.wire.webhook_configurations import OwnPod

RELEASE_SECONDS: Final = 5.0

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Replica:
    """Leader election of this replica. ``takeover`` and ``leadership`` are None without leader election."""

    leadership: LeaderElector | None = None
    takeover: Takeover | None = None

    @property
    def state(self) -> ReplicaState | None:
        """For readiness."""
        return self.takeover

    def jobs(self) -> list[tuple[str, Run]]:
        """The jobs that hold the Lease and complete takeovers."""
        if self.leadership is None or self.takeover is None:
            return []
        return [("leader election", self.leadership.run), ("takeover", self.takeover.run)]

    def run_while_leading(self, run: Run) -> Run:
        """Wraps a job that writes: it runs while this replica leads."""
        return run if self.takeover is None else partial(self.takeover.run_while_leading, run)

    def answers_since(self, begun: float) -> float | None:
        """Since when this replica answers, in monotonic seconds; None while it does not. ``begun``: the start without leader election."""
        if self.takeover is None:
            return begun
        term = self.takeover.ready_term
        return None if term is None else max(begun, term.since)

    def check_term(self) -> None:
        """Raises ``LeadershipLost`` if this replica must not write now."""
        if self.takeover is not None:
            self.takeover.check_term()

    async def release(self) -> None:
        """Releases the Lease, so that the next replica need not wait for its expiry. The last step before the watches close."""
        if self.leadership is not None:
            await self.leadership.release()


SINGLE_REPLICA: Final = Replica()
_SHARE_OF_TIME: Final = 0.9  # of server.requestTimeout, which a call waits for a leader at most


def leader_endpoint_of(
    settings: Settings,
    replica: Replica,
    place: tuple[str, OwnPod | None],
    session: Session,
    answers: Callable[[], bool],
    clock: Clock,
    metrics: Metrics,
) -> LeaderEndpoint | None:
    """The EndpointSlice writer that sends kube-scheduler to this replica while it leads. None without a Service. ``place``: this pod."""
    namespace, pod = place
    service, server = settings.leader_election.service, settings.server
    if not service or pod is None:
        return None
    endpoint = Endpoint(namespace, service, pod, server.bind_address.port, LEADER_PORT, leader_slice(service))
    # Uses the connections for reading, as for the Lease: the connections for writing may all be busy.
    # Half, so that after a request that hangs a second one fits before the deadline.
    limit = settings.leader_election.renew_deadline / 2
    store = WebhookObjects(session.reads, limit, metrics.record_write, replica.check_term)
    return LeaderEndpoint(store, endpoint, answers, clock, server.request_timeout * _SHARE_OF_TIME)


def replica_of(
    settings: LeaderElectionSettings,
    session: Session,
    reflectors: Reflectors,
    clock: Clock,
    rng: Random,
    metrics: Metrics,
) -> Replica:
    """Leader election of this replica; a request for the Lease takes at most half of renewDeadline."""
    if not settings.enabled:
        return SINGLE_REPLICA
    # As in client-go: the host name is for people, the UUID makes a restarted process a new candidate.
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    # Uses the connections for reading: those for writing may all be busy, and the Lease must be renewed in time.
    leases = Writer(
        session.reads, settings.lease_name, identity, limit=settings.renew_deadline / 2, observe=metrics.record_write
    )
    options = LeaderElectionOptions(
        namespace=settings.lease_namespace,
        name=settings.lease_name,
        identity=identity,
        lease_duration=int(settings.lease_duration),
        renew_deadline=settings.renew_deadline,
        retry_period=settings.retry_period,
    )
    # The last argument: a replica with an incomplete index must not take the Lease from one that could answer.
    leadership = LeaderElector(
        leases, options, clock, rng, partial(datetime.now, UTC), lambda: reflectors.freshness.is_ready
    )
    takeover = Takeover(
        leadership,
        lambda: reflectors.statuses()[PODS.name].resource_version,
        WatchFreshness(session.reads, PODS, clock),
        clock,
        settings.takeover_wait,
    )
    metrics.report(catalogue.LEADER, lambda: leadership.is_leader)
    metrics.report(catalogue.LEADER_TERMS, lambda: leadership.takeovers)
    metrics.report(catalogue.LEADER_GAP, lambda: takeover.gap)
    return Replica(leadership, takeover)
