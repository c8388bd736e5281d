"""What a group is told to wait for, as a sentence about 0, 1 or 2 pods."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from extender.model.constraints.labels import ZONE
from extender.model.release import Decision, GroupKey, Level, Proposal, RejectedDomain, ReleaseSpec
from extender.verbs.release.progress import GroupState, message_of, next_step
from tests.builders import pod

KEY = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
SPEC = ReleaseSpec((ZONE,))
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PODS = tuple(pod(f"x-{at}") for at in range(4))


def decided(size: int) -> Decision:
    return Decision(KEY, SPEC.gate, size, (), NOON)


def blocked(size: int, count: int) -> GroupState:
    return GroupState(KEY, SPEC, size, blocked=tuple((each, ("a/b",)) for each in PODS[:count]))


COLLECTING = {
    "1 of 2 pods exists": GroupState(KEY, SPEC, 2, waiting=PODS[:1]),
    "2 of 3 pods exist": GroupState(KEY, SPEC, 3, waiting=PODS[:2]),
    "1 of 2 pods exists, without a gate": GroupState(KEY, SPEC, 2, released=PODS[:1]),
    "0 of 2 pods exist, without a gate": GroupState(KEY, SPEC, 2),
    "1 of 1 pod has gates of others: x-0 (a/b)": blocked(1, 1),
    "2 of 2 pods have gates of others: x-0 (a/b), x-1 (a/b)": blocked(2, 2),
}
DECIDED = {
    "0 of 1 pod is released": GroupState(KEY, SPEC, 1, waiting=PODS[:1]),
    "1 of 2 pods is released": GroupState(KEY, SPEC, 2, waiting=PODS[:1], released=PODS[1:2]),
    "0 of 1 released pod has a node": GroupState(KEY, SPEC, 1, released=PODS[:1]),
    "1 of 2 released pods has a node": GroupState(KEY, SPEC, 2, released=PODS[:1], bound=PODS[1:2]),
    "1 of 1 pod has a node": GroupState(KEY, SPEC, 1, bound=PODS[:1]),
    "1 of 1 pod has a node; 1 more than the size waits": GroupState(KEY, SPEC, 1, waiting=PODS[:1], bound=PODS[1:2]),
    "1 of 1 pod has a node; 2 more than the size wait": GroupState(KEY, SPEC, 1, waiting=PODS[:2], bound=PODS[2:3]),
    "1 of 2 pods has a node; 1 of 2 pods does not exist": GroupState(KEY, SPEC, 2, bound=PODS[:1]),
    "2 of 4 pods have a node; 2 of 4 pods do not exist": GroupState(KEY, SPEC, 4, bound=PODS[:2]),
}


@pytest.mark.parametrize(("text", "group"), COLLECTING.items(), ids=COLLECTING)
def test_an_incomplete_group_says_how_many_pods_there_are(text: str, group: GroupState) -> None:
    assert next_step(group, None, ()).message == text


@pytest.mark.parametrize(("text", "group"), DECIDED.items(), ids=DECIDED)
def test_a_decided_group_says_how_far_it_is(text: str, group: GroupState) -> None:
    assert next_step(group, decided(group.size), ()).message == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "x-0 cannot be released: why"), (2, "2 pods cannot be released, such as x-0: why")]
)
def test_refused_pods_are_named(count: int, text: str) -> None:
    group = GroupState(KEY, SPEC, count, waiting=PODS[:count])
    refused = {each.uid: "why" for each in PODS[:count]}
    assert next_step(group, decided(count), (), refused).message == text


def test_domains_that_do_not_hold_a_group_are_counted() -> None:
    rejected = tuple(RejectedDomain(Level(ZONE, f"z{at}"), 9, at, (("no room", 1 + at),)) for at in range(4))
    assert message_of(Proposal((), (), rejected)) == (
        f"{ZONE}=z3 holds 3 of 9 (4 nodes: no room), {ZONE}=z2 holds 2 of 9 (3 nodes: no room), "
        f"{ZONE}=z1 holds 1 of 9 (2 nodes: no room), and 1 more domain"
    )
    assert message_of(Proposal((), (), rejected[:1])) == f"{ZONE}=z0 holds 0 of 9 (1 node: no room)"
