"""Room that is reserved for a group: no other pod gets it, in either mode, until it is freed; its own pods do."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.objects import Object
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.model.release import GroupKey, Slot
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.preempt import decide_preemption
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import asking, node_json, preempting, settings, term
from tests.contenders import CPU, cluster, contender, contender_json, stage
from tests.rules.judging import Asker

GROUP = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "job-1")
HALF = CPU // 2
BOTH_MODES = pytest.mark.parametrize("mode", ["offload", "augment"])


class Scene(Asker):
    """Two empty nodes; "a" and "b", half a node each, have slots on n0."""

    def __init__(self, *objects: Object, slots: str = "n0", **sections: Any) -> None:
        members = (contender("a", cpu=HALF), contender("b", cpu=HALF))
        index = cluster(stage("n0"), stage("n1"), *members, *objects)
        super().__init__(index, settings(**({"preemption": {"mode": "off"}} | sections)), ("n0", "n1"), cpu=HALF)
        index.reserved.reserve(GROUP, [Slot(f"uid-{name}", slots) for name in "ab"], until=60.0)


@BOTH_MODES
def test_another_pod_does_not_take_reserved_room(mode: str) -> None:
    scene = Scene(mode=mode)
    assert scene.passed() == ["n1"]
    assert scene.ask("c", "n0").result.unresolvable == {"n0": Reason.RESERVED.text}


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


@BOTH_MODES
def test_a_pod_passes_on_every_node_that_holds_it_beside_the_slots_of_others(mode: str) -> None:
    scene = Scene(mode=mode)
    assert [scene.passed(name) for name in "ab"] == [["n0", "n1"], ["n0", "n1"]]


def test_decisive_placement_answers_one_node_for_a_pod_with_a_slot_and_by_its_own_score() -> None:
    """n1 is empty, and half of n0 is in use."""
    scene = Scene(contender("x", cpu=HALF, on="n0"), placement="decisive")
    scene.index.upsert(stage("n0", cpu=2 * CPU))
    scene.index.upsert(stage("n1", cpu=2 * CPU))
    assert scene.passed("a") == ["n1"]


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


def test_a_pod_does_not_take_the_room_of_a_sibling_that_does_not_fit_into_its_own() -> None:
    """n1 holds the large sibling, and its place would be one for the pod; n0 is too small for the sibling."""
    scene = Scene(contender("d", cpu=CPU))
    scene.index.upsert(stage("n0", cpu=HALF))
    scene.index.reserved.reserve(GROUP, [Slot("uid-a", "n0"), Slot("uid-d", "n1")], until=60.0)
    assert scene.passed("a") == ["n0"]
    assert scene.ask("a", "n1").result.unresolvable == {"n1": Reason.RESERVED.text}


def test_a_pod_does_not_take_the_room_of_an_equal_sibling_that_may_not_use_its_node() -> None:
    scene = Scene(contender("d", cpu=HALF, node_selector={"disk": "ssd"}))
    scene.index.upsert(stage("n1", cpu=HALF, labels={"disk": "ssd"}))
    scene.index.reserved.reserve(GROUP, [Slot("uid-a", "n0"), Slot("uid-d", "n1")], until=60.0)
    assert scene.passed("a") == ["n0"]


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


def test_room_beside_the_slots_is_free() -> None:
    scene = Scene()
    scene.index.reserved.reserve(GROUP, [Slot("uid-a", "n0")], until=60.0)
    assert scene.passed() == ["n0", "n1"]
    assert scene.passed(cpu=HALF + 1) == ["n1"]


def test_a_slot_is_one_of_the_pods_that_a_node_may_run() -> None:
    scene = Scene()
    scene.index.upsert(stage("n0", pods=3))
    assert scene.passed(cpu=0) == ["n0", "n1"]
    scene.index.upsert(stage("n0", pods=2))
    assert scene.passed(cpu=0) == ["n1"]


def test_a_pod_that_is_assumed_or_bound_in_its_slot_counts_once() -> None:
    scene = Scene()
    scene.index.upsert(stage("n0", cpu=CPU + HALF))
    for step in ("assumed", "bound"):
        if step == "assumed":
            scene.index.assume(contender("a", cpu=HALF), ("n0",), 0.0)
        else:
            scene.index.upsert(contender("a", cpu=HALF, on="n0"))
        assert scene.passed() == ["n0", "n1"], step
        assert scene.passed(cpu=HALF + 1) == ["n1"], step


def test_a_nominated_pod_with_a_slot_counts_once_and_one_without_counts_too() -> None:
    scene = Scene(contender("e", cpu=HALF, nominated="n0"))
    scene.index.upsert(contender("a", cpu=HALF, nominated="n0"))
    scene.index.upsert(stage("n0", cpu=2 * CPU))
    assert scene.passed(cpu=HALF) == ["n0", "n1"]
    assert scene.passed(cpu=HALF + 1) == ["n1"]


def test_a_pod_of_undetermined_node_counts_on_each_node_with_slots_that_it_may_be_on() -> None:
    """kube-scheduler may bind it to any of them, and does not know of the slots."""
    scene = Scene()
    scene.index.upsert(stage("n0", cpu=CPU + HALF))
    assert scene.passed() == ["n0", "n1"]
    scene.index.assume(contender("d", cpu=HALF), ("n0", "n1"), 0.0)
    assert scene.passed() == ["n1"]
    scene.index.assumed.forget("uid-d")
    assert scene.passed() == ["n0", "n1"]


def test_whole_nodes_in_the_request_are_judged_by_what_is_reserved_there() -> None:
    scene = Scene()
    bodies = [node_json(name, allocatable={"cpu": f"{CPU}m", "pods": "9"}) for name in ("n0", "new")]
    found = scene.verb.decide(asking(contender_json("c", cpu=HALF), nodes=bodies), 0).result
    assert list(found.passed) == ["new"]


def test_a_rejection_for_want_of_a_place_counts_the_pod_alone() -> None:
    index = cluster(stage("n0", pods=1), contender("a"))
    index.reserved.reserve(GROUP, [Slot("uid-a", "n0")], until=60.0)
    pod, view = contender("c"), index.view
    found = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame()).verdict(view.known["n0"])
    assert found is not None
    assert (found.reason, found.count, found.limit, found.blamed) == (Reason.RESERVED, 1, 0, ("pods", "default/a"))


def test_a_rejection_names_the_resource_what_is_left_of_it_and_the_pods_with_slots() -> None:
    scene = Scene()
    pod, view = scene.args().pod, scene.index.view
    filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame())
    found = filters.verdict(view.known["n0"])
    assert found is not None
    assert (found.rule, found.reason, found.count, found.limit) == ("ReservedRoom", Reason.RESERVED, HALF, 0)
    assert found.blamed == ("cpu", "default/a", "default/b")


def test_a_cached_rejection_ends_when_room_on_a_node_with_slots_changes() -> None:
    scene = Scene(contender("x", cpu=HALF, on="n1"), contender("y", cpu=HALF, on="n1"))
    apart = {"apart": [term("host", app="none")], "app": "web"}
    texts = [scene.ask("c", "n0", **apart).result for _ in range(2)]
    assert all(not each.passed for each in texts)
    assert scene.verb.rejections.hits == 1
    scene.index.delete(contender("a"))
    assert scene.passed("c", "n0", **apart) == ["n0"]


def test_a_rejection_is_not_given_again_to_the_pod_with_the_slot() -> None:
    scene = Scene()
    first, own = scene.args("c", "n0"), scene.args("a", "n0")
    assert first.pod.signature is own.pod.signature
    assert not scene.verb.decide(first, 0).result.passed
    assert list(scene.verb.decide(own, 0).result.passed) == ["n0"]


def test_a_rejection_beside_pods_of_undetermined_node_is_not_cached() -> None:
    scene = Scene()
    scene.index.upsert(stage("n0", cpu=CPU + HALF))
    scene.index.assume(contender("d", cpu=HALF), ("n0", "n1"), 0.0)
    assert not scene.passed("c", "n0")
    scene.index.assumed.forget("uid-d")
    assert scene.passed("c", "n0") == ["n0"]


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


def _plan(scene: Scene, **fields: Any) -> PreemptionPlan | None:
    return scene.ask("c", "n0", **fields).plan


def test_a_preemption_makes_room_beside_the_slots() -> None:
    """n0 has room for three halves: two slots and a pod of low priority, which has to leave."""
    low = contender("low", cpu=HALF, on="n0", priority=1)
    scene = Scene(low, contender("high", cpu=CPU, on="n1", priority=1000), preemption={"mode": "execute"})
    scene.index.upsert(stage("n0", cpu=CPU + HALF))
    plan = _plan(scene, priority=100)
    assert plan is not None
    assert (plan.node, [each.name for each in plan.victims]) == ("n0", ["low"])
    assert _plan(scene, priority=100, cpu=HALF + 1) is None, "no pod that leaves makes room for more than a half"


def test_a_preemption_makes_room_beside_slots_and_nominated_pods() -> None:
    """n0 has room for four halves: two slots, a nominated pod, and one that has to leave."""
    objects = (
        contender("low", cpu=HALF, on="n0", priority=1),
        contender("e", cpu=HALF, priority=100, nominated="n0"),
        contender("high", cpu=CPU, on="n1", priority=1000),
    )
    scene = Scene(*objects, preemption={"mode": "execute"})
    scene.index.upsert(stage("n0", cpu=2 * CPU))
    plan = _plan(scene, priority=100)
    assert plan is not None
    assert [each.name for each in plan.victims] == ["low"]


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


def test_a_pod_whose_requests_change_keeps_its_slot_with_the_new_ones() -> None:
    scene = Scene()
    scene.index.upsert(contender("a", cpu=HALF // 2))
    assert scene.index.reserved.room_of("default") == {"cpu": HALF + HALF // 2, "pods": 2}
    assert scene.passed(cpu=HALF // 2) == ["n0", "n1"]


def test_slots_are_replaced_in_one_step_and_only_for_pods_that_wait_for_a_node() -> None:
    scene = Scene(contender("x", on="n1"))
    freed: list[object] = []
    scene.index.reserved.changes.subscribe(freed.append)
    slots = [Slot("uid-a", "n0"), Slot("uid-b", "n1"), Slot("uid-x", "n1"), Slot("uid-unknown", "n1")]
    assert scene.index.reserved.reserve(GROUP, slots, until=90.0) == 2
    assert scene.index.reserved.slots_of(GROUP) == tuple(slots[:2])
    assert [scene.index.reserved.groups_in(namespace) for namespace in ("default", "other")] == [1, 0]
    assert len(freed) == 1, "only the slot that moved was freed"
    assert scene.index.reserved.expire(60.0) == []
    scene.index.reserved.extend(10.0, now=70.0)
    assert (scene.index.reserved.expire(90.0), scene.index.reserved.expire(100.0)) == ([], [GROUP])
