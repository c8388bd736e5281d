"""Whether a node by itself takes a pod, as the scheduler's own plugins decide it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.model.objects import Node, Pod
from extender.model.rejections import Reason
from extender.rules.node_fit import CORDON, free_resources_on, rejection
from extender.wire.kinds import PODS
from tests.builders import taint
from tests.contenders import CPU, cluster, contender, contender_json, stage

GPU = taint("gpu", "yes")
EVERY_TAINT = {"operator": "Exists"}
TOLERATES_GPU = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def verdict(asking: Pod, on: Node, *others: Pod, beside: tuple[Pod, ...] = ()) -> Reason | None:
    held = cluster(on, *others)
    return rejection(asking, held.view, held.view.known[on.name], beside)


@pytest.mark.parametrize(
    ("asking", "on", "expected"),
    [
        pytest.param(contender("a"), stage(), None, id="nothing asked, nothing in the way"),
        pytest.param(contender("a"), stage(unschedulable=True), Reason.CORDONED, id="cordoned"),
        pytest.param(
            contender("a", tolerations=[{"key": CORDON.key, "operator": "Exists"}]),
            stage(unschedulable=True),
            None,
            id="a toleration of the cordon's taint",
        ),
        pytest.param(contender("a"), stage(taints=[GPU]), Reason.TAINT, id="tainted"),
        pytest.param(contender("a", tolerations=[TOLERATES_GPU]), stage(taints=[GPU]), None, id="tolerated"),
        pytest.param(contender("a"), stage(taints=[taint("x", "", "NoExecute")]), Reason.TAINT, id="NoExecute repels"),
        pytest.param(
            contender("a"), stage(taints=[taint("x", "", "PreferNoSchedule")]), None, id="a wish repels nobody"
        ),
        pytest.param(contender("a", node_selector={"disk": "ssd"}), stage(), Reason.NODE_AFFINITY, id="elsewhere"),
        pytest.param(contender("a", cpu=4000), stage(cpu=4000), None, id="exactly full"),
        pytest.param(contender("a", cpu=4001), stage(cpu=4000), Reason.NO_ROOM, id="too much"),
        pytest.param(contender("a"), stage(pods=0), Reason.NO_ROOM, id="no pod at all"),
        pytest.param(
            contender("a", cpu=9000, tolerations=[EVERY_TAINT]),
            stage(taints=[GPU]),
            Reason.NO_ROOM,
            id="tolerant, large",
        ),
    ],
)
def test_a_node_is_judged_by_cordon_taints_affinity_and_room(asking: Pod, on: Node, expected: Reason | None) -> None:
    assert verdict(asking, on) == expected


def test_pods_on_the_node_take_their_room_also_while_they_are_going() -> None:
    there = contender("old", on="n1", cpu=3000, terminating=True)
    assert verdict(contender("a", cpu=1000), stage(), there) is None
    assert verdict(contender("a", cpu=1001), stage(), there) == Reason.NO_ROOM


def test_a_pod_that_asks_for_nothing_fits_on_an_overdrawn_node() -> None:
    assert verdict(contender("a"), stage(cpu=1000), contender("old", on="n1", cpu=3000)) is None


def test_the_number_of_pods_is_bounded_too() -> None:
    assert verdict(contender("a"), stage(pods=1), contender("old", on="n1")) == Reason.NO_ROOM


def test_a_resource_that_the_node_does_not_offer_is_not_there() -> None:
    held = cluster(stage())
    room = free_resources_on(held.view, held.view.known["n1"])
    assert room is not None
    assert not room.takes({"vendor.example/device": 1})
    assert room.takes({"cpu": CPU, "vendor.example/device": 0})


def test_pods_that_are_to_come_are_counted_beside_those_that_stand_there() -> None:
    assert verdict(contender("a", cpu=2000), stage(), beside=(contender("coming", cpu=2000),)) is None
    assert verdict(contender("a", cpu=2000), stage(), beside=(contender("coming", cpu=2001),)) == Reason.NO_ROOM


def test_a_pod_taken_away_leaves_its_room_until_it_is_counted_back() -> None:
    there = contender("old", on="n1", cpu=4000)
    held = cluster(stage(), there)
    room = free_resources_on(held.view, held.view.known["n1"])
    assert room is not None
    answers = [room.takes({"cpu": 1})]
    room.count(there, -1)
    answers.append(room.takes({"cpu": 4000}))
    room.count(there, 1)
    answers.append(room.takes({"cpu": 1}))
    assert answers == [False, True, False]


def test_a_pod_that_is_to_come_takes_one_of_the_pods_that_the_node_admits() -> None:
    assert verdict(contender("a"), stage(pods=2), beside=(contender("coming"),)) is None
    assert verdict(contender("a"), stage(pods=1), beside=(contender("coming"),)) == Reason.NO_ROOM


def test_a_pod_taken_away_frees_one_of_the_pods_that_the_node_admits_until_it_is_counted_back() -> None:
    there = contender("old", on="n1")
    held = cluster(stage(pods=1), there)
    room = free_resources_on(held.view, held.view.known["n1"])
    assert room is not None
    answers = [room.takes({})]
    for sign in (-1, 1):
        room.count(there, sign)
        answers.append(room.takes({}))
    assert answers == [False, True, False]


def test_a_node_that_does_not_exist_takes_nobody() -> None:
    held = cluster(contender("old", on="gone"))
    number = held.topology.number("gone")
    assert free_resources_on(held.view, number) is None
    assert rejection(contender("a"), held.view, number) == Reason.UNKNOWN_NODE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"volumes": [{"name": "t", "projected": {}}]}, False),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}, True),
    ],
)
def test_a_pod_that_asks_for_what_the_index_does_not_hold_says_so(fields: dict[str, Any], *, expected: bool) -> None:
    assert contender("a", **fields).has_unseen_needs is expected


def test_host_ports_and_devices_are_needs_that_the_index_does_not_hold() -> None:
    ported, claiming = contender_json("a"), contender_json("b")
    ported["spec"]["containers"] = [{"ports": [{"containerPort": 80, "hostPort": 80}]}]
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    read = [PODS.decode_object(orjson.dumps(body)) for body in (ported, claiming)]
    assert [each.has_unseen_needs for each in read] == [True, True]
