"""Reads of single objects, where the watch is not fresh enough: after a write met a conflict.

Each call has a row in ``wire.api_calls``. Raises only ``KubeError``.
"""

from __future__ import annotations

from extender.kube.errors import NotFound, Unreachable
from extender.kube.session import Connection
from extender.kube.watch.lenient_decoding import decode_identity_leniently
from extender.kube.writes.effects import PodRef
from extender.kube.writes.paths import pod_path
from extender.wire.errors import WireError


class Reader:
    """Reads under one account. ``limit``: seconds for each call in total."""

    def __init__(self, connection: Connection, limit: float = 10.0) -> None:
        self._connection = connection
        self._limit = limit

    async def uid_of(self, pod: PodRef) -> str:
        """The UID of the pod that has this namespace and name now, empty where there is none."""
        path = pod_path(pod)
        try:
            body = await self._connection.call("GET", path, limit=self._limit)
            return (await decode_identity_leniently(body)).uid
        except NotFound:
            return ""
        except WireError as error:
            raise Unreachable(f"GET {path}: {error}") from error
