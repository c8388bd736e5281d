"""A complete list brings an index from any state to the one in which it would be had it known nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given

from extender.index.audit import audit
from tests.laws.observing import asked, built, fresh, seen
from tests.strategies import Step, histories

KINDS = ["pods", "nodes", "namespaces", "services", "replicasets", "replicationcontrollers"]


@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]], ids=["pods first", "pods last"])
@given(before=histories(6), after=histories(6))
def test_replacing_every_kind_equals_a_fresh_index(kinds: list[str], before: list[Step], after: list[Step]) -> None:
    index, _ = built(before)
    _, cluster = built(after)
    for kind in kinds:
        index.replace(kind, cluster.decoded(kind))
        assert audit(index) == []
    pods = asked([*before, *after])
    new = fresh(cluster)
    assert seen(index, pods) == seen(new, pods)
    assert {index.statistics()[name] for name in ("pods", "nodes", "namespaces")} == {
        new.statistics()[name] for name in ("pods", "nodes", "namespaces")
    }


@given(histories())
def test_replacing_by_what_is_there_changes_nothing(history: list[Step]) -> None:
    index, cluster = built(history)
    assert {kind: index.replace(kind, cluster.decoded(kind)) for kind in KINDS} == dict.fromkeys(KINDS, 0)
