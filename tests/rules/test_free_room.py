"""With several schedulers room is given out once: what each of them has placed, or may have, counts for all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.host_ports import UsedPorts
from extender.model.objects import Node, Object, Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import counts_of_rules
from extender.rules.frames import IndexFrame
from extender.settings.rules import Rules
from extender.verbs.preempt import decide_preemption
from tests.builders import extender_args, node, node_json, preempting, read_pod, resizing, settings
from tests.contenders import CPU, contender, contender_json, stage
from tests.index.counting import Calls
from tests.rules.judging import FilterScene

HALF = CPU // 2


class Scene(FilterScene):
    """Two empty nodes, of which n1 has room for one pod of half a node less; every pod requests half a node."""

    def __init__(self, *objects: Object, schedulers: str = "many", **sections: Any) -> None:
        index = ClusterIndex(Rules(), counts_of_rules(), counts_room=schedulers == "many")
        for each in (stage("n0"), stage("n1", cpu=HALF), *objects):
            index.upsert(each)
        placement = "decisive" if schedulers == "many" else "cooperative"
        made = settings(schedulers=schedulers, placement=placement, **sections)
        super().__init__(index, made, ("n0", "n1"), cpu=HALF)

    def assume(self, name: str, *nodes: str, doubted: bool = False, **fields: Any) -> Pod:
        """A pod of any scheduler passed on the nodes."""
        pod = contender(name, **({"cpu": HALF} | fields))
        self.index.upsert(pod)
        self.index.assume(pod, nodes, 0.0, doubted=doubted)
        return pod

    def rejection(self, node: str, **fields: Any) -> Rejection | None:
        pod, view = contender("c", **({"cpu": HALF} | fields)), self.index.view
        filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame())
        return filters.verdict(view.known[node])


def test_two_schedulers_do_not_get_the_same_room() -> None:
    scene = Scene()
    answers = []
    for name in "abc":
        answers.append(scene.passed(name))
        scene.assume(name, *answers[-1])
    assert sorted(answers) == [["n0"], ["n0"], ["n1"]]
    assert scene.filter("d").result.unresolvable == dict.fromkeys(("n0", "n1"), Reason.NO_ROOM.text)
    assert audit(scene.index) == []


def test_with_one_scheduler_room_is_left_to_it_and_with_several_every_pod_gets_one_node() -> None:
    """Else the room that the pod takes would not be known before it is bound."""
    scene = Scene(schedulers="one")
    scene.assume("a", "n1")
    assert scene.passed("b", "n1") == ["n1"]
    assert len(Scene().passed("a", cpu=1)) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({}, None, id="half a node"),
        pytest.param({"cpu": HALF + 1}, Reason.NO_ROOM, id="a little more CPU than is left"),
        pytest.param({"cpu": 0}, None, id="nothing requested"),
        pytest.param({"cpu": 0, "also": {"memory": "1Ki"}}, Reason.NO_ROOM, id="memory that the node does not offer"),
        pytest.param({"cpu": 0, "also": {"example.com/gpu": "1"}}, None, id="a device that the scheduler knows better"),
        pytest.param({"host_ports": [80]}, Reason.HOST_PORTS, id="a host port of an assumed pod"),
        pytest.param({"host_ports": [81]}, None, id="another host port"),
    ],
)
def test_what_an_assumed_pod_has_taken_counts(fields: dict[str, Any], reason: Reason | None) -> None:
    scene = Scene()
    scene.assume("a", "n0", host_ports=[80])
    found = scene.rejection("n0", **fields)
    assert (found and found.reason) is reason
    assert (scene.passed("c", "n0", **fields) == ["n0"]) is (reason is None)


@pytest.mark.parametrize("mode", ["offload", "augment"])
def test_a_pod_with_too_many_host_ports_is_rejected_in_both_modes(mode: str) -> None:
    """Not all of its ports are known then, and schedulers check those of bound pods alone."""
    scene = Scene(mode=mode)
    found = scene.filter("c", host_ports=range(1000, 1201)).result
    assert set(found.unresolvable.values()) == {"spec.containers: 201 host ports, limits.hostPorts is 200"}
    assert scene.passed("c", host_ports=range(1000, 1200)) == ["n0"]


GPU: dict[str, Any] = {"cpu": 0, "also": {"example.com/gpu": "1"}}
GPU_NODE = node("n2", allocatable={"cpu": "4", "pods": "110", "example.com/gpu": "2"})


@pytest.mark.parametrize(
    ("offered", "pods", "fields", "blamed"),
    [(GPU_NODE, "ab", GPU, "example.com/gpu"), (stage("n2", pods=1), "a", {"cpu": 0}, "pods")],
    ids=["devices that a node offers", "the number of pods"],
)
def test_the_last_place_is_given_once(offered: Node, pods: str, fields: dict[str, Any], blamed: str) -> None:
    scene = Scene(offered)
    for name in pods:
        assert scene.passed(name, "n2", **fields) == ["n2"]
        scene.assume(name, "n2", **fields)
    assert scene.rejection("n2", **fields) == Rejection("FreeRoom", Reason.NO_ROOM, count=1, limit=0, blamed=(blamed,))


@pytest.mark.parametrize(
    ("name", "fields", "passed"),
    [("b", {"priority": 4}, []), ("b", {"priority": 6}, ["n0"]), ("a", {"priority": 5, "cpu": CPU}, ["n0"])],
    ids=["lower priority", "higher priority", "the nominated pod itself"],
)
def test_a_nominated_pod_keeps_room_before_pods_of_lower_priority(
    name: str, fields: dict[str, Any], passed: list[str]
) -> None:
    scene = Scene(contender("a", cpu=CPU, priority=5, nominated="n0"))
    assert scene.passed(name, "n0", **fields) == passed


def test_host_ports_are_compared_without_a_look_at_each_of_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose pods have thousands of them costs others no more than one without; they were copied for each node."""
    scene = Scene(contender("full", cpu=0, on="n0", host_ports=range(1000, 1200)))
    calls = Calls(monkeypatch, (UsedPorts, "count"))
    assert scene.passed("c", "n0", host_ports=[80]) == ["n0"]
    assert scene.rejection("n0", host_ports=[1000]) == Rejection(
        "FreeRoom", Reason.HOST_PORTS, count=1, limit=0, blamed=("port 1000/TCP",)
    )
    assert calls.taken() <= 8, "once for the ports of the pod, in each filter and verdict"


