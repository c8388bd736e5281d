"""Whether a node by itself takes a pod, as the scheduler's own plugins decide it."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.taints import CORDON
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.rules.catalog import NODE_FIT
from extender.rules.frames import IndexFrame
from extender.rules.free_resources import NodeTrial
from extender.wire.objects.kinds import PODS
from tests.builders import taint
from tests.contenders import CPU, cluster, contender, contender_json, stage

GPU = taint("gpu", "yes")
EVERY_TAINT = {"operator": "Exists"}
TOLERATES_GPU = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def parts(asking: Pod, held: ClusterIndex, number: int) -> Rejection | None:
    """The rejection of a node; every way to ask the filter agrees with it."""
    found = NODE_FIT.prepare_filter(asking, held.view.compiled(asking.signature), held.view, IndexFrame())
    rejection = found.verdict(number)
    reason = None if rejection is None else rejection.reason
    assert found.reason(number) is reason
    assert list(found.passing([number])) == ([] if rejection else [number])
    assert [(why, tuple(nodes)) for why, nodes in found.rejected([number])] == ([(reason, (number,))] if reason else [])
    return rejection


def verdict(asking: Pod, on: Node, *others: Pod) -> Reason | None:
    held = cluster(on, *others)
    rejection = parts(asking, held, held.view.known[on.name])
    return None if rejection is None else rejection.reason


def trial(asking: Pod, held: ClusterIndex, *beside: Pod) -> NodeTrial:
    found = NODE_FIT.on_node(asking, held.view, held.view.known["n1"], beside)
    assert found is not None
    return found


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
            contender("a"), stage(taints=[taint("x", "", "PreferNoSchedule")]), None, id="a preference repels no pod"
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
    asking, none_of_it = (
        msgspec.structs.replace(contender("a"), requests={"cpu": CPU, "vendor.example/device": amount})
        for amount in (1, 0)
    )
    assert verdict(asking, stage()) == Reason.NO_ROOM
    assert verdict(none_of_it, stage()) is None


def test_pods_that_are_to_come_are_counted_beside_those_that_stand_there() -> None:
    held = cluster(stage())
    assert trial(contender("a", cpu=2000), held, contender("coming", cpu=2000)).passes()
    assert not trial(contender("a", cpu=2000), held, contender("coming", cpu=2001)).passes()


@pytest.mark.parametrize(("on", "cpu"), [(stage(), 4000), (stage(pods=1), 0)], ids=["resources", "number of pods"])
def test_a_pod_taken_away_leaves_its_room_until_it_is_counted_back(on: Node, cpu: int) -> None:
    there = contender("old", on="n1", cpu=cpu)
    room = trial(contender("a", cpu=cpu), cluster(on, there))
    answers = [room.passes()]
    for sign in (-1, 1):
        room.count(there, sign)
        answers.append(room.passes())
    assert answers == [False, True, False]


def test_a_pod_that_is_to_come_takes_one_of_the_pods_that_the_node_admits() -> None:
    assert trial(contender("a"), cluster(stage(pods=2)), contender("coming")).passes()
    assert not trial(contender("a"), cluster(stage(pods=1)), contender("coming")).passes()


def test_a_node_that_does_not_exist_takes_no_pod() -> None:
    held = cluster(contender("old", on="gone"))
    number = held.topology.number("gone")
    assert NODE_FIT.on_node(contender("a"), held.view, number, ()) is None
    assert parts(contender("a"), held, number) == Rejection("NodeFit", Reason.UNKNOWN_NODE)


def test_its_rejections_name_the_taint_and_the_resource_with_what_is_requested_and_what_is_free() -> None:
    held = cluster(stage(taints=[GPU]), stage("n2", cpu=1000))
    n1, n2 = held.view.known["n1"], held.view.known["n2"]
    assert parts(contender("a"), held, n1) == Rejection("NodeFit", Reason.TAINT, blamed=("gpu=yes:NoSchedule",))
    short = Rejection("NodeFit", Reason.NO_ROOM, count=3000, limit=1000, blamed=("cpu",))
    assert parts(contender("a", cpu=3000), held, n2) == short


def test_pods_nominated_to_the_node_take_their_room_from_pods_of_at_most_their_priority() -> None:
    held = cluster(stage(), contender("coming", cpu=3000, priority=5, nominated="n1"))
    n1 = held.view.known["n1"]
    assert parts(contender("a", cpu=2000, priority=6), held, n1) is None
    rejection = parts(contender("a", cpu=2000, priority=5), held, n1)
    assert rejection == Rejection("NodeFit", Reason.NO_ROOM, count=2000, limit=1000, blamed=("cpu",))


def test_a_nominated_pod_that_is_assumed_on_its_node_counts_once() -> None:
    coming = contender("coming", cpu=3000, priority=5, nominated="n1")
    held = cluster(stage(), coming)
    held.assume(coming, ("n1",), 0.0)
    assert parts(contender("a", cpu=1000, priority=5), held, held.view.known["n1"]) is None


def test_its_version_grows_with_every_pod_placed_or_nominated_and_its_key_tells_requests_apart() -> None:
    held = cluster(stage())
    compiled = held.view.compiled(contender("a").signature)
    versions = [NODE_FIT.version(compiled, held.view)]
    there = contender("old", on="n1", cpu=4000)
    coming = contender("coming", nominated="n1")
    for change, changed in ((held.upsert, there), (held.delete, there), (held.upsert, coming), (held.delete, coming)):
        change(changed)
        versions.append(NODE_FIT.version(compiled, held.view))
    assert versions == sorted(set(versions))
    assert NODE_FIT.pod_key(contender("a", cpu=1), held.view) != NODE_FIT.pod_key(contender("a", cpu=2), held.view)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"volumes": [{"name": "t", "projected": {}}]}, False),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}, True),
        ({"volumes": [{"name": "t"}, {"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}, True),
        ({"volumes": [{"name": "ephemeral", "persistentVolumeClaim": None}]}, False),
    ],
)
def test_a_pod_that_asks_for_what_the_index_does_not_hold_says_so(fields: dict[str, Any], *, expected: bool) -> None:
    assert contender("a", **fields).has_unseen_needs is expected


def test_devices_are_needs_that_the_index_does_not_hold() -> None:
    claiming = contender_json("b")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert PODS.decode_object(orjson.dumps(claiming)).has_unseen_needs


def test_a_host_port_in_use_keeps_a_pod_off_the_node_until_its_pod_leaves() -> None:
    held = cluster(stage(), contender("web", on="n1", host_ports=[8080]))
    incoming = contender("a", host_ports=[8080])
    before = parts(incoming, held, held.view.known["n1"])
    held.delete(contender("web", on="n1", host_ports=[8080]))
    assert before == Rejection("NodeFit", Reason.HOST_PORTS, count=1, limit=0, blamed=("port 8080/TCP",))
    assert parts(incoming, held, held.view.known["n1"]) is None


def test_another_protocol_or_another_address_is_another_host_port() -> None:
    held = cluster(stage(), contender("dns", on="n1", host_ports=[("UDP", "10.0.0.1", 53)]))
    asked = [("TCP", "10.0.0.1", 53), ("UDP", "10.0.0.2", 53), ("UDP", "10.0.0.1", 53), ("UDP", "", 53)]
    reasons = [parts(contender("a", host_ports=[each]), held, held.view.known["n1"]) for each in asked]
    assert [each is None for each in reasons] == [True, True, False, False]
