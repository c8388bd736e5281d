"""What has come and gone leaves no count, no group of its own and no number behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.counts import compiled_constraints
from extender.index.counts.compiled_constraints import CompiledConstraints
from tests.builders import pod_json
from tests.laws.observing import built, empty, groups_of, requested_pods, shape_of
from tests.strategies import Request, Step, decoded, histories

# Compiled questions and what only they hold are kept for the next replica; the rest must fall to zero.
KEPT_FOR_QUESTIONS = {
    "compiled_constraints",
    "term_groups",
    "spread_groups",
    "scopes",
    "topology_keys",
    "namespace_selectors",
    "indexed_labels",
}


@given(histories(), st.lists(st.integers(0, 100), max_size=12))
def test_a_cluster_that_was_emptied_has_no_counts_and_no_numbers(history: list[Step], order: list[int]) -> None:
    index, cluster = built(history)
    empty(index, cluster, order)
    sizes = index.statistics()
    assert {name: size for name, size in sizes.items() if size and name not in KEPT_FOR_QUESTIONS} == {}
    for pod in requested_pods(history):
        assert [group.counts for group in groups_of(index.view.compiled(shape_of(pod))) if group.counts] == []
    assert (dict(index.view.known), set(index.view.node_names) - {""}) == ({}, set())
    assert audit(index) == []


@given(histories(), st.lists(st.integers(0, 100), max_size=12))
def test_groups_go_with_the_last_request_that_asked_for_them(history: list[Step], order: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_constraints, "MOST_COMPILED", 1)
        index, cluster = built([*history, Request(pod_json("plain"))])
        empty(index, cluster, order)
        index.view.compiled(shape_of(pod_json("plain")))
    assert list(index.counts.terms.owned()) == []
    assert len(index.counts.signatures) <= 1  # that of the pod that asked last
    sizes = index.statistics()
    assert {name: sizes[name] for name in KEPT_FOR_QUESTIONS} == {
        "compiled_constraints": 1,
        "topology_keys": 0,
        "term_groups": 0,
        "spread_groups": 0,
        "scopes": 0,
        "namespace_selectors": 0,
        "indexed_labels": 0,
    }


@given(histories())
def test_a_node_that_comes_back_gets_its_pods_back(history: list[Step]) -> None:
    index, cluster = built(history)
    pods = requested_pods(history)
    before = [index.view.compiled(shape_of(pod)) for pod in pods]
    counts = [_totals(compiled) for compiled in before]
    for body in cluster.of("nodes"):
        index.delete(decoded("nodes", body))
        index.upsert(decoded("nodes", body))
    assert audit(index) == []
    after = [index.view.compiled(shape_of(pod)) for pod in pods]
    assert [_totals(compiled) for compiled in after] == counts


def _totals(compiled: CompiledConstraints) -> list[int]:
    """How many pods each group counts; the groups of existing pods' terms come in no particular order."""
    return sorted(sum(group.counts.values()) for group in groups_of(compiled))
