"""An event loop whose time passes only when it has nothing to do, and then at once: hours of timers cost nothing."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any, Final

_ROUNDING: Final = 1e-6  # so that a sum of floats is not just before the timer, again and again


class _NoWaiting(selectors.SelectSelector):
    """Waits for no socket: the time until the next timer is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is ready and no timer is set: this loop would wait for ever")
        self.waited += timeout + _ROUNDING if timeout > 0 else 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that uses no socket and no thread. Time stands still while code runs."""

    def __init__(self) -> None:
        self._passing = _NoWaiting()
        super().__init__(self._passing)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._passing.waited

    def jump(self, seconds: float) -> None:
        """The process gets no processor time for so long: every timer of that time is due at once afterwards."""
        self._passing.waited += seconds


class LoopClock:
    """The clock of a service on the running loop. Implements ``kube.timing.Clock``."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time

    async def sleep(self, seconds: float) -> None:
        """Waits on the running loop."""
        await asyncio.sleep(seconds)
