"""The real service with the embedded control plane, and a reverse proxy that puts it below a path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from yarl import URL

from extender.cli.simulate import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

PENDING: Final = "config/scenarios/pending.yaml"
_OF_ONE_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_LATER: Final = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class Played:
    """The service after a scenario has been played, and its cluster."""

    url: str
    simulated: SimulatedCluster


@asynccontextmanager
async def played(path: str = PENDING) -> AsyncIterator[Played]:
    """The service beside a scenario, once all of its steps have been taken; the scheduler goes on."""
    play = read_scenario(path)
    async with (
        SimulatedCluster(play, 1, read_objects(play, path)) as simulated,
        service_running(scenario_settings(play, path), simulated.api.url, 1, simulated.clock) as (url, service),
    ):
        await lead_to_webhook(simulated, service)
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(play.steps)
        assert player.failures == []
        yield Played(url, simulated)


@dataclass(slots=True)
class Proxy:
    """A reverse proxy that serves a service below a path, and streams answers.

    ``requests`` are the paths of all requests, in order, without the prefix. ``refusal`` is the status with
    which requests to the API are answered; 0 passes them on, and -1 closes the connection. ``streams`` are the requests
    whose answers are streams of events. ``answers`` are given, by path, in place of the service's.
    """

    target: str
    prefix: str
    url: str = ""
    refusal: int = 0
    requests: list[str] = field(default_factory=list)
    answers: dict[str, msgspec.Struct] = field(default_factory=dict)
    streams: list[web.Request] = field(default_factory=list)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The answer of the service, or the refusal."""
        if not request.path.startswith(f"{self.prefix}/"):
            raise web.HTTPNotFound  # a URL of the page that is not relative
        path = request.rel_url.raw_path.removeprefix(self.prefix)
        self.requests.append(path)
        if self.refusal and not path.startswith("/ui"):
            if self.refusal < 0 and request.transport is not None:
                request.transport.abort()
            status = self.refusal if self.refusal > 0 else HTTPStatus.BAD_GATEWAY
            return web.json_response({"error": "as the test wants"}, status=status, headers=_LATER)
        if (given := self.answers.get(request.path.removeprefix(self.prefix))) is not None:
            return web.Response(body=msgspec.json.encode(given), content_type="application/json")
        return await self._passed_on(request, path)

    async def _passed_on(self, request: web.Request, path: str) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_HOP}
        url = URL(self.target + path, encoded=True).with_query(request.query)
        async with (
            ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, url, headers=headers, data=await request.read() or None, allow_redirects=False
            ) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            if answer.content_type == "text/event-stream":
                self.streams.append(request)
            try:
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            finally:
                self.streams = [each for each in self.streams if each is not request]
            return response

    def close_streams(self) -> None:
        """Closes the connections of the streams that are being passed on."""
        for request in self.streams:
            if request.transport is not None:
                request.transport.abort()


@asynccontextmanager
async def behind_prefix(target: str, prefix: str) -> AsyncIterator[Proxy]:
    """The proxy in front of ``target``, below a path; its ``url`` has no slash at the end."""
    proxy = Proxy(target, prefix)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy.forward)
    async with TestServer(app, handler_cancellation=True) as server:
        proxy.url = str(server.make_url(prefix))
        yield proxy
