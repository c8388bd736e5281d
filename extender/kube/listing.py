"""Lists: the consistent list of a reflector, lists for commands, and the check that a watch is current.

https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks

A replica that takes over must know that its watch does not lag. `WatchFreshness` finds out. In a cluster of any size
that costs a list of one object and a watch of one second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Generic, TypeVar

from msgspec import Raw

from extender.kube.decoding import NOT_MADE, Listed, SliceDecoder, decode_page_leniently, simplify_in_steps, values_in
from extender.kube.errors import Expired, TooLarge, Unreachable
from extender.kube.reflector_status import ReflectorStatus, WatchOptions
from extender.kube.session import Connection
from extender.kube.timing import Clock, in_steps
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.objects.kinds import Kind, decode_page

T = TypeVar("T", bound=Object)

_PAGE: Final = 500  # objects, for a command
_SMALLER_PAGES: Final = 4  # divides the limit of a page that was too large
_LARGER_PAGES: Final = 16  # multiplies the limit for the next list, after a list that expired half-way
_LARGEST_LIMIT: Final = 10**6
_WATCH_SECONDS: Final = 1
_PATIENCE_SECONDS: Final = 5.0
_LIMIT_SECONDS: Final = 5.0


class ListReader(Generic[T]):
    """Reads whole lists. Counts pages, bytes and objects in the reflector's status."""

    def __init__(
        self,
        connection: Connection,
        kind: Kind[T],
        options: WatchOptions,
        status: ReflectorStatus,
        decoder: SliceDecoder[T],
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._options = options
        self._status = status
        self._decoder = decoder
        self._page_limit = options.page_limit

    async def read(self, listed: Listed[T]) -> str:
        """Reads a complete list into an empty one. Returns its resourceVersion.

        Raises ``KubeError``, or ``WireError`` if a page is unreadable.
        """
        try:
            version = await self._read_pages(listed)
        except Expired:
            # The error offers a token for the rest at a newer version. A list of two versions would keep objects that
            # were deleted in between. So the list starts again, in larger and therefore fewer pages, which expire less
            # often.
            if self._status.page > 0:
                self._page_limit = min(self._page_limit * _LARGER_PAGES, _LARGEST_LIMIT)
            raise
        self._page_limit = self._options.page_limit
        return version

    async def _read_pages(self, listed: Listed[T]) -> str:
        limit, token, tokens = self._page_limit, "", set[int]()
        most_values = self._options.most_values
        while True:
            try:
                body = await self._read_page(limit, token)
            # Too many bytes or values: the same page again with fewer objects.
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // _SMALLER_PAGES)
                continue
            values = await values_in(body, most_values)
            if values > most_values and limit > 1:
                limit = max(1, limit // _SMALLER_PAGES)
                continue
            page = await decode_page_leniently(body, is_single=values > most_values)
            # The number of further items with which the next page is likely to be half of the limit.
            share = max(len(body) / self._options.largest_page, values / most_values)
            larger = max(limit, int(len(page.items) / (2 * share))) if share else _LARGEST_LIMIT
            await self._decode_items(page.items, listed)
            self._status.bytes_read += len(body)
            self._status.page += 1
            self._status.listed = len(listed.objects)
            # A page after small ones may be larger again, up to the limit that was set.
            limit, token = min(limit * _SMALLER_PAGES, self._page_limit, larger), page.continue_token
            if not token:
                return page.resource_version
            # A server that repeats tokens would never end the list. Hashes, because a token may be long.
            tokens.add(hash(token))
            if len(tokens) < self._status.page or len(tokens) >= self._options.most_pages:
                raise WireError("metadata.continue", f"the list does not end: {self._status.page:,} pages so far")

    async def _read_page(self, limit: int, token: str) -> bytes:
        query = {"limit": str(limit), "continue": token} if token else {"limit": str(limit)}
        options = self._options
        return await self._connection.call(
            "GET", self._kind.path, query=query, limit=options.list_timeout, largest=options.largest_page
        )

    async def _decode_items(self, items: list[bytes | Raw], listed: Listed[T]) -> None:
        at, made = 0, NOT_MADE
        while at < len(items):
            at, made = self._decoder.decode_items(items, at, listed, made)
            if made == "prepared":
                await in_steps(self._kind.prepare_object(bytes(items[at])))
            elif made == "simplified":
                items[at] = await simplify_in_steps(bytes(items[at]))
            await asyncio.sleep(0)


class WatchFreshness:
    """The check for one kind."""

    def __init__(self, connection: Connection, kind: Kind[T], clock: Clock) -> None:
        self._connection = connection
        self._kind = kind
        self._clock = clock

    async def newest_version(self) -> str:
        """The version of a consistent read. After the answer, the API server's watch cache has reached it.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
        """
        body = await self._connection.call("GET", self._kind.path, query={"limit": "1"}, limit=_LIMIT_SECONDS)
        try:
            return (await decode_page_leniently(body)).resource_version
        except WireError as error:
            raise Unreachable(f"{self._kind.name}: {error}") from error

    async def is_quiet_since(self, version: str) -> bool:
        """Whether a watch from this version ends normally without an event.

        A watch that breaks off early proves nothing.
        """
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        begun = self._clock.now()
        async with self._connection.stream(self._kind.path, query) as stream:
            is_silent = await stream.read(_PATIENCE_SECONDS) == b""
        return is_silent and self._clock.now() - begun >= _WATCH_SECONDS / 2


async def read_list(connection: Connection, path: str, **selection: str) -> list[bytes]:
    """The objects of a list as JSON. Raises ``KubeError``. One request for 500 objects.

    ``selection``: parameters of the query, such as ``fieldSelector``.
    """
    return [item async for page in read_pages(connection, path, **selection) for item in page]


async def read_pages(connection: Connection, path: str, **selection: str) -> AsyncIterator[list[bytes]]:
    """The objects of a list page by page, if they are too large to be held together."""
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
