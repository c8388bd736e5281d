"""Answers what-ifs, one at a time, each in a child process that has the index as it stands.

Why a fork, measured at 5,000 nodes and 150,000 pods (180 MB), and at twice that (280 MB), the same on asyncio's loop and on uvloop:

1. The fork holds up the loop while the kernel copies the page tables: 1.5 to 2 ms at either size with joined pages
   (`compose/process.py`), otherwise 5 to 6 ms and 8 ms. After that nothing of the what-if runs in this process. While the child
   lives, writes in this process copy 200 to 2,600 pages, 1 µs each. Over HTTP, beside what-ifs at `PAUSE_SECONDS`, the p99 of
   filter grows 1.04 to 1.06 times (from 0.56 to 0.75 ms), and the longest answer is 5.6 to 6.8 ms (without: 2.1 to 6.7 ms).
2. The alternative of a second index, made in slices from the objects of this one, would cost the loop 1.1 s before the first
   pod. Then each decision would cost 0.1 to 2 ms between the scheduler's calls, for up to thousands of pods.
3. The alternative of an overlay on the counts would need a second form of every structure that rules read. A trial
   (`index/trial.py`) changes counts of pods alone, and holds the loop until it is undone. The child undoes nothing.
4. The child adds 30 to 50 MB for some thousand pods: the pages that it writes, and the pages that change in this process
   meanwhile. 5,000 nodes and 10,000 pods in one body take 1 s of a processor and 115 MB.
"""

from __future__ import annotations

import asyncio
import ctypes
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
from typing import Any, Final, NoReturn

import msgspec

from extender.index.cluster import ClusterIndex
from extender.kube.timing import Clock
from extender.model.answers.explanations import NoAnswerCause
from extender.model.answers.what_if import NotComputed, Spent
from extender.model.bounded import Steps
from extender.settings.configuration import Settings
from extender.settings.jobs import WhatIfSettings
from extender.tasks.what_if.computing import answer_body
from extender.wire.errors import WireError

_HEAD: Final = struct.Struct("!cQ")
_RESULT, _BAD_REQUEST, _OVER_BUDGET, _FAILED = b"R", b"B", b"O", b"F"
_SEPARATOR: Final = "\0"  # no field of JSON and no text of an error has it unescaped

_NICENESS: Final = 10
_PAGE: Final = resource.getpagesize()
_MORE_SECONDS: Final = 2  # of a single step beyond the budget, before the kernel ends the child
_CHUNK: Final = 2**18
_LOOK_SECONDS: Final = 0.005
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
try:  # here and not in the child, where a lock of the dynamic linker may stand as a thread of the service left it
    _PRCTL: Any = ctypes.CDLL(None).prctl
except (AttributeError, OSError, TypeError):
    _PRCTL = None
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)

Work = Callable[["Meter"], Steps[bytes]]


class Meter:
    """What the child has used since the fork. The kernel counts from there."""

    def __init__(self, budget: WhatIfSettings) -> None:
        self._budget = budget

    def spent(self) -> Spent:
        """Processor seconds, and the bytes of pages that were copied or are new. Two system calls, 1 µs."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Spent(seconds=round(usage.ru_utime + usage.ru_stime, 3), bytes=usage.ru_minflt * _PAGE)

    def check(self) -> None:
        """Raises NotComputed where the budget is spent."""
        spent, budget = self.spent(), self._budget
        if spent.seconds > budget.seconds:
            raise NotComputed(
                NoAnswerCause.TOO_EXPENSIVE, f"needs more than whatIf.seconds ({budget.seconds}) of a processor"
            )
        if spent.bytes > budget.memory:
            raise NotComputed(NoAnswerCause.TOO_EXPENSIVE, f"needs more than whatIf.memory ({budget.memory})")


class Child:
    """One running child."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._output = bytearray()
        self._is_ended = False
        self._signal: int | None = None

    async def result(self) -> bytes:
        """The result of the work. Raises what the work raised, WireError or NotComputed.

        Raises NotComputed also if the child did not end by itself. After a cancellation `end` has to end the child.
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
        raise NotComputed(NoAnswerCause.TOO_EXPENSIVE if kind == _OVER_BUDGET else NoAnswerCause.FAILED, text)

    async def _read(self) -> None:
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
        """Ends the child if it still runs, and reaps it. Returns the signal that ended it, or 0. Must not be cancelled."""
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
        return NotComputed(NoAnswerCause.TOO_EXPENSIVE, "a single step needs more of a processor than whatIf.seconds")
    name = signal.Signals(ended_by).name if ended_by else "no signal"
    return NotComputed(
        NoAnswerCause.UNAVAILABLE, f"the process that computed the answer was ended ({name}), perhaps for its memory"
    )


def start_child(work: Work, budget: WhatIfSettings) -> Child:
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
                # Threads of the service, such as the recorder's, do not exist in the child. It takes no lock that they hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if not pid:
                _run(work, budget, writing, parent, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    except OSError as error:
        os.close(reading)
        raise NotComputed(NoAnswerCause.UNAVAILABLE, f"the system refuses a process for it: {error.strerror}") from None
    finally:
        os.close(writing)
    os.set_blocking(reading, False)
    return Child(pid, reading)


# -- in the child -------------------------------------------------------------------------------------------------------


def _run(work: Work, budget: WhatIfSettings, writing: int, parent: int, blocked: Iterable[int]) -> NoReturn:
    """The whole work of the child. Never returns to the code that forked it."""
    try:
        _detach(writing, blocked)
        _end_with(parent)
        _limit(budget)
        kind, output = _outcome(work, budget, parent)
        _write(writing, _HEAD.pack(kind, len(output)) + output)
    finally:
        os._exit(0)  # no handler, buffer or destructor of the service runs here


def _detach(writing: int, blocked: Iterable[int]) -> None:
    """Closes the descriptors of the service, then resets its signal handlers.

    Descriptors come first: a peer of the service may wait until every process has closed its connection.
    """
    gc.disable()  # it would visit, and so copy, every object
    os.closerange(3, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_with(parent: int) -> None:
    """Has the kernel end the child when the service ends. On systems other than Linux the child checks after each step."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # the service had ended before the call


