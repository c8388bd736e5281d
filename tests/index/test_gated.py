"""Which gated pods form a group, and how far its release is, as pods, policies and namespaces change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.gated import UNREADABLE, GatedPodState
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object, Pod
from extender.model.policies import Policy, PolicyObject
from extender.model.release import MOST_GATES, RELEASE_GATE, Domain, Gating, GroupKey, GroupSize, Level, own_group
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.wire.objects.kinds import NAMESPACES
from tests.builders import read_pod
from tests.contenders import cluster, contender, stage
from tests.gangs import FOREIGN_GATE, gated, gated_json, release_policy
from tests.policies import policy

POLICY = "ClusterPodSchedulingPolicy/gangs"
BY_OWNER: dict[str, Any] = {"group_label": ""}


def key(value: str, namespace: str = "default", policy_name: str = POLICY) -> GroupKey:
    return GroupKey(namespace, policy_name, value)


def index_with(*objects: Object, **release: Any) -> ClusterIndex:
    return cluster(PolicyObject(release_policy(**release)), *objects)


def roles(index: ClusterIndex) -> dict[str, dict[str, GatedPodState]]:
    """By value of the group's key, the role of each pod by name."""
    return {
        group.key.value: {uid.removeprefix("uid-"): role for uid, role in group.roles.items()} for group in index.gated
    }


def test_pods_are_grouped_by_label_and_a_pod_without_it_is_a_group_of_its_own() -> None:
    index = index_with(gated("a", "x"), gated("b", "x"), gated("c", "y"), gated("d"))
    assert roles(index) == {
        "x": {"a": GatedPodState.READY, "b": GatedPodState.READY},
        "y": {"c": GatedPodState.READY},
        own_group("uid-d"): {"d": GatedPodState.READY},
    }
    assert audit(index) == []


def test_a_pod_waits_until_our_gate_is_its_last_one() -> None:
    index = index_with(gated("a", "x", gates=(FOREIGN_GATE, RELEASE_GATE)))
    assert roles(index) == {"x": {"a": GatedPodState.BLOCKED}}
    index.upsert(gated("a", "x"))
    assert roles(index) == {"x": {"a": GatedPodState.READY}}


def test_a_pod_with_only_the_gates_of_others_is_in_no_group() -> None:
    assert roles(index_with(gated("a", "x", gates=(FOREIGN_GATE,)))) == {}


def test_a_pod_goes_through_its_release_and_leaves_its_group_when_it_ends() -> None:
    index = index_with(gated("a", "x"))
    seen = []
    for step in (
        gated("a", "x", released="x"),
        gated("a", "x", released="x", on="n1"),
        gated("a", "x", released="x", on="n1", terminating=True),
    ):
        index.upsert(step)
        seen.append(roles(index)["x"]["a"])
    assert seen == [GatedPodState.RELEASED, GatedPodState.BOUND, GatedPodState.LEAVING]
    index.upsert(gated("a", "x", released="x", on="n1", phase="Succeeded"))
    assert (roles(index), index.gated._members, index.gated._known) == ({}, {}, {})


def test_a_replacement_of_a_released_pod_is_ready_beside_the_released_pods() -> None:
    index = index_with(*(gated(name, "x") for name in "abc"), size=GroupSize(count=3))
    group = index.gated.groups[key("x")]
    for name in "abc":
        index.upsert(gated(name, "x", released="x", on="n1"))
    index.delete(gated("a", "x"))
    index.upsert(gated("d", "x"))
    assert (group.size, group.placed, group.counts[GatedPodState.READY]) == (3, 2, 1)


def test_a_pod_moves_with_its_label_while_it_waits_and_stays_once_it_is_released() -> None:
    index = index_with(gated("a", "x"), gated("b", "x"))
    index.upsert(gated("a", "y"))
    assert roles(index) == {"x": {"b": GatedPodState.READY}, "y": {"a": GatedPodState.READY}}
    index.upsert(gated("b", "z", released="x"))
    assert roles(index) == {"x": {"b": GatedPodState.RELEASED}, "y": {"a": GatedPodState.READY}}


