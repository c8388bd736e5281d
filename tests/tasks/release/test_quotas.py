"""What pods of a policy may have in a domain, kept true while pods come and go: KEP-3838's dynamic quota manager.

The real choice of a domain, on nodes that have the name of their zone.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives#alternatives
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.kube.errors import KubeError
from extender.model.release import BroughtToleration, Domain, GroupSize, NoRoom, Strategy
from tests.contenders import stage
from tests.fake_api import never
from tests.gangs import actions
from tests.tasks.release.quota_scene import QuotaScene, domain

Quota = tuple[tuple[str, int], ...]

UNREADY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")  # tolerated for 300 s by each pod


async def test_a_domain_gets_pods_up_to_its_quota_and_the_next_one_the_others() -> None:
    scene = QuotaScene({"spot": 90, "on-demand": 90}, domains=(domain("spot", 5), domain("on-demand")))
    for gang in "vwxyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.where() == {"spot": 4, "on-demand": 6}


async def test_groups_that_are_decided_at_the_same_time_have_no_more_than_the_quota_together() -> None:
    scene = QuotaScene({"a": 90}, domains=(domain("a", 7, cpu=2000),))
    for number in range(6):
        scene.create(f"g{number}", 1, 2, cpu=300)
    for body in scene.api.pods.values():
        body["spec"]["containers"][0]["image"] = "registry.example/main"
        scene.api.add(body)
    async with scene.leading():
        await scene.pass_time(10)
        assert scene.where() == {"a": 6}
        waiting = [f"g{number}" for number in range(6) if not scene.released(f"g{number}")]
        assert {scene.why(gang) for gang in waiting} == {
            ("DomainQuota", "zone=a has a quota of 2 cpu: 1800m used, 600m more needed")
        }


async def test_a_group_is_released_when_a_pod_is_gone_and_not_while_it_terminates() -> None:
    scene = QuotaScene({"a": 90}, domains=(domain("a", 3),))
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.create("y", 1, 2)
        await scene.pass_time(5)
        assert scene.why("y") == ("DomainQuota", "zone=a has a quota of 3 pods: 2 used, 2 more needed")
        scene.api.pods.edit("default/x-1", "metadata", deletionTimestamp="2026-01-01T00:00:00Z")
        await scene.pass_time(5)
        assert set(scene.released()) == {"x-1", "x-2"}, "it counts until it is gone"
        scene.delete("x-1")
        await scene.pass_time(1)
        assert set(scene.released()) == {"x-2", "y-1", "y-2"}


async def test_a_quota_that_is_raised_lets_groups_in_at_once_and_a_lower_one_no_more() -> None:
    scene = QuotaScene({"a": 90}, domains=(domain("a", 2),))
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.where() == {"a": 2}
        scene.change_policy(domains=(domain("a", 4),))
        await scene.pass_time(1)
        assert scene.where() == {"a": 4}
        scene.change_policy(domains=(domain("a", 1),))
        scene.bind()
        await scene.pass_time(30)
        assert scene.where() == {"a": 4}, "no pod is taken away"
        reason, message = scene.why(next(gang for gang in "xyz" if not scene.released(gang)))
        assert (reason, message) == ("DomainQuota", "zone=a has a quota of 1 pods: 4 used, 2 more needed")


async def test_quotas_are_those_of_the_policy_and_count_also_after_pods_were_filed_anew() -> None:
    """A change of the policy files all pods again, in steps: until that is done nothing is released on what is counted."""
    scene = QuotaScene({"a": 90, "b": 90}, domains=(domain("a", 4),))
    scene.create("x", 1, 2, 3, 4)
    async with scene.leading():
        await scene.pass_time(1)
        assert scene.where() == {"a": 4}
        scene.index.gated.defer_to(lambda: None)
        scene.create("y", 1, 2)
        both = Domain("both", ("a", "b"), (), (("pods", 5),))
        scene.change_policy(domains=(both,))
        await scene.pass_time(5)
        assert scene.where() == {"a": 4}
        while scene.index.gated.file_stale():
            pass
        await scene.pass_time(5)
        assert scene.where() == {"a": 4}
        assert scene.why("y")[1] == "zone in (a, b) has a quota of 5 pods: 4 used, 2 more needed"


async def test_each_value_is_a_domain_with_max_per_domain_where_none_are_listed() -> None:
    scene = QuotaScene({"a": 90, "b": 90, "c": 1}, strategy=Strategy.BEST_FIT, max_per_domain=3)
    for gang in "vwxyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(3)
        assert scene.where() == {"a": 2, "b": 2}


async def test_a_replacement_keeps_the_place_of_its_group_in_the_quota() -> None:
    """A group that is decided comes before others that are not."""
    scene = QuotaScene({"a": 90}, domains=(domain("a", 4),))
    scene.create("x", 1, 2, size=2)
    scene.create("y", 1, 2, size=2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.create("z", 1, size=1)
        scene.create("x", 3, size=2)  # before the pod that it replaces is gone
        await scene.pass_time(5)
        assert len(scene.released()) == 4
        scene.delete("x-1")
        await scene.pass_time(10)
        assert set(scene.released()) == {"x-2", "x-3", "y-1", "y-2"}


async def test_a_new_leader_counts_what_an_earlier_one_released() -> None:
    scene = QuotaScene({"a": 90}, domains=(domain("a", 3),))
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
    scene.create("y", 1, 2)
    async with scene.leading():
        await scene.pass_time(10)
        assert scene.where() == {"a": 2}


async def test_pods_get_the_tolerations_of_their_domain_as_it_was_decided_and_those_elsewhere_get_none() -> None:
    """The decision has them, so a leader that takes over goes on with those, whatever the policy says by then."""
    brought = (BroughtToleration("spot", "Exists", "", "NoSchedule"),)
    spot = replace(domain("spot", 2), tolerations=brought)
    scene = QuotaScene({"spot": 90, "on-demand": 90}, domains=(spot, domain("on-demand")))
    scene.index.upsert(stage("spot", labels={"zone": "spot"}, taints=[{"key": "spot", "effect": "NoSchedule"}]))
    scene.create("x", 1, 2)
    scene.api.fail = lambda call, name: KubeError("down") if (call, name) == ("patch pods", "x-2") else None
    async with scene.leading():
        await scene.pass_time(1)
    scene.api.fail = never
    scene.change_policy(domains=(replace(spot, tolerations=()), domain("on-demand")))
    async with scene.leading():
        await scene.pass_time(30)
        scene.create("y", 1)
        await scene.pass_time(2)
    assert scene.where() == {"on-demand": 1, "spot": 2}
    tolerations = {
        name: [each for each in scene.api.pods[f"default/{name}"]["spec"]["tolerations"] if each["key"] not in UNREADY]
        for name in ("x-1", "x-2", "y-1")
    }
    body = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerations == {"x-1": [body], "x-2": [body], "y-1": []}


# -- The action GrowingDomain ------------------------------------------------------------------------------------------------

GROWING: dict[str, Any] = {
    "domains": (domain("spot"), domain("on-demand", may_grow=True), domain("metal", may_grow=True)),
    "no_room": actions(NoRoom.GROWING_DOMAIN),
}


async def test_a_group_without_room_is_released_into_the_first_domain_that_may_grow() -> None:
    """So that an autoscaler sees its pods: it ignores gated ones (KEP-3838, "User Stories")."""
    scene = QuotaScene({"spot": 2, "on-demand": 1}, **GROWING)
    scene.create("x", 1, 2)
    scene.create("y", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.where() == {"on-demand": 2, "spot": 2}
        waiting = "x" if "on-demand" in scene.released("x").values() else "y"
        assert scene.status(waiting)["phase"] == "Releasing"
        assert scene.why(waiting)[0] == "WaitsForNodes"
        assert scene.why(waiting)[1].startswith("zone=on-demand holds 1 of 2")
        scene.add_node("on-demand", 2)
        await scene.pass_time(2)
        assert scene.index.reserved.slots_of(next(key for key in scene.index.gated.groups if key.value == waiting))
        scene.bind()
        await scene.pass_time(2)
        assert scene.status(waiting)["phase"] == "Bound"


async def test_a_group_without_room_waits_unless_the_policy_says_otherwise() -> None:
    scene = QuotaScene({"spot": 1}, domains=GROWING["domains"])
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(30)
        assert scene.released() == {}


async def test_a_domain_grows_no_further_than_its_quota() -> None:
    domains = (domain("spot"), domain("on-demand", 3, may_grow=True), domain("metal", 2, may_grow=True))
    scene = QuotaScene({"spot": 1}, **{**GROWING, "domains": domains})
    for gang in "xyz":
        scene.create(gang, 1, 2)
    async with scene.leading():
        await scene.pass_time(5)
        assert scene.where() == {"on-demand": 2, "metal": 2}
        waiting = next(gang for gang in "xyz" if not scene.released(gang))
        assert "zone=on-demand has a quota of 3 pods: 2 used, 2 more needed" in scene.why(waiting)[1]


async def test_a_new_leader_goes_on_with_a_group_that_was_released_without_room() -> None:
    """What it does follows from the policy and from the decision."""
    scene = QuotaScene({"spot": 1}, **GROWING)
    scene.create("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(0.01, shown=False)
    scene.show()
    released = scene.released()
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.where() == {"on-demand": 3}
        assert released.items() <= scene.released().items()
        assert scene.why("x")[0] == "WaitsForNodes"


async def test_pods_that_wait_for_nodes_are_never_given_up_and_get_the_room_of_new_ones() -> None:
    """Also when no scheduler has asked about them for long: nothing is reserved that could be given back."""
    scene = QuotaScene({"spot": 1}, **GROWING)
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2 * scene.budget.unasked + scene.budget.reservation)
        assert scene.why("x")[0] == "WaitsForNodes"
        scene.add_node("on-demand", 2)
        await scene.pass_time(1)
        assert len(scene.index.reserved.held) == 2


async def test_a_pod_is_never_released_into_a_domain_that_it_may_not_be_in() -> None:
    scene = QuotaScene({"spot": 0}, **GROWING)
    scene.create("x", 1, node_selector={"zone": "metal"})
    scene.create("y", 1, node_selector={"zone": "spot"})
    async with scene.leading():
        await scene.pass_time(5)
        assert scene.released() == {"x-1": "metal"}


async def test_pods_beyond_the_size_of_a_group_join_it_as_far_as_the_quota_goes() -> None:
    scene = QuotaScene({"a": 90}, domains=(domain("a", 5),), size=GroupSize(2))
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.bind()
        scene.create("x", 3, 4, 5, 6, 7, 8)
        await scene.pass_time(5)
        assert set(scene.released()) == {f"x-{number}" for number in range(1, 6)}
        assert scene.why("x") == (
            "DomainFull",
            "3 more than the size wait: zone=a has a quota of 5 pods: 5 used, 3 more needed",
        )
        scene.bind()
        scene.delete("x-1")
        await scene.pass_time(10)
        assert set(scene.released()) == {f"x-{number}" for number in range(2, 7)}


async def test_pods_beyond_the_size_of_a_group_wait_for_nodes_where_its_domain_may_grow() -> None:
    scene = QuotaScene({"spot": 0}, **GROWING, size=GroupSize(2))
    scene.create("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(1)
        scene.create("x", 3, 4, 5)
        await scene.pass_time(2)
        assert scene.where() == {"on-demand": 5}
