"""Bodies that are dear to read: compressed, deep, long, or of another kind than they should be."""

import asyncio
import gzip
import zlib
from collections import Counter

import orjson

from extender.settings.connections import Server
from tests.attack.attacks import ATTACKS, Target
from tests.server.raw import head_of, whole

MOST = Server().max_body_bytes - 200  # with what is around it just below the limit
_POD = b'{"metadata":{"name":"a","namespace":"b","uid":"c"}}'


def question(nodes: bytes, pod: bytes = _POD) -> bytes:
    """A filter question with these names."""
    return b'{"Pod":' + pod + b',"NodeNames":' + nodes + b"}"


def _filled(piece: bytes, count: int = 0) -> bytes:
    return piece * (count or MOST // len(piece))


def _request(body: bytes, path: str = "/filter", **fields: str) -> bytes:
    return whole("POST", path, body, **fields)


def _deflated_zeros(pieces: int) -> bytes:
    """So many times 16 MiB, each by itself: to compress them as one takes a second and a half."""
    made = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    piece = made.compress(bytes(2**24)) + made.flush(zlib.Z_FULL_FLUSH)
    return piece * pieces + made.flush()


_ZEROS, _DEFLATED = bytes(512 * 2**20), _deflated_zeros(32)
_OF_GZIP = gzip.compress(b"")[:10]
GZIP_BOMB = _OF_GZIP + _DEFLATED + zlib.crc32(_ZEROS).to_bytes(4, "little") + len(_ZEROS).to_bytes(4, "little")
_ZLIB_BOMB = zlib.compress(b"", 9)[:2] + _DEFLATED + zlib.adler32(_ZEROS).to_bytes(4, "big")
for _encoding, _bomb in {"gzip": GZIP_BOMB, "deflate": _ZLIB_BOMB}.items():
    for _path in ("/filter", "/livez", "/debug/loglevel", "/none"):
        ATTACKS.each(f"512 MiB as {_encoding} to {_path}", _request(_bomb, _path, Content_Encoding=_encoding))
del _ZEROS

ATTACKS.each("a body that is cut inside of a character", _request(question(b'["\xe2\x82"]')))
ATTACKS.each("lone surrogates", _request(question(rb'["\ud800","\udfff"]')))
ATTACKS.each("NaN, Infinity, 1e999", _request(question(b"[]", b'{"spec":{"priority":NaN},"x":[Infinity,1e999]}')))
ATTACKS.each("1e999 as a priority", _request(question(b"[]", b'{"metadata":{"uid":"c"},"spec":{"priority":1e999}}')))
ATTACKS.each("duplicate keys", _request(b'{"Pod":null,"Pod":' + _POD + b',"NodeNames":[],"NodeNames":["a"]}'))
ATTACKS.each("keys in another case, 100,000 times", _request(b"{" + b'"pod":1,' * 100_000 + b'"nodenames":[]}'))
ATTACKS.each("100,000 unknown keys", _request(b"{" + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}"))
ATTACKS.each("32 MiB, above the limit", _request(b"[" * 2**25))
ATTACKS.each("8 MiB of [", _request(_filled(b"[")))
ATTACKS.each("8 MiB of { inside of the pod", _request(b'{"Pod":{"metadata":' + _filled(b'{"a":')))
ATTACKS.each("8 MiB of digits", _request(_filled(b"7")))
ATTACKS.each("1 MiB of digits as a priority", _request(question(b"[]", b'{"spec":{"priority":' + b"7" * 2**20 + b"}}")))
ATTACKS.each("8 MiB of digits as a priority", _request(b'{"Pod":{"spec":{"priority":' + _filled(b"7") + b"}}}"))
ATTACKS.each("8 MiB of spaces", _request(_filled(b" ")))
ATTACKS.each("8 MiB in one string", _request(question(b'["' + _filled(b"a") + b'"]')))
ATTACKS.each("8 MiB of escapes in one string", _request(question(b'["' + _filled(rb"\u0041") + b'"]')))
ATTACKS.each("600,000 names", _request(question(orjson.dumps([f"node-{n}" for n in range(600_000)]))))
ATTACKS.each("one name 2,000,000 times", _request(question(b"[" + b'"a",' * 2_000_000 + b'"a"]')))
ATTACKS.each("2,800,000 empty nodes", _request(b'{"Pod":' + _POD + b',"Nodes":{"items":[' + _filled(b"{},") + b"{}]}}"))
ATTACKS.each(
    "4,000,000 numbers as nodes", _request(b'{"Pod":' + _POD + b',"Nodes":{"items":[' + _filled(b"1,") + b"1]}}")
)
ATTACKS.each(
    "270,000 tiny nodes",
    _request(
        b'{"Pod":' + _POD + b',"Nodes":{"items":['
        b"" + b",".join(b'{"metadata":{"name":"%x"}}' % n for n in range(270_000)) + b"]}}"
    ),
)
ATTACKS.each(
    "600,000 victims",
    _request(
        b'{"Pod":' + _POD + b',"NodeNameToMetaVictims":{"a":{"Pods":[' + b'{"UID":"u"},' * 600_000 + b'{"UID":"u"}]}}}',
        "/preempt",
    ),
)
ATTACKS.each(
    "500,000 candidate nodes",
    _request(
        b'{"Pod":'
        + _POD
        + b',"NodeNameToMetaVictims":{'
        + b",".join(b'"n%d":null' % n for n in range(500_000))
        + b"}}",
        "/preempt",
    ),
)
ATTACKS.each(
    "a pod with 500,000 labels",
    _request(
        question(
            b'["a"]',
            b'{"metadata":{"uid":"c","labels":{' + b",".join(b'"k%d":"v"' % n for n in range(500_000)) + b"}}}",
        )
    ),
)


ATTACKS.each(
    "a pod with 190,000 containers",
    _request(
        question(
            b'["a"]',
            b'{"metadata":{"uid":"c"},"spec":{"containers":['
            + b",".join([b'{"resources":{"requests":{"cpu":"1"}}}'] * 190_000)
            + b"]}}",
        )
    ),
)
ATTACKS.each(
    "a pod with 100,000 different resources",
    _request(
        question(
            b'["a"]',
            b'{"metadata":{"uid":"c"},"spec":{"containers":[{"resources":{"requests":{'
            + b",".join(b'"example.com/r%d":"1"' % n for n in range(100_000))
            + b"}}}]}}",
        )
    ),
)
ATTACKS.each(
    "49,000 whole victims",
    _request(
        b'{"Pod":' + _POD + b',"NodeNameToVictims":{"a":{"Pods":['
        b"" + b",".join(b'{"metadata":{"uid":"%d"},"spec":{"containers":[{}]}}' % n for n in range(49_000)) + b"]}}}",
        "/preempt",
    ),
)
ATTACKS.each(
    "19,000 candidate nodes with two victims each",
    _request(
        b'{"Pod":' + _POD + b',"NodeNameToMetaVictims":{'
        b"" + b",".join(b'"n%d":{"Pods":[{"UID":"u%d"},{"UID":"v"}]}' % (n, n) for n in range(19_000)) + b"}}",
        "/preempt",
    ),
)
_NODES = b",".join(b'{"metadata":{"name":"n%d","labels":{"a":"b","c":"d"}}}' % n for n in range(5_000))
ATTACKS.each("5,000 whole nodes", _request(b'{"Pod":' + _POD + b',"Nodes":{"items":[' + _NODES + b"]}}"))
ATTACKS.each("19,000 names", _request(question(orjson.dumps([f"node-{n}" for n in range(19_000)]))))
ATTACKS.each(
    "19,000 names to score", _request(question(orjson.dumps([f"node-{n}" for n in range(19_000)])), "/prioritize")
)


async def _together(target: Target, request: bytes) -> str:
    """What 20 of them are answered that come at once."""
    answers = await asyncio.gather(*(target.status(request) for _ in range(20)))
    return ", ".join(f"{count} × {answer}" for answer, count in Counter(answers).most_common())


@ATTACKS.attack("20 times 7 MiB of whole nodes at once", quick=False)
async def _(target: Target) -> str:
    nodes = [{"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 60_000}}} for number in range(120)]
    return await _together(
        target, _request(orjson.dumps({"Pod": {"metadata": {"uid": "u"}}, "Nodes": {"items": nodes}}))
    )


@ATTACKS.attack("20 times 5,000 whole nodes at once", quick=False)
async def _(target: Target) -> str:
    return await _together(target, _request(b'{"Pod":' + _POD + b',"Nodes":{"items":[' + _NODES + b"]}}"))


@ATTACKS.attack("20 times 19,000 names at once", quick=False)
async def _(target: Target) -> str:
    return await _together(target, _request(question(orjson.dumps([f"node-{n}" for n in range(19_000)]))))


@ATTACKS.attack("32 MiB in chunks of one byte")
async def _(target: Target) -> str:
    return await target.status(head_of("POST", "/filter", Transfer_Encoding="chunked") + b"1\r\n \r\n" * 5_000_000)


@ATTACKS.attack("chunks without end")
async def _(target: Target) -> str:
    return await target.status(
        head_of("POST", "/filter", Transfer_Encoding="chunked") + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 700
    )


@ATTACKS.attack("50 connections with 1 MiB in chunks of one byte each, at once", quick=False)
async def _(target: Target) -> str:
    request = head_of("POST", "/filter", Transfer_Encoding="chunked") + b"1\r\n \r\n" * 170_000
    answers = await asyncio.gather(*(target.status(request) for _ in range(50)))
    return ", ".join(f"{count} × {answer}" for answer, count in Counter(answers).most_common())
