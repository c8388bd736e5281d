"""The connections to the API server: one HTTP session for reads, two for writes.

Knows HTTP, credentials and time limits, but no resource. ``reflector`` and ``writer`` use it. The session is aiohttp's, used
as documented. Proxy and TLS context are passed to it, so that it reads no environment and no .netrc for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from extender.kube.byte_stream import TRANSLATED, ByteStream, GuardedConnector, StreamSockets, translate, translated
from extender.kube.credentials import Access, Credentials, load_credentials
from extender.kube.errors import KubeError, TooLarge, Unreachable, error_of
from extender.kube.timing import Clock

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Body = Mapping[str, object]
Query = Mapping[str, str]
NO_QUERY: Final[Query] = {}
_READ_AHEAD: Final = 2**17  # bytes; a request waits for bytes read ahead of handling, at most twice as many
_LARGEST_ANSWER: Final = 2**25  # bytes; a single object may have 1.5 MiB in etcd, and more as JSON
_LARGEST_ERROR: Final = 2**18
_READ_CONNECTIONS: Final = 32  # one for each watch, and one more while a watch is replaced


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Time limits in seconds, and how many connections writes and the writes of preemptions may hold at once."""

    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    write_connections: int = 64
    removal_connections: int = 48
    user_agent: str = "placement-extender"


class Connection:
    """A pool of connections under one account: ``call`` for short answers, ``stream`` for long ones.

    ``sockets``: the sockets of the open streams.
    """

    def __init__(self, credentials: Credentials, options: SessionOptions, pool_size: int) -> None:
        self.sockets = StreamSockets()
        self._credentials = credentials
        self._limit = options.request_timeout
        proxy = credentials.proxy or _proxy_from_environment(credentials.host)
        route = {"proxy": proxy, "server_hostname": credentials.server_name}
        self._route: dict[str, Any] = {name: value for name, value in route.items() if value}
        self._pool = ClientSession(
            connector=GuardedConnector(limit=pool_size, ssl=credentials.tls if credentials.tls is not None else True),
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": options.user_agent},
            cookie_jar=DummyCookieJar(),
            read_bufsize=_READ_AHEAD,
            auto_decompress=False,  # no compression is requested; a compressed answer could inflate without limit
            # Callers limit the whole call. Here only connecting is limited, which could otherwise take for ever.
            timeout=ClientTimeout(total=None, sock_connect=options.connect_timeout),
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = NO_QUERY,
        body: Body | None = None,
        content_type: str = JSON,
        limit: float | None = None,
        largest: int = _LARGEST_ANSWER,
    ) -> bytes:
        """The body of a 2xx answer; raises ``KubeError``. ``limit``: seconds for everything, body included.

        ``largest``: bytes of the body. A longer body is not read to its end and raises ``TooLarge``.
        """
        try:
            async with asyncio.timeout(limit or self._limit):
                async with await self._request(method, path, query, body, content_type) as response:
                    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                        raise await _rejection(response)
                    return await _body(response, largest)
        except TRANSLATED as error:  # without `translated`, as this is the way of each call
            raise translate(f"{method} {path}", error) from error

    async def date(self) -> str:
        """The Date header of an answer with any status; empty if it has none. Raises ``Unreachable``."""
        with translated("GET /version"):
            async with asyncio.timeout(self._limit):
                async with await self._request("GET", "/version") as response:
                    return response.headers.get("Date", "")

    @asynccontextmanager
    async def stream(self, path: str, query: Query) -> AsyncIterator[ByteStream]:
        """A GET with a body of unknown length. Raises ``KubeError`` for any status but 2xx.

        Leaving closes the connection.
        """
        doing = f"GET {path}"
        with translated(doing):
            async with asyncio.timeout(self._limit):
                response = await self._request("GET", path, query)
        try:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                with translated(doing):
                    async with asyncio.timeout(self._limit):
                        raise await _rejection(response)
            stream = ByteStream(response, doing)
            self.sockets.add(stream.descriptor)
            try:
                yield stream
            finally:
                self.sockets.discard(stream.descriptor)
                stream.close()
        finally:
            response.close()  # not release(), which would wait for the rest of an endless body

    async def close(self) -> None:
        """Closes all connections; requests in flight end with ``Unreachable``. May be called twice."""
        await self._pool.close()

    async def _request(
        self, method: str, path: str, query: Query = NO_QUERY, body: Body | None = None, content_type: str = JSON
    ) -> ClientResponse:
        """The head of an answer. An idempotent request is repeated once if the server had closed the connection."""
        headers = {"Content-Type": content_type}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        url = f"{self._credentials.host}{path}?{urlencode(query)}" if query else f"{self._credentials.host}{path}"
        try:
            return await self._pool.request(
                method,
                URL(url, encoded=True),  # names were checked, and the query is encoded
                headers=headers,
                data=None if body is None else orjson.dumps(body),
                **self._route,
            )
        except (RuntimeError, AssertionError) as error:  # the client raises various errors for a closed session
            if not self._pool.closed:
                raise
            raise Unreachable(f"{method} {path}: the session is closed") from error


async def _body(response: ClientResponse, largest: int) -> bytes:
    parts, size = list[bytes](), 0
    while part := await response.content.readany():
        size += len(part)
        if size > largest:
            response.close()  # otherwise the rest would be awaited
            raise TooLarge(f"the answer is longer than {largest:,} bytes")
        parts.append(part)
    whole = b"".join(parts)
    if size > _READ_AHEAD:
        await asyncio.sleep(0)  # joining 24 MiB takes 15 ms, and the caller's decoding as long
    return whole


async def _rejection(response: ClientResponse) -> KubeError:
    """The error of an answer other than 2xx, from the beginning of its body."""
    parts, size = list[bytes](), 0
    while part := await response.content.readany():
        parts.append(part)
        size += len(part)
        if size >= _LARGEST_ERROR:
            response.close()
            break
    return error_of(response.status, response.headers, b"".join(parts))


def _proxy_from_environment(host: str) -> str | None:
    """The proxy that the environment names for a server; None without a proxy, or if the server is excluded."""
    parts = urlsplit(host)
    proxy = getproxies().get(parts.scheme)
    return proxy if proxy and not proxy_bypass(parts.hostname or "") else None


class Session:
    """The pools of one account: ``reads`` for lists and watches, ``writes``, so that neither waits.

    ``removals``: the writes of preemptions, so that a burst of them does not delay nominations and bindings.
    """

    def __init__(self, credentials: Credentials, options: SessionOptions) -> None:
        self.host = credentials.host
        self.reads = Connection(credentials, options, _READ_CONNECTIONS)
        self.writes = Connection(credentials, options, options.write_connections)
        self.removals = Connection(credentials, options, options.removal_connections)

    async def close(self) -> None:
        """Closes all connections; may be called twice."""
        await self.reads.close()
        await self.writes.close()
        await self.removals.close()


@asynccontextmanager
async def open_session(access: Access, clock: Clock, options: SessionOptions | None = None) -> AsyncIterator[Session]:
    """A session that is closed on leaving; raises ``BadAccess``.

    Nothing is sent to the server before the first call.
    """
    session = Session(await load_credentials(access, clock), options or SessionOptions())
    try:
        yield session
    finally:
        await session.close()
