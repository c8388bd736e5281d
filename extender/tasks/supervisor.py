"""Starts the long-lived tasks in order, keeps them running, and takes the service down in order.

Knows names and outcomes, not what the tasks do. Built and run by ``compose``.

A job is *fatal* (the service cannot go on without it: its failure stops the service) or *restartable* (its failure is
logged, counted and followed by a restart with back-off). A job that returns while the service runs is treated like one
that failed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from extender.kube.timing import Backoff, BackoffOptions
from extender.tasks.ports import Clock

_LOG = logging.getLogger(__name__)
_STEADY_SECONDS: Final = 60.0  # a job that ran so long has recovered: its next failure is a first one

Run = Callable[[], Awaitable[None]]


class JobFailedError(Exception):
    """Raised by ``Supervisor.run`` when a fatal job failed; the cause is its exception, or none if it just returned."""


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    run: Run
    is_fatal: bool
    after: Run | None


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    run: Run
    limit: float


class Supervisor:
    """One TaskGroup with a beginning and an end. Add jobs and steps, then ``run`` once."""

    def __init__(self, clock: Clock, rng: Random, backoff: BackoffOptions | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._backoff = backoff or BackoffOptions()
        self._jobs: list[_Job] = []
        self._drain: list[_Step] = []
        self._close: list[_Step] = []
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._failed: tuple[str, Exception | None] | None = None
        self.restarts: Counter[str] = Counter()

    # -- what to run --------------------------------------------------------------------------------------------

    def add(self, name: str, run: Run, *, is_fatal: bool = False, after: Run | None = None) -> None:
        """A job. Jobs start in the order of adding; one with ``after`` starts once that has returned."""
        self._jobs.append(_Job(name, run, is_fatal, after))
        self.restarts[name] = 0  # present from the start: a rate needs a value from before the first restart

    def add_drain(self, name: str, run: Run, limit: float) -> None:
        """A shutdown step while all jobs still run, in order, each for at most ``limit`` seconds."""
        self._drain.append(_Step(name, run, limit))

    def add_close(self, name: str, run: Run, limit: float) -> None:
        """A step after all jobs have ended, in reverse order of adding: what was opened first is closed last."""
        self._close.insert(0, _Step(name, run, limit))

    # -- running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run everything until ``stop`` or a fatal failure; raises ``JobFailedError`` for the latter."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep(job), name=job.name) for job in self._jobs]
                await self._stopping.wait()
                await self._walk(self._drain, may_hurry=True)
                for task in reversed(tasks):
                    task.cancel()
        finally:
            await self._walk(self._close, may_hurry=False)
        if self._failed:
            name, cause = self._failed
            raise JobFailedError(f"{name}: {cause or 'ended'}") from cause

    def stop(self, why: str) -> None:
        """Begins the shutdown. A second call ends the wait for what is still in flight."""
        if self._stopping.is_set():
            _LOG.warning("stopping at once: %s", why)
            self._hurrying.set()
            return
        _LOG.info("stopping: %s", why)
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT mean ``stop``, for the rest of the loop's life."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number.name)

    async def _keep(self, job: _Job) -> None:
        """Keep one job running, or stop the service with it."""
        backoff = Backoff(self._backoff, self._rng)
        while True:
            begun, cause = self._clock.now(), await self._attempt(job)
            if cause or not self._stopping.is_set():
                _LOG.error("%s %s", job.name, "failed" if cause else "ended", exc_info=cause)
            if self._stopping.is_set():
                return
            if job.is_fatal:
                self._failed = (job.name, cause)
                self.stop(f"{job.name} cannot go on")
                return
            self.restarts[job.name] += 1
            if self._clock.now() - begun >= _STEADY_SECONDS:
                backoff.reset()
            wait = backoff.next()
            _LOG.warning("%s starts again in %.1f s", job.name, wait)
            await self._clock.sleep(wait)

    @staticmethod
    async def _attempt(job: _Job) -> Exception | None:
        """Run it to its end; returns what it raised."""
        try:
            if job.after:
                await job.after()
            await job.run()
        except Exception as error:  # noqa: BLE001 - any failure of a job is logged by the caller, and the service goes on
            return error
        return None

    async def _walk(self, steps: list[_Step], *, may_hurry: bool) -> None:
        """Runs the steps in order; one that fails or takes too long does not stop the others."""
        for step in steps:
            try:
                await self._bounded(step, may_hurry=may_hurry)
            except TimeoutError:
                _LOG.warning("%s not finished after %.1f s", step.name, step.limit)
            except Exception:  # noqa: BLE001 - logged, and the next step runs
                _LOG.exception("%s failed", step.name)

    async def _bounded(self, step: _Step, *, may_hurry: bool) -> None:
        """One step, ended by its limit and, while draining, by a second ``stop``."""
        work = asyncio.ensure_future(_awaited(step.run))
        hurry = asyncio.ensure_future((self._hurrying if may_hurry else asyncio.Event()).wait())
        try:
            done, _ = await asyncio.wait({work, hurry}, timeout=step.limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        if work not in done:
            raise TimeoutError
        work.result()


async def _awaited(run: Run) -> None:
    await run()
