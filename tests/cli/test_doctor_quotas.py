"""`extender doctor` reads the quotas of a cluster where the running service is held to them."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_doctor import checks, set_up
from tests.quotas import quota_json


async def test_a_quota_that_charges_nothing_is_named(tmp_path: Path) -> None:
    quota = {"apiVersion": "v1", **quota_json(hard={"count/secrets": "5"})}
    async with set_up(tmp_path, pods=[quota], quota={"enabled": True}) as setup:
        code, document = await setup.doctor()
    assert (code, checks(document)) == (1, [("warning", "quotas")])
    assert document["findings"][0]["problem"].startswith("ResourceQuota team/cross can charge no pod")


async def test_without_quotas_none_is_read(tmp_path: Path) -> None:
    quota = {"apiVersion": "v1", **quota_json(hard={"count/secrets": "5"})}
    async with set_up(tmp_path, pods=[quota]) as setup:
        assert (await setup.doctor())[0] == 0


async def test_quotas_that_may_not_be_read_are_a_missing_permission(tmp_path: Path) -> None:
    async with set_up(tmp_path, quota={"enabled": True}) as setup:
        setup.api.denied = frozenset({"list/resourcequotas"})
        code, document = await setup.doctor()
    assert (code, checks(document)) == (2, [("error", "permissions")])
