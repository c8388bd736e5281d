"""The real service in front of an embedded cluster, in this process: for scenarios and for the demo.

It is put together by the same code as `extender serve` and reads the embedded API server through the same client; only
signals stay with the caller. Called by `simulate` and `demo`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import yaml

from extender.cli.command import CommandError
from extender.cli.files import read_bytes, read_yaml
from extender.cli.service import Service, service_of_cluster
from extender.kube.credentials import Access
from extender.kube.session import open_session
from extender.kube.timing import Clock, SystemClock
from extender.model.documents import DocumentError
from extender.model.units import Address
from extender.settings import API_VERSION, KIND, Settings, parse_settings
from extender.simulate.scenario import BIND_PATH, Play, parse_scenario
from extender.tasks.supervisor import Supervisor

_READY_WITHIN_SECONDS: Final = 60.0
FREE_PORT: Final = Address("127.0.0.1:0")


def read_scenario(path: str) -> Play:
    """A scenario file. Raises CommandError with a line for each problem."""
    try:
        return parse_scenario(read_yaml(path))
    except DocumentError as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from None


def read_objects(play: Play, path: str) -> list[dict[str, Any]]:
    """The Kubernetes objects of the files and folders that a scenario names, which lie beside it."""
    objects: list[dict[str, Any]] = []
    for name in play.scenario.cluster.files:
        place = Path(path).parent / name
        found = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
        for file in found:
            objects += _documents(str(file))
    return objects


def _documents(path: str) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(read_bytes(path)))
    except yaml.YAMLError as error:
        raise CommandError(f"{path}: {error}") from None
    for document in documents:
        if not isinstance(document, dict):
            if document is not None:
                raise CommandError(f"{path}: expected Kubernetes objects, got {type(document).__name__}")
            continue
        yield from document.get("items", [document])


def scenario_settings(play: Play, path: str, address: Address = FREE_PORT) -> Settings:
    """The extender's settings in a scenario, listening on an address of ours. Raises CommandError."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **play.scenario.extender}
    try:
        settings = parse_settings(document)
    except DocumentError as error:
        raise CommandError(*(f"{path}: extender.{problem}" for problem in error.problems)) from None
    if play.scenario.scheduler.bind and settings.server.paths.bind != BIND_PATH:
        raise CommandError(f"{path}: scheduler.bind: needs extender.server.paths.bind: {BIND_PATH}")
    server = msgspec.structs.replace(settings.server, bind_address=address)
    return msgspec.structs.replace(settings, server=server)


@asynccontextmanager
async def service_running(
    settings: Settings, api_url: str, seed: int, clock: Clock | None = None
) -> AsyncIterator[tuple[str, Service]]:
    """The service, reading that API server and ready to answer; yields its URL and its parts. Raises CommandError."""
    clock, chance = clock or SystemClock(), Random(seed)
    async with open_session(Access(host=api_url), clock) as session:
        service = service_of_cluster(settings, session, clock, chance)
        supervisor = Supervisor(clock, chance)
        service.metrics.report_restarts(lambda: supervisor.restarts)
        for name, job in service.jobs:
            supervisor.add(name, job)
        running = asyncio.create_task(supervisor.run(), name="extender")
        try:
            async with AsyncExitStack() as stack:
                url = await _listen(service, stack)
                await _ready(service, running)
                yield url, service
        finally:
            supervisor.stop("the play is over")
            await running


async def _listen(service: Service, stack: AsyncExitStack) -> str:
    try:
        return await stack.enter_async_context(service.listening())
    except OSError as error:
        raise CommandError(f"cannot listen on {service.settings.server.bind_address}: {error}") from None


async def _ready(service: Service, running: asyncio.Task[None]) -> None:
    try:
        async with asyncio.timeout(_READY_WITHIN_SECONDS):
            while not service.readiness.is_ready and not running.done():  # noqa: ASYNC110 (readiness has no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        missing = "; ".join(f"{name}: {reason}" for name, reason in service.readiness.checks().items())
        raise CommandError(f"the extender did not get ready: {missing}") from None
