"""The real service with the embedded control plane, and a reverse proxy that puts it below a path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from extender.cli.scenarios import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

PENDING: Final = "config/scenarios/pending.yaml"
_OF_ONE_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


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


@asynccontextmanager
async def behind_prefix(target: str, prefix: str) -> AsyncIterator[str]:
    """A reverse proxy that serves ``target`` below a path, and streams answers; yields its URL without a slash."""

    async def forward(request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(f"{prefix}/"):
            raise web.HTTPNotFound  # a URL of the page that is not relative
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_HOP}
        url = target + request.path_qs.removeprefix(prefix)
        async with (
            ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, url, headers=headers, data=await request.read() or None, allow_redirects=False
            ) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    async with TestServer(app) as server:
        yield str(server.make_url(prefix))
