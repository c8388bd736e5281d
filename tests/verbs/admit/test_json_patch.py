"""The JSON patch: it gives exactly the new object, touches nothing else, and tests what it replaces."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit.json_edits import make_patch

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(["a", "b/c", "d~e", "~1", ""]), below, max_size=3)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), VALUES, max_size=3)


def same(one: Any, two: Any) -> bool:
    """JSON equality, in which true is not 1."""
    return repr(one) == repr(two) if not isinstance(one, dict | list) else _same_containers(one, two)


def _same_containers(one: Any, two: Any) -> bool:
    if type(one) is not type(two) or len(one) != len(two):
        return False
    if isinstance(one, list):
        return all(map(same, one, two))
    return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)


@given(OBJECTS, OBJECTS)
def test_a_patch_gives_exactly_the_new_object(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    patch = make_patch(old, new)
    assert same(apply_patch(old, patch, JSON), new)
    assert same(old, before)


@given(OBJECTS)
def test_equal_objects_need_no_patch(obj: Any) -> None:
    assert make_patch(obj, copy.deepcopy(obj)) == []


@given(OBJECTS, OBJECTS)
def test_whatever_is_replaced_or_removed_is_tested_first(old: Any, new: Any) -> None:
    patch = make_patch(old, new)
    for number, step in enumerate(patch):
        if step["op"] in {"replace", "remove"}:
            assert patch[number - 1]["op"] == "test"
            assert patch[number - 1]["path"] == step["path"]


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {"a": {"b": 1}}, [{"op": "add", "path": "/a", "value": {"b": 1}}]),
        ({"a": {}}, {"a": {"b/c~d": 1}}, [{"op": "add", "path": "/a/b~1c~0d", "value": 1}]),
        ({"a": [1]}, {"a": [1, 2, 3]}, [{"op": "add", "path": "/a/1", "value": 2}, {"op": "add", "path": "/a/2", "value": 3}]),
        (
            {"a": [{"x": 1, "y": 2}, 9]},
            {"a": [{"x": 1, "y": 3}, 9]},
            [{"op": "test", "path": "/a/0/y", "value": 2}, {"op": "replace", "path": "/a/0/y", "value": 3}],
        ),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [{"op": "test", "path": "/a/1", "value": 2}, {"op": "remove", "path": "/a/1"}]),
        ({"a": 1}, {"a": True}, [{"op": "test", "path": "/a", "value": 1}, {"op": "replace", "path": "/a", "value": True}]),
    ],
)  # fmt: skip
def test_the_patch_is_as_small_as_the_change(old: Any, new: Any, patch: Any) -> None:
    assert make_patch(old, new) == patch


def test_parts_that_are_the_same_object_are_not_looked_into() -> None:
    class Sealed(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("looked into")

    part = Sealed(a=1)
    assert make_patch({"big": part, "x": 1}, {"big": part}) == [
        {"op": "test", "path": "/x", "value": 1},
        {"op": "remove", "path": "/x"},
    ]
