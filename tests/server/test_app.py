"""Listening on a socket."""

import aiohttp
import pytest

from extender.model.units import Address
from extender.server.app import listening
from tests.server.serving import BY_NAMES, app_with


async def test_a_free_port_is_found_and_told() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url, aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/filter", json=BY_NAMES)
        assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


async def test_an_address_in_use_is_an_error_at_once() -> None:
    async with listening(app_with(), Address("127.0.0.1:0")) as url:
        taken = Address(url.removeprefix("http://"))
        with pytest.raises(OSError, match="address already in use"):
            async with listening(app_with(), taken):
                pytest.fail("two servers on one address")
