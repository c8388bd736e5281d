"""What is counted for quotas equals a recount in any order of events, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.model.objects import Object
from extender.model.policies import PolicyObject
from tests.features.quotas.tenants import SCOPE, quotas_of, reaching
from tests.laws.quota_usage import BY_POLICY, HOMES, NAMES, PODS_OF, Step, placed, quota_index, take

AMOUNTS: tuple[dict[str, str], ...] = ({"pods": "1"}, {"count/pods": "2", "cpu": "1"}, {"limits.cpu": "1"}, {})
SCOPES = ((SCOPE,), (SCOPE, "Terminating"), (SCOPE, "NotTerminating"), ("Terminating",))
STEPS = st.one_of(
    st.tuples(st.just("on"), PODS_OF),
    st.tuples(st.just("gone"), PODS_OF),
    st.tuples(st.just("finished"), PODS_OF),
    st.tuples(st.just("assumed"), st.tuples(PODS_OF, st.lists(st.sampled_from(["n1", "n2"]), unique=True))),
    st.tuples(st.just("failed"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["preempts", "released", "plan over"]), st.sampled_from(NAMES)),
    st.tuples(st.just("doubted"), st.none()),
    st.tuples(
        st.just("quota"),
        st.tuples(
            st.sampled_from(HOMES), st.sampled_from(["q", "r"]), st.sampled_from(AMOUNTS), st.sampled_from(SCOPES)
        ),
    ),
    st.tuples(st.just("no quota"), st.tuples(st.sampled_from(HOMES), st.sampled_from(["q", "r"]))),
    st.tuples(st.just("policy"), st.booleans()),
    st.tuples(st.just("relabelled"), st.sampled_from(HOMES)),
)


@given(st.lists(STEPS, max_size=25), st.booleans())
def test_usage_equals_a_recount_after_every_step(steps: Sequence[Step], counts_pending: bool) -> None:  # noqa: FBT001 (given)
    index = quota_index(counts_pending=counts_pending)
    for step in steps:
        before = [quotas_of(index).version(home) for home in HOMES]
        take(index, step)
        assert audit(index) == []
        assert index.statistics()["quota_pods"] == placed(index)
        assert all(now >= then for now, then in zip(map(quotas_of(index).version, HOMES), before, strict=True))


@given(st.lists(STEPS, max_size=25), st.booleans())
def test_a_rebuilt_index_counts_the_same(steps: Sequence[Step], counts_pending: bool) -> None:  # noqa: FBT001 (given)
    index = quota_index(counts_pending=counts_pending)
    for step in steps:
        take(index, step)
    before = quotas_of(index).states(), index.statistics()["quota_pods"]
    for home in HOMES:
        for use in quotas_of(index).uses(reaching("x", namespace=home)):
            assert isinstance(use.used, dict)
            use.used["pods"] = 77
    index.rebuild()
    index.drifts = 0
    assert audit(index) == []
    assert (quotas_of(index).states(), index.statistics()["quota_pods"]) == before


@given(st.lists(STEPS, max_size=25), st.booleans())
def test_what_has_gone_leaves_nothing_behind(steps: Sequence[Step], counts_pending: bool) -> None:  # noqa: FBT001 (given)
    index = quota_index(counts_pending=counts_pending)
    for step in steps:
        take(index, step)
    everything: list[Object] = [*index.pods.values(), *quotas_of(index).objects.values(), PolicyObject(BY_POLICY)]
    for each in everything:
        index.delete(each)
    for uid in list(index.assumed.held):
        index.assumed.forget(uid)
    assert quotas_of(index).namespaces() == []
    assert (index.statistics()["quotas"], index.statistics()["quota_pods"]) == (0, 0)
