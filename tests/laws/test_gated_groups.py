"""Groups of gated pods kept step by step equal those that are built at once, and leave nothing behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.gated import Role
from extender.model.objects import Object
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, GroupSize
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.gangs import FOREIGN_GATE, gated, release_policy

PODS = ("a", "b", "c", "d")
GATES = ((RELEASE_GATE,), (FOREIGN_GATE, RELEASE_GATE), (FOREIGN_GATE,))

waiting = st.builds(
    lambda name, gang, gates, size, terminating: gated(
        name, gang, gates=gates, labels={"n": size}, terminating=terminating
    ),
    st.sampled_from(PODS),
    st.sampled_from(["", "x", "y"]),
    st.sampled_from(GATES),
    st.sampled_from(["1", "2", "two"]),
    st.booleans(),
)
released = st.builds(
    lambda name, gang, node, phase: gated(name, gang, released=gang, on=node, phase=phase),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(["", "", "Failed"]),
)
policies = st.builds(
    lambda name, by_label, size, selector: PolicyObject(
        release_policy(
            name,
            selector=selector,
            group_label="gang" if by_label else "",
            size=GroupSize(label="n") if size else GroupSize(count=2),
        )
    ),
    st.sampled_from(["p1", "p2"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([{}, {"matchLabels": {"gang": "x"}}]),
)
STEPS = st.lists(st.tuples(st.one_of(waiting, waiting, released, policies), st.booleans()), max_size=20)


def _take(index: ClusterIndex, step: tuple[Object, bool]) -> None:
    found, is_deletion = step
    if is_deletion:
        index.delete(found)
    else:
        index.upsert(found)


@given(STEPS)
def test_groups_equal_a_recount(steps: list[tuple[Object, bool]]) -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    for step in steps:
        _take(index, step)
        assert audit(index) == []


@given(STEPS)
def test_the_order_of_events_is_irrelevant_for_pods_that_wait(steps: list[tuple[Object, bool]]) -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    for step in steps:
        _take(index, step)
    other = ClusterIndex(Rules(), counts_of_rules())
    for each in sorted(index.pods.values(), key=lambda pod: pod.name):
        other.upsert(each)
    for policy in index.policies:
        other.upsert(PolicyObject(policy))
    assert _waiting(index) == _waiting(other)


def _waiting(index: ClusterIndex) -> object:
    roles = (Role.READY, Role.BLOCKED)
    found = [(group.key, uid, role) for group in index.gated for uid, role in group.roles.items() if role in roles]
    return sorted(found)


@given(STEPS)
def test_groups_leave_nothing_behind(steps: list[tuple[Object, bool]]) -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    for step in steps:
        _take(index, step)
    for pod in list(index.pods.values()):
        index.delete(pod)
    kept = index.gated
    assert (kept.groups, kept.orphans, kept._members, kept._known) == ({}, {}, {}, {})
