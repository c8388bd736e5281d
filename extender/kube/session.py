"""The connections to the API server: one HTTP session for reads, two for writes.

Knows HTTP, credentials and time limits, but no resource. ``reflector`` and ``writer`` use it.

The Kubernetes client provides TLS, proxy and credentials; its calls are used without its models, which cost over a
millisecond per pod. It sets no time limit, so every call here does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from extender.kube.client_library import ApiClient, Configuration
from extender.kube.connection import Access
from extender.kube.credentials import load_configuration
from extender.kube.errors import BadAccess, KubeError, TooLarge, Unreachable, error_of, translated
from extender.kube.exchange import Answer, Exchange
from extender.kube.timing import Clock
from extender.kube.watch.byte_stream import AnswerParser, ByteStream, StreamSockets

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Body = Mapping[str, object]
Query = Mapping[str, str]
NO_QUERY: Final[Query] = {}
_READ_AHEAD: Final = 2**17  # bytes; twice as many are read ahead of what is handled, for which a request waits
_LARGEST_ANSWER: Final = 2**25  # bytes; a single object may have 1.5 MiB in etcd, and more as JSON
_LARGEST_ERROR: Final = 2**18
_READ_CONNECTIONS: Final = 32  # one for each watch, and one more each while a watch is being replaced


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Time limits in seconds and the number of connections that writes, and those of preemptions, may hold at once."""

    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    write_connections: int = 64
    removal_connections: int = 48
    user_agent: str = "placement-extender"


async def _body(answer: Answer, largest: int) -> bytes:
    """The whole body; raises ``TooLarge`` as soon as it is longer."""
    parts, size = list[bytes](), 0
    while part := await answer.content.readany():
        size += len(part)
        if size > largest:
            raise TooLarge(f"the answer is longer than {largest:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _rejection(answer: Answer) -> KubeError:
    """What an answer that is not 2xx means, by the beginning of its body."""
    parts, size = list[bytes](), 0
    while size < _LARGEST_ERROR and (part := await answer.content.readany()):
        parts.append(part)
        size += len(part)
    return error_of(answer.status, answer.headers, b"".join(parts))


def _answer_of(response: ClientResponse) -> Answer:
    return Answer(response.status, response.headers, response.content)


class Connection:
    """A pool of connections under one account: ``call`` for short answers, ``stream`` for long ones.

    ``sockets`` are those of the open streams.
    """

    def __init__(self, configuration: Configuration, options: SessionOptions, pool_size: int) -> None:
        configuration.connection_pool_maxsize = pool_size  # read once, by the client's constructor
        self.sockets = StreamSockets()
        self._configuration = configuration
        self._options = options
        self._client = ApiClient(configuration)
        self._resolve_proxy_once()
        self._route = self._way_to_the_server()
        # The callers bound the whole; only the way to the server is bounded here. Without a limit it could take for ever.
        self._timeout = ClientTimeout(total=None, sock_connect=options.connect_timeout)
        self._host = self._configuration.host
        self._exchange = self._make_exchange()
        self._is_closed = False

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
        """The body of a 2xx answer; raises ``KubeError``. ``limit`` in seconds covers everything, body included.

        ``largest``: bytes of the body; of a longer one no more is read, and ``TooLarge`` is raised.
        """
        with translated(f"{method} {path}"):
            async with asyncio.timeout(limit or self._options.request_timeout):
                async with self._answer(method, path, query, body, content_type) as answer:
                    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                        raise await _rejection(answer)
                    return await _body(answer, largest)

    async def date(self) -> str:
        """The Date header of an answer, whatever its status; empty where there is none. Raises ``Unreachable``."""
        with translated("GET /version"):
            async with asyncio.timeout(self._options.request_timeout):
                response = await self._request("GET", "/version", NO_QUERY, None, JSON)
                response.release()
        return response.headers.get("Date", "")

    @asynccontextmanager
    async def stream(self, path: str, query: Query) -> AsyncIterator[ByteStream]:
        """A GET whose body has no known end; raises ``KubeError`` for any status but 2xx. Leaving drops the connection."""
        doing = f"GET {path}"
        with translated(doing):
            async with asyncio.timeout(self._options.request_timeout):
                response = await self._request("GET", path, query, None, JSON)
        try:
            if not response.ok:
                with translated(doing):
                    async with asyncio.timeout(self._options.request_timeout):
                        raise await _rejection(_answer_of(response))
            stream = ByteStream(response, doing)
            self.sockets.add(stream.descriptor)
            try:
                yield stream
            finally:
                self.sockets.discard(stream.descriptor)
                stream.close()
        finally:
            response.close()  # not release(): the rest of an endless body must not be waited for

    async def close(self) -> None:
        """Closes all connections; requests in flight end with ``Unreachable``."""
        self._is_closed = True
        await self._client.close()

    def _resolve_proxy_once(self) -> None:
        """Reads the proxy from the environment once.

        The client's session reads a .netrc file and the proxy for each request, each in a thread, which costs more than
        the rest of the request.
        """
        rest = self._client.rest_client
        rest.proxy = rest.proxy or _proxy_from_environment(self._configuration.host or "")  # type: ignore[assignment]  # typed too narrowly
        pool = rest.pool_manager
        # There is no public way to another parser of answers.
        vars(pool.connector)["_factory"] = partial(AnswerParser, asyncio.get_running_loop())
        rest.pool_manager = ClientSession(
            connector=pool.connector,
            cookie_jar=DummyCookieJar(),
            read_bufsize=_READ_AHEAD,
            auto_decompress=False,  # nothing compressed is asked for, and what comes all the same may inflate without limit
        )
        pool.detach()

    def _way_to_the_server(self) -> dict[str, Any]:
        """The arguments of each request that come from the kubeconfig: the proxy and the name in the certificate."""
        rest = self._client.rest_client
        found = {"proxy": rest.proxy, "proxy_headers": rest.proxy_headers, "server_hostname": rest.server_hostname}
        return {name: value for name, value in found.items() if value}

    def _make_exchange(self) -> Exchange | None:
        """What makes short calls cheap; None where the address or a proxy needs headers that only aiohttp's session adds."""
        server = URL(self._host or "")
        if server.user is not None or (server.scheme == "http" and "proxy" in self._route):
            return None
        return Exchange(
            self._client.rest_client.pool_manager, str(server), self._route, self._timeout, read_ahead=_READ_AHEAD
        )

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str
    ) -> AsyncIterator[Answer]:
        """The answer to a short call. A redirect has changed nothing, and the session follows it in a second attempt."""
        if self._host != self._configuration.host:  # as a refresh of the credentials has read it
            self._host = self._configuration.host
            self._exchange = self._make_exchange()
        if self._exchange is not None:
            target = f"{path}?{urlencode(query)}" if query else path
            data = None if body is None else orjson.dumps(body)
            async with self._exchange.answer(method, target, await self._headers(content_type), data) as answer:
                if not HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
                    yield answer
                    return
        async with await self._request(method, path, query, body, content_type) as response:
            yield _answer_of(response)

    async def _headers(self, content_type: str) -> dict[str, str]:
        """The headers of a request, with fresh credentials."""
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "Content-Type": content_type}
        headers["User-Agent"] = self._options.user_agent
        for setting in (await self._configuration.auth_settings()).values():
            headers[setting["key"]] = setting["value"]
        return headers

    async def _request(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str
    ) -> ClientResponse:
        try:
            return await self._send(method, path, query, body, content_type)
        except (RuntimeError, AssertionError) as error:
            if not self._is_closed:
                raise
            raise Unreachable(
                f"{method} {path}: the session is closed"
            ) from error  # the client raises various errors for that

    async def _send(self, method: str, path: str, query: Query, body: Body | None, content_type: str) -> ClientResponse:
        # Not through the library's `request`: its checks and json.dumps cost a sixth of a write.
        return await self._client.rest_client.pool_manager.request(
            method,
            f"{self._configuration.host}{path}?{urlencode(query)}" if query else f"{self._configuration.host}{path}",
            headers=await self._headers(content_type),
            data=None if body is None else orjson.dumps(body),
            timeout=self._timeout,
            **self._route,
        )


