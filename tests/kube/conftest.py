"""A scripted apiserver, a connection to it, and a reflector that runs against it until the test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import Session, open_session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES, Kind
from tests.fakes import FakeClock, FakeHandler, until
from tests.kube.scripted import ScriptedApi, serving

# Pages, no streaming list: tests of the latter ask for it.
PLAIN = WatchOptions(watch_list=False)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with serving(ScriptedApi()) as served:
        yield served


@pytest.fixture
def clock() -> FakeClock:
    """A clock on which waiting takes no time."""
    return FakeClock()


@pytest.fixture
async def session(api: ScriptedApi, clock: FakeClock) -> AsyncIterator[Session]:
    async with open_session(Access(host=api.url), clock) as opened:
        yield opened


@dataclass
class Following:
    """Reflectors of namespaces at work, and the event handler to which they report."""

    session: Session
    clock: FakeClock
    handler: FakeHandler[Namespace] = field(default_factory=FakeHandler)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, options: WatchOptions = PLAIN, kind: Kind[Namespace] = NAMESPACES) -> Reflector[Namespace]:
        reflector = Reflector(self.session.reads, kind, options, self.clock, Random(1))
        self.tasks.append(asyncio.create_task(reflector.run(self.handler)))
        return reflector

    async def names(self, *expected: str) -> None:
        """Wait until exactly these namespaces are known."""
        await until(lambda: sorted(self.handler.objects) == sorted(expected))


@pytest.fixture
async def following(session: Session, clock: FakeClock) -> AsyncIterator[Following]:
    """Reflectors that end with the test; one that died of itself fails it."""
    found = Following(session, clock)
    yield found
    for task in found.tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
