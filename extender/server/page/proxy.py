"""A proxy on loopback that shows the page of a service elsewhere, with a client certificate that a browser does not have.

Called by `extender ui`. A client certificate of the role admin may do more than the page needs, and every user of the machine
reaches loopback. So each request is checked:

1. Its path begins with a random token. Only the user of the command knows the token.
2. Its Host is the address of the proxy, so that no other site's name leads here (DNS rebinding).
3. A browser says that it comes from a page of the proxy, where the browser says anything.
4. It asks for the page, or for what the page reads.

Only listed headers pass, in both directions: cookies of 127.0.0.1 belong to other programs of the user.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from http import HTTPStatus
from secrets import token_urlsafe
from typing import Final
from urllib.parse import unquote

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, hdrs, web
from yarl import URL

HOST: Final = "127.0.0.1"
_TOKEN_BYTES: Final = 24
_MOST_BODY: Final = 8 * 2**20  # as the default of server.maxBodyBytes
_CONNECT_SECONDS: Final = 10.0
_CLOSING_SECONDS: Final = 0.5  # streams of decisions never end by themselves
_PAGE: Final = "/ui/"
# By method the beginnings of the paths that the page asks for. A verb of the scheduler or a log level is not among them.
_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    hdrs.METH_GET: (_PAGE, "/v1/", "/debug/decisions", "/debug/shadow", "/version"),
    hdrs.METH_POST: ("/v1/explain", "/v1/whatif"),
}
_ASKED: Final = ("Accept", "Content-Type", "If-None-Match", "Last-Event-ID", "Sec-Fetch-Site")
_ANSWERED: Final = (
    *("Content-Type", "Content-Security-Policy", "Cache-Control", "ETag", "Retry-After", "X-Content-Type-Options"),
    *("Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy"),
)
_OWN_SITE: Final = frozenset({"same-origin", "none"})  # "none": typed, or opened from a file


class PageProxy:
    """Passes requests below a random path to the service at ``target``."""

    def __init__(self, target: str, context: ssl.SSLContext | None) -> None:
        self._target = target.rstrip("/")
        self._context = context
        self._token = token_urlsafe(_TOKEN_BYTES)
        self._session: ClientSession | None = None
        self._hosts: frozenset[str] = frozenset()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[str]:
        """Serves until the block is left; yields the address of the page. Port 0: a free one. Raises OSError."""
        app = web.Application(client_max_size=_MOST_BODY)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSING_SECONDS)
        await runner.setup()
        timeout = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        connector = TCPConnector(ssl=self._context or True, limit=0)
        try:
            # Not `trust_env`: a proxy of the environment would see the client's requests.
            async with ClientSession(connector=connector, timeout=timeout, cookie_jar=DummyCookieJar()) as session:
                self._session = session
                await web.TCPSite(runner, HOST, port).start()
                bound = runner.addresses[0][1]
                self._hosts = frozenset({f"{HOST}:{bound}", f"localhost:{bound}"})
                yield f"http://{HOST}:{bound}/{self._token}{_PAGE}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """The answer of the service, or why there is none."""
        path = self._path_of(request)
        if path is None:
            # One answer for a wrong token and a wrong path: it tells nothing.
            return _said(HTTPStatus.NOT_FOUND, "not found: use the address that the command has printed")
        if path == _PAGE.rstrip("/"):
            return web.Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "ui/"})
        if not any(path.startswith(beginning) for beginning in _PATHS.get(request.method, ())):
            return _said(HTTPStatus.FORBIDDEN, "only requests of the page are passed on")
        body = await request.read() if request.body_exists else None
        try:
            return await self._passed_on(request, path, body)
        except (ClientError, TimeoutError) as error:
            return _said(HTTPStatus.BAD_GATEWAY, f"the service does not answer: {error}")

    def _path_of(self, request: web.Request) -> str | None:
        """The path at the service; None for a request that is not passed on, because of facts 1 to 3 above."""
        if request.headers.get(hdrs.HOST) not in self._hosts:
            return None
        _, _, path = request.rel_url.raw_path.partition("/")
        token, *parts = path.split("/")
        if not parts or not compare_digest(token.encode(errors="replace"), self._token.encode()):
            return None
        if any(unquote(part) in {".", ".."} for part in parts):
            return None
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return None
        site = request.headers.get("Sec-Fetch-Site", "none")
        # A file that leads to the page is another site to the browser. It may open the page, and ask for nothing else.
        if site not in _OWN_SITE and request.headers.get("Sec-Fetch-Mode") != "navigate":
            return None
        return "/" + "/".join(parts)

    async def _passed_on(self, request: web.Request, path: str, body: bytes | None) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101 (for the type checker: requests come while it listens)
        headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
        headers["Accept-Encoding"] = "identity"
        if headers.get("Sec-Fetch-Site") == "cross-site":  # a navigation, as above
            headers["Sec-Fetch-Site"] = "none"
        query = request.rel_url.raw_query_string
        url = URL(f"{self._target}{path}{'?' if query else ''}{query}", encoded=True)
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            kept = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
            # The token is in the address, so no other site may learn the address.
            response = web.StreamResponse(status=answer.status, headers={**kept, "Referrer-Policy": "no-referrer"})
            await response.prepare(request)
            try:
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
            except ClientError:
                # The head is sent, so a broken connection is the only way to say that the rest is missing.
                if request.transport is not None:
                    request.transport.abort()
            return response


def _said(status: HTTPStatus, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status, headers={"Referrer-Policy": "no-referrer"})
