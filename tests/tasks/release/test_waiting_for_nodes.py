"""Groups that were released without room: how long a domain is theirs alone, and how many a namespace may show an autoscaler."""

from __future__ import annotations

from typing import Any

from extender.model.release import Domain, GroupSize, NoRoom, NoRoomAction
from extender.settings.policies import Release
from tests.gangs import actions
from tests.tasks.release.quota_scene import QuotaScene, domain

SHOP = "shop"


class Growing(QuotaScene):
    """No zone has room, and each may grow."""

    def __init__(self, *domains: Domain, **release: Any) -> None:
        made = domains or (domain("a", may_grow=True),)
        super().__init__({}, **{"domains": made, "no_room": actions(NoRoom.GROWING_DOMAIN)} | release)
        self.rooms = {each.name: 0 for each in made}

    def why_not(self, gang: str) -> str:
        return self.why(gang)[1]


ONE_AND_TWO = (domain("a", may_grow=True), domain("b", may_grow=True))


async def test_a_domain_that_may_grow_is_free_for_others_after_the_timeout_if_no_pod_ever_runs_there() -> None:
    """Two groups have both domains, and no node comes. After ten minutes the third gets the first of them."""
    scene = Growing(*ONE_AND_TWO, exclusive=True)
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        waiting = next(gang for gang in "xyz" if not scene.released(gang))
        await scene.pass_time(580)
        assert scene.released(waiting) == {}
        assert "is taken by" in scene.why_not(waiting)
        await scene.pass_time(30)
        assert len(scene.released(waiting)) == 2


async def test_a_domain_that_may_grow_is_used_after_the_time_that_the_policy_says() -> None:
    actions = (NoRoomAction(NoRoom.GROWING_DOMAIN, 60.0), NoRoomAction(NoRoom.WAIT, 600.0))
    scene = QuotaScene({}, domains=ONE_AND_TWO, no_room=actions)
    scene.rooms = {"a": 0, "b": 0}
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(50)
        assert scene.released() == {}
        assert scene.why("x")[0] == "NoRoom"
        await scene.pass_time(20)
        assert scene.where() == {"a": 2}


async def test_a_domain_in_which_a_pod_runs_is_not_free() -> None:
    scene = Growing(*ONE_AND_TWO, exclusive=True)
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        waiting = next(gang for gang in "xyz" if not scene.released(gang))
        for zone in "ab":
            scene.add_node(zone, 1)
        scene.bind("x-1", "y-1", "z-1")
        await scene.pass_time(1200)
        assert scene.released(waiting) == {}


async def test_a_pod_that_runs_elsewhere_keeps_no_domain() -> None:
    """It may claim to be of the group by an annotation."""
    scene = Growing(*ONE_AND_TWO, exclusive=True)
    scene.add_node("elsewhere", 9)
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        waiting = next(gang for gang in "xyz" if not scene.released(gang))
        for gang in "xyz".replace(waiting, ""):
            scene.api.pods.edit(f"default/{gang}-1", "spec", nodeName="elsewhere")
        scene.show()
        await scene.pass_time(610)
        assert len(scene.released(waiting)) == 2


async def test_a_new_leader_counts_the_time_from_the_decision() -> None:
    scene = Growing(*ONE_AND_TWO, exclusive=True)
    scene.create("x", 1, 2)
    scene.create("y", 1, 2)
    async with scene.leading():
        await scene.pass_time(500)
        assert len(scene.released()) == 4
    scene.create("z", 1, 2)
    async with scene.leading():
        await scene.pass_time(90)
        assert scene.released("z") == {}
        await scene.pass_time(20)
        assert len(scene.released("z")) == 2


async def test_a_namespace_shows_an_autoscaler_so_many_groups_at_a_time_and_others_are_released_beside_it() -> None:
    scene = Growing()
    scene.budget = Release(groups_per_namespace=10, pods_per_namespace=200)
    for number in range(60):
        scene.create(f"g{number}", 1, namespace="noise")
    async with scene.leading():
        await scene.pass_time(10)
        assert len(scene.released("g")) == 10
        scene.create("mine", 1, 2, namespace=SHOP)
        await scene.pass_time(2)
        assert len(scene.released("mine")) == 2
        held = [memory.report.step for key, memory in scene.manager.memory.items() if key.namespace == "noise"]
        reported = {step.message for step in held if step is not None and step.reason == "NamespaceBudget"}
        assert "release.groupsPerNamespace: 10 groups of the namespace wait for nodes" in reported
        deleted = sorted(scene.released("g"))[:4]
        for name in deleted:
            del scene.api.pods[f"noise/{name}"]
        scene.show()
        await scene.pass_time(10)
        assert len(scene.released("g")) == 10, "as many as are gone"
        scene.add_node("a", 5)
        await scene.pass_time(2)
        with_room = [uid.removeprefix("uid-") for uid in scene.index.reserved.held]
        scene.bind(*with_room)
        await scene.pass_time(10)
        placed = [name for name in with_room if name.startswith("g")]
        assert placed
        assert len(scene.released("g")) == 10 + len(placed), "as many as have a node"


async def test_a_new_leader_shows_no_more() -> None:
    scene = Growing()
    scene.budget = Release(groups_per_namespace=10, pods_per_namespace=200)
    for number in range(30):
        scene.create(f"g{number}", 1)
    for _ in range(4):
        async with scene.leading():
            await scene.pass_time(5)
            assert len(scene.released()) == 10


async def test_a_namespace_shows_an_autoscaler_so_many_pods_at_a_time_unless_one_group_has_more() -> None:
    scene = Growing()
    scene.budget = Release(groups_per_namespace=10, pods_per_namespace=5)
    for gang, size in (("x", 2), ("y", 2), ("z", 2)):
        scene.create(gang, *range(size))
    scene.create("large", *range(9), namespace=SHOP)
    async with scene.leading():
        await scene.pass_time(10)
        assert (len(scene.released("large")), len(scene.released()) - 9) == (9, 4)
        waiting = next(gang for gang in "xyz" if not scene.released(gang))
        expected = "release.podsPerNamespace: with 2 pods of it more than 5 pods of the namespace would wait for nodes"
        assert scene.why_not(waiting) == expected


async def test_pods_beyond_the_size_of_a_group_are_shown_to_an_autoscaler_up_to_the_same_limit() -> None:
    scene = Growing(size=GroupSize(2))
    scene.budget = Release(groups_per_namespace=10, pods_per_namespace=5)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.create("x", *range(3, 30))
        await scene.pass_time(10)
        assert len(scene.released()) == 5
        assert scene.why("x") == (
            "DomainFull",
            "24 more than the size wait: release.podsPerNamespace: 5 pods of the namespace wait for nodes",
        )
        scene.add_node("a", 5)
        await scene.pass_time(2)
        scene.bind()
        await scene.pass_time(10)
        assert len(scene.released()) == 10
