"""The service that the bench calls over HTTP, in a process of its own, and the same server with an echo behind it.

Built by the code of `extender serve`. Beside its work it answers the bench's calls, and keeps a heartbeat that measures how
long the event loop was busy. On a shared machine the loop may also have waited for other processes, so the heartbeat records
two lengths: wall time, and wall time limited by the processor time of this thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from time import perf_counter_ns, process_time, thread_time_ns
from typing import Final

import msgspec

from extender.compose.embedded import FREE_PORT, READY_WITHIN_SECONDS, service_running
from extender.compose.process import installed_version, run_on_loop
from extender.compose.service import Service
from extender.index.audit import audit_steps
from extender.kube.reflector_status import ReflectorStatus
from extender.server.app import listening, make_app
from extender.server.collaborators import Verbs
from extender.settings.configuration import Settings
from extender.tasks.filter_service import FilterService
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.tools.bench.child_process import Calls
from tests.tools.bench.results import Figures, milliseconds
from tests.tools.bench.subject import echo_filter, echo_scores, recount

_SEED: Final = 1


def run_service(
    pipe: Connection,
    api_url: str,
    settings: Settings,
    within: float = READY_WITHIN_SECONDS,
    is_standby: bool = False,  # noqa: FBT001, FBT002 (arguments of a process)
) -> None:
    """Runs the child process until the bench stops it. ``within``: seconds until it is ready."""
    logging.getLogger("extender").setLevel(logging.ERROR)
    run_on_loop(_run(pipe, api_url, settings, within, is_standby=is_standby))


async def _run(pipe: Connection, api_url: str, settings: Settings, within: float, *, is_standby: bool) -> None:
    heart, collections, echo = Heartbeat(), Collections(), Echo()
    # Whatever port the settings name: a service may be at work on it while the bench measures.
    server = msgspec.structs.replace(settings.server, bind_address=FREE_PORT)
    settings = msgspec.structs.replace(settings, server=server)
    async with AsyncExitStack() as stack:
        beating = asyncio.create_task(heart.beat())
        url, service = await stack.enter_async_context(
            service_running(settings, api_url, _SEED, within=within, is_standby=is_standby)
        )
        addresses = {"real": url}
        for name, verbs in (("echo", echo.verbs(service)), ("echoAll", Echo().verbs(service))):
            app = make_app(settings, verbs, service.readiness, Metrics(installed_version()), installed_version())
            addresses[name] = await stack.enter_async_context(listening(app, FREE_PORT))
        calls = Calls(pipe, answered=_answered(service, heart, collections, echo))
        calls.listen()
        calls.send(addresses)
        await calls.stopped.wait()
        beating.cancel()


def _answered(
    service: Service, heart: Heartbeat, collections: Collections, echo: Echo
) -> Mapping[str, Callable[..., object]]:
    """What the bench may call."""
    return {
        "audit": lambda: recount(service.index),
        "auditSteps": lambda: timed_steps(audit_steps(service.index)),
        "echo": echo.set_counts,
        "watched": lambda kind: _watched(service, kind),
        "processor": process_time,
        "pause": lambda: heart.figures() | collections.figures(),
        "waits": lambda: _waits(service.filter_service),
    }


def _watched(service: Service, kind: str) -> tuple[int, int]:
    """Events so far, and later lists. The scrape of all metrics would be a pause of its own."""
    status = service.reflectors.statuses()[kind] if service.reflectors is not None else ReflectorStatus(kind)
    return status.events, status.relists


def _waits(filter_service: FilterService | None) -> Figures:
    """How many requests waited for assumed pods so far: the share of all, and for how long, in seconds and on the mean."""
    if filter_service is None or not filter_service.requests:
        return {}
    mean = filter_service.waited / filter_service.waits * 1000 if filter_service.waits else 0.0
    return {
        "waited.share": filter_service.waits / filter_service.requests,
        "waited.seconds": filter_service.waited,
        "waited.mean": mean,
        "waited.timeouts": filter_service.given_up,
    }


class Echo:
    """Answers with the set number of names and scores, at first with all."""

    def __init__(self) -> None:
        self._names: int | None = None
        self._scores: int | None = None

    def set_counts(self, names: int, scores: int) -> None:
        self._names, self._scores = names, scores

    def verbs(self, service: Service) -> Verbs:
        """In place of the decisions."""

        async def filter_nodes(args: ExtenderArgs) -> FilterResult:
            return echo_filter(args, self._names)

        return Verbs(filter_nodes, lambda args: echo_scores(args, self._scores), service.verbs.preempt)


_EVERY_NANOSECONDS: Final = 5_000_000


class Heartbeat:
    """Beats until it is cancelled. `figures` returns those since the previous call."""

    def __init__(self) -> None:
        self._own: list[int] = []
        self._wall: list[int] = []

    async def beat(self) -> None:
        """Measures the delay of a timer, 200 times per second."""
        while True:
            started, used = perf_counter_ns(), thread_time_ns()
            await asyncio.sleep(_EVERY_NANOSECONDS / 1e9)
            late = max(0, perf_counter_ns() - started - _EVERY_NANOSECONDS)
            self._wall.append(late)
            self._own.append(min(late, thread_time_ns() - used))

    def figures(self) -> Figures:
        """`pause` is limited by the processor time, `pauseWall` is wall time."""
        found = milliseconds(self._own, "pause") | milliseconds(self._wall, "pauseWall")
        self._own, self._wall = [], []
        return found


class Collections:
    """How long the garbage collector held this process. Observes from its creation on."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._started = 0
        gc.callbacks.append(self._observe)

    def _observe(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._started = thread_time_ns()
        else:
            self._times.append(thread_time_ns() - self._started)

    def figures(self) -> Figures:
        """`gc.max` and others since the previous call, by processor time."""
        found, self._times = milliseconds(self._times, "gc"), []
        return found


def timed_steps(steps: Iterable[Callable[[], list[str]]]) -> tuple[list[str], Figures]:
    """Runs the steps of an audit. Returns what they found, and `auditStep.*`, `auditSteps`, and `auditSeconds` of all."""
    found, times = list[str](), list[int]()
    started = thread_time_ns()
    for step in steps:  # the next step is found within the time of the one before, as in the service
        found += step()
        ended = thread_time_ns()
        times.append(ended - started)
        started = ended
    return found, milliseconds(times, "auditStep") | {"auditSteps": len(times), "auditSeconds": sum(times) / 1e9}
