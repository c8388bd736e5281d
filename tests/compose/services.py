"""Services as the program builds them: one without a connection, and one beside an API server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import aiohttp

from extender.compose.embedded import service_running
from extender.compose.service import Service, service_of_cluster
from extender.kube.byte_stream import StreamSockets
from extender.kube.timing import Clock, SystemClock
from extender.model.objects import Object
from extender.settings.configuration import DEFAULT_NAMESPACE, Settings
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject


def unconnected(
    settings: Settings, *objects: Object, clock: Clock | None = None, namespace: str = DEFAULT_NAMESPACE
) -> Service:
    """A service whose session is never used; its index has these objects."""
    session = cast("Any", SimpleNamespace(reads=SimpleNamespace(sockets=StreamSockets()), writes=None, removals=None))
    service = service_of_cluster(settings, session, clock or SystemClock(), Random(1), namespace)
    for obj in objects:
        service.index.upsert(obj)
    return service


@asynccontextmanager
async def beside(
    objects: Iterable[JsonObject], settings: Settings, clock: Clock | None = None
) -> AsyncIterator[tuple[str, Service, ApiServer, aiohttp.ClientSession]]:
    """The URL of a service, the service, its API server with these objects, and a client."""
    api = ApiServer()
    api.store.load(objects)
    async with api, service_running(settings, api.url, 1, clock) as (url, service), aiohttp.ClientSession() as http:
        yield url, service, api, http