def test_after_a_restart_the_annotation_names_the_group_of_a_released_pod() -> None:
    assert roles(index_with(gated("a", "z", released="x", on="n1"))) == {"x": {"a": GatedPodState.BOUND}}


def test_a_released_pod_that_its_policy_selects_no_more_is_in_the_group_of_the_next_one() -> None:
    index = cluster(
        PolicyObject(release_policy("first", priority=2, selector={"matchLabels": {"team": "a"}})),
        PolicyObject(release_policy("second")),
        gated("a", "x", labels={"team": "a"}),
    )
    seen = []
    for labels in ({"team": "a"}, {"team": "b"}, {"team": "a"}):
        index.upsert(gated("a", "z", released="x", labels=labels))
        seen.append(next(iter(index.gated)).key)
        assert audit(index) == []
    first, second = (GroupKey("default", f"ClusterPodSchedulingPolicy/{name}", "x") for name in ("first", "second"))
    assert seen == [first, second, second]


@pytest.mark.parametrize(
    ("size", "claims", "expected"),
    [
        (GroupSize(label="n"), ["4", "4"], 4),
        (GroupSize(label="n"), ["4", "8"], 8),
        (GroupSize(label="n"), ["4", ""], UNREADABLE),
        (GroupSize(label="n"), ["four", "4"], UNREADABLE),
        (GroupSize(label="n"), ["0", "4"], UNREADABLE),
        (GroupSize(annotation="n"), ["4", "8"], 8),
        (GroupSize(annotation="n"), ["4", "1234567"], UNREADABLE),
        (GroupSize(annotation="n"), ["4", "-1"], UNREADABLE),
        (GroupSize(count=2), ["4", "8"], 2),
    ],
)
def test_the_size_is_the_largest_that_a_pod_claims(size: GroupSize, claims: list[str], expected: int) -> None:
    """A smaller one would release a part of the group."""
    field = "annotations" if size.annotation else "labels"
    index = index_with(*(gated(f"p{n}", "x", **{field: {"n": each}}) for n, each in enumerate(claims)), size=size)
    group = index.gated.groups[key("x")]
    assert group.size == expected


def test_the_first_policy_that_selects_a_pod_and_whose_gate_it_has_releases_it() -> None:
    index = cluster(
        PolicyObject(release_policy("other-gate", priority=9, gate=FOREIGN_GATE)),
        PolicyObject(release_policy("second", priority=1)),
        PolicyObject(release_policy("first", priority=2, selector={"matchLabels": {"team": "a"}})),
        gated("a", "x", labels={"team": "a"}),
        gated("b", "x"),
    )
    assert {group.key.policy: len(group.roles) for group in index.gated} == {
        "ClusterPodSchedulingPolicy/first": 1,
        "ClusterPodSchedulingPolicy/second": 1,
    }


def test_a_policy_that_comes_after_its_pods_changes_or_goes_is_followed() -> None:
    index = cluster(gated("a", "x", owner=("ReplicaSet", "rs")), gated("b", "x", gates=(FOREIGN_GATE,)))
    assert roles(index) == {}
    index.upsert(PolicyObject(release_policy()))
    seen = [roles(index)]
    index.upsert(PolicyObject(release_policy(**BY_OWNER)))
    seen.append(roles(index))
    index.delete(PolicyObject(release_policy()))
    seen.append(roles(index))
    assert seen == [{"x": {"a": GatedPodState.READY}}, {"uid-rs": {"a": GatedPodState.READY}}, {}]
    assert index.gated.orphans == {"uid-a": RELEASE_GATE}
    index.upsert(contender("a"))
    assert index.gated.orphans == {}


