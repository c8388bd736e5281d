"""JSON without what no decision reads: the same document down to the deepest field, whatever stands below."""

from __future__ import annotations

import json

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.wire.errors import UNREADABLE
from extender.wire.objects.kinds import PODS, REPLICA_SETS
from extender.wire.objects.simplify import DEEPEST_READ, simplified, simplify
from tests.builders import Json, pod_json, term

_KEYS = st.sampled_from(["a", "managedFields", "", '"', "\\", '{"managedFields":', "[", "]}"])
_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


def wrapped(value: object, levels: int) -> object:
    """The value inside of so many arrays and objects, in turn."""
    for level in range(levels):
        value = [value] if level % 2 else {"a": 1, "b": value, "c": [2]}
    return value


def read_part(value: object, depth: int = 0) -> object:
    """What is left when everything that may be left out is."""
    if isinstance(value, dict | list) and depth >= DEEPEST_READ:
        return None
    if isinstance(value, list):
        return [read_part(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {
            key: None if key == "managedFields" and isinstance(each, dict | list) else read_part(each, depth + 1)
            for key, each in value.items()
        }
    return value


def depth_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(_VALUES, st.integers(0, 2 * DEEPEST_READ), st.sampled_from([None, 2]))
@example(value=[[[]], {}], levels=DEEPEST_READ - 2, indent=None)
def test_what_may_be_read_stays_and_nothing_is_deep(value: object, levels: int, indent: int | None) -> None:
    document = wrapped(value, levels)
    found = json.loads(simplified(json.dumps(document, indent=indent).encode()))
    assert read_part(found) == read_part(document)
    assert depth_of(found) <= DEEPEST_READ + 1


def deep(levels: int = 10_000) -> msgspec.Raw:
    return msgspec.Raw(b'{"f:a":' * levels + b"{}" + b"}" * levels)


HIDING: dict[str, Json] = {
    "managedFields": {"metadata": {"managedFields": [{"manager": "x", "fieldsV1": deep()}]}},
    "another field of the metadata": {"metadata": {"unheardOf": deep()}},
    "a field of the spec": {"spec": {"unheardOf": [deep(), deep()]}},
    "a field of the status": {"status": {"containerStatuses": [{"state": deep()}]}},
    "a field of the object": {"unheardOf": deep()},
    "beside deep brackets in texts": {"metadata": {"generateName": '[{"' * 2000, "managedFields": [deep()]}},
}


def merged(body: Json, more: Json) -> Json:
    return body | {key: {**body.get(key, {}), **each} if isinstance(each, dict) else each for key, each in more.items()}


@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_a_pod_reads_the_same_with_deep_nesting_in_fields_that_are_not_read(hiding: Json) -> None:
    body = pod_json("web", on="n1", uid="u", labels={"app": "web"}, apart=[term("zone", app="web")])
    hidden = msgspec.json.encode(merged(body, hiding))
    assert PODS.decode_object(simplified(hidden)) == PODS.decode_object(orjson.dumps(body))


def test_no_field_that_is_read_lies_too_deep() -> None:
    """The deepest of all: values of an expression of a weighted term's selector, in an item of a page."""
    body = pod_json("web", avoids=[{"weight": 1, "podAffinityTerm": term("zone", app="web")}])
    page = {"items": [body]}
    assert json.loads(simplified(orjson.dumps(page))) == page
    assert depth_of(page) <= DEEPEST_READ // 2


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert json.loads(simplified(b'{"a":"x\xff\xfe","b":[1]}')) == {"a": "x\ufffd\ufffd", "b": [1]}
    owner = REPLICA_SETS.decode_object(simplified(b'{"metadata":{"name":"rs"},"spec":{"selector":null},"\xff":1}'))
    assert owner.name == "rs"


@pytest.mark.parametrize(
    "body",
    [b"", b"]{}", b"[", b'{"a":"', b"[" * 50, b"[" * 50 + b"]" * 49, b'{"a":1}}', b"[" * 50 + b"]" * 51, b'{"a', b"\\"],
)
def test_what_is_no_json_does_not_become_json(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(simplified(body))


def test_a_large_document_is_worked_off_in_steps() -> None:
    chains = b"[" + b",".join(b'{"":' * 40 + b"[[],0]" + b"}" * 40 for _ in range(2_000)) + b"]"
    steps = sum(1 for _ in simplify(chains))
    assert 100 < steps < 2_000


@pytest.mark.parametrize(
    "part",
    [b" ", b"1,", b"{},", b'{"a":1},', b'"a",', b"[", b'"' + b"a" * 600 + b'",', b'\\"', "ä".encode(), b"\xff"],
    ids=repr,
)
@pytest.mark.parametrize("opening", [b"[", b'["'], ids=["values", "text"])
def test_no_step_reads_more_than_so_many_bytes(part: bytes, opening: bytes) -> None:
    """Whatever stands between two brackets, a step of one megabyte would hold up the event loop."""
    body = opening + part * (2**23 // len(part))
    assert sum(1 for _ in simplify(body)) >= 2**23 / 2**20


@given(st.lists(_KEYS | st.text(max_size=3), max_size=4), st.integers(500, 530), st.sampled_from(["x", '"', "\\", "ä"]))
def test_long_texts_stay_as_they_are(keys: list[str], length: int, filling: str) -> None:
    document = {
        "a": [filling * length, dict.fromkeys(keys, filling * 2000)],
        "managedFields": {"b": [filling * length]},
    }
    found = json.loads(simplified(json.dumps(document).encode()))
    assert found == document | {"managedFields": None}
