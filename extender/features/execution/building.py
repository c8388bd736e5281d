"""Builds the part that moves pods: the mover, its writes and its metrics. Called by `compose/service.py`."""

from __future__ import annotations

from extender.compose.foundation import Foundation, Job
from extender.features.execution.mover import Mover
from extender.settings.configuration import Settings


def moves_of_cluster(base: Foundation) -> list[Job]:
    """The jobs; none if the settings disable it. They begin once the index holds the whole cluster."""
    settings: Settings = base.settings
    if not (settings.policies.enabled and settings.execution.enabled):
        return []
    mover = Mover(
        base.index, settings, base.writer(), base.clock, base.wall.utc, lambda: base.reflectors.freshness.is_ready
    )
    return [base.while_leading("moves of pods", mover.run)]
