"""Snapshots in the forms in which they come."""

from typing import Any

import orjson
import pytest

from extender.model.constraints.taints import CORDON
from extender.model.objects import Node, Pod
from extender.wire.errors import WireError
from extender.wire.snapshots import decode_snapshot, objects_of
from tests.builders import CONTAINER, REQUIRED, Json, node_json, pod_json, taint, term


def listed(*items: Json, kind: str = "List") -> Json:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


def a_pod(name: str = "web-1", **fields: Any) -> Json:
    return pod_json(name, **fields) | {"kind": "Pod", "apiVersion": "v1"}


NODES = listed(node_json("n1"), node_json("n2"), kind="NodeList")
PODS = listed(pod_json("web-1"), kind="PodList")
NAMESPACES = listed({"metadata": {"name": "default"}}, kind="NamespaceList")


def names(body: bytes) -> list[str]:
    found = decode_snapshot(body)
    assert (found.unreadable, found.notes) == ([], [])
    return [obj.name for obj in found.objects]


def test_lists_within_a_list_are_read() -> None:
    assert names(orjson.dumps(listed(NODES, listed(PODS), NAMESPACES))) == ["n1", "n2", "web-1", "default"]


def test_what_cannot_be_read_within_lists_is_named_by_its_place() -> None:
    odd = {**a_pod(), "spec": 5}
    assert decode_snapshot(orjson.dumps(listed(NODES, listed(listed(odd))))).unreadable == [
        "items[1].items[0].items[0].spec (default/web-1): expected object | null, got int"
    ]


def test_lists_are_read_to_a_certain_depth() -> None:
    deep = listed(a_pod())
    for _ in range(12):
        deep = listed(deep)
    (problem,) = decode_snapshot(orjson.dumps(deep)).unreadable
    assert problem.endswith("items[0]: is a List within 8 others")


@pytest.mark.parametrize("between", [b"", b"\n", b"\n---\n", b"\n--- # the next\n"])
def test_several_documents_are_read(between: bytes) -> None:
    body = between.join(map(orjson.dumps, (NODES, a_pod(), NAMESPACES)))
    assert names(body) == ["n1", "n2", "web-1", "default"]


LOGS = """==== START logs for container main of pod default/web-1 ====
{"level": "info", "kind": "List", "items": [
==== END of something else
==== END logs for container main of pod default/web-1 ====
"""


def test_the_logs_of_a_dump_are_passed_over() -> None:
    """As `kubectl cluster-info dump` prints it."""
    parts = [orjson.dumps(each, option=orjson.OPT_INDENT_2).decode() for each in (NODES, PODS, NAMESPACES)]
    assert names("\n".join([*parts, LOGS, LOGS]).encode()) == ["n1", "n2", "web-1", "default"]
    assert names("\n".join([LOGS, *parts, LOGS.rpartition("==== END")[0]]).encode()) == ["n1", "n2", "web-1", "default"]


def test_a_document_that_is_none_is_named_by_its_line() -> None:
    body = orjson.dumps(NODES) + b"\n" + orjson.dumps(PODS) + b"\nerror: the server\n"
    with pytest.raises(WireError, match="no document of JSON begins in line 3"):
        decode_snapshot(body)


def test_an_array_of_objects_is_read() -> None:
    """As `jq .items` prints it."""
    assert names(orjson.dumps([{**node_json("n1"), "kind": "Node"}, a_pod(), NAMESPACES])) == ["n1", "web-1", "default"]


def test_a_file_that_was_cut_off_is_reported() -> None:
    with pytest.raises(WireError, match="truncated"):
        decode_snapshot(orjson.dumps(listed(NODES))[:50])


def test_one_object_is_a_snapshot_of_it() -> None:
    assert [type(each) for each in decode_snapshot(orjson.dumps(a_pod())).objects] == [Pod]


def test_objects_are_plain_json_in_every_form() -> None:
    body = orjson.dumps(listed(NODES)) + orjson.dumps(PODS)
    assert [(each["kind"], each["metadata"]["name"]) for each in objects_of(body)] == [
        ("Node", "n1"),
        ("Node", "n2"),
        ("Pod", "web-1"),
    ]


# -- as in a cluster


