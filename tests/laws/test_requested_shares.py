"""What is requested of each node, kept while pods and nodes come, change and go, is what a count of the objects gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.state import apply_change, state_of
from tests.builders import Json, index_of, taint
from tests.laws.requested_shares import SIZES, apply, counted, shares

NODES, PODS = ("n0", "n1", "n2"), ("p0", "p1", "p2", "p3")
TAINTS: tuple[list[Json], ...] = (
    [],
    [taint("busy", effect="PreferNoSchedule")],
    [taint("a", effect="PreferNoSchedule"), taint("b")],
)
REQUESTS = (None, {"cpu": "1"}, {"memory": "1Gi"}, {"cpu": "300m", "memory": "100Mi"}, {"cpu": "0"})

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(SIZES), st.sampled_from(TAINTS)),
        st.tuples(st.just("no node"), st.sampled_from(NODES), st.none(), st.none()),
        st.tuples(
            st.sampled_from(("bound", "assumed")),
            st.sampled_from(PODS),
            st.sampled_from(NODES),
            st.sampled_from(REQUESTS),
        ),
        st.tuples(st.sampled_from(("deleted", "forgotten")), st.sampled_from(PODS), st.none(), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_shares_and_soft_taints_are_those_of_a_count_after_each_step(
    steps: list[tuple[str, str, Any, Any]],
) -> None:
    index = index_of()
    for step in steps:
        apply(index, step)
        assert shares(index) == counted(index)
        assert audit(index) == []
    soft = {
        name
        for name, number in index.view.known.items()
        for nodes in index.view.soft_taints.values()
        if number in nodes
    }
    nodes = [each for number in index.view.known.values() if (each := index.view.node(number))]
    assert soft == {each.name for each in nodes if any(one.effect == "PreferNoSchedule" for one in each.taints)}
    kept = shares(index)
    index.rebuild()
    assert shares(index) == kept
    copy = index_of()
    for change in state_of(index):
        apply_change(copy, change)
    assert shares(copy) == kept
