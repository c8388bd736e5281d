"""Whether a node by itself takes a pod, as the scheduler's own plugins decide it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.taints import CORDON
from extender.model.objects import Node, Pod
from extender.model.rejections import Reason, Rejection
from extender.rules.catalog import NODE_FIT
from extender.rules.frames import IndexFrame
from extender.rules.free_resources import NodeTrial
from tests.builders import read_pod, taint
from tests.contenders import CPU, cluster, contender, contender_json, stage
from tests.index.counting import Assume, Deleted, apply

GPU = taint("gpu", "yes")
EVERY_TAINT = {"operator": "Exists"}
TOLERATES_GPU = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def parts(incoming: Pod, held: ClusterIndex, number: int) -> Rejection | None:
    """The rejection of a node; every way to ask the filter agrees with it."""
    found = NODE_FIT.prepare_filter(incoming, held.view.compiled(incoming.signature), held.view, IndexFrame())
    rejection = found.verdict(number)
    reason = None if rejection is None else rejection.reason
    assert found.reason(number) is reason
    assert list(found.passing([number])) == ([] if rejection else [number])
    assert [(why, tuple(nodes)) for why, nodes in found.rejected([number])] == ([(reason, (number,))] if reason else [])
    return rejection


OLD, GOING = contender("old", on="n1", cpu=3000), contender("old", on="n1", cpu=3000, terminating=True)
COMING = contender("coming", cpu=3000, priority=5, nominated="n1")
WEB = contender("web", on="n1", host_ports=[8080])
DNS = contender("dns", on="n1", host_ports=[("UDP", "10.0.0.1", 53)])
TOLERATES_CORDON = {"key": CORDON.key, "operator": "Exists"}


def short(count: int, limit: int, *blamed: str, reason: Reason = Reason.NO_ROOM) -> Rejection:
    return Rejection("NodeFit", reason, count=count, limit=limit, blamed=blamed)


def device(amount: int) -> Pod:
    return msgspec.structs.replace(contender("a"), requests={"cpu": CPU, "vendor.example/device": amount})


# The incoming pod, the node n1 and its pods, and the rejection or its reason.
NODES: dict[str, tuple[Pod, list[Any], Rejection | Reason | None]] = {
    "nothing is requested": (contender("a"), [stage()], None),
    "cordoned": (contender("a"), [stage(unschedulable=True)], Reason.CORDONED),
    "the cordon's taint is tolerated": (
        contender("a", tolerations=[TOLERATES_CORDON]), [stage(unschedulable=True)], None,
    ),
    "tainted": (
        contender("a"), [stage(taints=[GPU])], Rejection("NodeFit", Reason.TAINT, blamed=("gpu=yes:NoSchedule",)),
    ),
    "tolerated": (contender("a", tolerations=[TOLERATES_GPU]), [stage(taints=[GPU])], None),
    "NoExecute repels": (contender("a"), [stage(taints=[taint("x", "", "NoExecute")])], Reason.TAINT),
    "a preference repels no pod": (contender("a"), [stage(taints=[taint("x", "", "PreferNoSchedule")])], None),
    "another node is selected": (contender("a", node_selector={"disk": "ssd"}), [stage()], Reason.NODE_AFFINITY),
    "exactly full": (contender("a", cpu=4000), [stage(cpu=4000)], None),
    "too much": (contender("a", cpu=4001), [stage(cpu=4000)], Reason.NO_ROOM),
    "no pod at all": (contender("a"), [stage(pods=0)], Reason.NO_ROOM),
    "tolerant and large": (contender("a", cpu=9000, tolerations=[EVERY_TAINT]), [stage(taints=[GPU])], Reason.NO_ROOM),
    "beside a terminating pod": (contender("a", cpu=1000), [stage(), GOING], None),
    "a terminating pod takes room": (contender("a", cpu=1001), [stage(), GOING], Reason.NO_ROOM),
    "nothing is requested of an overdrawn node": (contender("a"), [stage(cpu=1000), OLD], None),
    "the number of pods": (contender("a"), [stage(pods=1), contender("old", on="n1")], Reason.NO_ROOM),
    "a resource that the node does not offer": (device(1), [stage()], Reason.NO_ROOM),
    "none of that resource": (device(0), [stage()], None),
    "what is requested and what is free": (contender("a", cpu=3000), [stage(cpu=1000)], short(3000, 1000, "cpu")),
    "a nominated pod of lower priority": (contender("a", cpu=2000, priority=6), [stage(), COMING], None),
    "of equal priority": (contender("a", cpu=2000, priority=5), [stage(), COMING], short(2000, 1000, "cpu")),
    "assumed on its node, it counts once": (
        contender("a", cpu=1000, priority=5), [stage(), COMING, Assume(COMING, ("n1",))], None,
    ),
    "a host port in use": (
        contender("a", host_ports=[8080]), [stage(), WEB], short(1, 0, "port 8080/TCP", reason=Reason.HOST_PORTS),
    ),
    "a host port of a deleted pod": (contender("a", host_ports=[8080]), [stage(), WEB, Deleted(WEB)], None),
    **{
        f"host port {port}": (contender("a", host_ports=[port]), [stage(), DNS], reason)
        for port, reason in (
            *((("TCP", "10.0.0.1", 53), None), (("UDP", "10.0.0.2", 53), None)),
            *((("UDP", "10.0.0.1", 53), Reason.HOST_PORTS), (("UDP", "", 53), Reason.HOST_PORTS)),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("incoming", "steps", "expected"), NODES.values(), ids=NODES)
def test_a_node_is_judged_by_cordon_taints_affinity_room_and_host_ports(
    incoming: Pod, steps: list[Any], expected: Rejection | Reason | None
) -> None:
    held = apply(cluster(), *steps)
    rejection = parts(incoming, held, held.view.known["n1"])
    assert (rejection and rejection.reason if isinstance(expected, Reason) else rejection) == expected


def trial(incoming: Pod, held: ClusterIndex, *beside: Pod) -> NodeTrial:
    found = NODE_FIT.on_node(incoming, held.view, held.view.known["n1"], beside)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("on", "cpu", "coming", "passes"),
    [(stage(), 2000, 2000, True), (stage(), 2000, 2001, False), (stage(pods=2), 0, 0, True), (stage(pods=1), 0, 0, False)],
)  # fmt: skip
def test_pods_that_are_to_come_are_counted_beside_existing_pods(
    on: Node, cpu: int, coming: int, *, passes: bool
) -> None:
    assert trial(contender("a", cpu=cpu), cluster(on), contender("coming", cpu=coming)).passes() is passes


@pytest.mark.parametrize(("on", "cpu"), [(stage(), 4000), (stage(pods=1), 0)], ids=["resources", "number of pods"])
def test_a_pod_taken_away_leaves_its_room_until_it_is_counted_back(on: Node, cpu: int) -> None:
    there = contender("old", on="n1", cpu=cpu)
    room = trial(contender("a", cpu=cpu), cluster(on, there))
    answers = [room.passes()]
    for sign in (-1, 1):
        room.count(there, sign)
        answers.append(room.passes())
    assert answers == [False, True, False]


def test_a_node_that_does_not_exist_takes_no_pod() -> None:
    held = cluster(contender("old", on="gone"))
    number = held.topology.number("gone")
    assert NODE_FIT.on_node(contender("a"), held.view, number, ()) is None
    assert parts(contender("a"), held, number) == Rejection("NodeFit", Reason.UNKNOWN_NODE)


def test_its_version_grows_with_every_pod_placed_or_nominated_and_its_key_says_requests_apart() -> None:
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
    ("spec", "expected"),
    [
        ({}, False),
        ({"volumes": [{"name": "t", "projected": {}}]}, False),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}, True),
        ({"volumes": [{"name": "t"}, {"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}, True),
        ({"volumes": [{"name": "ephemeral", "persistentVolumeClaim": None}]}, False),
        ({"resourceClaims": [{"name": "gpu"}]}, True),
    ],
)
def test_needs_that_the_index_does_not_hold_are_unseen(spec: dict[str, Any], *, expected: bool) -> None:
    body = contender_json("b")
    body["spec"] |= spec
    assert read_pod(body).has_unseen_needs is expected
