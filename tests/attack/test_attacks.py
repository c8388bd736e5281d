"""The quick attacks: each is answered or cut, and the service goes on. How long it stands still is for `make attack`."""

import asyncio

import pytest

from tests.attack import bodies, connections, handshakes, requests, reviews, streams
from tests.attack.attacks import ATTACKS
from tests.attack.service import target_of
from tests.server.raw import head_of

MODULES = (requests, connections, handshakes, streams, bodies, reviews)  # imported for what they register
FEW = sorted(name for name in ATTACKS.quick if not any(word in name for word in ("MiB", "000,000", "300", "2,000")))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_the_service_goes_on_after_each(*, tls: bool) -> None:
    async with target_of(tls=tls) as target:
        for name in FEW:
            async with asyncio.timeout(60):
                told = await ATTACKS.plays[name](target)
            assert "500" not in told.split("; "), name
            assert await target.status(head_of("GET", "/readyz")) == "200", name
