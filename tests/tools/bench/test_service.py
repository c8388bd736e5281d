"""The service that the bench asks: it stands beside one that is at work already."""

from __future__ import annotations

import asyncio
import socket
from multiprocessing import Pipe

import msgspec

from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.simulator.apiserver.server import ApiServer
from tests.tools.bench.service import _run


async def test_it_listens_on_a_free_port_whatever_port_the_settings_name() -> None:
    ours, theirs = Pipe()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as another:
        taken = Address(f"127.0.0.1:{another.getsockname()[1]}")
        settings = msgspec.structs.replace(
            Settings(), server=msgspec.structs.replace(Settings().server, bind_address=taken)
        )
        async with ApiServer() as api:
            running = asyncio.create_task(_run(theirs, api.url, settings, 10.0, is_standby=False))
            _, addresses = await asyncio.to_thread(ours.recv)
            ours.send(("stop", ()))
            await running
    assert addresses.keys() == {"real", "echo", "echoAll"}
    assert len({*addresses.values(), f"http://{taken}"}) == 4
