"""Starts the long-lived tasks in order, keeps them running, and takes the service down in order.

Knows names and outcomes, not what the tasks do. A job that fails, or returns while the service runs, is logged, counted and
started again with back-off: requests are answered meanwhile, and readiness shows what is missing.
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

from extender.kube.timing import Backoff, BackoffOptions, Clock

_LOG = logging.getLogger(__name__)
_STEADY_SECONDS: Final = 60.0  # a job that ran so long has recovered: its back-off begins again

Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    run: Run


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
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self.restarts: Counter[str] = Counter()

    # -- what to run --------------------------------------------------------------------------------------------

    def add(self, name: str, run: Run) -> None:
        """Adds a job. Jobs start in the order of adding."""
        self._jobs.append(_Job(name, run))
        self.restarts[name] = 0  # present from the start: a rate needs a value from before the first restart

    def add_drain(self, name: str, run: Run, limit: float) -> None:
        """Adds a shutdown step. The steps run in order while all jobs still run, each for at most ``limit`` seconds."""
        self._drain.append(_Step(name, run, limit))

    # -- running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs all jobs until ``stop``, then the drain steps, then ends the jobs, the last added first."""
        async with asyncio.TaskGroup() as group:
            # The jobs run on during the drain: the answers in flight need current counts, and their writes need the writers.
            # The last job added ends first, because it may use the jobs before it.
            tasks = [group.create_task(self._keep(job), name=job.name) for job in self._jobs]
            await self._stopping.wait()
            for step in self._drain:
                await self._walk(step)
            for task in reversed(tasks):
                task.cancel()

    def stop(self, why: str) -> None:
        """Begins the shutdown. A second call ends the wait for what is still in flight."""
        if self._stopping.is_set():
            _LOG.warning("stopping at once", extra={"reason": why})
            self._hurrying.set()
            return
        _LOG.info("stopping", extra={"reason": why})
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT call ``stop`` from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number.name)

    async def _keep(self, job: _Job) -> None:
        """Keeps one job running until cancelled, or until it ends after ``stop``."""
        backoff = Backoff(self._backoff, self._rng)
        while True:
            begun, cause = self._clock.now(), await self._attempt(job)
            if cause or not self._stopping.is_set():
                _LOG.error("task failed" if cause else "task ended", extra={"task": job.name}, exc_info=cause)
            if self._stopping.is_set():
                return
            self.restarts[job.name] += 1
            if self._clock.now() - begun >= _STEADY_SECONDS:
                backoff.reset()
            wait = backoff.next()
            _LOG.warning("task starts again", extra={"task": job.name, "wait_seconds": round(wait, 1)})
            await self._clock.sleep(wait)

    @staticmethod
    async def _attempt(job: _Job) -> Exception | None:
        """Runs a job to its end; returns the exception that it raised."""
        try:
            await job.run()
        except Exception as error:  # noqa: BLE001 - any failure of a job is logged by the caller, and the service goes on
            return error
        return None

    async def _walk(self, step: _Step) -> None:
        """Runs a shutdown step; one that fails or takes too long does not stop the others."""
        try:
            await self._bounded(step)
        except TimeoutError:
            _LOG.warning("shutdown step not finished", extra={"step": step.name, "limit_seconds": step.limit})
        except Exception:  # noqa: BLE001 - logged, and the next step runs
            _LOG.exception("shutdown step failed", extra={"step": step.name})

    async def _bounded(self, step: _Step) -> None:
        """One step, ended by its limit and by a second ``stop``."""
        work = asyncio.ensure_future(_awaited(step.run))
        hurry = asyncio.ensure_future(self._hurrying.wait())
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
