"""Decodes again, in a simpler form (`wire.simplify`), what the decoder rejects; yields to other tasks meanwhile."""

from __future__ import annotations

import asyncio

from extender.wire.errors import WireError
from extender.wire.kinds import Identity, Page, decode_identity, decode_page
from extender.wire.simplify import simplify


async def decode_page_leniently(body: bytes) -> Page:
    """A page of a LIST. An item that is nested too deeply makes the whole page unreadable, so it is simplified.

    Raises ``WireError`` where the body is no page.
    """
    try:
        return decode_page(body)
    except WireError:
        return decode_page(await simplify_in_steps(body))


async def decode_identity_leniently(body: bytes) -> Identity:
    """Name, namespace and UID of an object. Raises ``WireError`` where the body is no object."""
    try:
        return decode_identity(body)
    except WireError:
        return decode_identity(await simplify_in_steps(body))


async def simplify_in_steps(body: bytes) -> bytes:
    """The document without the fields that no decision reads."""
    steps = simplify(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: bytes = end.value
            return found
        await asyncio.sleep(0)
