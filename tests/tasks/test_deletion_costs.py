"""The task that keeps the costs of deletion: where it writes, how fast, and what it never touches."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.model.bounded import at_once
from extender.model.constraints.labels import ZONE
from extender.model.objects import DELETION_COST as COST
from extender.model.objects import DELETION_COST_MARK as MARK
from extender.model.policies import PolicyObject
from extender.tasks import deletion_costs as deletion_cost_task
from extender.tasks.deletion_costs import ROUND_SECONDS, WRITES_PER_SECOND
from extender.verbs import deletion_costs
from extender.verbs.deletion_costs import wanted_costs
from tests.builders import Json, node, settings
from tests.policies import policy
from tests.tasks.deletion_cost_scene import Scene, replica

FULLEST: Json = {"spread": [{"topologyKey": ZONE, "deletionCost": "Fullest"}]}


async def test_the_fullest_domain_is_written_first_and_nothing_twice() -> None:
    scene = Scene(policy(**FULLEST))
    scene.put(*(replica(f"a{n}", "a") for n in range(4)), *(replica(f"b{n}", "b") for n in range(2)))
    await scene.task.round()
    assert [cost for _, cost in scene.written] == ["-3", "-2", "-1", "-1"]
    assert len(scene.clock.slept) >= 4
    assert min(each for each in scene.clock.slept if each) >= 1 / WRITES_PER_SECOND
    await scene.task.round()
    assert len(scene.written) == 4
    assert scene.task.results["written"] == 4


async def test_an_annotation_of_another_client_stays() -> None:
    scene = Scene(policy(**FULLEST))
    foreign, copied = {COST: "7"}, {COST: "7", MARK: "6"}
    scene.put(replica("a0", "a"), replica("a1", "a", costs=foreign), replica("a2", "a", costs=copied))
    await scene.task.round()
    assert {name for name, _ in scene.written} <= {"default/a0"}


async def test_costs_go_when_the_policy_goes_also_those_of_an_earlier_leader() -> None:
    made = policy(**FULLEST)
    scene = Scene(made)
    scene.put(replica("a0", "a"), replica("a1", "a"))
    await scene.task.round()
    scene.index.delete(PolicyObject(made))
    await scene.task.round()
    assert scene.written[1:] == [(scene.written[0][0], None)]
    await scene.task.round()
    assert (len(scene.written), scene.task.results["removed"]) == (2, 1)
    later = Scene()
    later.put(replica("a1", "a", costs={COST: "-1", MARK: "-1"}))
    await later.task.round()
    assert later.written == [("default/a1", None)]


async def test_a_policy_of_a_namespace_writes_to_no_other_and_audit_writes_nothing() -> None:
    for made in (policy("p", "shop", **FULLEST), policy("p", "shop", mode="Audit", **FULLEST)):
        scene = Scene(made)
        scene.put(*(replica(f"{space}{n}", "a", space) for space in ("shop", "other") for n in range(2)))
        await scene.task.round()
        assert {name.partition("/")[0] for name, _ in scene.written} == ({"shop"} if made.mode == "Enforce" else set())


async def test_only_pods_of_replica_sets_with_a_constraint_over_the_key_get_costs() -> None:
    scene = Scene(policy(**FULLEST))
    bare = [replica(f"bare{n}", "a") for n in range(2)]
    for body in bare:
        body["spec"]["topologySpreadConstraints"] = []
    sets = [replica(f"set{n}", "a") for n in range(2)]
    for body in sets:
        body["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
    scene.put(*bare, *sets)
    await scene.task.round()
    assert scene.written == []


def test_nodes_and_their_pods_may_go_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as make columns by node number shorter, so that the numbers of before are beyond their end."""
    monkeypatch.setattr(deletion_costs, "_A_STEP", 1)
    scene = Scene(policy(**FULLEST))
    nodes = [node(f"n{number}", zone="b") for number in range(1000)]
    for each in nodes:
        scene.index.upsert(each)
        body = replica(f"web-{each.name}", "b")
        body["spec"]["nodeName"] = each.name
        scene.put(body)
    steps = wanted_costs(scene.index.view, settings(policies={"enabled": True}))
    next(steps)
    for each in reversed(nodes[1:]):
        (pod,) = scene.index.view.pods_on(scene.index.view.known[each.name]).values()
        scene.index.delete(pod)
        scene.index.delete(each)
    assert at_once(steps) == {}, "the one pod that is left is the first of its zone"


def test_which_policies_select_the_pods_is_asked_in_a_step_for_each_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(policy(**FULLEST))
    scene.put(*(replica(f"a{n}", "a", revision=f"r{n}") for n in range(5)))
    requested: list[str] = []

    def noted(*_: object) -> str:
        requested.append("")
        return ""

    monkeypatch.setattr(deletion_costs, "directed_key", noted)
    most = 0
    for _ in wanted_costs(scene.index.view, settings(policies={"enabled": True})):
        most, requested[:] = max(most, len(requested)), []
    assert most == 1


async def test_namespaces_take_turns_however_many_costs_one_of_them_needs() -> None:
    scene = Scene(policy(**FULLEST))
    scene.put(*(replica(f"a{number}", "a", "hostile") for number in range(50)))
    scene.put(*(replica(f"b{number}", "a", "honest") for number in range(4)))
    await scene.task.round()
    first = [name for name, _ in scene.written[:7]]
    assert sum(name.startswith("honest/") for name in first) == 3


async def test_a_round_ends_so_that_the_next_one_sees_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_cost_task, "MOST_WRITES", 5)
    scene = Scene(policy(**FULLEST))
    scene.put(*(replica(f"a{number}", "a", "hostile") for number in range(50)))
    await scene.task.round()
    assert len(scene.written) == 5
    scene.put(*(replica(f"b{number}", "a", "honest") for number in range(4)))
    await scene.task.round()
    assert sum(name.startswith("honest/") for name, _ in scene.written) == 3, "it has used less"


async def test_a_cost_that_is_taken_off_again_and_again_is_written_ever_more_seldom() -> None:
    scene = Scene(policy(**FULLEST))
    scene.put(replica("a0", "a"), replica("a1", "a"))
    begun = scene.clock.now()
    while scene.clock.now() < begun + 2000:
        await scene.task.round()
        for pod in list(scene.index.pods.values()):
            scene.index.upsert(replace(pod, deletion_cost="", has_own_cost=False))
        await scene.clock.sleep(ROUND_SECONDS)
    assert 8 <= len(scene.written) <= 11
    scene.put(replica("a2", "a"))
    await scene.task.round()
    assert any(cost == "-2" for _, cost in scene.written[-2:]), "another cost is written at once"
