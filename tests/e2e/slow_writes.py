"""A way to the apiserver on which every write takes longer, or waits for a test: what stands between it and a client.

Speaks HTTPS with the apiserver's own certificate, hands bytes on as they come, and waits with what is not a GET before it
hands it on. Understands nothing of what passes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from tests.e2e.certificates import CERTIFICATE, KEY
from tests.e2e.control_plane import HOST, ControlPlane

# Of one connection each, not of the message.
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_MOST_BYTES = 2**26
Wait = Callable[[web.Request], Awaitable[None]]
"""Called before a write is handed on."""


@asynccontextmanager
async def slow_writes(plane: ControlPlane, seconds: float) -> AsyncIterator[str]:
    """The URL of the slow way, until the block is left."""

    async def wait(_request: web.Request) -> None:
        await asyncio.sleep(seconds)

    async with way_round(plane, wait) as url:
        yield url


@asynccontextmanager
async def way_round(plane: ControlPlane, wait: Wait) -> AsyncIterator[str]:
    """The URL of a way on which writes wait, until the block is left."""
    here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    here.load_cert_chain(plane.folder / CERTIFICATE, plane.folder / KEY)
    there = ssl.create_default_context(cafile=str(plane.authority))
    async with aiohttp.ClientSession(
        plane.url,
        connector=aiohttp.TCPConnector(limit=0, ssl=there),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        read_bufsize=2**20,
    ) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            return await _pass_on(request, session, wait)

        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, 0, ssl_context=here)
            await site.start()
            port = runner.addresses[0][1]
            yield f"https://{HOST}:{port}"
        finally:
            await runner.cleanup()


async def _pass_on(request: web.Request, session: aiohttp.ClientSession, wait: Wait) -> web.StreamResponse:
    body = await request.read()
    if request.method != "GET":
        await wait(request)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
    async with session.request(
        request.method, request.rel_url, data=body or None, headers=headers, allow_redirects=False
    ) as found:
        answer = web.StreamResponse(status=found.status)
        for name, value in found.headers.items():
            if name.lower() not in _HOP_BY_HOP:
                answer.headers.add(name, value)
        await answer.prepare(request)
        async for chunk in found.content.iter_any():
            await answer.write(chunk)
        await answer.write_eof()
        return answer
