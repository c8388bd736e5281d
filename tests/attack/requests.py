"""Requests that are no good HTTP, or good HTTP that is not asked for."""

from tests.attack.attacks import ATTACKS, Target, told
from tests.server.raw import head_of, whole

_HEADERS = "\r\n".join(f"X-{number}: y" for number in range(5000))
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
    "bind, which is off": whole("POST", "/bind", b'{"PodName":"a","PodNamespace":"b","PodUID":"c","Node":"d"}'),
}.items():
    ATTACKS.each(_name, _request)


@ATTACKS.attack("100-continue, and then nothing", quick=False)
async def _(target: Target) -> str:
    async with target.wire() as connection:
        await connection.send(head_of("POST", "/filter", Content_Length="1000000", Expect="100-continue"))
        return f"{told(await connection.status())}, then {told(await connection.status())}"


@ATTACKS.attack("1,000 pipelined requests")
async def _(target: Target) -> str:
    async with target.wire() as connection:
        await connection.send(head_of("GET", "/livez") * 1000)
        return f"{sum([await connection.status() == 200 for _ in range(1000)])} × 200"


@ATTACKS.attack("no certificate")
async def _(target: Target) -> str:
    if target.stranger is None:
        return "plain HTTP"
    stranger = Target(target.url, target.process, target.api, target.stranger)
    return ", ".join(
        [await stranger.status(whole("POST", path, b"{}")) for path in ("/filter", "/metrics", "/debug/loglevel")]
    )
