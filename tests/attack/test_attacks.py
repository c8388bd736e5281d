"""The quick attacks: each is answered or cut, and the service goes on. How long it stands still is for `make attack`."""

import asyncio

import pytest

from tests.attack.attacks import registered
from tests.attack.service import target_of
from tests.server.raw import head_of

LARGE = ("MiB", "000,000", "300", "2,000")  # in the names of those that are left to `make attack`


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_the_service_goes_on_after_each(*, tls: bool) -> None:
    attacks = registered()
    few = sorted(name for name in attacks.quick if not any(word in name for word in LARGE))
    assert len(few) > 90
    async with target_of(tls=tls) as target:
        for name in few:
            async with asyncio.timeout(60):
                reported = await attacks.plays[name](target)
            assert "500" not in reported.split("; "), name
            assert await target.status(head_of("GET", "/readyz")) == "200", name
