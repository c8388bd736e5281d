"""A complete list brings an index from any state to the one in which it would be had it known nothing else.

The lists and changes go the way that they go in the service, through ``tasks.reflectors``.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from tests.laws.observing import WHOLE_ANSWERS, Cluster, built, fresh, requested_pods, seen, shape_of
from tests.reflected_index import ReflectedIndex
from tests.strategies import Request, Step, decoded, histories

KINDS = ["pods", "nodes", "namespaces", "services", "replicasets", "replicationcontrollers"]


def reflected(history: list[Step]) -> tuple[ReflectedIndex, Cluster]:
    """An index to which watches have shown a history, and the table beside it."""
    found, cluster = ReflectedIndex(ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules()), KINDS), Cluster()
    for step in history:
        if isinstance(step, Request):
            found.index.view.compiled(shape_of(step.pod))
            continue
        before = cluster.objects.get((step.kind, step.key))
        cluster.put(step)
        if step.body is not None:
            found.apply(step.kind, decoded(step.kind, step.body))
        elif before is not None:
            found.apply(step.kind, decoded(step.kind, before), deleted=True)
    return found, cluster


@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]], ids=["pods first", "pods last"])
@given(before=histories(6), after=histories(6))
def test_replacing_every_kind_equals_a_fresh_index(kinds: list[str], before: list[Step], after: list[Step]) -> None:
    found, _ = reflected(before)
    _, cluster = built(after)
    for kind in kinds:
        found.replace(kind, cluster.decoded(kind))
        assert audit(found.index) == []
    pods = requested_pods([*before, *after])
    new = fresh(cluster)
    assert seen(found.index, pods) == seen(new, pods)
    assert {found.index.statistics()[name] for name in ("pods", "nodes", "namespaces")} == {
        new.statistics()[name] for name in ("pods", "nodes", "namespaces")
    }


@given(histories())
def test_replacing_by_what_is_there_changes_nothing(history: list[Step]) -> None:
    found, cluster = reflected(history)
    assert {kind: found.replace(kind, cluster.decoded(kind)) for kind in KINDS} == dict.fromkeys(KINDS, 0)
