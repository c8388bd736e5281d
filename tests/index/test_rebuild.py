"""Everything counted anew from the objects: nothing is lost by it, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.rules.interpod_affinity import own_terms
from tests.builders import index_of, matching, namespace, node, pod, pod_json, spread, term, workload
from tests.index.counting import compiled_of, near, spread_over
from tests.reflected_index import ReflectedIndex

NEAR_WEB = pod_json(near=[term("zone", app="web")])
ANEW = ["the index had to be rebuilt once"]  # and nothing else
SPREAD_WEB = pod_json(app="web", spreads=[spread("zone", app="web")])


def zoned() -> ClusterIndex:
    """A pod on a node, one on a node that does not exist, and one on none; one assumed on a node, one on either of two."""
    index = index_of(
        node("n1", zone="z1"),
        node("n2", zone="z2"),
        pod("there", on="n1", app="web", apart=[term("zone", app="db")], requests={"cpu": "1"}),
        pod("ghostly", on="ghost", app="web"),
        pod("waiting", app="idle"),
    )
    index.assume(pod("sure", app="web"), ("n2",), now=0.0)
    index.assume(pod("open", app="web"), ("n1", "n2"), now=0.0)
    return index


def seen(index: ClusterIndex) -> object:
    """Counts, sizes, what is undetermined and what is requested."""
    counts = near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)
    undetermined = index.view.is_undetermined(compiled_of(index, NEAR_WEB))
    requested = {name: dict(index.view.requested(number)) for name, number in index.view.known.items()}
    on_nodes = {name: sorted(index.view.pods_on(number)) for name, number in index.view.known.items()}
    sizes = {name: size for name, size in index.statistics().items() if name != "drifts"}
    return counts, undetermined, requested, on_nodes, sizes


def test_it_looks_the_same_afterwards_and_assumptions_end_as_before() -> None:
    index = zoned()
    before = seen(index)
    index.rebuild()
    assert seen(index) == before
    assert (index.drifts, audit(index)) == (1, ANEW)
    index.upsert(pod("sure", on="n2", app="web"))
    index.upsert(pod("open", on="n1", app="web"))
    assert near(index, NEAR_WEB) == [{"z1": 2, "z2": 1}]
    assert not index.view.is_undetermined(compiled_of(index, NEAR_WEB))
    assert [group.undetermined for group in own_terms(compiled_of(index, NEAR_WEB)).affinity] == [0]
    assert audit(index) == ANEW


def test_a_change_of_a_node_that_a_drift_interrupts_is_applied_all_the_same() -> None:
    index = zoned()
    (group,) = own_terms(compiled_of(index, NEAR_WEB)).affinity
    group.add(index.view.known["n2"], -1)  # type: ignore[attr-defined]  # a fault of ours
    assert index.upsert(node("n2", zone="z3"))
    assert near(index, NEAR_WEB) == [{"z1": 1, "z3": 1}]
    assert audit(index) == ANEW


# -- A complete list of one kind in place of what was known of it: only the difference is applied ----------------------

OLD: dict[str, Sequence[Object]] = {
    "nodes": [node("n1", zone="z1"), node("n2", zone="z2")],
    "pods": [pod("a", on="n1", app="web"), pod("b", on="n2", app="web")],
    "namespaces": [namespace("red", team="a"), namespace("blue")],
    "services": [workload("Service", "web", {"app": "web"}), workload("Service", "db", {"app": "db"})],
    "replicasets": [workload("ReplicaSet", "web", matching(app="web")), workload("ReplicaSet", "db", {})],
    "statefulsets": [workload("StatefulSet", "web", matching(app="web")), workload("StatefulSet", "db", {})],
    "replicationcontrollers": [
        workload("ReplicationController", "web", {"app": "web"}),
        workload("ReplicationController", "db", {"app": "db"}),
    ],
}


def full() -> ReflectedIndex:
    """An index with two objects of each kind."""
    return ReflectedIndex(index_of(), OLD, OLD)


@pytest.mark.parametrize("kind", OLD)
def test_one_kept_one_gone_one_new_are_two_changes(kind: str) -> None:
    new: dict[str, Object] = {
        "nodes": node("n3"),
        "pods": pod("c"),
        "namespaces": namespace("green"),
        "services": workload("Service", "new", None),
        "replicasets": workload("ReplicaSet", "new", None),
        "statefulsets": workload("StatefulSet", "new", None),
        "replicationcontrollers": workload("ReplicationController", "new", None),
    }
    reflected = full()
    assert reflected.replace(kind, [OLD[kind][0], new[kind]]) == 2
    assert reflected.replace(kind, [new[kind], OLD[kind][0]]) == 0


def test_a_list_that_changes_nothing_leaves_every_version() -> None:
    reflected = full()
    index = reflected.index
    compiled = compiled_of(index, NEAR_WEB)
    grounds = index.view.dependency_version(compiled)
    assert {kind: reflected.replace(kind, objects) for kind, objects in OLD.items()} == dict.fromkeys(OLD, 0)
    assert (compiled_of(index, NEAR_WEB) is compiled, index.view.dependency_version(compiled)) == (True, grounds)
    assert audit(index) == []
