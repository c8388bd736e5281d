"""What kubectl prints, as model objects."""

import orjson
import pytest

from extender.model.objects import Namespace, Node, Pod, Workload
from extender.wire.errors import WireError
from extender.wire.snapshot import decode_snapshot


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


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "input data was truncated"),
        (b"[]", "expected object, got array"),
        (b'{"items": []}', "kind: is missing"),
        (b'{"kind": "Pod"}', 'kind: expected List, as `kubectl get -o json` prints, got "Pod"'),
        (listed(item("Node", "a"), item("Pod", "b", spec=5)), "items[1].spec: expected object | null, got int"),
    ],
    ids=["empty", "an array", "no kind", "a single object", "a wrong type"],
)
def test_what_is_no_list_is_refused_with_the_place(body: bytes, problem: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_snapshot(body)
    assert str(refused.value) == problem