def test_a_changed_policy_changes_the_spec_of_its_groups() -> None:
    index = index_with(gated("a", "x"))
    group = index.gated.groups[key("x")]
    index.upsert(PolicyObject(release_policy(size=GroupSize(count=5), exclusive=True)))
    assert index.gated.groups[key("x")] is group
    assert (group.release.exclusive, group.size) == (True, 5)


def test_a_policy_of_another_moment_costs_nothing() -> None:
    index = cluster(PolicyObject(policy("plain")), gated("a", "x", gates=(FOREIGN_GATE,)))
    assert (index.gated._known, index.gated.orphans, roles(index)) == ({}, {}, {})


def test_a_pod_with_the_usual_gate_is_an_orphan_also_where_no_policy_releases_pods() -> None:
    index = cluster()
    seen: list[object] = []
    index.gated.orphan_changes.subscribe(lambda change: seen.append(change.new))
    index.upsert(gated("a", "x"))
    assert (index.gated.orphans, seen) == ({"uid-a": RELEASE_GATE}, ["uid-a"])
    index.upsert(PolicyObject(release_policy()))
    assert index.gated.orphans == {}


def test_a_pod_that_no_policy_selects_any_more_is_an_orphan_while_it_has_the_gate() -> None:
    gate = "example.com/ours"
    made = release_policy(selector={"matchLabels": {"team": "a"}}, gate=gate)
    index = cluster(PolicyObject(made), gated("a", "x", gates=(gate,), labels={"team": "a"}), gated("b", "x"))
    assert index.gated.orphans == {"uid-b": RELEASE_GATE}, "it has the usual gate"
    index.upsert(gated("a", "x", gates=(gate,)))
    assert (roles(index), index.gated.orphans["uid-a"]) == ({}, gate)
    index.upsert(gated("a", "x", gates=(gate,), labels={"team": "a"}))
    index.delete(gated("b", "x"))
    assert (roles(index), index.gated.orphans) == ({"x": {"a": GatedPodState.READY}}, {})


def test_a_relabelled_namespace_is_followed() -> None:
    def namespace(**labels: str) -> Object:
        return NAMESPACES.decode_object(orjson.dumps({"metadata": {"name": "default", "labels": labels}}))

    scope = policy("gangs", namespaceSelector={"matchLabels": {"team": "a"}}).scope
    chosen = replace(release_policy(), scope=scope)
    index = cluster(PolicyObject(chosen), namespace(), gated("a", "x"))
    seen = [roles(index)]
    for labels in ({"team": "a"}, {"team": "b"}):
        index.upsert(namespace(**labels))
        seen.append(roles(index))
    assert seen == [{}, {"x": {"a": GatedPodState.READY}}, {}]


def test_many_pods_are_filed_again_later_where_that_is_asked_for() -> None:
    """No step files more than some of them, and what happens to a pod meanwhile holds."""
    pods = [gated(f"p{number}", "x") for number in range(250)]
    index, calls = cluster(PolicyObject(release_policy()), *pods), list[int]()
    index.gated.defer_to(lambda: calls.append(len(index.gated.orphans)))
    index.delete(PolicyObject(release_policy()))
    assert (calls, len(index.gated.groups), index.gated.orphans) == ([0], 1, {})
    assert index.gated.file_stale()
    assert 0 < len(index.gated.orphans) < 250
    index.delete(pods[0])
    index.upsert(PolicyObject(release_policy()))
    assert audit(index) == []
    while index.gated.file_stale():
        pass
    assert (index.gated.orphans, len(roles(index)["x"]), audit(index)) == ({}, 249, [])
    index.delete(PolicyObject(release_policy()))
    index.gated.defer_to(None)
    assert (len(index.gated.orphans), roles(index)) == (249, {})