def test_a_pod_in_doubt_keeps_room_and_host_ports_wherever_it_may_be() -> None:
    scene = Scene()
    scene.assume("a", "n0", "n1", doubted=True, host_ports=[80])
    kept = [scene.passed("b", "n1"), scene.passed("b", "n0", cpu=CPU), scene.passed("b", "n0")]
    assert (scene.passed("b", "n0", cpu=1, host_ports=[80]), scene.passed("b", "n0", cpu=1)) == ([], ["n0"])
    scene.index.assumed.forget("uid-a")
    assert kept == [[], [], ["n0"]]
    assert scene.passed("b", "n1") == ["n1"]
    assert not scene.index.view.room.claims if scene.index.view.room else False
    assert audit(scene.index) == []


def test_nodes_of_a_request_have_the_room_that_they_came_with() -> None:
    """An autoscaler asks about nodes that do not exist."""
    scene = Scene()
    sizes = {"cpu": f"{HALF}m", "pods": "10"}, {"cpu": f"{HALF - 1}m", "pods": "10"}
    nodes = [node_json(f"new-{number}", allocatable=size) for number, size in enumerate(sizes)]
    args = extender_args(contender_json("a", cpu=HALF), nodes=nodes)
    assert list(scene.verb.decide(args, 0).result.passed) == ["new-0"]


def test_a_node_that_comes_back_and_a_rebuilt_index_count_the_same_room() -> None:
    scene = Scene(contender("x", cpu=HALF, on="n0"))
    scene.assume("a", "n1")
    scene.assume("b", "n0", doubted=True)
    scene.index.delete(stage("n1", cpu=HALF))
    scene.index.upsert(stage("n1", cpu=HALF))
    assert (scene.passed("b", "n1"), audit(scene.index)) == ([], [])
    scene.index.rebuild()
    scene.index.drifts = 0
    assert (scene.passed(), audit(scene.index)) == ([], [])


def test_the_audit_sees_room_that_is_counted_wrong() -> None:
    scene = Scene()
    assert scene.index.room is not None
    scene.index.room.free["cpu"][0] += 1
    (line,) = audit(scene.index)
    assert line.startswith("free on n0: (110, {'cpu': 4001,")


@pytest.mark.parametrize(
    ("allocated", "actual", "pending", "free"),
    [
        pytest.param(1, 1, "Infeasible", CPU - 1, id="infeasible: the kubelet will never grant it"),
        pytest.param(1, 1, "Deferred", 0, id="deferred: it may be granted later"),
        pytest.param(1, 1, "", 0, id="wanted"),
        pytest.param(CPU, 1, "", 0, id="allocated"),
        pytest.param(HALF, CPU, "Infeasible", 0, id="not given back yet"),
    ],
)
def test_a_resize_in_place_counts_as_the_scheduler_counts_it(
    allocated: int, actual: int, pending: str, free: int
) -> None:
    body = contender_json("a", cpu=CPU, on="n0")
    status = {"allocated": {"cpu": f"{allocated}m"}, "actual": {"cpu": f"{actual}m"}}
    scene = Scene(read_pod(resizing(body, **status, pending=pending)))
    assert scene.passed("b", "n0", cpu=free) == ["n0"]
    assert scene.passed("b", "n0", cpu=free + 1) == []
    assert audit(scene.index) == []


