"""A complete list of one kind in place of what was known of it: only the difference is applied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.index.audit import audit
from extender.model.objects import Object
from tests.builders import index_of, matching, namespace, node, pod, pod_json, term, workload
from tests.feeding import FedIndex
from tests.index.counting import near, question_of

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


def full() -> FedIndex:
    """An index with two objects of each kind."""
    return FedIndex(index_of(), OLD, OLD)


@pytest.mark.parametrize("kind", OLD)
def test_an_empty_list_removes_all_of_its_kind_and_nothing_else(kind: str) -> None:
    fed = full()
    before = fed.index.statistics()
    assert fed.replace(kind, []) == 2
    gone = {name for name, size in fed.index.statistics().items() if size != before[name]}
    shrunk = (
        {"pods", "pod_signatures"} if kind == "pods" else {kind} if kind in {"nodes", "namespaces"} else {"workloads"}
    )
    assert gone == shrunk


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
    fed = full()
    assert fed.replace(kind, [OLD[kind][0], new[kind]]) == 2
    assert fed.replace(kind, [new[kind], OLD[kind][0]]) == 0


def test_a_changed_object_is_one_change_and_its_counts_follow() -> None:
    fed = full()
    assert near(fed.index, NEAR_WEB) == [{"z1": 1, "z2": 1}]
    assert fed.replace("pods", [pod("a", on="n2", app="web"), pod("b", on="n2", app="web")]) == 1
    assert near(fed.index, NEAR_WEB) == [{"z2": 2}]


def test_finished_pods_of_a_list_are_not_there() -> None:
    fed = full()
    assert fed.replace("pods", [pod("a", on="n1", app="web", phase="Failed")]) == 2
    assert (near(fed.index, NEAR_WEB), fed.index.statistics()["pods"]) == ([{}], 0)


def test_a_list_that_changes_nothing_leaves_every_version() -> None:
    fed = full()
    index = fed.index
    compiled = question_of(index, NEAR_WEB)
    grounds = index.view.dependency_version(compiled)
    assert {kind: fed.replace(kind, objects) for kind, objects in OLD.items()} == dict.fromkeys(OLD, 0)
    assert (question_of(index, NEAR_WEB) is compiled, index.view.dependency_version(compiled)) == (True, grounds)
    assert audit(index) == []
