"""TLS handshakes that come together are spread over iterations of the event loop, and silent connections delay none."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from extender.model.units import Address, Duration
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Server
from tests.fakes import until
from tests.server.pki import Pki
from tests.server.raw import head_of, wire
from tests.server.serving import app_with

COUNT = 40
PER_ITERATION = 2


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """An authority and a server's files."""
    return Pki(tmp_path)


@asynccontextmanager
async def served(pki: Pki, tls: ServerTls, seconds: float = 4) -> AsyncIterator[str]:
    """The service with this TLS and this time for a handshake; yields its URL."""
    app = app_with(server=Server(tls=pki.tls, request_timeout=Duration(seconds)))
    async with listening(app, Address("127.0.0.1:0"), tls) as url:
        yield url


async def probed(url: str, pki: Pki) -> int:
    """The status of a probe on a new connection."""
    async with wire(url, pki.client()) as connection:
        await connection.send(head_of("GET", "/livez"))
        return await connection.status()


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("accepted", [False, True], ids=["with their connections", "on connections accepted before"])
async def test_of_handshakes_that_come_together_few_begin_in_one_iteration(pki: Pki, *, accepted: bool) -> None:
    loop, iteration, handshakes = asyncio.get_running_loop(), 0, Counter[int]()

    def count_iterations() -> None:
        nonlocal iteration
        iteration += 1
        if handshakes.total() < COUNT:
            loop.call_soon(count_iterations)

    def record(_handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshakes[iteration] += 1

    tls = ServerTls(pki.tls)
    tls.context.sni_callback = record
    hello = client_hello(pki.client())
    async with served(pki, tls) as url, AsyncExitStack() as stack:
        address = (urlsplit(url).hostname, urlsplit(url).port)
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(COUNT)]
        if accepted:
            assert await probed(url, pki) == 200  # on a newer connection
            handshakes.clear()
        for client in clients:  # the loop does not run: all of them have arrived when it does
            client.sendall(hello)
        count_iterations()
        await until(lambda: handshakes.total() == COUNT)
    assert max(handshakes.values()) <= PER_ITERATION


async def test_connections_that_never_begin_their_handshake_hold_up_none_and_are_closed(pki: Pki) -> None:
    async with served(pki, ServerTls(pki.tls), seconds=1) as url, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(wire(url)) for _ in range(COUNT)]
        assert await probed(url, pki) == 200
        assert all([await each.closed() for each in silent])


async def test_a_shutdown_does_not_wait_for_a_handshake_that_has_not_begun(pki: Pki) -> None:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        async with served(pki, ServerTls(pki.tls), seconds=3600) as url:
            silent = await stack.enter_async_context(wire(url))
            assert await probed(url, pki) == 200
        assert await silent.closed()
    assert asyncio.all_tasks() <= before