def test_room_that_a_resize_gives_back_is_free_once_the_container_has_less() -> None:
    """The spec wants less at once. A rejection from before ends as well."""
    body = contender_json("a", cpu=CPU, on="n0")
    less, more = {"cpu": f"{HALF}m"}, {"cpu": f"{CPU}m"}
    scene = Scene(read_pod(resizing(body, allocated=more, actual=more)))
    found = []
    body["spec"]["containers"][0]["resources"]["requests"] = less
    for allocated, actual in ((more, more), (less, more), (less, less)):
        shown = resizing(body, allocated=allocated, actual=actual)
        scene.index.upsert(read_pod(shown))
        found.append(scene.passed("b", "n0"))
    assert found == [[], [], ["n0"]]
    assert audit(scene.index) == []


# -- what a rejection depends on ---------------------------------------------------------------------------------------


def test_a_rejection_stays_valid_while_room_is_only_taken() -> None:
    """Many rejected pods are requested again after every binding."""
    scene = Scene(stage("n2"))
    scene.assume("a", "n1")
    first = scene.filter("c", "n1")
    scene.assume("b", "n2")
    again = scene.filter("c", "n1")
    assert (scene.verb.rejections.hits, again.result.reasons) == (1, first.result.reasons)


@pytest.mark.parametrize("end", ["forgotten", "deleted", "bound elsewhere"])
def test_a_rejection_ends_with_the_assumption_that_it_was_for(end: str) -> None:
    scene = Scene(preemption={"mode": "off"})
    pod = scene.assume("a", "n1")
    before = scene.passed("c", "n1")
    if end == "forgotten":
        scene.index.assumed.forget("uid-a")
    elif end == "deleted":
        scene.index.delete(pod)
    else:
        scene.index.upsert(contender("a", cpu=HALF, on="n0"))
    assert (before, scene.passed("c", "n1")) == ([], ["n1"])


async def test_a_rejected_pod_is_requeued_when_an_assumed_pod_gives_its_room_back() -> None:
    """kube-scheduler watches nothing of a pod that another one had assumed."""
    scene = Scene(contender("c", cpu=CPU), preemption={"mode": "off"})
    pod = scene.assume("a", "n0")
    given_back = scene.index.assumed.given_back
    effects = await scene.requeued(scene.args("c", "n0", cpu=CPU), given_back, lambda: scene.index.delete(pod))
    assert effects[0].startswith("annotate c ")


# -- preemption --------------------------------------------------------------------------------------------------------


def test_room_is_made_by_preemption_only_where_no_other_node_has_it() -> None:
    low = contender("low", cpu=HALF, on="n1")
    scene = Scene(low, contender("full", cpu=CPU, priority=9, on="n0"))
    plan = scene.filter("c", "n1", priority=5).plan
    assert plan is not None
    assert (plan.node, [victim.name for victim in plan.victims]) == ("n1", ["low"])
    scene = Scene(low)
    assert scene.filter("c", "n1", "n0", priority=5).plan is None
    assert scene.filter("c", "n1", priority=5).plan is None, "n0 is outside of the sample and has room"


def test_a_preemption_is_no_help_where_a_pod_in_doubt_keeps_the_room() -> None:
    scene = Scene(contender("low", cpu=HALF, on="n1"))
    scene.assume("a", "n1", doubted=True)
    args = preempting(contender_json("c", cpu=HALF, priority=5), {"n1": ["uid-low"]})
    decision = decide_preemption(args, scene.index.view, scene.settings, 0)
    assert decision.plan is None


_RESOURCES = ("cpu", "example.com/a", "example.com/b", "example.com/c")
_AMOUNTS = st.dictionaries(st.sampled_from(_RESOURCES), st.integers(0, 3))


def _quantities(amounts: dict[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@given(
    offered=st.lists(_AMOUNTS, min_size=1, max_size=4),
    placed=st.lists(st.tuples(st.integers(0, 3), _AMOUNTS, st.sampled_from(["bound", "doubted", "nominated"]))),
    wanted=_AMOUNTS,
)
def test_many_nodes_are_checked_as_each_of_them(
    offered: list[dict[str, int]], placed: list[tuple[int, dict[str, int], str]], wanted: dict[str, int]
) -> None:
    """Extended resources that some nodes offer, pods use, and pods in doubt and nominated pods claim."""
    index = ClusterIndex(Rules(), counts_of_rules(), counts_room=True)
    for number, amounts in enumerate(offered):
        index.upsert(node(f"n{number}", allocatable={"pods": "3", **_quantities(amounts)}))
    for number, (at, amounts, how) in enumerate(placed):
        name, there = f"p{number}", f"n{at % len(offered)}"
        where = {"bound": {"on": there}, "nominated": {"nominated": there}}.get(how, {})
        pod = contender(name, also=_quantities(amounts), **where)
        index.upsert(pod)
        if how == "doubted":
            index.assume(pod, (there,), 0.0, doubted=True)
    incoming, view = contender("incoming", also=_quantities(wanted)), index.view
    filters = catalog.prepare_filters(incoming, view.compiled(incoming.signature), view, IndexFrame())
    numbers = [view.known[f"n{number}"] for number in range(len(offered))]
    wrong = [number for number in numbers if filters.verdict(number) is not None]
    assert list(filters.passing(numbers)) == [number for number in numbers if number not in wrong]
    assert [number for _, rejected in filters.rejected(numbers) for number in rejected] == wrong
