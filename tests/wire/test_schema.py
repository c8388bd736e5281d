"""What follows from the declaration of a field: the schema of the CRD, the check of the webhook, its decoding, and its name.

The declaration here is of no kind. It has one field of each type, so that a field that is added to a policy is known to be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from deploy.policies.crds import structural
from extender.wire.policies.field_errors import Problems
from extender.wire.policies.policy_validation import check_of
from extender.wire.policies.schema import (
    TIME,
    Field,
    FieldRule,
    Flag,
    Many,
    NumberOrWord,
    Pairs,
    Record,
    Text,
    WholeNumber,
    choice,
    duration,
    names_of,
    predicate,
    reader_of,
)
from tests.builders import Json


def not_alone(found: Problems, value: Json, path: str) -> None:
    if "size" in value and "text" not in value:
        found.required(f"{path}.text", "is needed beside size")


RECORD: Final = Record(
    (
        Field("text", Text("^[a-z]+$", 5), "Some letters.", is_required=True),
        Field("size", WholeNumber(1, 9)),
        Field("wide", WholeNumber(None, bits=64)),
        Field("count", NumberOrWord("Declared", 1, 9)),
        Field("is_on", Flag(default=True)),
        Field("colour", choice(["Red", "Blue"])),
        Field("after", duration(lambda seconds: seconds <= 60, "must be at most 1m")),
        Field("words", Many(Text(longest=3), 2, is_set=True)),
        Field("parts", Many(Record((Field("name", Text(longest=9), is_required=True),)), 2, keys=("name",))),
        Field("one", Record((Field("label", Text(longest=9)), Field("owner", Flag(only_true=True))), is_choice=True)),
    ),
    (predicate(not_alone, FieldRule("!has(self.size) || has(self.text)", "is needed beside size", ".text")),),
)


def errors_of(**value: Any) -> list[str]:
    found = Problems()
    check_of(RECORD)(found, {"text": "a", **value}, "x")
    return list(map(str, found.errors))


def test_a_value_within_all_bounds_has_no_error() -> None:
    whole = {
        "size": 9,
        "wide": -(2**40),
        "count": "Declared",
        "is_on": False,
        "colour": "Blue",
        "after": "1m",
        "words": ["a", "b"],
    }
    assert errors_of(**whole, parts=[{"name": "a"}, {"name": "b"}], one={"owner": True}) == []
    assert errors_of(size=None, count=None, is_on=None, colour="", after="", words=None, parts=None, one=None) == []


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"text": "abcdef"}, 'x.text: Too long: "abcdef": may not be more than 5 characters'),
        ({"text": "A"}, 'x.text: Invalid value: "A": must match ^[a-z]+$'),
        ({"text": "a\n"}, 'x.text: Invalid value: "a\\n": must match ^[a-z]+$'),
        ({"text": 5}, "x.text: Invalid value: 5: must be a string"),
        ({"text": None}, "x.text: Required value"),
        ({"size": 10}, "x.size: Invalid value: 10: must be in the range 1-9"),
        ({"wide": 2**63}, f"x.wide: Invalid value: {2**63}: must be in the range {-(2**63)}-{2**63 - 1}"),
        ({"count": "All"}, 'x.count: Unsupported value: "All": supported values: "Declared", "a number"'),
        ({"count": 0}, "x.count: Invalid value: 0: must be in the range 1-9"),
        ({"is_on": "yes"}, 'x.is_on: Invalid value: "yes": must be true or false'),
        ({"colour": "Green"}, 'x.colour: Unsupported value: "Green": supported values: "Red", "Blue"'),
        ({"after": "2m"}, 'x.after: Invalid value: "2m": must be at most 1m'),
        ({"words": ["a", "b", "c"]}, "x.words: Too many: 3: must have at most 2 items"),
        ({"words": ["a", "a"]}, 'x.words[1]: Duplicate value: "a"'),
        ({"words": ["abcd"]}, 'x.words[0]: Too long: "abcd": may not be more than 3 characters'),
        ({"words": "a"}, 'x.words: Invalid value: "a": must be a list'),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, 'x.parts[1].name: Duplicate value: "a"'),
        ({"parts": [{}]}, "x.parts[0].name: Required value"),
        ({"parts": [5]}, "x.parts[0]: Invalid value: 5: must be an object"),
        ({"one": {}}, "x.one: Invalid value: {}: must have exactly one of the fields label, owner"),
        ({"one": {"label": None}}, "x.one.label: Required value"),
        ({"one": {"owner": False}}, 'x.one.owner: Unsupported value: false: supported values: "true"'),
    ],
    ids=str,
)
def test_an_error_names_the_field_the_value_and_what_is_allowed(value: Json, error: str) -> None:
    assert errors_of(**value) == [error]


def test_a_predicate_is_checked_too() -> None:
    found = Problems()
    check_of(RECORD)(found, {"size": 1}, "x")
    assert [str(each) for each in found.errors][1:] == ["x.text: Required value: is needed beside size"]


def test_the_schema_has_the_same_bounds() -> None:
    found = structural(RECORD, "All types.")
    assert found["required"] == ["text"]
    assert [each["fieldPath"] for each in found["x-kubernetes-validations"]] == [".text"]
    fields = found["properties"]
    about = {"description": "Some letters."}
    assert fields["text"] == about | {"type": "string", "maxLength": 5, "minLength": 1, "pattern": "^[a-z]+$"}
    assert fields["size"] == {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9}
    assert fields["is_on"] == {"type": "boolean", "default": True}
    assert fields["colour"] == {"type": "string", "enum": ["Red", "Blue"], "default": "Red"}
    assert fields["parts"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["one"]["x-kubernetes-validations"][0]["message"].endswith("exactly one of the fields label, owner")


def test_the_names_and_the_words_are_known() -> None:
    assert {"text", "parts", "name", "owner", "Declared", "Red", "Blue"} <= set(names_of(RECORD))


@dataclass(frozen=True)
class Model:
    """What is read of the record, by the names of its fields."""

    text: str
    size: int = 3
    is_on: bool = True
    after: float = 60.0
    words: tuple[str, ...] = ()


def test_the_model_is_read_by_the_names_of_its_fields_and_has_the_defaults() -> None:
    read = reader_of(Model, RECORD)
    assert Model(**read({"text": "a", "size": None, "colour": "Red"})) == Model("a")
    whole = {"text": "a", "size": 1, "is_on": False, "after": "30s", "words": ["b"]}
    assert Model(**read(whole)) == Model("a", 1, is_on=False, after=30.0, words=("b",))


@pytest.mark.parametrize("declared", [TIME, Pairs(Text(), 3)], ids=["time", "pairs"])
def test_a_type_that_only_the_api_server_checks_needs_a_check_of_its_own(declared: Any) -> None:
    with pytest.raises(TypeError, match="needs a check of its own"):
        check_of(declared)
