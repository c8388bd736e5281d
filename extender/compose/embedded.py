"""The real service in front of an embedded cluster, in this process: for scenarios and for the demo.

It is built like `extender serve`, and reads the embedded API server through the same client. The caller handles signals. Called by
`simulate`, `demo` and the bench of the tests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

from extender.compose.service import Service, service_of_cluster
from extender.kube.credentials import Access
from extender.kube.session import open_session
from extender.kube.timing import Clock, SystemClock
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.tasks.supervisor import Supervisor
from extender.tasks.takeover import CHECK as LEADERSHIP
from extender.telemetry import catalogue

READY_WITHIN_SECONDS: Final = 60.0
FREE_PORT: Final = Address("127.0.0.1:0")


class StartError(Exception):
    """Raised when the service cannot be started here: its address is taken, or it does not get ready."""


@asynccontextmanager
async def service_running(
    settings: Settings,
    api_url: str,
    seed: int,
    clock: Clock | None = None,
    redaction_key: bytes = b"",
    *,
    within: float = READY_WITHIN_SECONDS,
    is_standby: bool = False,
) -> AsyncIterator[tuple[str, Service]]:
    """Runs the service against an API server. Yields its URL and its parts once it is ready to answer. Raises StartError.

    ``within``: the most seconds until it is ready. A standby is ready when it could lead: every kind is listed.
    """
    clock, rng = clock or SystemClock(), Random(seed)
    async with open_session(Access(host=api_url), clock) as session:
        service = service_of_cluster(settings, session, clock, rng, redaction_key=redaction_key)
        supervisor = Supervisor(clock, rng)
        service.metrics.report(catalogue.TASK_RESTARTS, lambda: supervisor.restarts)
        for name, job in service.jobs:
            supervisor.add(name, job)
        running = asyncio.create_task(supervisor.run(), name="extender")
        try:
            async with AsyncExitStack() as stack:
                url = await _listen(service, stack)
                await _ready(service, running, within, is_standby=is_standby)
                yield url, service
        finally:
            supervisor.stop("the scenario has ended")
            await running


async def _listen(service: Service, stack: AsyncExitStack) -> str:
    try:
        if service.admission is not None:
            await stack.enter_async_context(service.admission.listening())
        return await stack.enter_async_context(service.listening())
    except OSError as error:
        raise StartError(f"cannot listen on {error.strerror or error}") from None


def _is_ready(service: Service, *, is_standby: bool) -> bool:
    if not is_standby:
        return service.readiness.is_ready
    # A standby never passes the check of leadership; every other check must pass.
    return all(name == LEADERSHIP for name, problem in service.readiness.checks().items() if problem)


async def _ready(service: Service, running: asyncio.Task[None], within: float, *, is_standby: bool) -> None:
    try:
        async with asyncio.timeout(within):
            while not _is_ready(service, is_standby=is_standby) and not running.done():  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        missing = "; ".join(f"{name}: {reason}" for name, reason in service.readiness.checks().items())
        raise StartError(f"the extender did not get ready: {missing}") from None
