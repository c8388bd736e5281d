"""Which pods are preempted for a whole group: all of them in one domain, as few and as unimportant as its pods need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object, Pod
from extender.model.release import GroupKey, Proposal, ReleaseSpec, WhenNoRoom
from extender.settings.configuration import Settings
from extender.verbs.release.choice import Rest, propose
from tests.builders import settings, taint, term
from tests.contenders import budget, cluster, contender, stage
from tests.gangs import gated

KEY = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
EXECUTE = settings(preemption={"mode": "execute"})


def low(name: str, on: str, cpu: int = 1, priority: int = 0, **fields: Any) -> Pod:
    return contender(name, cpu=1000 * cpu, on=on, priority=priority, **fields)


def gang(count: int, cpu: int = 1, priority: int = 100, **fields: Any) -> list[Pod]:
    return [gated(f"p{number}", "x", cpu=1000 * cpu, priority=priority, **fields) for number in range(count)]


def proposed(index: ClusterIndex, pods: Sequence[Pod], used: Settings = EXECUTE, **rest: Any) -> Proposal:
    spec = ReleaseSpec((ZONE,), when_no_room=WhenNoRoom.PREEMPT)
    return propose(Rest(KEY, spec, pods, preempts=True, **rest), index.view, used)


def victims(found: Proposal) -> list[str]:
    return sorted(uid.removeprefix("uid-") for uid in found.victims)


def full(*more: Object) -> ClusterIndex:
    """Two nodes of two CPU in each of two zones, which are full of pods of one CPU: of priority 0 in zone a, of 10 in zone b."""
    nodes = [stage(name, name[0], cpu=2000) for name in ("a1", "a2", "b1", "b2")]
    pods = [
        low(f"{name}-{at}", name, priority=0 if name[0] == "a" else 10)
        for name in ("a1", "a2", "b1", "b2")
        for at in "xy"
    ]
    return cluster(*nodes, *pods, *more)


def test_the_least_important_pods_of_one_domain_leave_it_and_no_more_than_needed() -> None:
    found = proposed(full(), gang(3))
    assert {name[:2] for name in victims(found)} == {"a1", "a2"}
    assert len(found.victims) == 3
    assert [slot.pod for slot in found.slots] == ["uid-p0", "uid-p1", "uid-p2"]
    assert all(slot.node[0] == "a" for slot in found.slots)
    assert found.levels == ()


def test_room_that_is_free_is_used_first() -> None:
    index = full(stage("a3", "a", cpu=2000))
    found = proposed(index, gang(3))
    assert sorted(slot.node for slot in found.slots)[1:] == ["a3", "a3"]
    assert len(found.victims) == 1


def test_a_group_that_a_domain_holds_preempts_none() -> None:
    found = proposed(full(stage("a3", "a", cpu=3000)), gang(3))
    assert (found.victims, [level.value for level in found.levels]) == ((), ["a"])


@pytest.mark.parametrize(
    "pods",
    [gang(3, priority=0), [*gang(2), gated("p9", "x", cpu=1000, priority=0)], gang(5), gang(1, cpu=3)],
    ids=["of equal priority", "one of equal priority", "more than a zone holds", "more than a node holds"],
)
def test_a_group_that_preemption_does_not_help_preempts_none(pods: list[Pod]) -> None:
    found = proposed(full(), pods)
    assert (found.slots, found.victims) == ((), ())
    assert found.rejected


@pytest.mark.parametrize("used", [settings(preemption={"mode": "advise"}), settings(preemption={"mode": "off"})])
def test_without_preemption_a_group_preempts_none(used: Settings) -> None:
    assert proposed(full(), gang(3), used).victims == ()


def test_a_group_with_a_pod_that_never_preempts_preempts_none() -> None:
    assert proposed(full(), [*gang(2), gated("p9", "x", cpu=1000, priority=100, never_preempts=True)]).victims == ()


def test_disruption_budgets_are_violated_only_where_nothing_else_helps() -> None:
    """As by kube-scheduler, which deletes; with evictions such a group waits."""
    protected = [low(f"a1-{at}", "a1", app="db") for at in "xy"]
    index = full(*protected, budget(allowed=0, app="db"))
    assert set(victims(proposed(index, gang(2)))) == {"a2-x", "a2-y"}
    assert len(victims(proposed(index, gang(4)))) == 4, "those of zone b are more important, and violate no budget"
    assert {name[0] for name in victims(proposed(index, gang(4)))} == {"b"}
    evicting = settings(preemption={"mode": "execute", "eviction": "evict"})
    every = [low(f"{name}-{at}", name, app="db") for name in ("a1", "a2", "b1", "b2") for at in "xy"]
    assert proposed(full(*every, budget(allowed=1, app="db")), gang(2), evicting).victims == ()


def test_pods_that_are_leaving_anyway_are_not_replaced_by_others() -> None:
    leaving = [low(f"b1-{at}", "b1", priority=10, terminating=True) for at in "xy"]
    found = proposed(full(*leaving), gang(2))
    assert victims(found) == ["b1-x", "b1-y"]


def test_constraints_among_the_pods_hold() -> None:
    """Each node takes one of them."""
    found = proposed(full(), gang(2, apart=[term("host", gang="x")]))
    assert sorted(slot.node for slot in found.slots) == ["a1", "a2"]
    assert len(found.victims) == 2
    assert proposed(full(), gang(3, apart=[term("host", gang="x")])).victims == ()


def test_domains_that_the_group_may_not_have_are_left_out() -> None:
    found = proposed(full(), gang(2), excess=lambda levels: "has a quota" if levels[0].value == "a" else "")
    assert {name[0] for name in victims(found)} == {"b"}


def test_nodes_that_the_pods_may_not_use_are_left_out() -> None:
    closed = [stage(name, "a", cpu=2000, taints=[taint("gpu", "yes")]) for name in ("a1", "a2")]
    assert {name[0] for name in victims(proposed(full(*closed), gang(2)))} == {"b"}


def test_the_search_ends_with_its_time() -> None:
    index = cluster(
        *(stage(f"n{at}", "a", cpu=1000) for at in range(300)), *(low(f"v{at}", f"n{at}") for at in range(300))
    )
    assert len(proposed(index, gang(50)).victims) == 50
    assert proposed(index, gang(201)).victims == (), "more pods than are tried"


def test_a_pod_that_is_assumed_on_another_node_than_it_is_nominated_to_counts_once() -> None:
    """While the API server restarts its binding is not seen. Counted twice, pods of priority 10 would leave zone b."""
    nodes = [stage(name, name[0], cpu=2000) for name in ("a1", "a2", "b1", "b2")]
    pods = [low(f"{name}-x", name) for name in ("a1", "a2")]
    more = [low(f"{name}-{at}", name, priority=10) for name in ("b1", "b2") for at in "xy"]
    alone = [contender(f"alone-{at}", cpu=1000, priority=100) for at in "12"]
    index = cluster(*nodes, *pods, *more, *alone)
    for pod, assumed, nominated in zip(alone, ("a1", "a2"), ("a2", "a1"), strict=True):
        index.nominate_in_memory(pod, nominated, ())
        index.assume(pod, (assumed,), 0.0)
    assert victims(proposed(index, gang(2))) == ["a1-x", "a2-x"]
