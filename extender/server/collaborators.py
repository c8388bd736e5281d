"""What the handlers use: collaborators under one typed key of the application.

`compose` builds them, tests build others. Nothing is created on first use.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from aiohttp import web

from extender.features.execution.answers import MovesAnswer
from extender.kube.timing import SystemClock
from extender.model.answers.shadow import ShadowPage
from extender.model.objects import Pod
from extender.model.preemption import Candidate
from extender.server.request_checks import BodyMemory, Deadlines
from extender.server.transport.turns import Turns
from extender.server.v1.decision_streams import DecisionStreams
from extender.server.v1.shared import SharedAnswers
from extender.settings.configuration import Settings
from extender.tasks.browse_service import BrowseService, ExplainService
from extender.tasks.readiness import Readiness
from extender.tasks.sliced_work import Traffic
from extender.tasks.what_if.service import WhatIfService
from extender.telemetry.decision_log import DecisionLog
from extender.telemetry.logs import RepeatedWarning, RepeatedWarnings
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import BindingArgs, ExtenderArgs, FilterResult, PreemptionArgs

_LOG: Final = logging.getLogger(__name__)


async def _reject_bind(_args: BindingArgs) -> str:
    """A service that follows no cluster cannot bind."""
    return "this service answers from a snapshot and binds nothing"


def _ignore_refusal() -> None:
    """A service that follows no cluster requeues no pod."""


def _ignore_failed_attempt(_pod: Pod) -> None:
    """A service that follows no cluster assumes no pod."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs, bound to the view that they read, the settings and the random number generator.

    A decision is a synchronous function, so it sees one state of the index. Before it, filter and preempt may wait until the watch
    shows the pod, and filter until the nodes of assumed pods are known.

    - ``catch_up``: awaited before each decision. It returns once all events that have arrived are in the index. None in a service
      without a cluster.
    - ``attempt_failed``: called with the pod of a request that gets no decision.
    - ``preempt_refused``: called after each preempt request that gets no decision.
    - ``traffic``: counts the requests in flight.
    - ``is_handed_over``: where replicas change behind a Service, waits until this replica leads, or returns that another one does.
      Its argument: how often the call was redirected.
    - ``shadow``: the last differences from the decisions of the scheduler's own plugins, with the figures. None: nothing is compared.
    - ``decisions``: the last answers, for explanations.
    - ``moves``: so many broken constraints of running pods and their moves, of a namespace or of all (empty). None: nothing is watched.
    """

    filter: Callable[[ExtenderArgs], Awaitable[FilterResult]]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]
    preempt: Callable[[PreemptionArgs], Awaitable[Sequence[Candidate]]]
    bind: Callable[[BindingArgs], Awaitable[str]] = _reject_bind
    attempt_failed: Callable[[Pod], None] = _ignore_failed_attempt
    preempt_refused: Callable[[], None] = _ignore_refusal
    catch_up: Callable[[], Awaitable[None]] | None = None
    traffic: Traffic = field(default_factory=lambda: Traffic(SystemClock()))
    is_handed_over: Callable[[int], Awaitable[bool]] | None = None
    explainer: ExplainService | None = None
    browser: BrowseService | None = None
    what_ifs: WhatIfService | None = None
    shadow: Callable[[int], ShadowPage] | None = None
    decisions: DecisionLog | None = None
    moves: Callable[[str, int], MovesAnswer] | None = None


@dataclass(slots=True)
class Collaborators:
    """The collaborators of all handlers.

    Only `decisions`, `shared`, `streams`, `in_flight`, `bodies`, `deadlines`, `turns` and the state of the warnings change.
    """

    settings: Settings
    verbs: Verbs
    readiness: Readiness
    metrics: Metrics
    version: str
    bodies: BodyMemory
    deadlines: Deadlines
    turns: Turns = field(default_factory=Turns)
    decisions: DecisionLog = field(init=False)
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
        self.decisions = DecisionLog() if self.verbs.decisions is None else self.verbs.decisions
        self.streams = DecisionStreams(self.decisions)


COLLABORATORS = web.AppKey("COLLABORATORS", Collaborators)
