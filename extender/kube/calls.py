"""One declared call to the API server: the request of its row of ``wire.api_calls``, timed, counted and with a time limit.

Every name is checked before it becomes part of a path. A name such as `..` survives percent-encoding and would be resolved
on the way: `DELETE .../pods/..` is another request than the one that was meant. Names come from the watch, but also from
requests to this service and from settings.
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from extender.kube.errors import KubeError, Rejected
from extender.kube.session import JSON, Body, Connection
from extender.wire.api_calls import ApiCall

_METHODS: Final = {"create": "POST", "get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SHOWN: Final = 80  # characters of a bad name in the error

# Called after each call with its name, its result ("ok", "forbidden", "cancelled" or the error's class in lower case)
# and its seconds.
Observe = Callable[[str, str, float], None]


def unobserved(_call: str, _result: str, _seconds: float) -> None:
    """The default: calls are not counted."""


class Calls:
    """Makes declared calls over one connection. ``limit``: seconds for each call in total."""

    def __init__(self, connection: Connection, limit: float, observe: Observe) -> None:
        self._connection = connection
        self._limit = limit
        self._observe = observe

    async def make(self, call: ApiCall, path: str, body: Body | None = None, content_type: str = JSON) -> bytes:
        """The body of the answer. Raises ``KubeError``."""
        now = asyncio.get_running_loop().time
        begun, result = now(), "cancelled"
        try:
            answer = await self._connection.call(
                _METHODS[call.verb], path, body=body, content_type=content_type, limit=self._limit
            )
            result = "ok"
        except KubeError as error:
            result = "forbidden" if error.status == HTTPStatus.FORBIDDEN else type(error).__name__.lower()
            raise
        finally:
            self._observe(call.name, result, now() - begun)
        return answer


def segment(what: str, name: str) -> str:
    """The name itself: none of its characters needs encoding. Raises ``Rejected`` where no object can have it."""
    if not _NAME.fullmatch(name):
        raise Rejected(f"{name[:_SHOWN]!r} is no name of a {what}", reason="Invalid")
    return name


def events_path(namespace: str) -> str:
    """The events of a namespace. Raises ``Rejected``."""
    return f"/apis/events.k8s.io/v1/namespaces/{segment('namespace', namespace)}/events"
