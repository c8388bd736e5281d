"""What the kubelet does for `kubectl port-forward`: streams of SPDY/3.1, in pairs, which it connects to a port of a process.

The API server reaches it by the address and the port in the Node. Of a header block nothing is read: kubectl opens the stream for
errors first, and then that of the data, for each connection.
https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from extender.simulator.json_objects import JsonObject
from tests.e2e.certificates import CERTIFICATE, KEY
from tests.e2e.control_plane import HOST
from tests.simulator.plain import node

_CONTROL, _VERSION, _END = 1 << 31, 3, 1
_SYN_STREAM, _SYN_REPLY, _PING = 1, 2, 6
_PAIR = 4  # the numbers of a client's streams are odd, so a pair takes four
_READ = 65536


class ForwardingKubelet:
    """``targets``: by "namespace/pod" where the process of a pod listens. ``forwarded``: the pods that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.targets: dict[str, tuple[str, int]] = {}
        self.forwarded: list[str] = []
        self._port = 0
        self._trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._trust.load_cert_chain(folder / CERTIFICATE, folder / KEY)

    def node(self, name: str) -> JsonObject:
        """The Node whose pods it runs."""
        made = node(name, unschedulable=True)
        addresses = [{"type": "InternalIP", "address": HOST}]
        made["status"] |= {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}}}
        return made

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Until the block is left."""
        server = await asyncio.start_server(self._serve, HOST, 0, ssl=self._trust)
        self._port = server.sockets[0].getsockname()[1]
        async with server:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            request, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            name = request.split()[1].partition("?")[0].removeprefix("/portForward/")
            self.forwarded.append(name)
            protocol = "Upgrade: SPDY/3.1\r\nConnection: Upgrade\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n"
            writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{protocol}\r\n".encode())
            await _Streams(reader, writer, self.targets[name]).run()
        writer.close()


class _Streams:
    """The streams of one port-forward."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]) -> None:
        self._reader = reader
        self._writer = writer
        self._target = target
        self._behind: dict[int, asyncio.StreamWriter] = {}
        self._headers = zlib.compressobj()

    async def run(self) -> None:
        """Until the connection ends."""
        async with asyncio.TaskGroup() as tasks:
            with suppress(asyncio.IncompleteReadError):
                await self._follow(tasks)
            for each in self._behind.values():
                each.close()
        await asyncio.gather(*(each.wait_closed() for each in self._behind.values()), return_exceptions=True)

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            first, rest = struct.unpack(">II", await self._reader.readexactly(8))
            flags, body = rest >> 24, await self._reader.readexactly(rest & 0xFFFFFF)
            if not first & _CONTROL:
                self._receive(first, flags, body)
            elif first & 0xFFFF == _SYN_STREAM:
                (stream,) = struct.unpack(">I", body[:4])
                empty = self._headers.compress(b"\0\0\0\0") + self._headers.flush(zlib.Z_SYNC_FLUSH)
                self._control(_SYN_REPLY, body[:4] + empty)
                if stream % _PAIR == _PAIR - 1:  # the second of a pair has the data
                    await self._connect(stream, tasks)
            elif first & 0xFFFF == _PING:
                self._control(_PING, body)

    async def _connect(self, stream: int, tasks: asyncio.TaskGroup) -> None:
        try:
            reader, self._behind[stream] = await asyncio.open_connection(*self._target)
        except OSError as error:
            self._data(stream - 2, str(error).encode())
            self._finish(stream)
        else:
            tasks.create_task(self._send(stream, reader))

    def _receive(self, stream: int, flags: int, body: bytes) -> None:
        if stream in self._behind:
            self._behind[stream].write(body)
            if flags & _END:
                self._behind[stream].write_eof()

    async def _send(self, stream: int, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while body := await reader.read(_READ):
                self._data(stream, body)
        self._finish(stream)

    def _finish(self, stream: int) -> None:
        for each in (stream, stream - 2):
            self._data(each, b"", _END)

    def _data(self, stream: int, body: bytes, flags: int = 0) -> None:
        self._writer.write(struct.pack(">II", stream, flags << 24 | len(body)) + body)

    def _control(self, kind: int, body: bytes) -> None:
        self._writer.write(struct.pack(">II", _CONTROL | _VERSION << 16 | kind, len(body)) + body)