def _proxy_from_environment(host: str) -> str | None:
    """The proxy that the environment names for a server, None where it names none or excludes the server."""
    parts = urlsplit(host)
    found = getproxies().get(parts.scheme)
    return found if found and not proxy_bypass(parts.hostname or "") else None


class Session:
    """The pools of one account: ``reads`` for lists and watches, ``writes`` for writes, so that neither waits.

    ``removals`` are the writes of preemptions: a burst of them must not delay nominations and bindings.
    """

    def __init__(self, configuration: Configuration, options: SessionOptions) -> None:
        self.host = configuration.host or ""
        self.reads = Connection(configuration, options, _READ_CONNECTIONS)
        self.writes = Connection(configuration, options, options.write_connections)
        self.removals = Connection(configuration, options, options.removal_connections)

    async def close(self) -> None:
        """Closes all connections; may be called twice."""
        await self.reads.close()
        await self.writes.close()
        await self.removals.close()


@asynccontextmanager
async def open_session(access: Access, clock: Clock, options: SessionOptions | None = None) -> AsyncIterator[Session]:
    """A session that is closed on leaving; raises ``BadAccess``. Nothing is sent to the server before the first call."""
    configuration = await load_configuration(access, clock)
    with translated("credentials"):
        try:
            session = Session(configuration, options or SessionOptions())
        except OSError as error:  # certificates that cannot be read or do not fit their key
            raise BadAccess(f"credentials: {error}") from error
    try:
        yield session
    finally:
        await session.close()
