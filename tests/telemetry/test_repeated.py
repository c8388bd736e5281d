"""Warnings that come again and again."""

import logging

import pytest

from extender.telemetry.logs import RepeatedWarnings


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """The kind and the count of each line."""
    return [(vars(record)["reason"], vars(record)["times"]) for record in caplog.records]


def test_the_first_of_each_kind_is_reported_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warnings = RepeatedWarnings(logging.getLogger("extender.test"), "rejected", now=lambda: now[0])
    for reason in ("forbidden", "forbidden", "malformed", "forbidden"):
        warnings.warn(reason, reason=reason)
    now[0] = 20.0
    warnings.warn("forbidden", reason="forbidden")
    assert told(caplog) == [("forbidden", 1), ("malformed", 1), ("forbidden", 3)]


def test_kinds_beyond_the_most_share_one(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("extender.test"), "rejected", most=2, now=lambda: 0.0)
    for number in range(100):
        warnings.warn(number, reason=str(number))
    assert told(caplog) == [("0", 1), ("1", 1), ("2", 1)]
