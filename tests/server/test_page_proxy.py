"""The proxy of `extender ui`: who may ask through it, and for what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from yarl import URL

from extender.server.page.proxy import PageProxy
from tests.fakes import until

EVERYTHING = {"Set-Cookie": "of=theirs", "ETag": '"1"', "Clear-Site-Data": '"*"', "Location": "http://evil.example/"}


@dataclass
class Service:
    """What a service was asked for, and where it is asked through the proxy."""

    requests: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    open_streams: int = 0
    page: str = ""

    @property
    def base(self) -> str:
        """The address below which all paths are, with a slash at its end."""
        return self.page.removesuffix("ui/")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.rel_url.raw_path_qs}")
        self.headers.append(dict(request.headers))
        if request.path == "/v1/decisions/stream":
            return await self._stream(request)
        if request.path == "/v1/topology":
            assert request.transport is not None
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"some")
            request.transport.abort()
            return response
        status = HTTPStatus.NOT_MODIFIED if "If-None-Match" in request.headers else HTTPStatus.OK
        return web.Response(body=await request.read() or b"{}", status=status, headers=EVERYTHING)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.open_streams += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(b"data: 1\n\n")
            await asyncio.Event().wait()
        finally:
            self.open_streams -= 1
        return response


@asynccontextmanager
async def proxied() -> AsyncIterator[Service]:
    service, app = Service(), web.Application()
    app.router.add_route("*", "/{path:.*}", service.answer)
    async with (
        TestServer(app, handler_cancellation=True) as server,
        PageProxy(str(server.make_url("")), None).listening(0) as page,
    ):
        service.page = page
        yield service


async def test_the_page_and_what_it_reads_are_passed_on_without_cookies_and_foreign_headers() -> None:
    async with proxied() as service, ClientSession() as http:
        sent = {"Cookie": "session=of-another-program", "Accept": "text/html", "Authorization": "Bearer t"}
        async with http.get(service.page, headers=sent) as answer:
            assert (answer.status, await answer.text()) == (200, "{}")
            assert not {"Set-Cookie", "Clear-Site-Data", "Location"} & set(answer.headers)
            assert (answer.headers["ETag"], answer.headers["Referrer-Policy"]) == ('"1"', "no-referrer")
        assert not {"Cookie", "Authorization"} & set(service.headers[0])
        assert (service.headers[0]["Accept"], service.headers[0]["Accept-Encoding"]) == ("text/html", "identity")
        async with http.post(f"{service.base}v1/whatif", json={"drain": ["a"]}) as answer:
            assert await answer.read() == b'{"drain": ["a"]}'
        async with http.get(service.page, headers={"If-None-Match": '"1"'}) as answer:
            assert answer.status == HTTPStatus.NOT_MODIFIED
        url = URL(f"{service.base}v1/explain/a%2Fb/c%3Fd?node=x%26y", encoded=True)
        async with http.get(url) as answer:
            assert answer.status == HTTPStatus.OK
        async with http.get(service.page.removesuffix("/"), allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (308, "ui/")
        expected = ["GET /ui/", "POST /v1/whatif", "GET /ui/", "GET /v1/explain/a%2Fb/c%3Fd?node=x%26y"]
        assert service.requests == expected


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "../ui/", {}, 404),
        ("GET", "../wrong/ui/", {}, 404),
        ("GET", "../%ff%00/ui/", {}, 404),
        ("GET", "ui/", {"Host": "evil.example"}, 404),
        ("GET", "ui/", {"Host": "127.0.0.1:1"}, 404),
        ("GET", "v1/overview", {"Origin": "http://evil.example"}, 404),
        ("GET", "v1/overview", {"Origin": "null"}, 404),
        ("GET", "v1/overview", {"Sec-Fetch-Site": "cross-site"}, 404),
        ("POST", "v1/whatif", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 404),
        ("GET", "v1/../metrics", {}, 404),
        ("GET", "v1/%2E%2e/metrics", {}, 404),
        ("GET", "metrics", {}, 403),
        ("GET", "configz", {}, 403),
        ("GET", "/ui/", {}, 403),
        ("POST", "filter", {}, 403),
        ("POST", "ui/", {}, 403),
        ("PUT", "debug/loglevel", {}, 403),
        ("DELETE", "v1/overview", {}, 403),
    ],
)
async def test_nothing_else_reaches_the_service(
    method: str, path: str, headers: dict[str, str], status: HTTPStatus
) -> None:
    async with proxied() as service:
        page = URL(service.page)
        target = f"{page.path}".removesuffix("ui/") + path
        if path.startswith("../"):
            target = f"/{path.removeprefix('../')}"
        reader, writer = await asyncio.open_connection(page.host, page.port)
        sent = {"Host": f"{page.host}:{page.port}", "Content-Length": "0", **headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        assert int((await reader.readline()).split()[1]) == status
        writer.close()
        assert service.requests == []


async def test_a_file_may_open_the_page_and_ask_for_nothing_else() -> None:
    """So the command opens it in a browser, without the address in the arguments of a program."""
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with proxied() as service, ClientSession() as http:
        async with http.get(service.page, headers=navigation) as answer:
            assert answer.status == HTTPStatus.OK
        assert service.headers[0]["Sec-Fetch-Site"] == "none"  # the service knows no file
        async with http.get(f"{service.base}v1/overview", headers={"Sec-Fetch-Site": "cross-site"}) as answer:
            assert answer.status == HTTPStatus.NOT_FOUND


async def test_it_listens_on_loopback_alone_and_each_time_below_another_path() -> None:
    async with proxied() as one, proxied() as other:
        first, second = URL(one.page), URL(other.page)
        assert (first.host, second.host) == ("127.0.0.1", "127.0.0.1")
        assert len(first.parts[1]) >= 32
        assert first.parts[1] != second.parts[1]


async def test_a_stream_is_passed_on_as_it_comes_and_ends_with_its_reader() -> None:
    async with proxied() as service:
        async with ClientSession() as http, http.get(f"{service.base}v1/decisions/stream?last=1") as answer:
            assert await answer.content.readline() == b"data: 1\n"
            assert service.open_streams == 1
        await until(lambda: service.open_streams == 0)


async def test_a_service_that_is_gone_is_said_and_a_cut_answer_is_cut() -> None:
    gone = PageProxy("http://127.0.0.1:1", None)
    async with gone.listening(0) as page, ClientSession() as http, http.get(page) as answer:
        assert answer.status == HTTPStatus.BAD_GATEWAY
        assert "the service does not answer" in (await answer.json())["error"]
    async with proxied() as service, ClientSession() as http:
        with pytest.raises(Exception, match=r"payload|disconnected|reset"):
            async with http.get(f"{service.base}v1/topology") as answer:
                await answer.read()
