"""Rates and percentiles of the last minute."""

from __future__ import annotations

from extender.telemetry.verb_metrics import RecentAnswers


def test_percentiles_are_upper_bounds_within_a_fifth() -> None:
    recent = RecentAnswers(lambda: 1000.0)
    for milliseconds in range(1, 101):
        recent.record(milliseconds / 1000)
    rate = recent.rate("filter")
    assert (rate.verb, rate.answers, rate.errors) == ("filter", 100, 0)
    assert 50 <= rate.p50_milliseconds <= 60
    assert 99 <= rate.p99_milliseconds <= 119


def test_a_rate_is_that_of_the_last_minute_or_of_less_time_where_there_was_no_more() -> None:
    now = [1000.0]
    recent = RecentAnswers(lambda: now[0])
    for _ in range(20):
        recent.record(0.001)
    now[0] += 10
    assert recent.rate("filter").per_second == 2
    now[0] += 50
    recent.record_error()
    recent.record(0.002)
    rate = recent.rate("filter")
    assert (rate.answers, rate.errors) == (1, 1)
    now[0] += 120
    rate = recent.rate("filter")
    assert (rate.answers, rate.errors, rate.per_second, rate.p99_milliseconds) == (0, 0, 0, 0)


def test_an_answer_of_any_duration_is_counted() -> None:
    recent = RecentAnswers(lambda: 1000.0)
    for seconds in (0.0, 1e-9, 3.0, 1000.0):
        recent.record(seconds)
    assert recent.rate("filter").answers == 4
