"""What a run of the simulator uses and loses: memory, processor time of others' work, and stalls of the event loop."""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

_KIBIBYTE_MEGABYTES: Final = 1024 / 1e6
_BEAT_SECONDS: Final = 0.02
_STALL_SECONDS: Final = 0.05  # a beat that is so late shows that the loop was blocked


def peak_megabytes() -> float:
    """The largest resident memory of this process so far; 0 on systems without /proc."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * _KIBIBYTE_MEGABYTES for line in lines if line.startswith("VmHWM")), 0.0)


class OtherWork:
    """The processor time that this thread spends on work that other processes do in a real cluster."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_counting = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the time of the block, which must not await. A nested block counts once."""
        if self._is_counting:
            yield
            return
        # Processor time of this thread: waiting, and work of other threads, does not count.
        begun, self._is_counting = time.thread_time(), True
        try:
            yield
        finally:
            self.seconds += time.thread_time() - begun
            self._is_counting = False

    def of(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Wraps the work so that the time of its steps counts, without the time between two steps."""
        # An object, because an async function cannot act before and after each step of an inner coroutine.
        return _Counted(work, self)


class _Counted(Coroutine[Any, Any, T]):
    """A coroutine that passes everything on to an inner one. A task that is cancelled before it begins closes the inner one too."""

    def __init__(self, work: Coroutine[Any, Any, T], other_work: OtherWork) -> None:
        self._work = work
        self._other_work = other_work

    def send(self, value: Any) -> Any:
        with self._other_work.counted():
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        with self._other_work.counted():
            return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        result: T = yield from self
        return result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)


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
            # All of the time since the beat was due is lost, not only what exceeds the threshold.
            self._ends.append(now)
            self._lost.append(self._lost[-1] + now - self._due)

    def without_stalls(self, moment: float) -> float:
        """A time of the monotonic clock minus all stalls before it. O(log stalls)."""
        return moment - self._lost[bisect_right(self._ends, moment)]
