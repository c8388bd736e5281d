"""Quantiles are nearest ranks, and figures are in milliseconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.bench.results import milliseconds, quantile, shares

TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("times", "share", "expected"),
    [
        (range(1, 101), 0.5, 50),
        (range(1, 101), 0.99, 99),
        (range(1, 102), 0.99, 100),
        (range(1, 1001), 0.99, 990),
        ([1, 2], 0.5, 1),
        ([3, 1, 2], 0.5, 2),
        ([7], 0.99, 7),
        ([7], 0.5, 7),
        ([1, 2], 0.99, 2),
    ],
)
def test_a_quantile_is_the_nearest_rank(times: list[int], share: float, expected: int) -> None:
    assert quantile(times, share) == expected


@given(TIMES, st.sampled_from([0.5, 0.9, 0.99]))
def test_it_is_the_least_time_that_so_many_do_not_exceed(times: list[int], share: float) -> None:
    found = quantile(times, share)
    assert found in times
    assert sum(each <= found for each in times) >= share * len(times)
    assert sum(each < found for each in times) < share * len(times)


def test_figures_are_in_milliseconds_and_none_where_nothing_was_measured() -> None:
    figures = {"ask.p50": 2.0, "ask.p99": 6.0, "ask.max": 6.0, "ask.mean": 3.0}
    assert milliseconds([1_000_000, 2_000_000, 3_000_000, 6_000_000], "ask") == figures
    assert milliseconds([], "ask") == {}


def test_shares_add_up_to_one_and_none_where_nothing_took_any_time() -> None:
    assert shares({"a": [1, 2], "b": [9]}) == {"share.a": 0.25, "share.b": 0.75}
    assert shares({"a": [], "b": [0]}) == {}
