"""What the handlers use: collaborators under one typed key of the application.

`compose` builds them, tests build others. Nothing is created on first use.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from aiohttp import web

from extender.model.answers.explanations import Explanation
from extender.model.answers.pages import (
    ClusterFigures,
    ConstraintsPage,
    GroupPage,
    PageOf,
    PendingPage,
    PolicyPage,
    PreemptionPage,
    TopologyPage,
    TopologyQuestion,
    WorkloadPage,
)
from extender.model.objects import Pod
from extender.model.preemption import Candidate
from extender.server.request_checks import BodyMemory, Deadlines
from extender.server.transport.turns import Turns
from extender.server.v1.decision_streams import DecisionStreams
from extender.server.v1.shared import SharedAnswers
from extender.settings.configuration import Settings
from extender.telemetry.decision_log import DecisionLog
from extender.telemetry.logs import RepeatedWarning, RepeatedWarnings
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import BindingArgs, ExtenderArgs, FilterResult, PreemptionArgs


async def reject_bind(_args: BindingArgs) -> str:
    """A service that follows no cluster cannot bind."""
    return "this service answers from a snapshot and binds nothing"


def ignore_failed_attempt(_pod: Pod) -> None:
    """A service that follows no cluster assumes no pod."""


class Explainer(Protocol):
    """Explains pods. Both raise NotExplained."""

    async def explain(self, namespace: str, name: str, node: str = "") -> Explanation:
        """A pod that exists."""

    async def explain_given(self, pod: Pod, node: str = "") -> Explanation:
        """A pod that does not exist yet."""


class Browser(Protocol):
    """Computes pages of the cluster. The coroutines raise NotExplained where they take too long, or too many are wanted."""

    async def figures(self) -> ClusterFigures:
        """How many objects there are."""

    async def topology(self, asked: TopologyQuestion) -> TopologyPage:
        """The domains of a label key, or the nodes of one domain."""

    async def pending(self, asked: PageOf) -> PendingPage:
        """The pods without a node, without what was answered about them."""

    async def workloads(self, asked: PageOf) -> WorkloadPage:
        """Pods by namespace and labels."""

    async def constraints(self, namespace: str, name: str) -> ConstraintsPage:
        """What the constraints of a pod count. Raises NotExplained also where it is not known."""

    async def preemptions(self, asked: PageOf) -> PreemptionPage:
        """The preemptions in flight."""

    async def groups(self, asked: PageOf) -> GroupPage:
        """The groups of gated pods with a pod that has no node."""

    async def policies(self, asked: PageOf) -> PolicyPage:
        """The scheduling policies."""

    def freshness(self) -> float | None:
        """Seconds since the cluster was heard of; None where none is followed."""


class WhatIfs(Protocol):
    """Answers what-ifs."""

    async def answer(self, body: bytes) -> bytes:
        """The encoded `WhatIfAnswer` for a body. Raises WireError or NotComputed. Cancelling it ends the computation."""


class Traffic(Protocol):
    """What gives way to requests of schedulers."""

    def begin(self) -> None:
        """A request is to be answered."""

    def end(self) -> None:
        """It is answered."""


class _NoTraffic:
    """Gives way to nothing."""

    def begin(self) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


NO_TRAFFIC: Final[Traffic] = _NoTraffic()
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs, bound to the view that they read, the settings and the random number generator.

    A decision is a synchronous function, so it sees one state of the index. Before it, filter and preempt may wait for
    the watch to show the pod, and filter for the assumed pods that it depends on. ``catch_up`` is awaited before each: it
    returns once all events that have arrived by then are in the index. It is None in a service that follows no cluster.
    ``attempt_failed`` takes the pod of a request that is not decided. ``traffic`` is told of the requests in flight.
    """

    filter: Callable[[ExtenderArgs], Awaitable[FilterResult]]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]
    preempt: Callable[[PreemptionArgs], Awaitable[Sequence[Candidate]]]
    bind: Callable[[BindingArgs], Awaitable[str]] = reject_bind
    attempt_failed: Callable[[Pod], None] = ignore_failed_attempt
    catch_up: Callable[[], Awaitable[None]] | None = None
    traffic: Traffic = NO_TRAFFIC
    explainer: Explainer | None = None
    browser: Browser | None = None
    what_ifs: WhatIfs | None = None


class Readiness(Protocol):
    """Whether requests can be answered now."""

    @property
    def is_ready(self) -> bool:
        """All checks pass. Read for every request: O(1)."""

    @property
    def is_stale(self) -> bool:
        """All checks pass except that recent changes of the cluster are missing. Read for every request: O(1)."""

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still go out: not once another replica may have begun to answer. O(1)."""

    def checks(self) -> Mapping[str, str]:
        """By check its problem; an empty text is a pass."""


@dataclass(slots=True)
class Collaborators:
    """All that the handlers use. Only `decisions`, `shared`, `streams`, `in_flight`, `bodies`, `deadlines`, `turns` and the state of the warnings change."""

    settings: Settings
    verbs: Verbs
    readiness: Readiness
    metrics: Metrics
    version: str
    bodies: BodyMemory
    deadlines: Deadlines
    turns: Turns = field(default_factory=Turns)
    decisions: DecisionLog = field(default_factory=DecisionLog)
    shared: SharedAnswers = field(default_factory=SharedAnswers)
    started: float = field(default_factory=monotonic)
    streams: DecisionStreams = field(init=False)
    in_flight: int = 0
    rejected: RepeatedWarnings = field(default_factory=lambda: RepeatedWarnings(_LOG, "request rejected"))
    undecided: RepeatedWarning = field(
        default_factory=lambda: RepeatedWarning(_LOG, "answering although nothing could be decided")
    )

    def __post_init__(self) -> None:
        """Streams are of the log."""
        self.streams = DecisionStreams(self.decisions)


COLLABORATORS = web.AppKey("COLLABORATORS", Collaborators)
