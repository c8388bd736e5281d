"""Quantities as Kubernetes writes them, and sums of resources."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.model.resources import QuantityError, add, largest, parse_quantity, parse_resources, total

DIGITS = "0123456789"
PIECES = ["0", "7", "12", "12", ".", "+", "-", "e", "e3", "E-2", "i", " ", "\n"]
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def is_number(text: str) -> bool:
    """`<number>`: digits, with a point before, after or between them."""
    whole, _, fraction = text.partition(".")
    return bool(whole or fraction) and all(each in DIGITS for each in whole + fraction)


def is_suffix(text: str) -> bool:
    """`<suffix>`; of a `<decimalExponent>` Go reads whole numbers only."""
    if text in BINARY or text in DECIMAL:
        return True
    digits = text[2:] if text[1:2] in {"+", "-"} else text[1:]
    return text[:1] in {"e", "E"} and bool(digits) and all(each in DIGITS for each in digits)


def is_quantity(text: str) -> bool:
    """`<quantity>`: a `<signedNumber>` and a `<suffix>`, split in any way that fits.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    return any(is_number(unsigned[:at]) and is_suffix(unsigned[at:]) for at in range(len(unsigned) + 1))


def is_read(text: str) -> bool:
    """Whether ours takes it."""
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def factor(suffix: str) -> Fraction:
    """What a suffix multiplies by."""
    if suffix in BINARY:
        return Fraction(1024) ** BINARY[suffix]
    return Fraction(10) ** (DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:]))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("5", 5),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2M", 2_000_000),
        ("3Ti", 3 * 2**40),
        ("1P", 10**15),
        ("1Ei", 2**60),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", 2),
        ("100m", 1),
        ("1500m", 2),
        ("1u", 1),
        ("1n", 1),
        (".5", 1),
        ("+2", 2),
        ("-1", -1),
        ("-500m", -1),
        ("1.0000000000000000000000000000000001", 2),
        ("0e99999999999999999999", 0),
        ("1e" + "0" * 5000 + "3", 1000),
        ("1e+3", 1000),
        ("7E", 7 * 10**18),
        ("1E1", 10),
        ("9007199254740993", 9007199254740993),
        ("1.", 1),
    ],
)
def test_a_quantity_is_a_whole_number_of_units_rounded_up(text: str, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"), [("1", 1000), ("100m", 100), ("0.1", 100), ("1.0005", 1001), ("2k", 2_000_000), ("1u", 1)]
)
def test_cpu_is_counted_in_thousandths(text: str, amount: int) -> None:
    assert parse_quantity(text, milli=True) == amount


@pytest.mark.parametrize(
    "text",
    [
        *("1e3Ki", "1e3m", "1E2E", "1e-3n", "1e1.5", "1e+", "+", "-.", "1Ki\n", "1\n", "1e3e3", "1EE", "1Kii"),
        *("", "Ki", "m", "one", "1KiB", "1 Gi x", "--1", "1e", "NaN", "Infinity", "1mi", "0x10", ".", "1_0", " 1"),
        "\u0661",  # an Arabic one is no digit to Go
    ],
)
def test_what_is_no_quantity_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("milli", [False, True], ids=["units", "thousandths"])
@pytest.mark.parametrize(
    "text", ["9223372036854775808", "16Ei", "1e99999", "1e999999999", "1" + "0" * 5000, "1e99999999999999999999"]
)
def test_what_64_bits_do_not_hold_counts_as_the_most_that_they_do(text: str, *, milli: bool) -> None:
    assert parse_quantity(text, milli=milli) == 2**63 - 1
    assert parse_quantity(f"-{text}", milli=milli) == 1 - 2**63


@pytest.mark.parametrize("text", ["1e-999999999", "1e-99999999999999999999", "0." + "0" * 5000 + "1", "1e-40", "1n"])
def test_the_least_that_is_asked_for_counts_as_one(text: str) -> None:
    """Away from zero on both sides: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity.Value."""
    assert parse_quantity(text) == 1
    assert parse_quantity(f"-{text}") == -1


@settings(max_examples=400)
@given(st.lists(st.sampled_from([*PIECES, *BINARY, *DECIMAL]), max_size=5).map("".join))
def test_a_text_is_a_quantity_exactly_where_the_documented_grammar_says_so(text: str) -> None:
    assert is_read(text) is is_quantity(text)


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.text(DIGITS, max_size=22),
    fraction=st.text(DIGITS, max_size=35),
    suffix=st.one_of(
        st.sampled_from([*BINARY, *DECIMAL]), st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-40, 40))
    ),
    milli=st.booleans(),
)
def test_a_quantity_is_worth_its_number_times_its_suffix(
    *, sign: str, whole: str, fraction: str, suffix: str, milli: bool
) -> None:
    """Rounded away from zero, at most what 64 bits hold; computed in fractions, which lose nothing."""
    number = Fraction(int(f"{whole}{fraction}" or "0"), 10 ** len(fraction))
    exact = number * factor(suffix) * (1000 if milli else 1)
    amount = min(ceil(exact), 2**63 - 1)
    text = f"{sign}{whole}.{fraction}{suffix}" if whole or fraction else f"{sign}0{suffix}"
    assert parse_quantity(text, milli=milli) == (-amount if sign == "-" else amount)


def test_only_cpu_is_counted_in_thousandths() -> None:
    assert parse_resources({"cpu": "2", "memory": "1Ki", "example.com/gpu": "2"}) == {
        "cpu": 2000,
        "memory": 1024,
        "example.com/gpu": 2,
    }


def test_what_is_taken_away_again_leaves_no_entry() -> None:
    held: dict[str, int] = {}
    add(held, {"cpu": 100, "memory": 5})
    add(held, {"cpu": 100}, -1)
    assert held == {"memory": 5}


def test_sums_and_maxima_are_by_resource() -> None:
    parts = [{"cpu": 1, "memory": 5}, {"cpu": 3}, {"gpu": 1}]
    assert total(parts) == {"cpu": 4, "memory": 5, "gpu": 1}
    assert largest(parts) == {"cpu": 3, "memory": 5, "gpu": 1}
    assert (total([]), largest([])) == ({}, {})
