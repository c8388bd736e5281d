"""Bounds and comparisons: what is missed is named with its figure and place, and ratios are new over old."""

from typing import Any

import pytest

from tests.tools.bench.results import (
    Audit,
    Played,
    Row,
    check_bounds,
    compare,
    decode_results,
    encode_results,
    results_of,
    typical,
)
from tests.tools.bench.small_scenario import scenario


def row(via: str = "process", /, pods: int = 30, **figures: float) -> Row:
    place: dict[str, int | str] = {"pods": pods, "selectors": 3, "names": 10, "answer": "decisive"}
    return Row("small", via, place, {name.replace("_", "."): value for name, value in figures.items()})


def missed(bound: dict[str, Any], *rows: Row) -> tuple[int, list[str]]:
    checked = check_bounds([scenario(bounds=[bound])], rows)
    return checked.compared, [line.partition("): ")[2] for line in checked.missed]


def test_a_figure_over_its_bound_is_named_with_its_place() -> None:
    bounds = [{"figure": "filter.p50", "atMost": 0}]
    checked = check_bounds([scenario(bounds=bounds)], [row(filter_p50=0.25)])
    place = "pods 30, selectors 3, names 10, answer decisive"
    assert checked.missed == (f"missed: small via process ({place}): filter.p50 is 0.25, expected at most 0",)


def test_a_figure_that_keeps_its_bound_is_counted_and_not_named() -> None:
    assert missed({"figure": "x", "atMost": 1}, row(x=1.0)) == (1, [])
    assert missed({"figure": "x", "atLeast": 1}, row(x=1.0)) == (1, [])


def test_too_little_is_missed_as_well() -> None:
    assert missed({"figure": "x", "atLeast": 5}, row(x=4.0)) == (1, ["x is 4, expected at least 5"])


def test_a_bound_may_be_a_multiple_of_another_figure() -> None:
    bound = {"figure": "x", "atMost": 1.5, "relativeTo": "echo.p50"}
    assert missed(bound, row(x=3.0, echo_p50=2.0)) == (1, [])
    assert missed(bound, row(x=4.0, echo_p50=2.0)) == (1, ["x is 2 × echo.p50, expected at most 1.5"])


def test_a_bound_may_be_a_multiple_of_the_same_figure_elsewhere() -> None:
    bound = {"figure": "x", "atMost": 1.2, "baseline": {"pods": 30}}
    rows = [row(x=1.0), row(pods=90, x=1.3), row("http", pods=90, x=9.0)]
    assert missed(bound, *rows) == (1, ["x is 1.3 × the same figure at pods 30, expected at most 1.2"])


@pytest.mark.parametrize(
    "bound",
    [
        {"figure": "y", "atMost": 0},
        {"figure": "x", "atMost": 0, "where": {"pods": 31}},
        {"figure": "x", "atMost": 0, "where": {"answer": "all"}},
        {"figure": "x", "atMost": 0, "via": "http"},
        {"figure": "x", "atMost": 0, "relativeTo": "y"},
        {"figure": "x", "atMost": 0, "baseline": {"pods": 31}},
        {"figure": "x", "atMost": 0, "baseline": {"pods": 30}},
    ],
    ids=["no figure", "other pods", "other answer", "other way", "nothing to relate to", "no baseline", "is baseline"],
)
def test_a_bound_that_says_nothing_about_a_row_is_not_held_against_it(bound: dict[str, Any]) -> None:
    assert missed(bound, row(x=1.0)) == (0, [])


def test_a_figure_against_nothing_is_missed() -> None:
    found = missed({"figure": "x", "atMost": 9, "relativeTo": "y"}, row(x=1.0, y=0.0))
    assert found == (1, ["x is inf × y, expected at most 9"])


def test_ratios_are_new_over_old_for_the_rows_and_figures_of_both_runs() -> None:
    new = [row(x=3.0, y=1.0, z=0.0), row(pods=31, x=1.0)]
    (only,) = compare(new, [row(x=2.0, z=4.0), row("http", x=1.0)])
    assert only.ratios == {"x": 1.5}
    assert only.row is new[0]


def test_what_is_typical_is_the_geometric_mean() -> None:
    compared = compare([row(x=1.0), row(pods=31, x=8.0)], [row(x=2.0), row(pods=31, x=2.0)])
    assert typical(compared, "x") == pytest.approx(2**0.5)
    assert typical(compared, "y") is None


def test_results_can_be_read_back_and_audits_add_up() -> None:
    played = [Played([row(x=1.5)], Audit((), 4)), Played([], Audit(("one too many",), 1))]
    results = results_of(played)
    assert results.audit == Audit(("one too many",), 5)
    assert decode_results(encode_results(results)) == results
