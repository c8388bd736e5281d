"""Connections that are opened to be held, and answers that are not taken."""

import asyncio
from contextlib import AsyncExitStack

import orjson

from tests.attack.attacks import ATTACKS, Target, status_text
from tests.attack.bodies import question
from tests.server.raw import Wire, head_of, whole

HALF = head_of("POST", "/filter", Content_Length="1000") + b'{"Pod":'


async def _held(target: Target, count: int, content: bytes, *, bare: bool = False, seconds: float = 1.0) -> str:
    """What a good question is answered beside so many connections that send this and no more."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            connection: Wire = await stack.enter_async_context(target.bare() if bare else target.wire())
            try:
                await connection.send(content)
            except ConnectionError:
                continue
        answers = []
        for _ in range(int(seconds / 0.25)):
            answers.append(await target.status(whole("POST", "/filter", question(b"[]"))))
            await asyncio.sleep(0.25)
        probe = await target.status(head_of("GET", "/livez"))
    return f"beside them: question {'/'.join(sorted(set(answers)))}, probe {probe}"


@ATTACKS.attack("300 silent connections")
async def _(target: Target) -> str:
    return await _held(target, 300, b"", bare=True)


@ATTACKS.attack("300 handshakes that stop half-way, or heads")
async def _(target: Target) -> str:
    return await _held(target, 300, b"\x16\x03\x01\x02\x00\x01" if target.tls else b"POST /fil", bare=True)


@ATTACKS.attack("200 half-sent heads", quick=False)
async def _(target: Target) -> str:
    return await _held(target, 200, b"POST /filter HTTP/1.1\r\nHost: x\r\n")


@ATTACKS.attack("110 half-sent bodies, renewed", quick=False)
async def _(target: Target) -> str:
    return ", ".join([await _held(target, 110, HALF, seconds=2) for _ in range(2)])


@ATTACKS.attack("200 idle connections", quick=False)
async def _(target: Target) -> str:
    return await _held(target, 200, head_of("GET", "/livez"))


@ATTACKS.attack("200 half-sent log levels", quick=False)
async def _(target: Target) -> str:
    return await _held(target, 200, head_of("PUT", "/debug/loglevel", Content_Length="50") + b"deb")


@ATTACKS.attack("30 bodies of 7 MiB, half-sent")
async def _(target: Target) -> str:
    size = 7 * 2**20
    return await _held(target, 30, head_of("POST", "/filter", Content_Length=str(size + 9)) + b" " * size)


@ATTACKS.attack("2,000 connections opened and left at once")
async def _(target: Target) -> str:
    for _ in range(2000):
        async with target.bare():
            pass
    return status_text(int(await target.status(head_of("GET", "/livez"))))


@ATTACKS.attack("a half-closed connection")
async def _(target: Target) -> str:
    async with target.wire() as connection:
        await connection.send(HALF)
        if connection.writer.can_write_eof():
            connection.writer.write_eof()
        return status_text(await connection.status())


@ATTACKS.attack("60 answers of 7 MiB that are not taken", quick=False)
async def _(target: Target) -> str:
    nodes = [{"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 60_000}}} for number in range(120)]
    body = orjson.dumps({"Pod": {"metadata": {"name": "a", "uid": "u"}}, "Nodes": {"items": nodes}})
    return await _held(target, 60, whole("POST", "/filter", body), seconds=2)


@ATTACKS.attack("a head that trickles", quick=False)
async def _(target: Target) -> str:
    async with target.wire() as connection:
        for sent in range(100):
            try:
                await connection.send(b"G" if not sent else b"E")
            except ConnectionError:
                return f"cut after {sent / 4:.0f} s"
            if connection.reader.at_eof():
                return f"cut after {sent / 4:.0f} s"
            await asyncio.sleep(0.25)
    return "never cut"
