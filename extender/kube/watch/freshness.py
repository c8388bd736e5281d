"""Two requests that show whether a watch is current: the newest version, and whether anything has changed since.

A replica that takes over must know that its watch does not lag. Cost in any cluster: a list of one object, and one watch
of a second. Implements ``tasks.leadership.takeover.FreshnessCheck``.
"""

from __future__ import annotations

from typing import Final, TypeVar

from extender.kube.errors import Unreachable
from extender.kube.session import Connection
from extender.kube.timing import Clock
from extender.kube.watch.lenient_decoding import decode_page_leniently
from extender.model.objects import Object
from extender.wire.errors import WireError
from extender.wire.kinds import Kind

T = TypeVar("T", bound=Object)

_WATCH_SECONDS: Final = 1
_PATIENCE_SECONDS: Final = 5.0
_LIMIT_SECONDS: Final = 5.0


class WatchFreshness:
    """The check for one kind."""

    def __init__(self, connection: Connection, kind: Kind[T], clock: Clock) -> None:
        self._connection = connection
        self._kind = kind
        self._clock = clock

    async def newest_version(self) -> str:
        """The version of a consistent read; the API server's cache has reached it once it has answered.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
        """
        body = await self._connection.call("GET", self._kind.path, query={"limit": "1"}, limit=_LIMIT_SECONDS)
        try:
            return (await decode_page_leniently(body)).resource_version
        except WireError as error:
            raise Unreachable(f"{self._kind.name}: {error}") from error

    async def is_quiet_since(self, version: str) -> bool:
        """Whether a watch from that version ends normally without an event. A watch that breaks off early proves nothing."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        begun = self._clock.now()
        async with self._connection.stream(self._kind.path, query) as stream:
            is_silent = await stream.read(_PATIENCE_SECONDS) == b""
        return is_silent and self._clock.now() - begun >= _WATCH_SECONDS / 2
