"""What the decoder refuses as it came, tried a second time in a simpler form (`wire.simplify`) while others have turns."""

from __future__ import annotations

import asyncio

from extender.wire.errors import WireError
from extender.wire.kinds import Identity, Page, decode_identity, decode_page
from extender.wire.simplify import simplify


async def readable_page(body: bytes) -> Page:
    """A page of a LIST; one item that is nested too deeply makes all of it unreadable, until that is left out.

    Raises ``WireError`` for what is no page.
    """
    try:
        return decode_page(body)
    except WireError:
        return decode_page(await simplified(body))


async def readable_identity(body: bytes) -> Identity:
    """What an object is called. Raises ``WireError`` for what is no object."""
    try:
        return decode_identity(body)
    except WireError:
        return decode_identity(await simplified(body))


async def simplified(body: bytes) -> bytes:
    """The document without what no decision reads."""
    steps = simplify(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: bytes = end.value
            return found
        await asyncio.sleep(0)
