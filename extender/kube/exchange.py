"""Short calls over the connections of a session, without the objects that aiohttp's session makes for each request.

Those are a URL, two header dictionaries, a request, its body as a payload, a response and timers: half of the processor time
of a write, without the two system calls. Here the head of a request is text, and of the answer only status, headers and body
are looked at. Connections, TLS, proxies and the parser stay aiohttp's, of the one minor that the project is pinned to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import (
    ClientConnectionError,
    ClientOSError,
    ClientRequest,
    ClientSession,
    ClientTimeout,
    ServerDisconnectedError,
    StreamReader,
)
from aiohttp.connector import BaseConnector
from aiohttp.connector import Connection as PooledConnection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from yarl import URL

from extender.kube.errors import BadAccess

_REPEATABLE: Final = {"GET", "PUT", "DELETE"}
_FIRST_FINAL: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer, and its body as it arrives."""

    status: int
    headers: Mapping[str, str]
    content: StreamReader


class Exchange:
    """Sends requests to one server. ``way``: proxy and name in the certificate, as `ClientSession.request` takes them.

    ``read_ahead``: bytes of an answer that are read before its reader has taken them.
    """

    def __init__(
        self, pool: ClientSession, server: str, way: Mapping[str, Any], timeout: ClientTimeout, read_ahead: int
    ) -> None:
        address = URL(server)
        self._connector: BaseConnector | None = pool.connector
        self._timeout = timeout
        self._read_ahead = read_ahead
        # Never sent: the pool finds connections by it.
        route: dict[str, Any] = {name: URL(value) if name == "proxy" else value for name, value in way.items()}
        self._target = ClientRequest("GET", address, loop=asyncio.get_running_loop(), session=pool, **route)
        self._prefix = address.raw_path.rstrip("/")
        self._host = f" HTTP/1.1\r\nHost: {self._target.headers['Host']}\r\n"

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[Answer]:
        """The answer to a request; redirects are not followed. A connection whose body is left unread is closed.

        A request that is safe to repeat is repeated once when its connection turns out to be closed by the server. Raises
        what aiohttp raises, and ``BadAccess`` for headers that cannot be sent.
        """
        data = self._head(method, path, headers, body)
        try:
            connection, message, content = await self._send(data)
        except _ClosedByServer as error:
            if method not in _REPEATABLE:
                raise error.cause from None
            try:
                connection, message, content = await self._send(data)
            except _ClosedByServer as again:
                raise again.cause from None
        try:
            yield Answer(message.code, message.headers, content)
        finally:
            connection.release()

    def _head(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """The whole request."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise BadAccess("a header, such as the token, contains a line break")
        size = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{path}{self._host}{lines}{size}\r\n".encode()
        return head if body is None else head + body

    async def _send(self, data: bytes) -> tuple[PooledConnection, RawResponseMessage, StreamReader]:
        """The head of the answer, on a connection that the caller releases."""
        if self._connector is None or self._connector.closed:
            raise ClientConnectionError("the session is closed")
        connection = await self._connector.connect(self._target, [], self._timeout)
        protocol, transport = connection.protocol, connection.transport
        try:
            if protocol is not None and transport is not None:
                protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=self._read_ahead)
                transport.write(data)
                while True:
                    message, content = await protocol.read()
                    if message.code >= _FIRST_FINAL:  # not an interim answer
                        return connection, message, content
        except (ClientOSError, ServerDisconnectedError) as error:
            connection.close()
            raise _ClosedByServer(error) from error
        except HttpProcessingError as error:
            connection.close()
            raise ClientConnectionError(f"no HTTP: {error.message}") from error
        except BaseException:
            connection.close()
            raise
        raise _ClosedByServer(ServerDisconnectedError())


class _ClosedByServer(Exception):  # noqa: N818 -- named for what happened
    """Raised where the server closed a connection before it answered."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause
