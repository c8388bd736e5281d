"""What a process uses and loses: memory and processor time, from /proc, and stalls of its event loop.

Figures from /proc are 0 on systems without it.
"""

import asyncio
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_KIBIBYTE_MEGABYTES: Final = 1024 / 1e6
_BEAT_SECONDS: Final = 0.02
_STALL_SECONDS: Final = 0.05  # a beat that is so late shows that the loop was blocked


def resident_megabytes(pid: int | str = "self") -> float:
    """Resident memory now."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int | str = "self") -> float:
    """The largest resident memory so far."""
    return _status(pid, "VmHWM")


def reset_peak(pid: int | str = "self") -> None:
    """From now on `peak_megabytes` counts from the present resident memory (proc_pid_clear_refs(5))."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


def processor_seconds(pid: int | str = "self") -> float:
    """User and system time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int | str, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * _KIBIBYTE_MEGABYTES for line in lines if line.startswith(name)), 0.0)


class LoopStalls:
    """Records when the event loop stalled, and for how long. API server, scheduler and extender share the loop.

    During a stall no event is delivered and no decision is made, so the oracle does not count that time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends: list[float] = []
        self._lost = [0.0]  # [i]: seconds of the first i stalls
        self._due = 0.0
        self._beating: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts to observe the running loop."""
        self._due = self._now() + _BEAT_SECONDS
        self._beating = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        """Stops to observe it."""
        if self._beating is not None:
            self._beating.cancel()

    def _beat(self) -> None:
        self.check()
        self.start()

    def check(self) -> None:
        """Records a stall if this call is late."""
        now = self._now()
        if now - self._due >= _STALL_SECONDS:
            self._ends.append(now)
            self._lost.append(self._lost[-1] + now - self._due)

    def without_stalls(self, moment: float) -> float:
        """A time of the monotonic clock minus all stalls before it. O(log stalls)."""
        return moment - self._lost[bisect_right(self._ends, moment)]
