"""Lists of a kind that are read once, in pages: for commands that look at a cluster and end. Reflectors have their own.

https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from extender.kube.errors import Unreachable
from extender.kube.session import Connection
from extender.wire.errors import WireError
from extender.wire.objects.kinds import decode_page

_PAGE: Final = 500


async def read_list(connection: Connection, path: str, **selection: str) -> list[bytes]:
    """The objects of a list as JSON. Raises ``KubeError``. One request for 500 objects.

    ``selection``: parameters of the query, such as ``fieldSelector``.
    """
    return [item async for page in read_pages(connection, path, **selection) for item in page]


async def read_pages(connection: Connection, path: str, **selection: str) -> AsyncIterator[list[bytes]]:
    """The same page by page, for a list that is too large to be held as a whole."""
    query = {**selection, "limit": str(_PAGE)}
    while True:
        body = await connection.call("GET", path, query=query)
        try:
            page = decode_page(body)
        except WireError as error:
            raise Unreachable(f"GET {path}: {error}") from None
        yield [bytes(item) for item in page.items]
        if not page.continue_token:
            return
        query["continue"] = page.continue_token
