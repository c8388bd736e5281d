"""Fixtures: an embedded API server with one namespace, and a raw client to it."""

from collections.abc import AsyncIterator

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from tests.simulator.client import Client, connect
from tests.simulator.plain import namespace


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer(ApiServerSettings(bookmark_every=0.02)) as server:
        server.operations.create(NAMESPACES, namespace("default"))
        yield server


@pytest.fixture
async def client(api: ApiServer) -> AsyncIterator[Client]:
    async with connect(api.url) as connected:
        yield connected
