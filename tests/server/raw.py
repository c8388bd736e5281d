"""Requests byte for byte over a socket: what no client library would send."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.fakes import PATIENCE

PAUSE = 1.5  # seconds; the other side gives up after a fraction of it


@dataclass
class Wire:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, content: bytes) -> None:
        """Write it all, at the pace at which it is taken."""
        self.writer.write(content)
        await self.writer.drain()

    async def status(self) -> int:
        """The status of the next answer, its head and body taken off; 0 where the connection is closed instead."""
        async with asyncio.timeout(PATIENCE):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0
            self.head = head
            status, fields = _parsed(head)
            self.body = await self.reader.readexactly(int(fields.get("content-length", "0")))
            return status

    async def status_or_cut(self) -> int:
        """As `status`, but nothing is read until the other side has had time to give up; 0 where it was cut."""
        self.reader._transport.pause_reading()  # type: ignore[attr-defined] # there is no public way to be slow
        await asyncio.sleep(PAUSE)
        self.reader._transport.resume_reading()  # type: ignore[attr-defined] # as above
        try:
            return await self.status()
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0

    async def closed(self) -> bool:
        async with asyncio.timeout(PATIENCE):
            try:
                while await self.reader.read(2**16):
                    continue
            except ConnectionError:
                pass
            return True

    head: bytes = b""
    body: bytes = b""


@asynccontextmanager
async def wire(url: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    """A connection to a service, closed without ceremony at the end."""
    place = urlsplit(url)
    host = place.hostname
    reader, writer = await asyncio.open_connection(host, place.port, ssl=tls, server_hostname=host if tls else None)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def head_of(method: str, path: str, **fields: str) -> bytes:
    """The head of a request; underscores in the names of fields stand for dashes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def whole(method: str, path: str, body: bytes, **fields: str) -> bytes:
    return head_of(method, path, Content_Length=str(len(body)), **fields) + body


def _parsed(head: bytes) -> tuple[int, Mapping[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines if line)
    return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}


class Sunk(asyncio.Transport):
    """A transport that takes everything and sends nothing."""

    written = b""
    is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing arrives by itself."""

    def resume_reading(self) -> None:
        """Nothing arrives by itself."""

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        """Nothing is open."""
