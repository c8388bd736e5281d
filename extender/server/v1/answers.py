"""Shared parts of the handlers under /v1: parameters of a query, the wait for the index, and answers as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.failures import not_ready, unavailable
from extender.server.openapi import Parameter
from extender.tasks.browse_service import BrowseService
from extender.wire.errors import WireError

_LONGEST_NUMBER: Final = 9  # digits
_SHARE_OF_TIME: Final = 0.9  # of server.requestTimeout; the answer has to be written as well


POD_PARAMETERS: Final = (
    Parameter("namespace", "path", "The namespace of the pod."),
    Parameter("pod", "path", "The name of the pod."),
)


def check_parameters(request: web.Request, known: Collection[str] = ()) -> None:
    """Raises WireError for a query parameter that is unknown, or given twice. Ignoring it would answer another question."""
    for name in request.query:
        if name not in known:
            among = {0: "there is none", 1: f'the only one is "{"".join(known)}"'}
            expected = among.get(len(known), f"expected one of {', '.join(known)}")
            raise WireError(name, f"is no parameter; {expected}")
        if len(request.query.getall(name)) > 1:
            raise WireError(name, "is given twice")


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter of a query that is a whole number from ``least`` to ``most``, ``usual`` where it is not given."""

    name: str
    description: str
    least: int
    most: int
    usual: int

    @property
    def parameter(self) -> Parameter:
        """The parameter for the OpenAPI document."""
        schema = {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.usual}
        return Parameter(self.name, "query", self.description, schema)

    def of(self, request: web.Request) -> int:
        """The number of this request. Raises WireError."""
        text = request.query.get(self.name)
        if text is None:
            return self.usual
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else -1
        if not self.least <= number <= self.most:
            raise WireError(self.name, f"expected a number from {self.least} to {self.most}")
        return number


def browser_of(app: Collaborators) -> BrowseService:
    """The service that computes pages of the cluster. Raises Failure where there is none."""
    if app.verbs.browser is None:
        raise unavailable("nothing computes pages here")
    return app.verbs.browser


async def index_is_current(app: Collaborators) -> None:
    """Waits until all events that have arrived are in the index. Raises Failure. A standby answers too, because it has the same index."""
    if not app.readiness.is_current:
        raise not_ready(app.readiness.checks())
    if app.verbs.catch_up is not None:
        await app.verbs.catch_up()


async def shared_answer(request: web.Request, compute: Callable[[], Awaitable[object]]) -> web.Response:
    """The answer as JSON, which equal requests share. Raises what ``compute`` raises, and NotExplained if it takes too long."""
    app = request.app[COLLABORATORS]
    query = urlencode(sorted(request.query.items()))
    seconds = _SHARE_OF_TIME * app.settings.server.request_timeout
    body = await app.shared.of(f"{request.path}?{query}", compute, seconds)
    await app.turns.take()  # fifty clients may have waited for it
    return web.Response(body=body, content_type="application/json")


def json_answer(value: object) -> web.Response:
    """A value of the model as JSON."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
