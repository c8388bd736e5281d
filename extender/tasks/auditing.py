"""Spends idle time on the audit: one step after each pause, so that a wrong count is found while the service runs.

A difference is a fault of ours; it is logged, counted, and cured at once by counting everything anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from extender.tasks.ports import Clock

_LOG = logging.getLogger(__name__)

Steps = Callable[[], Iterator[Callable[[], list[str]]]]


class Rebuildable(Protocol):
    """What auditing needs of the index."""

    def rebuild(self) -> None:
        """Counts everything anew."""


class Auditing:
    """Goes round the steps for ever. ``rounds`` and ``differences`` count what was done and found."""

    def __init__(self, index: Rebuildable, steps: Steps, clock: Clock, pause: float) -> None:
        self.rounds = 0
        self.differences = 0
        self._index = index
        self._steps = steps
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Until cancelled. A round that finds something ends there, as its other steps are of groups that are gone."""
        while True:
            await self._clock.sleep(self._pause)
            for step in self._steps():
                if self._repairs(step()):
                    break
                await self._clock.sleep(self._pause)
            self.rounds += 1

    def _repairs(self, found: list[str]) -> bool:
        if not found:
            return False
        self.differences += len(found)
        _LOG.error("the index had drifted and is counted anew", extra={"differences": len(found), "first": found[0]})
        self._index.rebuild()
        return True
