"""Label selectors in kubectl's notation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.constraints.labels import KEY_PATTERN, VALUE_PATTERN, is_label_key, is_label_value
from extender.model.constraints.selectors import EVERYTHING, LabelSelector, requirement, selector
from extender.wire.errors import WireError
from extender.wire.objects.constraints import SELECTOR_PATTERN, parse_selector_text

_KEYS = st.sampled_from(["app", "a.b/c_d", "in", "notin"])
_VALUES = st.lists(st.sampled_from(["web", "x-1", "A.b", "", "in"]), min_size=1, max_size=3, unique=True)
_REQUIREMENTS = st.one_of(
    st.builds(requirement, _KEYS, st.just("In"), _VALUES),
    # An empty value alone is written as no value, which is an error.
    st.builds(requirement, _KEYS, st.just("NotIn"), _VALUES.filter(lambda values: values != [""])),
    st.builds(requirement, _KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("app=web", "app=web"),
        (" app == web , tier in (b, a),zone notin (x) ", "app=web,tier in (a,b),zone notin (x)"),
        ("app!=web,!old,new, ! older", "app notin (web),new,!old,!older"),
        ("app=", "app="),
        ("in in (in)", "in=in"),
    ],
)
def test_each_operator_is_read(text: str, shown: str) -> None:
    assert str(parse_selector_text(text, "selector")) == str(parse_selector_text(shown, "selector"))
    assert {str(each) for each in _clauses(text)} == {str(each) for each in _clauses(shown)}


def _clauses(text: str) -> set[object]:
    return set(parse_selector_text(text, "selector").requirements)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_selects_everything(text: str) -> None:
    assert parse_selector_text(text, "selector") == EVERYTHING


@pytest.mark.parametrize(
    "text",
    [
        "=web",
        "app=web tier=x",
        "app=web,",
        ",app",
        "app in ()",
        "app in web",
        "app>1",
        "a b",
        "app=w%b",
        "-a",
        "a" * 4001,
    ],
)
def test_what_is_no_selector_names_the_field(text: str) -> None:
    with pytest.raises(WireError) as error:
        parse_selector_text(text, "selector")
    assert error.value.path == "selector"


@given(st.lists(_REQUIREMENTS, max_size=4).map(selector))
def test_what_a_selector_shows_is_read_as_the_same_selector(made: LabelSelector) -> None:
    text = "" if made.is_empty else str(made)
    assert parse_selector_text(text, "selector") == made


_PARTS = ["a", "in", "notin", "a.b/c", "/", "-", "=", "==", "!=", "!", ",", "(", ")", " ", "\n", "é", "A" * 63, "_"]


@given(st.lists(st.sampled_from(_PARTS), max_size=9).map("".join))
def test_the_pattern_of_the_schema_matches_what_is_read_and_nothing_else(text: str) -> None:
    try:
        parse_selector_text(text, "selector")
        is_read = True
    except WireError:
        is_read = False
    assert (re.search(SELECTOR_PATTERN, text) is not None) == is_read


@given(st.lists(st.sampled_from([*_PARTS, "a" * 63, "b." * 126, "c" * 253]), max_size=5).map("".join))
def test_the_patterns_of_keys_and_values_match_what_is_one(text: str) -> None:
    assert (re.fullmatch(KEY_PATTERN, text) is not None) == is_label_key(text)
    assert (re.fullmatch(VALUE_PATTERN, text) is not None) == is_label_value(text)
