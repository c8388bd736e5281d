"""Listening on a socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from extender.model.units import Address
from extender.server.app import listening
from extender.server.collaborators import COLLABORATORS
from tests.fakes import until
from tests.server.serving import BY_NAMES, app_with


async def test_a_free_port_is_found_and_told() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/filter", json=BY_NAMES)
        assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


async def test_a_request_that_is_still_arriving_when_we_stop_is_answered() -> None:
    body, begun, stopping = json.dumps(BY_NAMES).encode(), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        begun.set()
        await stopping.wait()
        yield body[10:]

    app, length = app_with(), {"Content-Length": str(len(body))}
    async with aiohttp.ClientSession() as session:
        async with AsyncExitStack() as server:
            url = await server.enter_async_context(listening(app, Address("127.0.0.1:0")))
            question = asyncio.create_task(session.post(f"{url}/filter", data=slowly(), headers=length))
            await begun.wait()
            await until(lambda: app[COLLABORATORS].bodies.requests)
            closing = asyncio.create_task(server.aclose())
            await until(lambda: not is_listening(url))
            stopping.set()
            await closing
        assert (await (await question).json())["NodeNames"] == ["node-a", "node-bb"]


def is_listening(url: str) -> bool:
    """Whether new connections are taken."""
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1).close()
    except OSError:
        return False
    return True


async def test_an_address_in_use_is_an_error_at_once() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url:
        taken = Address(url.removeprefix("http://"))
        with pytest.raises(OSError, match="address already in use"):
            async with listening(app_with(), taken):
                pytest.fail("two servers on one address")
