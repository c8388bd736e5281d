"""An API server that turns hostile for one kind of objects: it stands in front of the embedded one and plays a script.

Each connection carries one request, so that a script is in force from the next request on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from extender.simulator.apiserver.server import ApiServer

PODS = "/api/v1/pods"
PIECE = 2**16

Script = Callable[["Request"], Awaitable[None]]


class Request:
    """A list or a watch of pods, and the connection to answer it on."""

    def __init__(self, target: str, writer: asyncio.StreamWriter) -> None:
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        self._writer = writer

    @property
    def is_watch(self) -> bool:
        """Whether it is a watch, else a list."""
        return "watch" in self.query

    @property
    def is_streaming_list(self) -> bool:
        """Whether it is a watch that begins with the list."""
        return "sendInitialEvents" in self.query

    async def begin(self, status: str = "200 OK", *fields: str) -> None:
        """The head of an answer that ends with the connection."""
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", "Connection: close", *fields, "", ""]
        await self.send("\r\n".join(lines).encode())

    async def send(self, content: bytes) -> None:
        """More of the answer, at the pace at which it is read."""
        self._writer.write(content)
        await self._writer.drain()

    async def answer(self, content: bytes, status: str = "200 OK", *fields: str) -> None:
        """A whole answer."""
        await self.begin(status, *fields)
        await self.send(content)

    async def forever(self) -> None:
        """Keep the connection open, and send nothing."""
        await asyncio.get_running_loop().create_future()


class HostileApi:
    """The front. `url` is where the service looks for its API server; `requests` counts those that a script answered."""

    def __init__(self, api: ApiServer) -> None:
        self.url = ""
        self.requests = 0
        self._api = api
        self._script: Script | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[HostileApi]:
        """Listen on a free port until the block is left."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=PIECE)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self._cut()

    def write_kubeconfig(self, path: Path) -> Path:
        """That of the embedded API server, with the address of the front."""
        text = self._api.write_kubeconfig(path).read_text("utf-8")
        path.write_text(text.replace(self._api.url, self.url), "utf-8")
        return path

    @asynccontextmanager
    async def playing(self, script: Script) -> AsyncIterator[None]:
        """Answer lists and watches of pods by a script in the block, those that are open now included."""
        self._script, self.requests = script, 0
        self._cut()
        try:
            yield
        finally:
            self._script = None
            self._cut()

    def _cut(self) -> None:
        for writer in [*self._open]:
            writer.transport.abort()
        for task in [*self._tasks]:
            task.cancel()  # one that sends nothing does not notice

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(writer)
        self._tasks.add(task)  # the loop holds only a weak reference
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:  # longer than a real server reads, too
            await Request("", writer).answer(b"{}", "431 Request Header Fields Too Large")
            return
        target = head.split(b" ", 2)[1].decode("latin-1")
        if self._script is not None and urlsplit(target).path == PODS:
            self.requests += 1
            await self._script(Request(target, writer))
        else:
            await self._forward(head, reader, writer)

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request to the embedded API server, and its answer back."""
        place = urlsplit(self._api.url)
        inner, onward = await asyncio.open_connection(place.hostname, place.port)
        self._open.add(onward)
        first, _, rest = head.partition(b"\r\n")
        onward.write(first + b"\r\nConnection: close\r\n" + rest)
        upward = asyncio.create_task(_copy(reader, onward))
        try:
            await _copy(inner, writer)
        finally:
            upward.cancel()
            self._open.discard(onward)
            onward.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
