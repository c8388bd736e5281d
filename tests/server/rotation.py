"""Certificates that are renewed while clients connect."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from extender.certificates.authority import SERVER
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Server
from tests.pki import LOOPBACK, NOW, Pki, new_connections
from tests.server.serving import BY_NAMES, app_with


@asynccontextmanager
async def served(tls: ServerTls, pki: Pki) -> AsyncIterator[str]:
    """The service with these certificates; yields its URL."""
    async with listening(app_with(server=Server(tls=pki.tls)), Address("127.0.0.1:0"), tls) as url:
        yield url


def renewed(pki: Pki, number: int = 0) -> None:
    pki.put_server(pki.authority.issue(f"extender-{number}", NOW, 5, SERVER, LOOPBACK))


@dataclass
class Load:
    """Clients that send one request after the other; `answers` counts by status, an error by its name."""

    answers: dict[str, int] = field(default_factory=dict)

    async def send(self, url: str, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                async with session.post(f"{url}/filter", json=BY_NAMES) as response:
                    await response.read()
                    outcome = str(response.status)
            except aiohttp.ClientError as error:
                outcome = type(error).__name__
            self.answers[outcome] = self.answers.get(outcome, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.answers.values())


@asynccontextmanager
async def load_on(url: str, context: ssl.SSLContext) -> AsyncIterator[Load]:
    """Two clients that keep their connection and four that make one for every question."""
    load = Load()
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as keeping,
        new_connections(context) as changing,
    ):
        tasks = [asyncio.create_task(load.send(url, keeping)) for _ in range(2)]
        tasks += [asyncio.create_task(load.send(url, changing)) for _ in range(4)]
        yield load
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def connected(
    context: ssl.SSLContext, port: int, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool | None]:
    """One request, then the connection's session and whether it took up the one given; streams have no way to."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
    ):
        secured.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while secured.recv(4096):
            pass
        return secured.session, secured.session_reused
