"""Runs work in a forked child process: it has the index as it stands, and nothing that it does changes that of the service.

The operating system is the copy-on-write view, as for the snapshots of Redis. Only a page that either process writes is
copied. The child has one thread and no loop: it computes, within a budget, writes its result into a pipe, and ends
without running anything else. It keeps no descriptor but the pipe, so that a connection that the service closes is closed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import struct
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Final, NoReturn

from extender.model.answers.what_if import Cause, NotComputed, Spent
from extender.rules.constraint_states import Steps
from extender.settings.jobs import WhatIf
from extender.wire.errors import WireError

_HEAD: Final = struct.Struct("!cQ")
_RESULT, _BAD_REQUEST, _OVER_BUDGET, _FAILED = b"R", b"B", b"O", b"F"
_SEPARATOR: Final = "\0"  # no field of JSON and no text of an error has it unescaped

_NICENESS: Final = 10
_PAGE: Final = resource.getpagesize()
_MORE_SECONDS: Final = 2  # of a single step beyond the budget, before the kernel ends the child
_CHUNK: Final = 2**18
_LOOK_SECONDS: Final = 0.005
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)

Work = Callable[["Meter"], Steps[bytes]]


class Meter:
    """What the child has used since the fork. The kernel counts from there."""

    def __init__(self, budget: WhatIf) -> None:
        self._budget = budget

    def spent(self) -> Spent:
        """Processor seconds, and the bytes of pages that were copied or are new. Two system calls, 1 µs."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Spent(seconds=round(usage.ru_utime + usage.ru_stime, 3), bytes=usage.ru_minflt * _PAGE)

    def check(self) -> None:
        """Raises NotComputed where the budget is spent."""
        spent, budget = self.spent(), self._budget
        if spent.seconds > budget.seconds:
            raise NotComputed(Cause.TOO_EXPENSIVE, f"needs more than whatIf.seconds ({budget.seconds}) of a processor")
        if spent.bytes > budget.memory:
            raise NotComputed(Cause.TOO_EXPENSIVE, f"needs more than whatIf.memory ({budget.memory})")


class Child:
    """One running child."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._output = bytearray()
        self._is_ended = False
        self._signal: int | None = None

    async def result(self) -> bytes:
        """What the work returned. Raises WireError or NotComputed as the work did, or where the child did not end by itself.

        Where it is cancelled, the child is left to `end`.
        """
        await self._read()
        ended_by = await self.end()
        output, kind, size = bytes(self._output), b"", 0
        if len(output) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(output)
        body = output[_HEAD.size :]
        if not kind or len(body) < size:
            raise _killed(ended_by)
        if kind == _RESULT:
            return body
        text = body.decode(errors="replace")
        if kind == _BAD_REQUEST:
            path, _, problem = text.partition(_SEPARATOR)
            raise WireError(path, problem)
        raise NotComputed(Cause.TOO_EXPENSIVE if kind == _OVER_BUDGET else Cause.FAILED, text)

    async def _read(self) -> None:
        """Reads all output, until the child closes the pipe by ending."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                return
            self._output += chunk
            if not chunk and not done.done():
                done.set_result(None)

        loop.add_reader(self._descriptor, readable)
        try:
            await done
        finally:
            loop.remove_reader(self._descriptor)

    async def end(self) -> int:
        """Ends the child if it still runs, and leaves no zombie: the signal that ended it, 0 without one. To be awaited to its end."""
        if not self._is_ended:
            self._is_ended = True
            os.close(self._descriptor)
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # one that is ending keeps its own status
        while self._signal is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 (with this option it does not wait)
            if pid:
                self._signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            else:
                await asyncio.sleep(_LOOK_SECONDS)
        return self._signal


def _killed(ended_by: int) -> NotComputed:
    if ended_by == signal.SIGXCPU:
        return NotComputed(Cause.TOO_EXPENSIVE, "a single step needs more of a processor than whatIf.seconds")
    name = signal.Signals(ended_by).name if ended_by else "no signal"
    return NotComputed(
        Cause.UNAVAILABLE, f"the process that computed the answer was ended ({name}), perhaps for its memory"
    )


def start_child(work: Work, budget: WhatIf) -> Child:
    """Forks. The caller must await `Child.end` or `Child.result`. Raises NotComputed where the system refuses.

    Holds the loop up while the kernel copies the page tables: see `service.py` for how long.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        # A signal that comes before the child has its own handlers would be written to the loop of the service.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            with warnings.catch_warnings():
                # Threads of the service (such as that of the recorder) do not exist in the child, which takes no lock of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                _run(work, budget, writing, parent, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    except OSError as error:
        os.close(reading)
        raise NotComputed(Cause.UNAVAILABLE, f"the system refuses a process for it: {error.strerror}") from None
    finally:
        os.close(writing)
    os.set_blocking(reading, False)
    return Child(pid, reading)


# -- in the child -------------------------------------------------------------------------------------------------------


def _run(work: Work, budget: WhatIf, writing: int, parent: int, blocked: Iterable[int]) -> NoReturn:
    """All that the child does. It never returns to the code that forked it."""
    try:
        _detach(writing, blocked)
        _limit(budget)
        kind, output = _outcome(work, budget, parent)
        _write(writing, _HEAD.pack(kind, len(output)) + output)
    finally:
        os._exit(0)  # no handler, buffer or destructor of the service runs here


def _detach(writing: int, blocked: Iterable[int]) -> None:
    """Lets go of what the service has: descriptors first, as a peer waits for them to be closed; and its signal handlers."""
    gc.disable()  # it would visit, and so copy, every object
    os.closerange(3, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    signal.set_wakeup_fd(-1)
    for each in _HANDLED:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _limit(budget: WhatIf) -> None:
    """Lets the service go first, on the processors and when memory runs out."""
    os.nice(_NICENESS)
    with suppress(AttributeError, OSError):  # Linux has this policy, for work that nothing waits for
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    most = ceil(budget.seconds) + _MORE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    with suppress(OSError):  # not on every platform
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _outcome(work: Work, budget: WhatIf, parent: int) -> tuple[bytes, bytes]:
    meter = Meter(budget)
    try:
        steps = work(meter)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return _RESULT, end.value
            meter.check()
            if os.getppid() != parent:
                os._exit(0)  # the service is gone
    except WireError as error:
        return _BAD_REQUEST, f"{error.path}{_SEPARATOR}{error.problem}".encode(errors="replace")
    except NotComputed as error:
        return _OVER_BUDGET, str(error).encode()
    except Exception:  # noqa: BLE001 (the service logs it)
        return _FAILED, traceback.format_exc().encode(errors="replace")


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
