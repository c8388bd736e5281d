"""Groups of gated pods kept step by step equal those that are built at once, and leave nothing behind."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.model.objects import Object
from extender.model.policies import PolicyObject
from extender.model.release import Domain, GroupSize, Level
from tests.builders import index_of
from tests.gangs import release_policy
from tests.laws.cases import case, meets_its_case
from tests.laws.gated_groups import (
    LEVELS,
    PODS,
    is_charged,
    narrowed,
    placed,
    recorded,
    released,
    stripped,
    take,
    waiting,
    waiting_pods,
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


@given(STEPS)
def test_groups_equal_a_recount(steps: list[tuple[Object, bool]]) -> None:
    index = index_of()
    for step in steps:
        take(index, step)
        assert audit(index) == []


@given(STEPS)
def test_the_order_of_events_is_irrelevant_for_pods_that_wait(steps: list[tuple[Object, bool]]) -> None:
    index = index_of()
    for step in steps:
        take(index, step)
    pods = sorted(index.pods.values(), key=lambda pod: pod.name)
    assert waiting_pods(index) == waiting_pods(index_of(*pods, *map(PolicyObject, index.policies)))


@given(STEPS)
def test_groups_leave_nothing_behind(steps: list[tuple[Object, bool]]) -> None:
    index = index_of()
    for step in steps:
        take(index, step)
    for obj in [*index.pods.values(), *index.placements]:
        index.delete(obj)
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
    index = index_of()
    if is_deferred:
        index.gated.defer_to(lambda: None)
    begun: list[tuple[Object, bool]] = [(policy, False), (first, False)]
    for step in [*begun, *steps]:
        take(index, step)
        assert is_deferred or not index.gated.charges.unsettled
    while index.gated.file_stale():
        pass
    assert audit(index) == []
    charged = 0
    for group in index.gated:
        release, name_of_policy = group.release, group.key.policy
        domains = {each.name: each.values for each in release.domains} or {value: (value,) for value in "abcd"}
        for name, values in domains.items() if release.has_quotas else ():
            pods = [pod for pod in index.pods.values() if is_charged(pod, name_of_policy, values, index)]
            used: Counter[str] = Counter()
            for pod in pods:
                used.update({"pods": 1, "cpu": pod.requests.get("cpu", 0)})
            charged += len(pods)
            assert index.gated.charges.of(name_of_policy, name) == {
                key: used[key] for key in {"pods", *release.limited} if used[key]
            }
    case(charged)