def test_subscribers_are_reported_the_groups_that_changed_and_of_no_others() -> None:
    index = index_with(gated("a", "x"), gated("b", "y"))
    notified: list[str] = []
    index.gated.changes.subscribe(lambda change: notified.append(change.new.value if change.new else ""))
    index.upsert(gated("a", "x", minute=3))
    assert notified == [], "nothing that the release reads has changed"
    index.upsert(gated("a", "y"))
    assert sorted(notified) == ["x", "y"]


def test_a_recorded_pod_is_charged_to_its_policy_until_it_is_gone_whatever_selects_it_by_then() -> None:
    """Its labels, and so the policies that select it, are the tenant's to change."""
    zone = Domain("d", ("a",))
    policies = [release_policy(name, selector={"matchLabels": {"team": name}}, domains=(zone,)) for name in ("a", "b")]
    index = cluster(*map(PolicyObject, policies), stage("n1", "a"))
    notified = list[str]()
    released = [
        gated("p", "x", released="x", on="n1", cpu=500, labels={"team": team}, node_selector={ZONE: "a"})
        for team in ("a", "a", "b")
    ]
    index.gated.freed.subscribe(lambda change: notified.append(str(change.new)))
    index.gated.record(GroupKey("default", str(policies[0].key), "x"), (Level(ZONE, "a"),), ["uid-p"])
    for each in released:
        index.upsert(each)
        assert notified == []
    assert [index.gated.charges.of(str(each.key), "d") for each in policies] == [{"pods": 1}, {}]
    index.delete(released[-1])
    assert (notified, index.gated.records) == ([str(policies[0].key)], {})


def test_gating_is_kept_for_gated_and_released_pods_only() -> None:
    def gating(**fields: Any) -> Gating | None:
        found = read_pod(gated_json("a", "x", **fields))
        assert isinstance(found, Pod)
        return found.gating

    assert gating(gates=(), annotations={"size": "4"}) is None
    kept = gating(owner=("ReplicaSet", "rs"), annotations={"size": "4", "note": "four", "big": "1234567"})
    assert kept is not None
    assert (kept.gates, kept.owner, kept.numbers, kept.released) == ((RELEASE_GATE,), "uid-rs", (("size", 4),), "")
    assert kept.created is not None
    assert kept.created.isoformat() == "2026-01-01T00:00:00+00:00"
    released = gating(released="a@b")
    assert released is not None
    assert (released.gates, released.released) == ((), "a@b")
    many = gating(gates=[f"g{n}" for n in range(50)], annotations={f"n{n:02}": "1" for n in range(50)})
    assert many is not None
    assert (len(many.gates), len(many.numbers)) == (MOST_GATES, 16)


def test_a_policy_that_changes_all_the_time_holds_up_no_other_one() -> None:
    """Pods are filed again in steps; until that is done what is used of a quota is not known."""
    index = ClusterIndex(Rules(), counts_of_rules())
    mine, other = (
        release_policy(name, selector={"matchLabels": {"gang": name}}, domains=(Domain("d", ("a",)),))
        for name in ("mine", "other")
    )
    for each in (mine, other):
        index.upsert(PolicyObject(each))
    for number in range(300):
        index.upsert(gated(f"p{number}", "mine" if number % 2 else "other"))
    index.gated.defer_to(lambda: None)
    index.upsert(PolicyObject(_reordered(other, 2)))
    steps = 0
    while str(other.key) in index.gated.charges.unsettled:
        index.upsert(PolicyObject(_reordered(mine, steps)))
        index.gated.file_stale()
        steps += 1
        assert steps < 10
    assert str(mine.key) in index.gated.charges.unsettled
    while index.gated.file_stale():
        pass
    assert index.gated.charges.unsettled == set()
    index.upsert(PolicyObject(release_policy("plain", selector={"matchLabels": {"gang": "none"}})))
    assert index.gated.charges.unsettled == set(), "without a quota there is nothing that is not known"


def _reordered(policy: Policy, turn: int) -> Policy:
    assert policy.release is not None
    return replace(policy, release=replace(policy.release, max_per_domain=1 + turn))
