"""Thousands of bindings at once, each on a connection of its own that is silent while it waits, and what is refused."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import orjson
import pytest

from extender.compose.process import allow_connections
from extender.model.units import Address, Duration
from extender.server.app import listening
from extender.settings.connections import Paths, Server
from extender.wire.extender_v1 import BindingArgs
from tests.fakes import PATIENCE, until
from tests.server.raw import Wire, head_of, whole, wire
from tests.server.serving import AGREEABLE, app_with

HOUR = Duration(3600)
BIND = Paths(bind="/bind")


@dataclass
class Binding:
    """Binds every pod, once it may."""

    begun: list[str] = field(default_factory=list)
    count: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, args: BindingArgs) -> str:
        self.begun.append(args.uid)
        self.count.release()
        await self.may_end.wait()
        return ""

    @asynccontextmanager
    async def served(self, server: Server) -> AsyncIterator[str]:
        app = app_with(replace(AGREEABLE, bind=self), server=server)
        async with listening(app, Address("127.0.0.1:0")) as url:
            yield url


def bind(uid: object) -> bytes:
    return whole("POST", "/bind", orjson.dumps({"PodName": "a", "PodNamespace": "b", "PodUID": str(uid), "Node": "n"}))


async def test_5000_bindings_at_once_are_answered_under_the_default_limits() -> None:
    count, binding = 5000, Binding()
    assert allow_connections() > 2 * count + 500, "both sides of each connection are open files of this process"
    async with binding.served(Server(paths=BIND, request_timeout=HOUR)) as url, AsyncExitStack() as stack:

        async def call(uid: int) -> Wire:
            connection = await stack.enter_async_context(wire(url))
            await connection.send(bind(uid))
            return connection

        connections = await asyncio.gather(*(call(uid) for uid in range(count)))
        async with asyncio.timeout(10 * PATIENCE):
            for _ in range(count):
                await binding.count.acquire()
            async with wire(url) as probe:
                await probe.send(head_of("GET", "/livez"))
                assert await probe.status() == 200
            binding.may_end.set()
            assert [await each.status() for each in connections] == [200] * count
    assert sorted(binding.begun, key=int) == [str(uid) for uid in range(count)]


async def test_a_binding_under_way_keeps_its_connection_and_takes_no_place_from_others() -> None:
    binding = Binding()
    limits = Server(paths=BIND, max_connections=1, max_connections_per_peer=1)
    async with binding.served(limits) as url, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(wire(url)) for _ in range(2)]
        await second.send(bind(2))
        await until(lambda: binding.begun == ["2"])
        third = await stack.enter_async_context(wire(url))
        await third.send(bind(3))
        await until(lambda: binding.begun == ["2", "3"])
        assert await first.closed(), "it was silent"
        binding.may_end.set()
        assert [await second.status(), await third.status()] == [200, 200]


async def test_of_bindings_that_end_together_those_beyond_the_limit_are_told_that_their_connection_ends() -> None:
    """Not closed later: the scheduler could have begun another call on it."""
    count, kept, binding = 20, 4, Binding()
    async with binding.served(Server(paths=BIND, max_connections_per_peer=kept)) as url, AsyncExitStack() as stack:
        connections = []
        for uid in range(count):
            connections.append(await stack.enter_async_context(wire(url)))
            await connections[-1].send(bind(uid))
            await until(lambda: len(binding.begun) == len(connections))
        binding.may_end.set()
        assert [await each.status() for each in connections] == [200] * count
        ended = [each for each in connections if b"connection: close" in each.head.lower()]
        assert len(ended) == count - kept
        assert all([await each.closed() for each in ended])
        for each in connections:
            if each not in ended:
                await each.send(head_of("GET", "/livez"))
                assert await each.status() == 200


async def test_an_idle_connection_whose_next_request_has_arrived_is_not_closed_for_a_new_one() -> None:
    """Both come in one iteration of the event loop, the new connection first; the oldest idle connection would be closed."""
    binding = Binding()
    binding.may_end.set()
    async with binding.served(Server(paths=BIND, max_connections_per_peer=2)) as url, AsyncExitStack() as stack:
        idle = []
        for _ in range(2):
            idle.append(await stack.enter_async_context(wire(url)))
            await idle[-1].send(head_of("GET", "/livez"))
            assert await idle[-1].status() == 200
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)):
            idle[0].writer.write(bind(1))  # at once
            assert await idle[0].status() == 200
            assert await idle[1].closed()


async def test_a_binding_beyond_the_limit_is_refused_before_anything_is_written() -> None:
    binding = Binding()
    async with binding.served(Server(paths=BIND, max_binds_in_flight=1)) as url, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(wire(url)) for _ in range(2)]
        await first.send(bind(1))
        await until(lambda: binding.begun == ["1"])
        await second.send(bind(2))
        assert await second.status() == 503
        assert orjson.loads(second.body) == {"error": "overloaded: server.maxBindsInFlight (1) pods are being bound"}
        binding.may_end.set()
        assert await first.status() == 200
        await second.send(bind(2))
        assert await second.status() == 200
    assert binding.begun == ["1", "2"]


@pytest.mark.parametrize(
    "path", ["/bind", "/bind?a=b"], ids=["as the scheduler calls", "through the framework's routes"]
)
async def test_a_binding_that_its_client_does_not_wait_for_is_not_begun(path: str) -> None:
    """The scheduler has counted it as failed by then, and tries the pod again."""
    binding = Binding()
    binding.may_end.set()
    async with binding.served(Server(paths=BIND)) as url:
        async with wire(url) as connection:
            connection.writer.write(bind(1).replace(b"/bind", path.encode(), 1))
            connection.writer.close()
        async with wire(url) as connection:
            await connection.send(bind(2))
            assert await connection.status() == 200
    assert binding.begun == ["2"]
