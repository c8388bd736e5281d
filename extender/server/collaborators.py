"""What the handlers are given: ready-made collaborators under one typed key of the application.

The composition root builds them, tests build others. Nothing here decides, and nothing is made on first use.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from extender.model.objects import Pod
from extender.model.victims import Candidate
from extender.server.bodies import Bodies
from extender.settings import Settings
from extender.telemetry.metrics import Metrics
from extender.telemetry.repeated import RepeatedWarning, RepeatedWarnings
from extender.wire.extender_v1 import BindingArgs, ExtenderArgs, FilterResult, PreemptionArgs


async def binds_nothing(_args: BindingArgs) -> str:
    """A service that follows no cluster cannot bind."""
    return "this service answers from a snapshot and binds nothing"


async def hears_nothing() -> None:
    """A service that follows no cluster is told nothing."""


def assumes_nothing(_pod: Pod) -> None:
    """A service that follows no cluster assumes no pod."""


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verbs:
    """The decisions, already bound to the view they read, the settings and their source of chance.

    Deciding is a plain function: while it runs nothing else does, so it sees one state of the index. A filter or a
    preempt may wait before that for its own pod to be shown by the watch, a filter also for a pod that it hangs on.
    ``catch_up`` is awaited before each: it returns once all that the API server had told by then counts.
    ``attempt_failed`` is told the pod of a question that is not answered.
    """

    filter: Callable[[ExtenderArgs], Awaitable[FilterResult]]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]
    preempt: Callable[[PreemptionArgs], Awaitable[Sequence[Candidate]]]
    bind: Callable[[BindingArgs], Awaitable[str]] = binds_nothing
    attempt_failed: Callable[[Pod], None] = assumes_nothing
    catch_up: Callable[[], Awaitable[None]] = hears_nothing


class Readiness(Protocol):
    """Whether questions can be answered now."""

    @property
    def is_ready(self) -> bool:
        """All checks pass. Asked for every request: O(1)."""

    @property
    def is_stale(self) -> bool:
        """All passes but that the cluster was not heard of for too long. Asked for every request: O(1)."""

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still go out: not once another replica may have begun to answer. O(1)."""

    def checks(self) -> Mapping[str, str]:
        """By name of the check what is still missing; an empty text is a pass."""


@dataclass(slots=True)
class Collaborators:
    """All that the handlers use. Only `in_flight`, `bodies` and what the warnings remember change."""

    settings: Settings
    verbs: Verbs
    readiness: Readiness
    metrics: Metrics
    version: str
    bodies: Bodies
    in_flight: int = 0
    rejected: RepeatedWarnings = field(default_factory=lambda: RepeatedWarnings(_LOG, "request refused"))
    undecided: RepeatedWarning = field(
        default_factory=lambda: RepeatedWarning(_LOG, "answering although nothing could be decided")
    )


COLLABORATORS = web.AppKey("COLLABORATORS", Collaborators)
