"""Findings about groups of gated pods: what is held for too long is named with its reason and a remedy, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from extender.doctor.facts import Facts, Groups
from extender.doctor.policies import examine_groups
from extender.model.release import GroupKey, GroupPhase, Level
from extender.settings.configuration import Settings
from extender.verbs.release.progress import UNDECIDED, GroupOverview, StrayPod, WaitReason

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def group(name: str = "ring", *, minutes: float = 25, pods: int = 3, released: int = 1, **fields: str) -> GroupOverview:
    """A group of four whose policy allows 10 minutes; it lacks room unless `fields` say otherwise."""
    said = {"reason": str(WaitReason.NO_ROOM), "message": "z1 holds 1 of 2"} | fields
    key = GroupKey("shop", "ClusterPodSchedulingPolicy/rings", name)
    since = NOW - timedelta(minutes=minutes)
    return GroupOverview(key, GroupPhase.DECIDING, (Level("zone", "z1"),), 4, pods, released, 0, since, 600.0, **said)


def stray(minutes: float | None) -> StrayPod:
    """A pod with our gate in no group."""
    return StrayPod(
        "shop/lost", "placement.extender.dev/group", None if minutes is None else NOW - timedelta(minutes=minutes)
    )


def found(*groups: GroupOverview, strays: tuple[StrayPod, ...] = ()) -> list[tuple[str, str, str]]:
    """The findings as severity, problem and remedy."""
    findings = examine_groups(Facts(Settings(), NOW.timestamp(), groups=Groups(groups, strays)))
    assert {each.check for each in findings} <= {"gates"}
    return [(each.severity, each.problem, each.remedy) for each in findings]


def test_a_group_that_is_held_for_too_long_is_named_with_the_reason() -> None:
    ((severity, problem, remedy),) = found(group())
    assert severity == "warning"
    assert problem == (
        "group shop/ring (ClusterPodSchedulingPolicy/rings): 2 pods are held at its gate for 25 minutes, "
        "its time in release.noRoom is 10 minutes: z1 holds 1 of 2"
    )
    assert "add nodes" in remedy


def test_a_group_within_its_time_or_without_held_pods_is_no_finding() -> None:
    assert found(group(minutes=9), group(minutes=10), group(released=3)) == []
    assert examine_groups(Facts(Settings(), NOW.timestamp())) == []


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (WaitReason.INCOMPLETE, "release.size"),
        (UNDECIDED, "a replica leads"),
        (WaitReason.FOREIGN_GATE, "removes the other gates"),
        (WaitReason.REFUSED, "delete these pods"),
        (WaitReason.DOMAIN_FULL, "delete all pods of the group"),
        (WaitReason.BEYOND_SIZE, "laterPods Join"),
        (WaitReason.NOT_WRITTEN, "log of the leader"),
        ("SomethingNewer", "log of the leader"),
    ],
)
def test_the_remedy_is_that_of_the_reason(reason: str, says: str) -> None:
    ((_, _, remedy),) = found(group(reason=str(reason)))
    assert says in remedy


def test_many_groups_are_counted_the_oldest_first() -> None:
    several = found(*(group(f"g{number}", minutes=20 + number) for number in range(13)))
    assert len(several) == 11
    assert "group shop/g12 " in several[0][1]
    assert several[-1][1].startswith("3 more groups")


def test_pods_that_no_policy_releases_are_counted_once_they_are_not_new() -> None:
    assert found(strays=(stray(1),)) == []
    ((_, problem, _),) = found(strays=(stray(5), stray(None), stray(1)))
    assert problem.startswith("2 pods are held at a gate of ours that no policy removes, such as shop/lost")
