"""The record in an object's annotation is the tenant's to write: what this service did not write there has no effect."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.policies import INJECTED_ANNOTATION, PolicyKey
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit.json_edits import drop, make_patch
from tests.builders import Json
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import pod, review, reviewed, template_spec, verb, workload

NAME = "ClusterPodSchedulingPolicy/platform"
PLATFORM = policy(
    "platform",
    generation=3,
    targets="Both",
    conflictPolicy="Override",
    failurePolicy="Fail",
    nodeSelector={"pool": "tenants"},
    tolerations=[{"key": "pool"}],
    affinity=requiring(node_term(expression("zone", "In", "a"))),
)
GATE = policy("gate", when=["Release"], release={"topology": ["zone"]})


@pytest.mark.parametrize("path", [("b",), ("a", "b"), ("a", "b", "c"), ("c", "d")])
def test_to_drop_a_field_that_is_not_there_changes_nothing(path: tuple[str, ...]) -> None:
    value = {"a": {"x": 1}, "c": "text"}
    assert drop(value, path) is value


def annotated(text: Any) -> Json:
    return {"annotations": {INJECTED_ANNOTATION: text if isinstance(text, str) else orjson.dumps(text).decode()}}


def entry(generation: int = 3, name: str = NAME, **said: Any) -> Json:
    """What a record says of a policy."""
    return {"policy": name, "generation": generation} | said


def record_in(obj: Json) -> Json:
    found: Json = orjson.loads(obj["metadata"]["annotations"][INJECTED_ANNOTATION])
    return found


@pytest.mark.parametrize("size", [131_073, 255_000])
def test_a_record_that_is_larger_than_any_of_ours_is_not_read_and_skips_nothing(size: int) -> None:
    large = {"": {"policies": [entry(name="x" * size)]}}
    answer = reviewed(verb(PLATFORM, GATE), pod(**annotated(large)))
    assert answer.obj == reviewed(verb(PLATFORM, GATE), pod()).obj
    assert answer.warnings == []
    assert "nodeSelector" in answer.obj["spec"]
    assert answer.obj["spec"]["schedulingGates"]


FORGED: dict[str, Json] = {
    "of no policy": entry(name="ClusterPodSchedulingPolicy/none", nodeSelector={"disk": "ssd"}),
    "of no kind": entry(name="x", nodeSelector={"disk": "ssd"}),
    "of another generation": entry(2, nodeSelector={"disk": "ssd"}),
    "with another pair": entry(nodeSelector={"disk": "ssd"}),
    "with another value": entry(nodeSelector={"pool": "mine"}),
    "with another field": entry(fields={"schedulerName": "mine"}),
    "with another toleration": entry(lists={"tolerations": [{"key": "mine"}]}),
    "with a gate": entry(lists={"schedulingGates": [{"name": "mine"}]}),
    "with another list": entry(lists={"containers": [{"name": "c"}]}),
    "with a constraint": entry(wereConstraints=[[{"topologyKey": "zone"}, {"topologyKey": "mine"}]]),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("make", [pod, workload])
def test_a_record_of_what_the_policy_does_not_inject_is_dropped_and_rebuilt(forged: Json, make: Any) -> None:
    place = "" if make is pod else "/spec/template"
    own = {"nodeSelector": {"disk": "ssd"}, "schedulerName": "mine", "tolerations": [{"key": "mine"}]}
    answer = reviewed(verb(PLATFORM), make(spec=own, **annotated({place: {"policies": [forged]}})))
    assert answer.obj == reviewed(verb(PLATFORM), make(spec=own)).obj


def test_a_record_of_terms_that_no_policy_injects_is_dropped() -> None:
    said = {"policies": [entry()], "terms": {"before": [{}], "after": [[-1, node_term(expression("disk", "Exists"))]]}}
    assert reviewed(verb(PLATFORM), pod(**annotated({"": said}))).obj == reviewed(verb(PLATFORM), pod()).obj


def test_a_record_of_an_earlier_generation_counts_where_it_is_stored_already() -> None:
    """Only this service writes what is stored, and it takes the record of a new object for a forged one."""
    earlier = policy("platform", generation=2, targets="Both", nodeSelector={"disk": "old"})
    stored = reviewed(verb(earlier), workload()).obj
    assert template_spec(reviewed(verb(PLATFORM), stored, "UPDATE", old=stored).obj)["nodeSelector"] == {
        "pool": "tenants"
    }
    assert template_spec(reviewed(verb(PLATFORM), stored).obj)["nodeSelector"] == {"disk": "old", "pool": "tenants"}


def test_a_true_record_is_kept_when_the_webhook_is_called_again() -> None:
    once = reviewed(verb(PLATFORM, GATE), pod()).obj
    assert {each["policy"] for each in record_in(once)[""]["policies"]} == {NAME, "ClusterPodSchedulingPolicy/gate"}
    assert reviewed(verb(PLATFORM, GATE), once).patch == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"": 1}', '{"": {"policies": [{}]}}', '{"elsewhere": {"policies": []}}', "[" * 5000]
)
def test_what_is_no_record_is_taken_out(text: str) -> None:
    assert "annotations" not in reviewed(verb(), pod(**annotated(text))).obj["metadata"]
    assert reviewed(verb(PLATFORM), pod(**annotated(text))).obj == reviewed(verb(PLATFORM), pod()).obj


VALUES = st.sampled_from(["", "a", "tenants", "mine"])
PAIRS = st.dictionaries(st.sampled_from(["pool", "disk", "", "nodeName", "schedulerName"]), VALUES, max_size=3)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-2, 2) | VALUES,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(["key", "matchExpressions", "a"]), below, max_size=2),
    max_leaves=5,
)  # fmt: skip
ITEMS = st.lists(st.dictionaries(st.sampled_from(["key", "name", "topologyKey"]), JUNK, max_size=2), max_size=2)
PATHS = st.sampled_from(["tolerations", "schedulingGates", "topologySpreadConstraints", "containers", "", "affinity.x"])
RECORDS = st.fixed_dictionaries(
    {
        "policies": st.lists(
            st.fixed_dictionaries(
                {"policy": st.sampled_from([NAME, "x", "a/b/c"])},
                optional={
                    "generation": st.integers(0, 4),
                    "fields": PAIRS,
                    "nodeSelector": PAIRS,
                    "wereFields": PAIRS,
                    "wasNodeSelector": PAIRS,
                    "lists": st.dictionaries(PATHS, ITEMS, max_size=2),
                },
            ),
            max_size=2,
        )
    },
    optional={
        "created": st.lists(st.sampled_from(["affinity", "containers", "tolerations", "a.b", ""]), max_size=2),
        "terms": st.fixed_dictionaries(
            {"before": st.none() | st.lists(JUNK, max_size=2)},
            optional={"after": st.lists(st.tuples(st.integers(-2, 3), st.dictionaries(VALUES, JUNK)), max_size=2)},
        ),
    },
)


@given(RECORDS, st.booleans())
def test_whatever_a_record_says_the_platform_s_directives_stand(record: Json, is_stored: bool) -> None:  # noqa: FBT001 (drawn)
    for place, made in (("", pod), ("/spec/template", workload)):
        obj = made(**annotated({place: record}))
        found = verb(PLATFORM).admit(review(obj, "CREATE" if made is pod else "UPDATE", old=obj if is_stored else None))
        response = found.review["response"]
        assert response["allowed"] is True
        assert "errors" not in response.get("auditAnnotations", {})
        answer = reviewed(verb(PLATFORM), obj, "CREATE" if made is pod else "UPDATE", old=obj if is_stored else None)
        spec = template_spec(answer.obj)
        assert spec["nodeSelector"]["pool"] == "tenants"
        assert {"key": "pool"} in spec["tolerations"]


@pytest.mark.parametrize(
    "text",
    ["ClusterPodSchedulingPolicy/a", "PodSchedulingPolicy/shop/a", "PodSchedulingPolicy.kupid.gardener.cloud/shop/a"],
)
def test_the_name_of_a_policy_is_read_back(text: str) -> None:
    assert str(PolicyKey.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "x", "a/b", "Pod/a/b", "PodSchedulingPolicy/a", "ClusterPodSchedulingPolicy/a/b", "PodSchedulingPolicy//a"],
)
def test_no_other_text_is_the_name_of_a_policy(text: str) -> None:
    assert PolicyKey.parse(text) is None


# -- The JSON patch: it gives exactly the new object, touches nothing else, and tests what it replaces -----------------

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(["a", "b/c", "d~e", "~1", ""]), below, max_size=3)
    ),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), JSON_VALUES, max_size=3)


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