def _limit(budget: WhatIfSettings) -> None:
    """Gives the service precedence: for processors, and when memory runs out."""
    os.nice(_NICENESS)
    with suppress(AttributeError, OSError):  # Linux has this policy, for work that nothing waits for
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    most = ceil(budget.seconds) + _MORE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    with suppress(OSError):  # not on every platform
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _outcome(work: Work, budget: WhatIfSettings, parent: int) -> tuple[bytes, bytes]:
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


PAUSE_SECONDS: Final = 2.0  # from one fork to the next: at 300 calls a second fewer than one in a hundred meets one
_MORE_TIME: Final = 3  # times the processor seconds, as the child gives way to everything else


_OUTCOMES: Final = ("done", "invalid", "abandoned", "busy", "too_expensive", "unavailable", "failed")


class WhatIfService:
    """What-ifs about one index. Call `stop` before the loop ends.

    ``outcomes`` counts requests by result, ``seconds`` the time of their child processes.
    """

    def __init__(self, index: ClusterIndex, settings: Settings, clock: Clock, pause: float = PAUSE_SECONDS) -> None:
        self._index = index
        self._settings = settings
        self._clock = clock
        self._pause = pause
        self._due = clock.now()
        self._is_stopped = False
        self._running: asyncio.Task[bytes] | None = None
        self.outcomes = dict.fromkeys(_OUTCOMES, 0)
        self.seconds = 0.0

    @property
    def running(self) -> int:
        """How many are being computed: 0 or 1."""
        return int(self._running is not None)

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request's body, encoded. Raises WireError or NotComputed. Cancelling it ends the child.

        The loop waits for the fork, see the numbers of this module, and later only for the bytes of the answer.
        """
        outcome = NoAnswerCause.FAILED.name.lower()
        try:
            answer = await self._one(body)
            outcome = "done"
        except NotComputed as error:
            outcome = error.cause.name.lower()
            raise
        except WireError:
            outcome = "invalid"
            raise
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        finally:
            self.outcomes[outcome] += 1
        return answer

    async def _one(self, body: bytes) -> bytes:
        """As `answer`, without counting. Raises NotComputed while another what-if runs."""
        if self._is_stopped:
            raise NotComputed(NoAnswerCause.UNAVAILABLE, "the service is stopping")
        if self._running is not None:
            raise NotComputed(NoAnswerCause.BUSY, "another what-if is being computed; try again in a moment")
        task = self._running = asyncio.create_task(self._computed(body))
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _cancel(task)
            await asyncio.wait((task,))
            if self._is_stopped:
                raise NotComputed(NoAnswerCause.UNAVAILABLE, "the service is stopping") from None
            raise

    async def stop(self) -> None:
        """Ends the child, if one runs. Its request gets an error, and no other is answered any more."""
        self._is_stopped = True
        if self._running is not None:
            _cancel(self._running)
            await asyncio.wait((self._running,))

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # where nothing waits for it any more

    async def _computed(self, body: bytes) -> bytes:
        await self._clock.sleep(max(self._due - self._clock.now(), 0.0))
        self._due = self._clock.now() + self._pause
        budget, begun = self._settings.what_if, self._clock.now()
        child = start_child(lambda meter: _encoded(body, self._index, self._settings, meter), budget)
        most = budget.seconds * _MORE_TIME
        try:
            async with asyncio.timeout(most):
                return await child.result()
        except TimeoutError:
            raise NotComputed(
                NoAnswerCause.TOO_EXPENSIVE, f"not computed within {most:g} s, {_MORE_TIME} times whatIf.seconds"
            ) from None
        finally:
            await child.end()
            self.seconds += self._clock.now() - begun


def _cancel(task: asyncio.Task[bytes]) -> None:
    """Once only: a second one would interrupt the wait for the end of the child."""
    if not task.cancelling():
        task.cancel()


def _encoded(body: bytes, index: ClusterIndex, settings: Settings, meter: Meter) -> Steps[bytes]:
    """In the child: the answer with its cost."""
    index.journal.note = None  # what happens here is not recorded
    answer = yield from answer_body(body, index, settings)
    return msgspec.json.encode(msgspec.structs.replace(answer, budget=meter.spent()))
