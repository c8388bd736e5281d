"""What kube-proxy does for one Service: new connections go to the endpoints of its EndpointSlices, as a node knew them half a second ago."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import aiohttp

from extender.simulator.json_objects import JsonObject, labels_of
from tests.e2e.client import Api, ApiFailure
from tests.e2e.control_plane import HOST
from tests.e2e.policing import NAMESPACE
from tests.fakes import PATIENCE

LAG = 0.5  # seconds until a node knows of a change


def of_loopback(_address: str) -> str:
    """All pods are processes on one address, with ports of their own."""
    return HOST


class Service:
    """Passes each new connection on to one of the endpoints. ``uses``: connections by endpoint, ``refused`` without one.

    ``host_of``: where a pod with an address listens.
    """

    def __init__(
        self, api: Api, name: str, host_of: Callable[[str], str] = of_loopback, namespace: str = NAMESPACE
    ) -> None:
        self.url = ""
        self.endpoints: list[tuple[str, int]] = []
        self.uses: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self._api = api
        self._name = name
        self._slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._host_of = host_of
        self._rng = Random(1)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Until the block is left."""
        server = await asyncio.start_server(self._pass_on, HOST, 0)
        self.url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
        following = asyncio.create_task(self._follow())
        try:
            async with server:
                yield
        finally:
            following.cancel()

    async def has(self, number: int) -> None:
        async with asyncio.timeout(PATIENCE * 3):
            while len(self.endpoints) != number:  # noqa: ASYNC110 -- there is no event across processes
                await asyncio.sleep(0.05)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                slices, _ = await self._api.list(self._slices)
            except (aiohttp.ClientError, ApiFailure, TimeoutError):
                slices = None  # an apiserver that is away: what a node knew stays
            if slices is not None:
                found = [each for one in slices for each in self._endpoints_of(one)]
                loop.call_later(LAG, setattr, self, "endpoints", found)
            await asyncio.sleep(0.1)

    def _endpoints_of(self, found: JsonObject) -> list[tuple[str, int]]:
        if labels_of(found).get("kubernetes.io/service-name") != self._name:
            return []
        addresses = [address for each in found["endpoints"] for address in each["addresses"]]
        return [(self._host_of(address), int(port["port"])) for address in addresses for port in found["ports"]]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            endpoint = self._rng.choice(self.endpoints)
            behind, before = await asyncio.open_connection(*endpoint)
        except (IndexError, OSError):
            self.refused += 1
            writer.close()
            return
        self.uses[endpoint] += 1
        await asyncio.gather(pump(reader, before), pump(behind, writer))


async def pump(source: asyncio.StreamReader, handler: asyncio.StreamWriter) -> None:
    """Everything from one side to the other, until either ends."""
    try:
        while data := await source.read(65536):
            handler.write(data)
            await handler.drain()
    except ConnectionError:
        pass  # the other side is told by the end of this one
    finally:
        handler.close()
