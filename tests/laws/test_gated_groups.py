"""Groups of gated pods kept step by step equal those that are built at once, and leave nothing behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.gated import GatedPodState
from extender.model.constraints.labels import ZONE
from extender.model.group_placements import GroupPlacement, placement_name
from extender.model.objects import Object, Pod
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, Domain, GroupKey, GroupSize, Level
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.builders import Json
from tests.contenders import contender
from tests.gangs import FOREIGN_GATE, gated, release_policy
from tests.laws.cases import case, meets_its_case

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


def _in(*terms: Sequence[str]) -> Json:
    """Required node affinity for these zones, term by term."""
    made = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(each)}]} for each in terms]
    return {"node_terms": made}


WHERE: Final[dict[str, Json]] = {
    "anywhere": {},
    "one": {"node_selector": {ZONE: "a"}},
    "other": {"node_selector": {ZONE: "d"}},
    "set": _in("ab", "b"),
    "two domains": _in("bc"),
}
narrowed = st.builds(
    lambda name, gang, node, where, cpu, terminating: gated(
        name, gang, released=gang, on=node, cpu=cpu, terminating=terminating, **WHERE[where]
    ),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(sorted(WHERE)),
    st.sampled_from([500, 1000]),
    st.booleans(),
)
LEVELS = st.sampled_from([(), (Level(ZONE, "a"),), (Level(ZONE, "b", ("b", "c")),)])


def placed(
    gang: str, by: str, uids: tuple[str, ...] | None, level: tuple[Level, ...], *, is_decided: bool
) -> GroupPlacement:
    """The object of a group."""
    key, decided = GroupKey("default", f"ClusterPodSchedulingPolicy/{by}", gang), datetime(2026, 1, 1, tzinfo=UTC)
    found = GroupPlacement(placement_name(key), f"uid-{gang}-{by}", key, pods=uids)
    return replace(found, levels=level, decided=decided) if is_decided else found


recorded = st.builds(
    lambda gang, by, uids, level, is_decided: placed(gang, by, uids, level, is_decided=is_decided),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["p1", "p2"]),
    st.sampled_from([None, (), ("uid-a", "uid-b"), ("uid-a", "uid-b", "uid-c", "uid-d"), ("uid-c",)]),
    LEVELS,
    st.sampled_from([True, True, True, False]),
)
stripped = st.builds(
    lambda name, gang, node, where: contender(name, on=node, labels={"gang": gang}, **WHERE[where]),
    st.sampled_from(PODS),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "n1"]),
    st.sampled_from(sorted(WHERE)),
)
DOMAINS = (
    (),
    (Domain("near", ("a", "b"), quota=(("cpu", 2000),)), Domain("far", ("c",), quota=(("pods", 1),))),
    (Domain("far", ("b",)), Domain("near", ("c", "d"), quota=(("cpu", 1000), ("pods", 3)))),
)
policies = st.builds(
    lambda name, by_label, size, selector, domains, most: PolicyObject(
        release_policy(
            name,
            selector=selector,
            domains=domains,
            max_per_domain=most,
            group_label="gang" if by_label else "",
            size=GroupSize(label="n") if size else GroupSize(count=2),
        )
    ),
    st.sampled_from(["p1", "p2"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([{}, {"matchLabels": {"gang": "x"}}]),
    st.sampled_from(DOMAINS),
    st.sampled_from([0, 2]),
)
STEPS = st.lists(
    st.tuples(st.one_of(waiting, waiting, released, narrowed, stripped, recorded, policies), st.booleans()), max_size=20
)

CHARGED = st.lists(
    st.tuples(
        st.one_of(narrowed, narrowed, recorded, stripped, waiting, policies), st.sampled_from([False, False, True])
    ),
    min_size=4,
    max_size=12,
)


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
    roles = (GatedPodState.READY, GatedPodState.BLOCKED)
    found = [(group.key, uid, role) for group in index.gated for uid, role in group.roles.items() if role in roles]
    return sorted(found)


@given(STEPS)
def test_groups_leave_nothing_behind(steps: list[tuple[Object, bool]]) -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    for step in steps:
        _take(index, step)
    for pod in list(index.pods.values()):
        index.delete(pod)
    for placement in list(index.placements):
        index.delete(placement)
    kept = index.gated
    assert kept.records == {}
    assert (kept.groups, kept.orphans, kept._members, kept._known) == ({}, {}, {}, {})
    assert (kept.charges._used, kept.charges.unsettled, kept._stale, kept._next) == ({}, set(), {}, {})


@meets_its_case
@given(policy=policies, level=LEVELS, steps=CHARGED, is_deferred=st.booleans())
def test_what_is_used_of_quotas_is_a_sum_over_the_recorded_pods_that_may_be_in_a_domain(
    policy: PolicyObject, level: tuple[Level, ...], steps: list[tuple[Object, bool]], *, is_deferred: bool
) -> None:
    first = placed("x", policy.policy.key.name, tuple(f"uid-{name}" for name in PODS), level, is_decided=True)
    index = ClusterIndex(Rules(), counts_of_rules())
    if is_deferred:
        index.gated.defer_to(lambda: None)
    begun: list[tuple[Object, bool]] = [(policy, False), (first, False)]
    for step in [*begun, *steps]:
        _take(index, step)
        assert is_deferred or not index.gated.charges.unsettled
    while index.gated.file_stale():
        pass
    assert audit(index) == []
    charged = 0
    for group in index.gated:
        release, name_of_policy = group.release, group.key.policy
        domains = {each.name: each.values for each in release.domains} or {value: (value,) for value in "abcd"}
        for name, values in domains.items() if release.has_quotas else ():
            pods = [pod for pod in index.pods.values() if _is_charged(pod, name_of_policy, values, index)]
            used: Counter[str] = Counter()
            for pod in pods:
                used.update({"pods": 1, "cpu": pod.requests.get("cpu", 0)})
            charged += len(pods)
            assert index.gated.charges.of(name_of_policy, name) == {
                key: used[key] for key in {"pods", *release.limited} if used[key]
            }
    case(charged)


def _is_charged(pod: Pod, policy: str, values: Sequence[str], index: ClusterIndex) -> bool:
    """By its record, else by what it says of a group that was decided before pods were recorded."""
    record, groups = index.gated.records.get(pod.uid), [each.key for each in index.gated if pod.uid in each.roles]
    if (pod.gating is not None and pod.gating.gates) or [key.policy for key in groups] != [policy]:
        return False
    placement, nodes = index.placements.of(groups[0]), pod.signature.node_affinity
    if record is None and (placement is None or placement.decided is None or placement.pods is not None):
        return False
    narrowest = nodes.values_of(ZONE)
    if narrowest is None and record is not None and record.level is not None:
        narrowest = record.level.admitted
    return narrowest is None or not narrowest.isdisjoint(values)
