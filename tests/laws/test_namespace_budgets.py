"""The budgets of namespaces: what is used equals a recount, in any order of changes and requests, and leaves nothing."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.counts.namespace_budgets import Amounts
from tests.laws.cases import case, meets_its_case
from tests.laws.namespace_budgets import CONSTRAINED, Action, of_pod, played, recounted
from tests.strategies import NAMESPACE_NAMES, POD_NAMES, by_weight, one_of, running_pods

"""A pod as it is now, its deletion (None), or a request for it (an empty body)."""


_BODY: Final = by_weight((3, CONSTRAINED), (1, running_pods("any")), (5, st.just({})), (1, st.none()))
ACTIONS: Final = st.lists(st.builds(of_pod, one_of(POD_NAMES), _BODY), min_size=10, max_size=24)


@meets_its_case
@given(ACTIONS)
def test_what_is_used_is_a_recount_and_a_pod_waits_only_where_it_does_not_fit(actions: list[Action]) -> None:
    case(played(actions)[2])


@given(ACTIONS, st.lists(st.integers(0, 100), max_size=6))
def test_what_comes_and_goes_leaves_nothing(actions: list[Action], order: list[int]) -> None:
    _, cluster, _ = played(actions)
    names = [name for _, name in cluster.objects]
    deleted = [names.pop(turn % len(names)) for turn in order if names] + names
    index, _, _ = played([*actions, *((name, None) for name in deleted)])
    assert dict(index.namespace_budgets.by_namespace) == {}
    assert index.namespace_budgets.statistics() == {"budgeted_signatures": 0, "waiting_signatures": 0}


@given(ACTIONS)
def test_after_a_rebuild_the_pods_on_nodes_count(actions: list[Action]) -> None:
    index, _, _ = played(actions)
    index.rebuild()
    assert audit(index) == ["the index had to be rebuilt once"]
    placed = {pod.signature for pod in index.pods.values() if pod.node}
    for namespace in NAMESPACE_NAMES:
        uses = index.namespace_budgets.by_namespace
        amounts = uses[namespace].amounts if namespace in uses else Amounts()
        assert amounts == recounted(each for each in placed if each.namespace == namespace)
