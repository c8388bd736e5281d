"""Requests that are no good HTTP, or good HTTP that is not asked for."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from tests.attack.attacks import ATTACKS, Target, status_text
from tests.server.raw import head_of, whole

_HEADERS = "\r\n".join(f"X-{number}: y" for number in range(5000))
_LONG_HEADERS = "\r\n".join(f"X-{number}: {'y' * 1000}" for number in range(1000))
_PATHS = (
    *(
        "//filter",
        "/./filter",
        "/filter/",
        "/filter%2f",
        "/%66ilter",
        "/filter;a=b",
        "/filter%00",
        "/filter?a=/../configz",
    ),
    *(
        "/debug/../configz",
        "/debug%2floglevel",
        "/debug/loglevel/..",
        "/readyz/%2e%2e",
        "/readyz/%ff",
        "/readyz/a%0d%0ab",
    ),
)
_CHUNKED = {"Transfer_Encoding": "chunked"}

for _name, _request in {
    "no HTTP at all": b"\x00\xff\x16\x03\x01 nonsense\r\n\r\n",
    "HTTP/1.0": b"POST /filter HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/9.9": b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no Host": b"GET /livez HTTP/1.1\r\n\r\n",
    "5,000 headers": f"GET /livez HTTP/1.1\r\nHost: x\r\n{_HEADERS}\r\n\r\n".encode(),
    "a header of 1 MiB": head_of("GET", "/livez", X="y" * 2**20),
    "a path of 1 MiB": head_of("GET", "/" + "a" * 2**20),
    "control characters in a header": head_of("GET", "/livez", X="\x1b[31m\x07"),
    "two lengths": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
    "a negative length": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length of 2^70": head_of("POST", "/filter", Content_Length=str(2**70)),
    "a length of 30 digits of bytes": head_of("POST", "/filter", Content_Length="9" * 18),
    "length and chunks": head_of("POST", "/filter", Content_Length="2", **_CHUNKED) + b"0\r\n\r\n",
    "a bad chunk size": head_of("POST", "/filter", **_CHUNKED) + b"xyz\r\n{}\r\n",
    "a chunk size of 2^64": head_of("POST", "/filter", **_CHUNKED) + b"ffffffffffffffffff\r\n",
    "a chunk extension of 1 MiB": head_of("POST", "/filter", **_CHUNKED)
    + b"2;"
    + b"a" * 2**20
    + b"\r\n{}\r\n0\r\n\r\n",
    "trailers without end": head_of("POST", "/filter", **_CHUNKED) + b"0\r\n" + b"A: b\r\n" * 100_000,
    "gzip in chunks": head_of("POST", "/filter", Transfer_Encoding="gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "Expect: miracles": whole("POST", "/filter", b"{}", Expect="miracles"),
    "a websocket": head_of("GET", "/livez", Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Version="13"),
    "an unknown method": head_of("SPOIL", "/filter"),
    "CONNECT": b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "TRACE": head_of("TRACE", "/filter"),
    "another path with dots": head_of("GET", "/../../etc/passwd"),
    "a path that is no UTF-8": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "a log level in punycode": whole("PUT", "/debug/loglevel", b"a" * 60, Content_Type="text/plain; charset=punycode"),
    "a log level in an unknown charset": whole(
        "PUT", "/debug/loglevel", b"debug", Content_Type="text/plain; charset=no-such"
    ),
    "a log level of 1 MiB": whole("PUT", "/debug/loglevel", b"a" * 2**20),
    "100,000 header lines": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    "1,000,000 bytes of headers": f"GET /livez HTTP/1.1\r\n{_LONG_HEADERS}\r\n\r\n".encode(),
    "1,000,000 bytes of blank lines": b"\r\n" * 500_000 + head_of("GET", "/livez"),
    "a method of 1 MiB": b"G" * 2**20 + b" /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a query of 8 KiB in 2,000 parts": head_of("GET", "/readyz?" + "&".join(f"v{n}" for n in range(2000))[:8000]),
    "a header name of NUL bytes": b"GET /livez HTTP/1.1\r\nHost: x\r\n\x00\x00: y\r\n\r\n",
    "folded headers": b"GET /livez HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\td\r\n\r\n",
    "bare line feeds": b"POST /filter HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "a length of +2": head_of("POST", "/filter", Content_Length="+2") + b"{}",
    "a length of 0x2": head_of("POST", "/filter", Content_Length="0x2") + b"{}",
    "a length of 2, 2": head_of("POST", "/filter", Content_Length="2, 2") + b"{}",
    "a length of nothing": head_of("POST", "/filter", Content_Length="") + b"{}",
    "a length and a space before the colon": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}",
    "xchunked": head_of("POST", "/filter", Transfer_Encoding="xchunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "chunked, identity": head_of("POST", "/filter", Transfer_Encoding="chunked, identity") + b"2\r\n{}\r\n0\r\n\r\n",
    "chunked twice": head_of("POST", "/filter", Transfer_Encoding="chunked\r\nTransfer-Encoding: chunked")
    + b"0\r\n\r\n",
    "chunks and HTTP/1.0": b"POST /filter HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/2 by Upgrade": head_of(
        "GET", "/livez", Upgrade="h2c", Connection="Upgrade, HTTP2-Settings", HTTP2_Settings="AA"
    ),
    "an Upgrade with 8 MiB behind": head_of("GET", "/livez", Upgrade="websocket", Connection="Upgrade") + b"x" * 2**23,
    "a CONNECT with 8 MiB behind": b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 2**23,
    "HTTP/2 preface and 100,000 frames": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) * 100_000,
    "an absolute URI": b"GET http://169.254.169.254/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "an absolute URI of a verb": b"POST http://x/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "a URI without a slash": b"GET livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URI with a bad port": b"GET http://x:99999999/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URI with a bad address": b"GET http://[::1/livez HTTP/1.1\r\nHost: x\r\n\r\n",
    **{f"the path {_path}": whole("PUT", _path, b"debug") for _path in _PATHS},
    "bind, which is off": whole("POST", "/bind", b'{"PodName":"a","PodNamespace":"b","PodUID":"c","Node":"d"}'),
}.items():
    ATTACKS.each(_name, _request)


@ATTACKS.attack("100-continue, and then nothing", quick=False)
async def _(target: Target) -> str:
    async with target.wire() as connection:
        await connection.send(head_of("POST", "/filter", Content_Length="1000000", Expect="100-continue"))
        return f"{status_text(await connection.status())}, then {status_text(await connection.status())}"


@ATTACKS.attack("1,000 pipelined requests")
async def _(target: Target) -> str:
    async with target.wire() as connection:
        await connection.send(head_of("GET", "/livez") * 1000)
        return f"{sum([await connection.status() == 200 for _ in range(1000)])} × 200"


@ATTACKS.attack("no certificate")
async def _(target: Target) -> str:
    if target.stranger is None:
        return "plain HTTP"
    stranger = replace(target, tls=target.stranger)
    return ", ".join(
        [await stranger.status(whole("POST", path, b"{}")) for path in ("/filter", "/metrics", "/debug/loglevel")]
    )


@ATTACKS.attack("a request that is hidden in the body of another")
async def _(target: Target) -> str:
    """Read by its length the first request ends before the second; read by its chunks it does not."""
    hidden = whole("PUT", "/debug/loglevel", b"debug")
    async with target.wire() as connection:
        both = {"Content_Length": str(len(hidden) + 5), **_CHUNKED}
        with suppress(ConnectionError):
            await connection.send(head_of("POST", "/filter", **both) + b"0\r\n\r\n" + hidden)
        answers = [await connection.status() for _ in range(3)]
    return "failed: both were answered" if answers[1] else f"{status_text(answers[0])}, then {status_text(answers[1])}"


@ATTACKS.attack("1,000 pipelined questions")
async def _(target: Target) -> str:
    async with target.wire() as connection:
        sending = asyncio.create_task(connection.send(whole("POST", "/filter", b'{"NodeNames":["a"]}') * 1000))
        answers = [await connection.status() for _ in range(1000)]
        await sending
    return f"{answers.count(200)} × 200"


@ATTACKS.attack("10,000 pipelined calls for metrics whose answers are not taken", quick=False)
async def _(target: Target) -> str:
    async with target.wire() as connection:
        connection.reader._transport.pause_reading()  # type: ignore[attr-defined]
        connection.writer.write(head_of("GET", "/metrics") * 10_000)
        await asyncio.sleep(1)
        return f"beside them: probe {await target.status(head_of('GET', '/livez'))}"


@ATTACKS.attack("200 calls for metrics at once", quick=False)
async def _(target: Target) -> str:
    return await _at_once(target, 200, head_of("GET", "/metrics"))


@ATTACKS.attack("200 calls for the settings at once", quick=False)
async def _(target: Target) -> str:
    return await _at_once(target, 200, head_of("GET", "/configz"))


@ATTACKS.attack("200 questions at once", quick=False)
async def _(target: Target) -> str:
    return await _at_once(target, 200, whole("POST", "/filter", b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":["a"]}'))


@ATTACKS.attack("200 refused requests that go on sending, each on a connection of its own", quick=False)
async def _(target: Target) -> str:
    return await _at_once(target, 200, head_of("POST", "/none", Content_Length="10000000") + b"x" * 100_000)


async def _at_once(target: Target, number: int, request: bytes) -> str:
    """What so many requests are answered that come together."""
    answers = await asyncio.gather(*(target.status(request) for _ in range(number)), return_exceptions=True)
    return ", ".join(f"{count} × {answer}" for answer, count in Counter(map(_short, answers)).most_common())


def _short(answer: str | BaseException) -> str:
    return answer if isinstance(answer, str) else type(answer).__name__


@ATTACKS.attack("a name that another site has pointed here")
async def _(target: Target) -> str:
    """DNS rebinding: the browser takes the service for the site, and says its name alone."""
    paths = ("/metrics", "/debug/loglevel", "/debug/decisions", "/debug/shadow", "/configz", "/version", "/ui/")
    if target.tls is not None:
        return "the certificate has another name"
    answers = {path: await _named(target, path) for path in paths}
    statuses = ", ".join(f"{path} {status}" for path, status in answers.items())
    return statuses if set(answers.values()) == {"403"} else f"failed: {statuses}"


async def _named(target: Target, path: str) -> str:
    return await target.status(head_of("GET", path).replace(b"Host: localhost", b"Host: evil.example.org"))
