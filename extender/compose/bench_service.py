"""The service that `extender bench` calls over HTTP, in a process of its own, and the same server with an echo behind it.

Built by the code of `extender serve`. Beside its work it keeps a heartbeat and answers the bench's calls. Named to the
bench by `bench.py`, run by its child process.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
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
from extender.simulator.bench.measurement.child_process import Calls
from extender.simulator.bench.measurement.service_probes import (
    Collections,
    Heartbeat,
    echo_filter,
    echo_scores,
    timed_steps,
)
from extender.simulator.bench.measurement.subject import recount
from extender.simulator.bench.reporting.figures import Figures
from extender.tasks.filter_service import FilterService
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

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
    service: Service, heart: Heartbeat, collections: Collections, echo: "Echo"
) -> Mapping[str, Callable[..., object]]:
    """What the bench may call."""
    return {
        "audit": lambda: recount(service.index),
        "auditSteps": lambda: timed_steps(audit_steps(service.index)),
        "echo": echo.set_counts,
        "watched": lambda kind: _watched(service, kind),
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
        """From now on."""
        self._names, self._scores = names, scores

    def verbs(self, service: Service) -> Verbs:
        """In place of the decisions."""

        async def filter_nodes(args: ExtenderArgs) -> FilterResult:
            return echo_filter(args, self._names)

        return Verbs(filter_nodes, lambda args: echo_scores(args, self._scores), service.verbs.preempt)
