"""Room that is reserved for a group: no other pod gets it, in either mode, until it is freed; its own pods do."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.objects import Object, Pod
from extender.model.rejections import Reason
from extender.model.release import GroupKey, Slot
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.preempt import decide_preemption
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import Json, extender_args, node_json, preempting, settings, term
from tests.contenders import CPU, cluster, contender, contender_json, stage
from tests.index.counting import Assume, apply
from tests.rules.judging import FilterScene

GROUP = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "job-1")
HALF = CPU // 2
BOTH_MODES = pytest.mark.parametrize("mode", ["offload", "augment"])


class Scene(FilterScene):
    """Two empty nodes; "a" and "b", half a node each, have slots on n0."""

    def __init__(self, *objects: Object, slots: str = "a@n0 b@n0", **sections: Any) -> None:
        members = (contender("a", cpu=HALF), contender("b", cpu=HALF))
        index = cluster(stage("n0"), stage("n1"), *members, *objects)
        super().__init__(index, settings(**({"preemption": {"mode": "off"}} | sections)), ("n0", "n1"), cpu=HALF)
        self.reserve(slots)

    def reserve(self, slots: str) -> None:
        """Slots of the group, each a pod and its node."""
        pairs = (word.split("@") for word in slots.split())
        self.index.reserved.reserve(GROUP, [Slot(f"uid-{pod}", node) for pod, node in pairs], until=60.0)


def half(name: str, **fields: Any) -> Pod:
    return contender(name, cpu=HALF, **fields)


MORE: Json = {"cpu": HALF + 1}
THREE_HALVES = stage("n0", cpu=CPU + HALF)
A_ASSUMED, D_ASSUMED = Assume(contender("a", cpu=HALF), ("n0",)), Assume(contender("d", cpu=HALF), ("n0", "n1"))
# The slots, further steps, and for each request the pod, its fields and the nodes that pass.
PASSING: dict[str, tuple[str, list[Any], list[tuple[str, Json, str]]]] = {
    "another pod": ("a@n0 b@n0", [], [("c", {}, "n1")]),
    "pods of the group": ("a@n0 b@n0", [], [("a", {}, "n0 n1"), ("b", {}, "n0 n1")]),
    # n1 holds the large sibling, and its place would be one for the pod; n0 is too small for the sibling.
    "a sibling that does not fit into the pod's own room": (
        "a@n0 d@n1", [contender("d", cpu=CPU), stage("n0", cpu=HALF)], [("a", {}, "n0")],
    ),
    "a sibling that may not use the pod's own node": (
        "a@n0 d@n1", [half("d", node_selector={"disk": "ssd"}), stage("n1", cpu=HALF, labels={"disk": "ssd"})],
        [("a", {}, "n0")],
    ),
    "room beside the slots": ("a@n0", [], [("c", {}, "n0 n1"), ("c", MORE, "n1")]),
    "a third place for pods": ("a@n0 b@n0", [stage("n0", pods=3)], [("c", {"cpu": 0}, "n0 n1")]),
    "a slot takes a place": ("a@n0 b@n0", [stage("n0", pods=2)], [("c", {"cpu": 0}, "n1")]),
    "assumed in its slot, it counts once": (
        "a@n0 b@n0", [THREE_HALVES, A_ASSUMED], [("c", {}, "n0 n1"), ("c", MORE, "n1")],
    ),
    "bound in its slot, it counts once": (
        "a@n0 b@n0", [THREE_HALVES, A_ASSUMED, half("a", on="n0")], [("c", {}, "n0 n1"), ("c", MORE, "n1")],
    ),
    "nominated with a slot it counts once, without it counts too": (
        "a@n0 b@n0", [stage("n0", cpu=2 * CPU), half("e", nominated="n0"), half("a", nominated="n0")],
        [("c", {}, "n0 n1"), ("c", MORE, "n1")],
    ),
    "three halves": ("a@n0 b@n0", [THREE_HALVES], [("c", {}, "n0 n1")]),
    # kube-scheduler may bind the pod to any of its nodes, and does not know of the slots.
    "a pod of undetermined node counts on each": ("a@n0 b@n0", [THREE_HALVES, D_ASSUMED], [("c", {}, "n1")]),
    "requests that change": (
        "a@n0 b@n0", [contender("a", cpu=HALF // 2)], [("c", {"cpu": HALF // 2}, "n0 n1"), ("c", {}, "n1")],
    ),
}  # fmt: skip


@BOTH_MODES
@pytest.mark.parametrize(("slots", "steps", "requests"), PASSING.values(), ids=PASSING)
def test_another_pod_does_not_take_reserved_room(
    slots: str, steps: list[Any], requests: list[tuple[str, Json, str]], mode: str
) -> None:
    scene = Scene(mode=mode)
    apply(scene.index, *(step for step in steps if isinstance(step, Pod) and step.uid not in scene.index.pods))
    scene.reserve(slots)
    apply(scene.index, *steps)
    for name, fields, nodes in requests:
        assert scene.passed(name, **fields) == nodes.split()
        for node in {"n0", "n1"}.difference(nodes.split()):
            assert scene.filter(name, node, **fields).result.unresolvable == {node: Reason.RESERVED.text}


def test_decisive_placement_answers_one_node_for_a_pod_with_a_slot_and_by_its_own_score() -> None:
    """n1 is empty, and half of n0 is in use."""
    scene = Scene(half("x", on="n0"), placement="decisive")
    apply(scene.index, stage("n0", cpu=2 * CPU), stage("n1", cpu=2 * CPU))
    assert scene.passed("a") == ["n1"]


@BOTH_MODES
@pytest.mark.parametrize("end", ["expiry", "release", "deletion", "bound elsewhere"])
def test_another_pod_gets_the_room_once_it_is_freed(mode: str, end: str) -> None:
    scene = Scene(mode=mode)
    reserved = scene.index.reserved
    match end:
        case "expiry":
            assert (reserved.expire(59.9), reserved.expire(60.0)) == ([], [GROUP])
        case "release":
            reserved.release(GROUP)
        case "deletion":
            scene.index.delete(contender("a"))
        case "bound elsewhere":
            scene.index.upsert(contender("a", cpu=HALF, on="n1"))
    assert "n0" in scene.passed()


def test_a_pod_takes_the_place_of_an_equal_sibling_which_gets_its_own() -> None:
    """Each node holds one of the two."""
    scene = Scene()
    for name in ("n0", "n1"):
        scene.index.upsert(stage(name, cpu=HALF))
    scene.index.reserved.reserve(GROUP, [Slot("uid-a", "n0"), Slot("uid-b", "n1")], until=60.0)
    assert scene.passed("a") == ["n0", "n1"]
    freed: list[object] = []
    scene.index.reserved.changes.subscribe(freed.append)
    scene.index.assume(contender("a", cpu=HALF), ("n1",), 0.0)
    assert scene.index.reserved.slots_of(GROUP) == (Slot("uid-a", "n1"), Slot("uid-b", "n0"))
    assert scene.passed("c") == []
    assert freed == []
    scene.index.assumed.forget("uid-a")
    assert scene.passed("c") == [], "the binding failed: both have room as before"
    scene.index.upsert(contender("a", cpu=HALF, on="n0"))
    assert scene.index.reserved.slots_of(GROUP) == (Slot("uid-b", "n1"),)


def test_a_sibling_that_goes_to_one_of_several_nodes_leaves_each_other_pod_of_the_group_a_node() -> None:
    """The scheduler knows where it is, and does not offer that node: whichever it is, another one passes."""
    names = ("n0", "n1", "n2")
    scene = Scene(stage("n2"), contender("d", cpu=HALF))
    for name in names:
        scene.index.upsert(stage(name, cpu=HALF))
    scene.index.reserved.reserve(
        GROUP, [Slot(f"uid-{pod}", name) for pod, name in zip("abd", names, strict=True)], until=60.0
    )
    assert scene.passed("a", *names) == list(names)
    scene.index.assume(contender("a", cpu=HALF), names, 0.0)
    for taken in names:
        offered = [name for name in names if name != taken]
        assert scene.passed("b", *offered) == offered
    assert scene.passed("c", *names) == []
    scene.index.upsert(contender("a", cpu=HALF, on="n1"))
    assert scene.index.reserved.slots_of(GROUP) == (Slot("uid-b", "n0"), Slot("uid-d", "n2"))


def test_a_sibling_on_its_way_is_not_given_room_that_is_reserved_for_others() -> None:
    """n0 has room for the slot of another group and one more pod, which the sibling may have taken."""
    other = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "job-2")
    scene = Scene(contender("o", cpu=HALF))
    scene.index.upsert(stage("n1", cpu=HALF))
    scene.index.reserved.reserve(other, [Slot("uid-o", "n0")], until=60.0)
    scene.index.reserved.reserve(GROUP, [Slot("uid-a", "n1"), Slot("uid-b", "n0")], until=60.0)
    scene.index.assume(contender("a", cpu=HALF), ("n0", "n1"), 0.0)
    args = scene.args("b", "n0")
    assert not scene.verb.decide(args, 0).result.passed
    assert scene.verb.should_wait(args)
    assert not scene.verb.should_wait(scene.args("b")), "n1 passes"
    assert not scene.verb.should_wait(scene.args("c", "n0")), "a pod without a slot"
    scene.index.assumed.doubt("uid-a")
    assert not scene.verb.should_wait(args), "it may be on no node, and then nothing would end the wait"
    scene.index.upsert(contender("a", cpu=HALF, on="n1"))
    assert list(scene.verb.decide(args, 0).result.passed) == ["n0"]


def test_whole_nodes_in_the_request_are_judged_by_what_is_reserved_there() -> None:
    scene = Scene()
    bodies = [node_json(name, allocatable={"cpu": f"{CPU}m", "pods": "9"}) for name in ("n0", "new")]
    found = scene.verb.decide(extender_args(contender_json("c", cpu=HALF), nodes=bodies), 0).result
    assert list(found.passed) == ["new"]


@pytest.mark.parametrize(
    ("pods", "fields", "expected"),
    [
        (1, {}, (1, 0, ("pods", "default/a"))),
        (9, {"cpu": HALF}, (HALF, 0, ("cpu", "default/a", "default/b"))),
    ],
)
def test_a_rejection_names_the_resource_what_is_left_of_it_and_the_pods_with_slots(
    pods: int, fields: Json, expected: tuple[int, int, tuple[str, ...]]
) -> None:
    scene = Scene(stage("n0", pods=pods), slots="a@n0 b@n0" if pods > 1 else "a@n0")
    incoming, view = contender("c", **fields), scene.index.view
    filters = catalog.prepare_filters(incoming, view.compiled(incoming.signature), view, IndexFrame())
    found = filters.verdict(view.known["n0"])
    assert found is not None
    assert (found.rule, found.reason) == ("ReservedRoom", Reason.RESERVED)
    assert (found.count, found.limit, found.blamed) == expected


def test_a_cached_rejection_ends_when_room_on_a_node_with_slots_changes() -> None:
    scene = Scene(contender("x", cpu=HALF, on="n1"), contender("y", cpu=HALF, on="n1"))
    apart = {"apart": [term("host", app="none")], "app": "web"}
    texts = [scene.filter("c", "n0", **apart).result for _ in range(2)]
    assert all(not each.passed for each in texts)
    assert scene.verb.rejections.hits == 1
    scene.index.delete(contender("a"))
    assert scene.passed("c", "n0", **apart) == ["n0"]


def test_a_rejection_is_not_given_again_to_the_pod_with_the_slot() -> None:
    scene = Scene()
    first, own = scene.args("c", "n0"), scene.args("a", "n0")
    assert first.pod.signature is own.pod.signature
    assert [list(scene.verb.decide(args, 0).result.passed) for args in (first, own)] == [[], ["n0"]]


def test_a_rejection_beside_pods_of_undetermined_node_is_not_cached() -> None:
    scene = Scene()
    apply(scene.index, THREE_HALVES, D_ASSUMED)
    before = scene.passed("c", "n0")
    scene.index.assumed.forget("uid-d")
    assert (before, scene.passed("c", "n0"), scene.passed("c")) == ([], ["n0"], ["n0", "n1"])


async def test_a_rejected_pod_is_requeued_when_the_room_is_freed() -> None:
    scene = Scene(contender("c", cpu=CPU), contender("x", cpu=HALF, on="n1"))
    reserved = scene.index.reserved
    effects = await scene.requeued(scene.args("c", "n0", cpu=CPU), reserved.changes, lambda: reserved.release(GROUP))
    assert effects[0].startswith("annotate c ")


def test_a_pod_is_not_nominated_to_a_node_whose_room_is_reserved() -> None:
    scene = Scene()
    assert find_node_elsewhere(scene.args().pod, scene.index.view, scene.settings, 0)[0] == "n1"


def test_a_pod_with_a_slot_is_nominated_there_if_the_sample_had_no_node_for_it() -> None:
    """Whichever node is the first of those that it could take."""
    scene = Scene(*(stage(f"n{number}") for number in range(2, 9)))
    pod = scene.args("a").pod
    found = {find_node_elsewhere(pod, scene.index.view, scene.settings, seed)[0] for seed in range(20)}
    assert found == {"n0"}
    scene.index.upsert(stage("n0", cpu=HALF // 2))
    assert find_node_elsewhere(pod, scene.index.view, scene.settings, 0)[0] not in ("", "n0")


LOW, HIGH = contender("low", cpu=HALF, on="n0", priority=1), contender("high", cpu=CPU, on="n1", priority=1000)


@pytest.mark.parametrize(
    ("cpu", "more", "fields", "victims"),
    [
        (CPU + HALF, [], {}, ["low"]),
        # No pod that is removed makes room for more than a half.
        (CPU + HALF, [], MORE, None),
        (2 * CPU, [half("e", priority=100, nominated="n0")], {}, ["low"]),
    ],
    ids=["two slots", "a larger pod", "two slots and a nominated pod"],
)
def test_a_preemption_makes_room_beside_the_slots(
    cpu: int, more: list[Object], fields: Json, victims: list[str] | None
) -> None:
    """n0 has room for the slots, for nominated pods, and for a pod of low priority, which has to be removed."""
    scene = Scene(LOW, HIGH, *more, preemption={"mode": "execute"})
    scene.index.upsert(stage("n0", cpu=cpu))
    plan = scene.filter("c", "n0", priority=100, **fields).plan
    assert (plan and (plan.node, [pod.name for pod in plan.victims])) == (victims and ("n0", victims))


@pytest.mark.parametrize("mode", ["execute", "advise"])
def test_victims_that_leave_too_little_room_beside_the_slots_do_not_help(mode: str) -> None:
    """The scheduler sees a node with a whole pod to remove, and knows of no slot."""
    low = contender("low", cpu=HALF, on="n0", priority=1)
    scene = Scene(low, preemption={"mode": mode})
    args = preempting(contender_json("c", cpu=HALF, priority=100), {"n0": ["uid-low"]})

    def offered() -> list[str]:
        found = decide_preemption(args, scene.index.view, scene.settings, 0)
        return [each.node for each in found.candidates] + ([found.plan.node] if found.plan is not None else [])

    assert offered() == []
    scene.index.reserved.release(GROUP)
    assert offered() == ["n0"]


def test_a_preemption_for_a_pod_in_its_own_slot_needs_no_more_room_than_node_fit_does() -> None:
    scene = Scene(contender("low", cpu=HALF, on="n0", priority=1))
    trials = catalog.node_trials(
        contender("a", cpu=HALF), scene.index.view, scene.index.view.known["n0"], (), checks_fit=False
    )
    assert trials == []


def test_slots_are_replaced_in_one_step_and_only_for_pods_that_wait_for_a_node() -> None:
    scene = Scene(contender("x", on="n1"))
    freed: list[object] = []
    scene.index.reserved.changes.subscribe(freed.append)
    slots = [Slot("uid-a", "n0"), Slot("uid-b", "n1"), Slot("uid-x", "n1"), Slot("uid-unknown", "n1")]
    assert scene.index.reserved.reserve(GROUP, slots, until=90.0) == 2
    assert scene.index.reserved.slots_of(GROUP) == tuple(slots[:2])
    beside = [scene.index.reserved.beside(GroupKey(name, "policy", "another"))[0] for name in ("default", "other")]
    assert beside == [1, 0]
    assert len(freed) == 1, "only the slot that moved was freed"
    assert scene.index.reserved.expire(60.0) == []
    scene.index.reserved.extend(10.0, now=70.0)
    assert (scene.index.reserved.expire(90.0), scene.index.reserved.expire(100.0)) == ([], [GROUP])
