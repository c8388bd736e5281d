"""Builds the part that moves pods: the mover, its writes, its events and its metrics. Called by `compose/service.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from extender.compose.foundation import Foundation, Job
from extender.features.execution.answers import MovesAnswer
from extender.features.execution.mover import Mover, Outcome
from extender.features.execution.moves import Move
from extender.tasks.events import EventLimit, EventRecorder
from extender.telemetry import catalogue
from extender.telemetry.verb_metrics import Distribution

_EVENTS: Final = EventLimit(repeated_after=3600.0)


def moves_of_cluster(base: Foundation) -> tuple[Callable[[str, int], MovesAnswer] | None, list[Job]]:
    """What answers about moves, and the jobs; nothing if the settings disable them."""
    settings, seconds = base.settings, Distribution(catalogue.MOVE_SECONDS.buckets)
    if not (settings.policies.enabled and settings.execution.enabled):
        return None, []
    events = EventRecorder(base.writer().create_event, base.clock, _EVENTS)

    def ended(outcome: Outcome, _move: Move, duration: float) -> None:
        if outcome not in (Outcome.REFUSED, Outcome.FAILED):
            seconds.observe(duration)

    mover = Mover(
        base.index,
        settings,
        base.writer(),
        base.clock,
        base.wall.utc,
        lambda: base.reflectors.freshness.is_ready,
        ended,
        events.record,
    )
    base.metrics.report(catalogue.EXECUTION_BROKEN, mover.broken.by_kind)
    base.metrics.report(catalogue.EXECUTION_PHI, lambda: mover.broken.measure)
    base.metrics.report(catalogue.MOVES, lambda: mover.outcomes)
    base.metrics.report(catalogue.MOVE_SECONDS, lambda: seconds)
    jobs = [
        base.while_leading("moves of pods", mover.run),
        base.while_leading("events of moves", events.run),
    ]
    return mover.answer, jobs
