"""Which pods are preempted for a whole group: all of them in one domain, as few and as unimportant as its pods need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object, Pod
from extender.model.release import GroupKey, NoRoom, NoRoomAction, Proposal, ReleaseSpec
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
    spec = ReleaseSpec((ZONE,), no_room=(NoRoomAction(NoRoom.PREEMPT),))
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


ADVISE, OFF, EVICT = (
    settings(preemption=fields) for fields in ({"mode": "advise"}, {"mode": "off"}, {"mode": "execute", "eviction": "evict"})
)  # fmt: skip
PROTECTED = [*(low(f"a1-{at}", "a1", app="db") for at in "xy"), budget(allowed=0, app="db")]
ALL_PROTECTED = [
    *(low(f"{name}-{at}", name, app="db") for name in ("a1", "a2", "b1", "b2") for at in "xy"),
    budget(allowed=1, app="db"),
]
LEAVING = [low(f"b1-{at}", "b1", priority=10, terminating=True) for at in "xy"]
CLOSED = [stage(name, "a", cpu=2000, taints=[taint("gpu", "yes")]) for name in ("a1", "a2")]
APART: dict[str, Any] = {"apart": [term("host", gang="x")]}
NOT_A: dict[str, Any] = {"excess": lambda levels: "has a quota" if levels[0].value == "a" else ""}
# Further objects, the pods, how it is proposed, and the victims, or their zone and number.
VICTIMS: dict[str, tuple[list[Any], list[Pod], dict[str, Any], list[str] | tuple[str, int]]] = {
    "the least important of one domain, and no more than needed": ([], gang(3), {}, ("a", 3)),
    "free room is used first": ([stage("a3", "a", cpu=2000)], gang(3), {}, ("a", 1)),
    "a domain holds the group": ([stage("a3", "a", cpu=3000)], gang(3), {}, []),
    "of equal priority": ([], gang(3, priority=0), {}, []),
    "one of equal priority": ([], [*gang(2), gated("p9", "x", cpu=1000, priority=0)], {}, []),
    "more than a zone holds": ([], gang(5), {}, []),
    "more than a node holds": ([], gang(1, cpu=3), {}, []),
    "mode advise": ([], gang(3), {"used": ADVISE}, []),
    "mode off": ([], gang(3), {"used": OFF}, []),
    "one pod never preempts": ([], [*gang(2), gated("p9", "x", cpu=1000, priority=100, never_preempts=True)], {}, []),
    # kube-scheduler deletes pods, so it may violate budgets; with evictions such a group waits.
    "pods that no budget protects": (PROTECTED, gang(2), {}, ["a2-x", "a2-y"]),
    "more important ones of zone b, and no budget is violated": (PROTECTED, gang(4), {}, ("b", 4)),
    "evictions that budgets do not allow": (ALL_PROTECTED, gang(2), {"used": EVICT}, []),
    "pods that terminate anyway": (LEAVING, gang(2), {}, ["b1-x", "b1-y"]),
    "each node takes one": ([], gang(2, **APART), {}, ("a", 2)),
    "each node takes one, and there are too few": ([], gang(3, **APART), {}, []),
    "a domain that the group may not have": ([], gang(2), NOT_A, ("b", 2)),
    "nodes that the pods may not use": (CLOSED, gang(2), {}, ("b", 2)),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "pods", "how", "expected"), VICTIMS.values(), ids=VICTIMS)
def test_which_pods_are_preempted(
    objects: list[Any], pods: list[Pod], how: dict[str, Any], expected: list[str] | tuple[str, int]
) -> None:
    found = victims(proposed(full(*objects), pods, **how))
    if isinstance(expected, tuple):
        zone, count = expected
        assert ({name[0] for name in found}, len(found)) == ({zone}, count)
    else:
        assert found == expected


def test_the_slots_of_a_group_that_preempts() -> None:
    found = proposed(full(), gang(3))
    assert [slot.pod for slot in found.slots] == ["uid-p0", "uid-p1", "uid-p2"]
    assert ({slot.node for slot in found.slots}, found.levels) == ({"a1", "a2"}, ())
    with_room = proposed(full(stage("a3", "a", cpu=2000)), gang(3))
    assert sorted(slot.node for slot in with_room.slots)[1:] == ["a3", "a3"]
    held = proposed(full(stage("a3", "a", cpu=3000)), gang(3))
    assert [level.value for level in held.levels] == ["a"]
    assert sorted(slot.node for slot in proposed(full(), gang(2, **APART)).slots) == ["a1", "a2"]
    for pods in (gang(3, priority=0), [*gang(2), gated("p9", "x", cpu=1000, priority=0)], gang(5), gang(1, cpu=3)):
        none = proposed(full(), pods)
        assert (none.slots, bool(none.rejected)) == ((), True)


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
