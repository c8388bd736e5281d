"""The one endpoint of the leader: it leads to one replica alone, and calls wait for the next one."""

from __future__ import annotations

import asyncio

import pytest

from extender.kube.errors import Rejected
from extender.kube.writer import WebhookObjects
from extender.tasks.endpoints import LEADER_PORT, LEARNED_SECONDS, PACE_GROWTH, PACE_SECONDS, Endpoint, LeaderEndpoint
from extender.wire.webhook_configurations import OwnPod
from tests.fake_api import FakeApi, never
from tests.fakes import FakeClock

SLICE = "placement-extender-leader"
KEY = f"ours/{SLICE}"


def leading(name: str, address: str) -> Endpoint:
    pod = OwnPod(name, f"uid-{name}", address)
    return Endpoint("ours", "placement-extender", pod, 8888, LEADER_PORT, SLICE)


class Stand:
    """Two replicas and the one slice. ``answers``: whether the first one leads."""

    def __init__(self) -> None:
        self.api, self.clock, self.answers = FakeApi(), FakeClock(), False
        objects = WebhookObjects(self.api)
        self.one = LeaderEndpoint(objects, leading("a", "10.0.0.7"), lambda: self.answers, self.clock, 3.6)
        self.other = LeaderEndpoint(objects, leading("b", "10.0.0.8"), lambda: not self.answers, self.clock, 3.6)

    @property
    def addresses(self) -> list[str]:
        return [address for each in self.api.slices[KEY]["endpoints"] for address in each["addresses"]]


async def test_the_service_leads_to_one_replica_alone_also_after_its_leader_has_died() -> None:
    stand = Stand()
    assert await stand.one._write()
    assert stand.api.slices[KEY]["metadata"]["labels"]["kubernetes.io/service-name"] == "placement-extender"
    assert stand.api.slices[KEY]["ports"] == [{"name": "extender", "port": 8888, "protocol": "TCP"}]
    assert await stand.other._write()
    assert stand.addresses == ["10.0.0.8"]
    assert stand.api.writes == ["create", "update"]
    assert list(stand.api.slices) == [KEY]


async def test_an_address_of_the_other_family_replaces_the_slice() -> None:
    stand = Stand()
    stand.other = LeaderEndpoint(WebhookObjects(stand.api), leading("b", "fd00::8"), lambda: True, stand.clock, 3.6)
    assert await stand.one._write()
    assert await stand.other._write()
    assert (stand.addresses, stand.api.slices[KEY]["addressType"]) == (["fd00::8"], "IPv6")


async def test_a_write_that_fails_is_reported_once_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    stand.api.fail = lambda _call, _name: Rejected("403 forbidden", status=403)
    assert [await stand.one._write() for _ in range(3)] == [False] * 3
    assert [record.message for record in caplog.records] == ["the Service cannot lead to this replica"]
    stand.api.fail = never
    assert await stand.one._write()


async def test_a_call_waits_until_another_replica_is_called() -> None:
    stand = Stand()
    assert await stand.one._write()
    waiting = asyncio.create_task(stand.one.is_handed_over(0))
    await asyncio.sleep(0)
    assert await stand.other._write()
    assert await waiting
    assert stand.clock.slept[0] == PACE_SECONDS, "a client that comes back at once is slowed down"


async def test_a_client_whose_node_learns_late_is_not_redirected_ten_times_within_its_timeout() -> None:
    stand = Stand()
    assert await stand.other._write()
    assert all([await stand.one.is_handed_over(redirects) for redirects in range(9)])
    assert sum(stand.clock.slept) > 5, "httpTimeout of the overlays; kube-scheduler gives up at the tenth redirect"
    stand.clock.slept = []
    assert await stand.one.is_handed_over(99)
    assert stand.clock.slept == [3.6], "its patience"


async def test_a_call_that_was_redirected_often_waits_no_longer_for_a_leader() -> None:
    stand = Stand()
    assert not await stand.one.is_handed_over(9)
    assert stand.clock.slept[0] == pytest.approx(PACE_SECONDS * PACE_GROWTH**9)
    assert sum(stand.clock.slept) <= 3.6 + PACE_SECONDS


async def test_a_call_waits_until_this_replica_leads_and_no_longer_than_its_patience() -> None:
    stand = Stand()
    assert not await stand.one.is_handed_over(0)
    assert sum(stand.clock.slept) == pytest.approx(3.75), "no replica leads"
    stand.answers, stand.clock.slept = True, []
    assert not await stand.one.is_handed_over(0)
    assert stand.clock.slept == [PACE_SECONDS]


async def test_calls_that_wait_share_their_looks() -> None:
    stand = Stand()
    assert await stand.other._write()
    before = stand.api.count("get secrets")
    stand.clock.step = 0.0
    assert await asyncio.gather(*(stand.one._look() for _ in range(50))) == [True] * 50
    assert stand.api.count("get secrets") == before + 1


async def test_the_handover_is_complete_once_every_node_has_learned_of_the_next_leader() -> None:
    stand = Stand()
    await stand.one.complete_handover()
    assert stand.clock.slept == [], "it never led"
    assert await stand.one._write()
    ending = asyncio.create_task(stand.one.complete_handover())
    await asyncio.sleep(0)
    assert await stand.other._write()
    await ending
    assert stand.clock.slept[-1] == LEARNED_SECONDS


async def test_the_handover_ends_where_no_replica_takes_over() -> None:
    stand = Stand()
    assert await stand.one._write()
    await stand.one.complete_handover()
    assert LEARNED_SECONDS not in stand.clock.slept
    assert sum(stand.clock.slept) < 20