def test_pods_with_one_uid_are_pods_of_their_own() -> None:
    pods = [a_pod(name, uid="REDACTED") for name in ("a", "b", "c")]
    found = decode_snapshot(orjson.dumps(listed(NAMESPACES, *pods)))
    assert len({each.uid for each in found.objects if isinstance(each, Pod)}) == 3
    (note,) = found.notes
    assert note.startswith("2 pods share their UID with another one, such as default/b with default/a")


@pytest.mark.parametrize("uid", ["uid-web-1", "other"])
def test_a_pod_that_is_listed_twice_is_one_pod(uid: str) -> None:
    found = decode_snapshot(orjson.dumps(listed(NAMESPACES, a_pod(), a_pod(app="new", uid=uid))))
    (pod,) = (obj for obj in found.objects if isinstance(obj, Pod))
    assert (pod.signature.labels, pod.uid) == ({"app": "new"}, uid)
    assert found.notes == ["1 pod is listed again under the same name: the last one counts"]


def test_a_pending_pod_that_the_api_server_refuses_is_named() -> None:
    """It was written by hand, and is explained as a pod without that rule."""
    pod, placed = a_pod(), a_pod("placed", on="n1")
    for each in (pod, placed):
        each["spec"]["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"}
        ]
    found = decode_snapshot(orjson.dumps(listed(NAMESPACES, pod, placed)))
    assert len(found.objects) == 3
    (note,) = found.notes
    assert note.startswith(
        "1 pending pod is such as the API server refuses, for example items[1] (default/web-1): "
        "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value"
    )


def test_a_misspelt_field_of_a_pending_pod_is_named_too() -> None:
    pod = a_pod()
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringScheduling": [{"topologyKey": "zone"}]}}
    (note,) = decode_snapshot(orjson.dumps(listed(NAMESPACES, pod))).notes
    assert note.endswith("spec.affinity.podAntiAffinity.requiredDuringScheduling: unknown field")


def test_namespaces_that_are_missing_are_named() -> None:
    pods = [a_pod("a"), a_pod("b", namespace="shop"), a_pod("c", namespace="shop")]
    (note,) = decode_snapshot(orjson.dumps(listed(NAMESPACES, *pods))).notes
    assert note.startswith("1 namespace of pods is not among the objects, such as shop")
    assert decode_snapshot(orjson.dumps(NODES)).notes == []


@pytest.mark.parametrize("where", ["containers", "initContainers", "pod"])
def test_requests_of_a_pod_are_its_limits(where: str) -> None:
    pod = a_pod()
    if where == "pod":
        pod["spec"]["resources"] = {"limits": {"cpu": "2"}}
    else:
        pod["spec"][where] = [CONTAINER | {"resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1"}}}]
    assert only_pod(pod).requests["cpu"] == 2000


def test_ports_of_a_pod_in_the_network_of_the_host_are_ports_of_the_host() -> None:
    pod = a_pod()
    pod["spec"] |= {"hostNetwork": True, "containers": [CONTAINER | {"ports": [{"containerPort": 80}]}]}
    assert [each.port for each in only_pod(pod).host_ports] == [80]


def test_label_keys_of_a_pod_are_merged() -> None:
    keyed = term("host", app="web") | {"matchLabelKeys": ["track"]}
    pod = a_pod(app="web", track="a")
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [keyed]}}
    (found,) = only_pod(pod).signature.affinity.required_anti
    assert found.selector.matches({"app": "web", "track": "a"})
    assert not found.selector.matches({"app": "web", "track": "b"})


def only_pod(pod: Json) -> Pod:
    (found,) = decode_snapshot(orjson.dumps(listed(pod))).objects
    assert isinstance(found, Pod)
    return found


def test_a_cordoned_node_that_was_written_by_hand_has_the_taint_of_a_cluster() -> None:
    items = [
        {"kind": "Node", **node_json("n0", unschedulable=True)},
        {"kind": "Node", **node_json("n1", unschedulable=True, taints=[taint("node.kubernetes.io/unschedulable")])},
        {"kind": "Node", **node_json("n2")},
    ]
    found = decode_snapshot(orjson.dumps({"kind": "List", "items": items})).objects
    assert [each.taints for each in found if isinstance(each, Node)] == [(CORDON,), (CORDON,), ()]
