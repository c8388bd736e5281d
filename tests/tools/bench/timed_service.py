"""`extender serve` with a clock at each part, in a process of its own: `python -m tests.tools.bench.timed_service serve ...`.

Each part counts the processor time of its own, without the parts that it calls. SIGUSR1 writes the counts so far to standard output as
one line of JSON, in nanoseconds. A part that waits does not count while it waits. Started by `own_cost.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator
from functools import wraps
from time import thread_time_ns
from typing import Any, Final

import orjson

from extender.cli.main import main
from extender.kube import byte_stream, decoding
from extender.server import middleware, verbs
from extender.server.transport import connections
from extender.tasks import filter_service, reflectors

# By part the functions that it consists of. What none of them covers is the event loop's: its system calls, tasks, and TLS.
_PARTS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("read", connections.ServerConnection, "data_received"),
    ("limits", middleware.VerbEndpoint, "answer"),
    ("fresh", verbs, "_prepare_decision"),
    ("decode", verbs, "decode_args"),
    ("decide", filter_service.FilterService, "filter"),
    ("write", connections.ServerConnection, "answer"),
    ("event.read", byte_stream._TinyPartsGuard, "data_received"),
    ("event.decode", decoding.SliceDecoder, "decode_lines"),
    ("event.apply", reflectors.KindHandler, "apply"),
    ("event.apply", reflectors.KindHandler, "apply_one"),
)


class Clock:
    """The time of each part, without the time of the parts inside of it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._inner: list[int] = []

    def begin(self) -> int:
        """A part begins or goes on."""
        self._inner.append(0)
        return thread_time_ns()

    def end(self, part: str, begun: int) -> None:
        """The part ends, or waits."""
        lasted = thread_time_ns() - begun
        self.spent[part] += lasted - self._inner.pop()
        if self._inner:
            self._inner[-1] += lasted

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its clock, whether it is a coroutine or not."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def waiting(*arguments: Any, **named: Any) -> Any:
                return await _Steps(self, part, function(*arguments, **named))

            return waiting

        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = self.begin()
            try:
                return function(*arguments, **named)
            finally:
                self.end(part, begun)

        return timed


class _Steps:
    """Runs a coroutine, and times each of its steps."""

    def __init__(self, clock: Clock, part: str, work: Any) -> None:
        self._clock, self._part, self._work = clock, part, work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, value, problem = self._work.__await__(), None, None
        while True:
            begun = self._clock.begin()
            try:
                waited = steps.send(value) if problem is None else steps.throw(problem)
            except StopIteration as stop:
                return stop.value
            finally:
                self._clock.end(self._part, begun)
            value, problem = None, None
            try:
                value = yield waited
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (passed on to the coroutine)
                problem = error


def run() -> int:
    """Sets the clocks and serves."""
    clock = Clock()
    for part, owner, name in _PARTS:
        setattr(owner, name, clock.timed(part, getattr(owner, name)))

    def report(_signal: int, _frame: object) -> None:
        sys.stdout.buffer.write(orjson.dumps(clock.spent) + b"\n")
        sys.stdout.buffer.flush()

    signal.signal(signal.SIGUSR1, report)
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
