"""What a Service does for replicas: new connections go to one that is ready, standing ones stay where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import aiohttp

_LOOK_SECONDS = 0.05  # a kubelet's probes and the endpoints behind them take seconds; the test has less patience


class Balancer:
    """Forwards connections. ``ready`` are the URLs of the replicas that said so last."""

    def __init__(self, replicas: Sequence[str]) -> None:
        self.replicas = replicas
        self.ready: list[str] = []
        self.url = ""
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def look(self) -> None:
        """Ask every replica for its readiness, again and again."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0)) as session:
            while True:
                self.ready = [url for url in self.replicas if await _is_ready(session, url)]
                await asyncio.sleep(_LOOK_SECONDS)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection; not a coroutine, so that none is open of which `close` does not know."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end; refused while no replica is ready."""
        with suppress(OSError):
            if self.ready:
                await _forward(reader, writer, self.ready[0])
        await _closed(writer)

    async def close(self) -> None:
        """Cut all connections, those that come in meanwhile as well."""
        while self._connections:
            cut = dict(self._connections)
            for task, writer in cut.items():
                writer.transport.abort()
                writer.close()  # a task that is cancelled before its first step does not do it
                task.cancel()
            await asyncio.gather(*cut, return_exceptions=True)


@asynccontextmanager
async def balancing(*replicas: str) -> AsyncIterator[Balancer]:
    """A balancer on a free port; its ``url`` is what a scheduler is given."""
    balancer = Balancer(replicas)
    looking = asyncio.create_task(balancer.look())
    server = await asyncio.start_server(balancer.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    balancer.url = f"http://{host}:{port}"
    try:
        yield balancer
    finally:
        server.close()
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await asyncio.sleep(0)  # what was taken from the socket before it was closed is shown to `accept`
        await balancer.close()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz?verbose") as answer:  # a standby is ready too, and says so
            return answer.status == 200 and "leadership ok (" not in await answer.text()
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> None:
    place = urlsplit(url)
    back_reader, back_writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        ways = [asyncio.create_task(_copy(reader, back_writer)), asyncio.create_task(_copy(back_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    finally:
        await _closed(back_writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
