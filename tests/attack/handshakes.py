"""What can be wrong before a request: bytes in place of a TLS handshake, half handshakes, and many of them."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from contextlib import suppress

from tests.attack.attacks import ATTACKS, Target, status_text
from tests.server.raw import head_of

_RECORD = b"\x16\x03\x01"
_ALERTS = b"\x15\x03\x03\x00\x02\x01\x00" * 10_000  # warnings: close_notify
_EMPTY_RECORDS = b"\x17\x03\x03\x00\x00" * 50_000
PROBE = head_of("GET", "/livez")


def _hello(extensions: bytes = b"", suites: int = 1) -> bytes:
    """A ClientHello of TLS 1.2, as long as it is asked to be, in records of at most 16 KiB."""
    ciphers = b"\xc0\x2f" * suites
    body = b"\x03\x03" + bytes(32) + b"\x00" + len(ciphers).to_bytes(2, "big") + ciphers + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    pieces = (message[start : start + 2**14] for start in range(0, len(message), 2**14))
    return b"".join(_RECORD + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def _name(length: int) -> bytes:
    """The extension server_name."""
    name = b"\x00" + length.to_bytes(2, "big") + b"a" * length
    names = len(name).to_bytes(2, "big") + name
    return b"\x00\x00" + len(names).to_bytes(2, "big") + names


for _title, _content in {
    "random bytes before a handshake": bytes(range(256)) * 4096,
    "a ClientHello, then garbage": _hello() + b"garbage" * 10_000,
    "a ClientHello with 30,000 cipher suites": _hello(suites=30_000),
    "a ClientHello with a name of 60,000 letters": _hello(_name(60_000)),
    "a ClientHello in records of one byte": b"".join(_RECORD + b"\x00\x01" + bytes([byte]) for byte in _hello()),
    "a record of 65,535 bytes": _RECORD + b"\xff\xff" + b"a" * 65_535,
    "10,000 alerts": _ALERTS,
    "50,000 empty records": _EMPTY_RECORDS,
    "SSL 2": b"\x80\x2e\x01\x00\x02" + bytes(41),
    "plain HTTP to TLS": PROBE,
}.items():

    @ATTACKS.attack(_title)
    async def _(target: Target, content: bytes = _content) -> str:
        async with target.bare() as connection:
            with suppress(OSError):  # ENOTCONN is no ConnectionError: closed before the end is sent
                await connection.send(content)
                if connection.writer.can_write_eof():
                    connection.writer.write_eof()
            return status_text(await connection.status())


@ATTACKS.attack("200 ClientHellos at once, and no more", quick=False)
async def _(target: Target) -> str:
    async def half() -> str:
        async with target.bare() as connection:
            await connection.send(_hello(_name(10)))
            await asyncio.sleep(1)
            return "left"

    await asyncio.gather(*(half() for _ in range(200)))
    return f"beside them: probe {await target.status(PROBE)}"


@ATTACKS.attack("200 handshakes at once", quick=False)
async def _(target: Target) -> str:
    answers = await asyncio.gather(*(_status(target) for _ in range(200)))
    return ", ".join(f"{count} × {answer}" for answer, count in Counter(answers).most_common())


@ATTACKS.attack("500 handshakes one after another, each left at once", quick=False)
async def _(target: Target) -> str:
    for _ in range(500):
        with suppress(ConnectionError, ssl.SSLError):
            async with target.wire():
                pass
    return f"then: probe {await target.status(PROBE)}"


@ATTACKS.attack("200 connections left in the middle of an answer", quick=False)
async def _(target: Target) -> str:
    async def leave() -> None:
        with suppress(ConnectionError, ssl.SSLError):
            async with target.wire() as connection:
                await connection.send(head_of("GET", "/metrics"))

    await asyncio.gather(*(leave() for _ in range(200)))
    return f"then: probe {await target.status(PROBE)}"


@ATTACKS.attack("a handshake, then bytes that are not TLS")
async def _(target: Target) -> str:
    if target.tls is None:
        return "plain HTTP"
    async with target.wire() as connection:
        os.write(connection.writer.get_extra_info("socket").fileno(), b"not a record" * 100)  # past the encryption
        return status_text(await connection.status())


@ATTACKS.attack("a client of TLS 1.2, which the settings do not allow")
async def _(target: Target) -> str:
    if target.tls is None:
        return "plain HTTP"
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        async with asyncio.timeout(5):
            await asyncio.open_connection(*target.address, ssl=old)
    except (ConnectionError, ssl.SSLError) as error:
        return type(error).__name__
    return "failed: it was let in"


async def _status(target: Target) -> str:
    try:
        return await target.status(PROBE)
    except (ConnectionError, ssl.SSLError) as error:
        return type(error).__name__
