"""Connections to a served application, and bindings that wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson

from extender.model.units import Address
from extender.server.app import listening
from extender.server.collaborators import Verbs
from extender.settings.connections import Server
from extender.wire.extender_v1 import BindingArgs
from tests.server.raw import Wire, whole, wire
from tests.server.serving import AGREEABLE, BY_NAMES, app_with

QUESTION = whole("POST", "/filter", orjson.dumps(BY_NAMES))


@asynccontextmanager
async def served(server: Server, verbs: Verbs = AGREEABLE) -> AsyncIterator[str]:
    async with listening(app_with(verbs, server=server), Address("127.0.0.1:0")) as url:
        yield url


async def answered(url: str, request: bytes = QUESTION) -> int:
    """The status of one request on a connection of its own."""
    async with wire(url) as connection:
        await connection.send(request)
        return await connection.status()


async def many(stack: AsyncExitStack, url: str, count: int, content: bytes) -> list[Wire]:
    """So many connections that send this and then nothing more."""
    found = [await stack.enter_async_context(wire(url)) for _ in range(count)]
    for each in found:
        await each.send(content)
    return found


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
