"""An application with agreeable decisions, served over real connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.units import Address
from extender.server.app import listening
from tests.server.raw import Wire, wire
from tests.server.serving import Client, Serve, app_with


@pytest.fixture
def serve(aiohttp_client: AiohttpClient) -> Serve:
    """Serves an application with the arguments of `app_with`, and gives a client of it."""

    async def start(*arguments: Any, **limits: Any) -> Client:
        return await aiohttp_client(app_with(*arguments, **limits))

    return start


@pytest.fixture
async def client(serve: Serve) -> Client:
    return await serve()


@pytest.fixture
async def connection() -> AsyncIterator[Wire]:
    """A connection that is written byte for byte."""
    async with listening(app_with(), Address("127.0.0.1:0")) as url, wire(url) as opened:
        yield opened
