"""The settings of work beside requests: claims, preemption, audit, recording, what-ifs, leader election."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from extender.model.constraints.labels import ObjectName, is_dns_label
from extender.model.documents import AtLeastOne, Section, require_positive
from extender.model.units import ByteSize, Duration
from extender.settings.connections import BackoffSettings

LEADER_JITTER: Final = 1.2  # as in client-go: a wait lasts 1 to 1.2 times the setting


class AssumedPodsSettings(Section, frozen=True):
    """How long a pod stays assumed without a binding, and how long a request waits for the node of an assumed pod."""

    enabled: bool = True
    expiry: Duration = Duration(120)  # longer than slow volume binding
    wait: Duration = Duration(1)  # far below request_timeout, and above the usual time of a binding
    failure_grace: Duration = Duration(2)  # an earlier failure belongs to the pod's previous attempt
    doubt: Duration = Duration(5)

    def __post_init__(self) -> None:
        require_positive(self, "expiry", "doubt")


class RejectedPodsSettings(Section, frozen=True):
    """Writes after which kube-scheduler retries rejected pods, at most `per_second` of each kind; and events."""

    nominate_elsewhere: bool = True
    requeue: bool = True
    events: bool = True
    per_second: AtLeastOne = 50


class PreemptionSettings(Section, frozen=True):
    """How the extender preempts.

    `deadline` limits the writes of one preemption, `stuck_after` the wait for its success.
    """

    mode: Literal["advise", "execute", "off"] = "execute"
    eviction: Literal["delete", "evict"] = "delete"
    cross_node: bool = False
    max_parallel_deletes: AtLeastOne = 32
    writes_per_second: AtLeastOne = 500
    deadline: Duration = Duration(30)
    stuck_after: Duration = Duration(60)
    backoff: BackoffSettings = BackoffSettings(initial=Duration(0.1), max=Duration(5))

    def __post_init__(self) -> None:
        require_positive(self, "deadline", "stuck_after")


class Audit(Section, frozen=True):
    """The audit, which recounts the index step by step (some nodes, or one group). A `pause` of 0 disables it."""

    pause: Duration = Duration(0.5)


class RecorderSettings(Section, frozen=True):
    """The recording of questions, answers and changes for `extender replay`. An empty `path` disables it.

    - `sampling`: the share of questions that are recorded; changes are always recorded
    - `max_bytes`: the sum of the file and the file before it
    - `redact`: replaces names by pseudonyms, under the key in the file, or under a key that is made at the start
    """

    path: str = ""
    redact: bool = False
    redact_key_file: str = ""
    sampling: Annotated[float, Meta(ge=0, le=1)] = 1.0
    max_bytes: ByteSize = ByteSize(2**30)

    def __post_init__(self) -> None:
        require_positive(self, "max_bytes")
        if self.redact_key_file and not self.redact:
            raise ValueError("redactKeyFile: needs redact")


class WhatIfSettings(Section, frozen=True):
    """What one what-if may use: `seconds` of a processor, and `memory` beyond the memory of the service.

    At most one runs.
    """

    enabled: bool = True
    seconds: Duration = Duration(20)
    memory: ByteSize = ByteSize(256 * 2**20)

    def __post_init__(self) -> None:
        require_positive(self, "seconds", "memory")


class LeaderElectionSettings(Section, frozen=True):
    """Leader election by a Lease: only the leader answers and writes.

    An empty namespace: the namespace of the extender's pod.

    The times are shorter than client-go's (15, 10 and 2 s), because without a leader the scheduler places no pod.
    ``service``: the Service that kube-scheduler calls; the leader writes its own address into its EndpointSlice. Empty
    if something else finds the leader.
    """

    enabled: bool = False
    lease_name: ObjectName = ObjectName("placement-extender")
    lease_namespace: str = ""
    lease_duration: Duration = Duration(4)
    renew_deadline: Duration = Duration(2.5)
    retry_period: Duration = Duration(0.5)
    takeover_wait: Duration = Duration(1)
    service: str = ""

    def __post_init__(self) -> None:
        """Checks as client-go does: https://pkg.go.dev/k8s.io/client-go/tools/leaderelection#NewLeaderElector."""
        require_positive(self, "lease_duration", "renew_deadline", "retry_period")
        if self.service and not is_dns_label(self.service):
            raise ValueError(f'service: "{self.service}" is no name of a Service')
        if self.service and not self.enabled:
            raise ValueError("service: needs leaderElection.enabled")
        if self.lease_duration % 1:
            raise ValueError("leaseDuration: the Lease holds whole seconds only")
        # A leader must have stopped before another replica may take over.
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(f'leaseDuration: must be more than renewDeadline, "{self.renew_deadline}"')
        if self.renew_deadline <= self.retry_period * LEADER_JITTER:
            raise ValueError(f'renewDeadline: must be more than {LEADER_JITTER} × retryPeriod, "{self.retry_period}"')
