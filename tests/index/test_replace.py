"""A complete list of one kind in place of what was known of it: only the difference is applied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.index.audit import audit
from extender.model.objects import Object
from tests.builders import index_of, matching, namespace, node, pod, pod_json, term, workload
from tests.index.counting import compiled_of
from tests.reflected_index import ReflectedIndex

NEAR_WEB = pod_json(near=[term("zone", app="web")])
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
