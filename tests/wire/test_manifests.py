"""What kubectl prints, as model objects."""

import msgspec
import orjson
import pytest

from extender.model.objects import Namespace, Node, Pod, Workload
from extender.wire.errors import WireError
from extender.wire.manifests import decode_snapshot


def listed(*items: dict[str, object], kind: str = "List") -> bytes:
    """The output of `kubectl get -o json`."""
    return orjson.dumps({"apiVersion": "v1", "kind": kind, "items": items})


def item(kind: str, name: str, **more: object) -> dict[str, object]:
    """One object of the output."""
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}, **more}


def test_kinds_that_decisions_read_become_objects_in_order() -> None:
    found = decode_snapshot(listed(item("Node", "a"), item("Namespace", "b"), item("Pod", "c"), item("Service", "d")))
    assert [(type(held), held.name) for held in found.objects[:3]] == [(Node, "a"), (Namespace, "b"), (Pod, "c")]
    assert isinstance(found.objects[3], Workload)


def test_other_kinds_are_counted_and_left_out() -> None:
    found = decode_snapshot(listed(item("ConfigMap", "a"), item("Secret", "b"), item("ConfigMap", "c")))
    assert (found.objects, found.skipped) == ([], {"ConfigMap": 2, "Secret": 1})


def test_the_items_of_a_typed_list_need_not_repeat_their_kind() -> None:
    body = listed({"metadata": {"name": "a"}}, kind="NodeList")
    assert [type(held) for held in decode_snapshot(body).objects] == [Node]


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_an_empty_list_is_an_empty_snapshot(items: bytes) -> None:
    assert decode_snapshot(b'{"kind": "List", "items": ' + items + b"}").objects == []


def test_an_item_that_cannot_be_read_is_left_out_and_named() -> None:
    odd = item("Pod", "b", spec=5)
    odd["metadata"] = {"name": "b", "namespace": "team"}
    body = listed(item("Node", "a"), odd, item("Pod", "c")).replace(b'"uid-c"', b"7")[:-2] + b',5,{"kind":7}]}'
    found = decode_snapshot(body)
    assert ([held.name for held in found.objects], found.unreadable) == (
        ["a"],
        [
            "items[1].spec (team/b): expected object | null, got int",
            "items[2].metadata.uid: expected str | null, got int",
            "items[3]: expected object, got int",
            "items[4].kind: expected str, got int",
        ],
    )


def test_deep_nesting_and_bytes_that_are_no_utf8_leave_nothing_out() -> None:
    deep = msgspec.Raw(b"[" * 5_000 + b"]" * 5_000)
    body = msgspec.json.encode(
        {
            "kind": "List",
            "items": [
                {"kind": "ConfigMap", "data": deep},
                item("Pod", "a") | {"status": {"conditionsOfOld": deep}},
                item("Node", "b") | {"metadata": {"name": "b", "labels": {"team": "MARK"}}},
            ],
        }
    )
    found = decode_snapshot(body.replace(b"MARK", b"\xff"))
    assert ([held.name for held in found.objects], found.unreadable) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "input data was truncated"),
        (b"[]", "expected object, got array"),
        (b'{"items": []}', "kind: is missing"),
        (b'{"kind": "Pod"}', 'kind: expected List, as `kubectl get -o json` prints, got "Pod"'),
    ],
    ids=["empty", "an array", "no kind", "a single object"],
)
def test_what_is_no_list_is_rejected(body: bytes, problem: str) -> None:
    with pytest.raises(WireError) as rejected:
        decode_snapshot(body)
    assert str(rejected.value) == problem
