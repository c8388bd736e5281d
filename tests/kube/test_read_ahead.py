"""A burst of events: little of it is read ahead, since a request waits for all that has arrived before it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
from aiohttp import web

from extender.kube.session import Session
from extender.model.objects import Namespace
from tests.fakes import FakeClock, FakeSink, until
from tests.kube.conftest import Following
from tests.kube.scripted import ScriptedApi, event, namespace, page

PATH = "/api/v1/namespaces"
EVENT = orjson.dumps(event("MODIFIED", namespace("a", 2, text="x" * 2**14))) + b"\n"
EVENTS_A_WRITE, WRITES = 16, 192
HANDLED = 2**24  # bytes until the handler stops: receive buffers have grown by then
QUIET_LOOKS = 25  # in a row without progress: the sender waits


class HaltingSink(FakeSink[Namespace]):
    """Handles some bytes, then none until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.left = HANDLED // len(EVENT)
        self.goes_on = asyncio.Event()
        self.is_halted = False

    async def apply(self, changes: Sequence[tuple[Namespace, bool]]) -> None:
        self.left -= len(changes)
        if self.left < 0:
            self.is_halted = True
            await self.goes_on.wait()
        await super().apply(changes)


async def test_less_than_a_megabyte_and_a_half_of_a_burst_arrives_ahead(
    api: ScriptedApi, session: Session, clock: FakeClock
) -> None:
    sent = 0

    async def burst(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for _ in range(WRITES):
            await response.write(EVENT * EVENTS_A_WRITE)
            sent += EVENTS_A_WRITE
        await asyncio.get_running_loop().create_future()
        return response

    api.script(PATH, page(namespace("a")), burst)
    sink = HaltingSink()
    following = Following(session, clock, sink=sink)
    feed = following.start()
    await until(lambda: sink.is_halted)
    quiet, before = 0, (-1, -1)
    while quiet < QUIET_LOOKS:  # a slow sender may be taken for one that waits: then less has arrived
        now = (sent, feed.backlog.unread())
        quiet, before = (quiet + 1 if now == before else 0), now
        await asyncio.sleep(0.005)
    assert feed.backlog.unread() < 3 * 2**19
    sink.goes_on.set()
    await until(lambda: feed.status.events == EVENTS_A_WRITE * WRITES)
    for task in following.tasks:
        task.cancel()
