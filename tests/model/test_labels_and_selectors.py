"""Label selectors: what they match, when two are the same, and what is no selector."""

from __future__ import annotations

from string import ascii_letters, ascii_lowercase, digits

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.model.constraints.labels import LabelKey, ObjectName, is_label_key, is_label_value
from extender.model.constraints.selectors import (
    EVERYTHING,
    NOTHING,
    parse_selector,
    requirement,
    selector,
)

ALPHANUMERIC, LOWER = set(ascii_letters + digits), set(ascii_lowercase + digits)
WEB, DB, NONE = {"app": "web"}, {"app": "db"}, {"tier": "x"}


@pytest.mark.parametrize(
    ("operator", "values", "matched"),
    [
        ("In", ["web"], [True, False, False]),
        ("In", ["web", "db"], [True, True, False]),
        ("NotIn", ["web"], [False, True, True]),
        ("Exists", [], [True, True, False]),
        ("DoesNotExist", [], [False, False, True]),
    ],
)
def test_an_absent_label_satisfies_the_negative_operators(
    operator: str, values: list[str], matched: list[bool]
) -> None:
    made = selector([requirement("app", operator, values)])
    assert [made.matches(labels) for labels in (WEB, DB, NONE)] == matched


def test_the_null_selector_matches_nothing_and_the_empty_one_everything() -> None:
    assert [NOTHING.matches({}), NOTHING.matches(WEB)] == [False, False]
    assert [EVERYTHING.matches({}), EVERYTHING.matches(WEB)] == [True, True]
    assert [NOTHING.is_empty, EVERYTHING.is_empty, parse_selector({}).is_empty] == [False, True, True]
    assert NOTHING != EVERYTHING


def test_the_order_of_clauses_and_values_and_duplicates_mean_nothing() -> None:
    first = parse_selector({"a": "1"}, [requirement("b", "In", ["x", "y"]), requirement("c", "Exists")])
    second = selector(
        [
            requirement("c", "Exists"),
            requirement("b", "In", ["y", "x", "y"]),
            requirement("a", "In", ["1"]),
            requirement("a", "In", ["1"]),
        ]
    )
    assert (first, hash(first)) == (second, hash(second))


def test_the_anchor_is_the_clause_that_the_fewest_labels_satisfy() -> None:
    made = selector([requirement("a", "In", ["1", "2"]), requirement("b", "In", ["1"]), requirement("c", "Exists")])
    assert made.anchor() == requirement("b", "In", ["1"])
    assert selector([requirement("c", "Exists"), requirement("d", "NotIn", ["1"])]).anchor() is None


def test_a_selector_reads_as_kubectl_takes_it() -> None:
    made = parse_selector(
        {"app": "web"},
        [
            requirement("b", "In", ["x", "y"]),
            requirement("c", "NotIn", ["z"]),
            requirement("d", "Exists"),
            requirement("e", "DoesNotExist"),
        ],
    )
    assert str(made) == "app=web,b in (x,y),c notin (z),d,!e"
    assert (str(NOTHING), str(EVERYTHING)) == ("<nothing>", "<everything>")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("app", True),
        ("example.com/app", True),
        ("a.b_c-d", True),
        ("A", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("", False),
        ("-app", False),
        ("app-", False),
        ("/app", False),
        ("example.com/", False),
        ("Example.com/app", False),
        ("a/b/c", False),
        ("example..com/app", False),
        (("a" * 63 + ".") * 3 + "b" * 61 + "/app", True),
        (("a" * 63 + ".") * 3 + "b" * 62 + "/app", False),
        ("app\n", False),
        ("app/\n", False),
        ("example.com\n/app", False),
        ("\u00e4pp", False),
        ("app\u0661", False),
    ],
)
def test_a_label_key_is_a_qualified_name(text: str, *, valid: bool) -> None:
    assert is_label_key(text) is valid


@settings(max_examples=400)
@given(st.lists(st.sampled_from(["a", "b0", "Z", "9", "-", "_", ".", "/", "\n"]), max_size=6).map("".join))
def test_a_text_is_a_label_key_exactly_where_the_documented_syntax_says_so(text: str) -> None:
    """The syntax: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set."""
    *prefixes, name = text.split("/")
    named = bool(name) and {name[0], name[-1]} <= ALPHANUMERIC and set(name) <= ALPHANUMERIC | set("-_.")
    parts = prefixes[0].split(".") if prefixes else []
    prefixed = all(part and {part[0], part[-1]} <= LOWER and set(part) <= LOWER | {"-"} for part in parts)
    valid = named and prefixed and len(prefixes) <= 1
    assert is_label_key(text) is valid
    assert parses(LabelKey, text) is valid
    assert parses(ObjectName, text) is ("/" not in text and parses(LabelKey, f"{text}/a"))


def parses(kind: type[LabelKey | ObjectName], text: str) -> bool:
    """Whether a document may hold the text."""
    try:
        return kind.parse(text) == text
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("", True),
        ("web\n", False),
        ("web", True),
        ("1.2_3-a", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("-a", False),
        ("a b", False),
    ],
)
def test_a_label_value_is_short_and_begins_and_ends_well(text: str, *, valid: bool) -> None:
    assert is_label_value(text) is valid
