"""Quantities as Kubernetes writes them, and sums of resources."""

from __future__ import annotations

import pytest

from extender.model.resources import QuantityError, add, largest, parse_quantity, parse_resources, total


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
        ("-500m", 0),
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
        *("", "Ki", "m", "one", "1KiB", "1 Gi x", "--1", "1e", "NaN", "Infinity", "1mi", "0x10", ".", "1_0", " 1"),
        "\u0661",  # an Arabic one is no digit to Go
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("milli", [False, True], ids=["units", "thousandths"])
@pytest.mark.parametrize("text", ["9223372036854775808", "16Ei", "1e99999", "1e999999999", "1" + "0" * 5000, "1e35n"])
def test_what_64_bits_do_not_hold_counts_as_the_most_that_they_do(text: str, *, milli: bool) -> None:
    assert parse_quantity(text, milli=milli) == 2**63 - 1
    assert parse_quantity(f"-{text}", milli=milli) == 1 - 2**63


@pytest.mark.parametrize("text", ["1e-999999999", "0." + "0" * 5000 + "1", "1e-40E"])
def test_the_least_that_is_asked_for_counts_as_one(text: str) -> None:
    assert parse_quantity(text) == 1
    assert parse_quantity(f"-{text}") == 0


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
