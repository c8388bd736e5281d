"""Audits the index in the background: one step after each pause, so that a wrong count is found while the service runs.

A difference is a bug of the index. It is logged and counted, and the index is rebuilt at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from extender.tasks.ports import Clock

_LOG = logging.getLogger(__name__)

Steps = Callable[[], Iterator[Callable[[], list[str]]]]


class Rebuildable(Protocol):
    """What the audit needs of the index."""

    def rebuild(self) -> None:
        """Counts everything again from the known objects."""


class Auditing:
    """Repeats the audit. ``rounds`` counts complete passes, ``differences`` the wrong counts found."""

    def __init__(self, index: Rebuildable, steps: Steps, clock: Clock, pause: float) -> None:
        self.rounds = 0
        self.differences = 0
        self._index = index
        self._steps = steps
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Runs until cancelled. A difference ends the round: a rebuild replaces the groups that its other steps refer to."""
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
        _LOG.error("the index had wrong counts and is rebuilt", extra={"differences": len(found), "first": found[0]})
        self._index.rebuild()
        return True
