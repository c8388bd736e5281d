"""The least that an extender can cost: an echo without a framework, an index, a watch or a decision, in a process of its own.

It decodes the names of a request and answers the first name (`one`) or all names (`all`), each at an address of its own. What the
service costs above the answer of the same kind is what there is to win.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Final, cast

import orjson

from extender.compose.process import run_on_loop
from tests.tools.bench.child_process import Calls, Child, child_running
from tests.tools.bench.http_connection import Connection

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_LIMITS: Final = {"one": 1, "all": None}


class EchoProtocol(asyncio.Protocol):
    """One connection. `limit`: how many names it answers; None is all."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop derives its own from no class of asyncio

    def data_received(self, data: bytes) -> None:
        """Answers each request that is complete."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            answer = self._answer(self._received[end + 4 : whole])
            self._received = self._received[whole:]
            self._transport.write(_HEAD % len(answer) + answer)

    def _answer(self, body: bytes) -> bytes:
        names = orjson.loads(body)["NodeNames"]
        return orjson.dumps({"NodeNames": names[: self._limit]})


def run_bare_echo(pipe: Pipe) -> None:
    """The target of the child process. Sends its addresses when it listens."""
    run_on_loop(_run(pipe))


async def _run(pipe: Pipe) -> None:
    addresses = dict[str, str]()
    for name, limit in _LIMITS.items():
        server = await asyncio.get_running_loop().create_server(partial(EchoProtocol, limit), "127.0.0.1", 0)
        addresses[name] = "http://{}:{}".format(*server.sockets[0].getsockname())
    calls = Calls(pipe, answered={"processor": time.process_time})
    calls.listen()
    calls.send(addresses)
    await calls.stopped.wait()


@dataclass(frozen=True, slots=True)
class BareEcho:
    """The running echo, with a connection to each of its addresses."""

    process: Child
    connections: Mapping[str, Connection]

    def post(self, body: bytes, names: int) -> int:
        """The nanoseconds until it has answered: one name if the service answered one, else all names."""
        return self.connections["one" if names == 1 else "all"].post("/filter", body)[1]


@contextmanager
def bare_echo_running() -> Iterator[BareEcho]:
    """Runs the echo during the block."""
    with child_running(run_bare_echo) as process, ExitStack() as stack:
        addresses: dict[str, str] = process.receive()
        yield BareEcho(
            process, {name: stack.enter_context(closing(Connection(url))) for name, url in addresses.items()}
        )
