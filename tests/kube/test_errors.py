"""The map from answers and exceptions to our few errors."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from extender.kube.byte_stream import translated
from extender.kube.errors import (
    Conflict,
    Expired,
    KubeError,
    NotFound,
    OverBudget,
    Rejected,
    Throttled,
    Unreachable,
    error_of,
)
from tests.kube.scripted import RECORDINGS


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Rejected),
        (401, Rejected),
        (403, Rejected),
        (404, NotFound),
        (405, Rejected),
        (409, Conflict),
        (410, Expired),
        (413, Rejected),
        (415, Rejected),
        (422, Rejected),
        (429, Throttled),
        (500, Unreachable),
        (502, Unreachable),
        (503, Throttled),
        (504, Unreachable),
        (302, Unreachable),
    ],
)
def test_each_status_has_its_error(status: int, expected: type[KubeError]) -> None:
    error = error_of(status, {}, b"")
    assert type(error) is expected
    assert error.status == status


@pytest.mark.parametrize(
    ("causes", "expected"),
    [([{"reason": "DisruptionBudget", "message": "needs 6"}], OverBudget), ([{}], Throttled), (None, Throttled)],
)
def test_an_eviction_that_a_budget_forbids_is_told_from_a_busy_apiserver(
    causes: list[dict[str, str]] | None, expected: type[KubeError]
) -> None:
    body = {"kind": "Status", "reason": "TooManyRequests", "details": {"causes": causes, "retryAfterSeconds": 10}}
    error = error_of(429, {}, json.dumps(body).encode())
    assert (type(error), error.retry_after) == (expected, 10.0)


@pytest.mark.parametrize(
    ("name", "expected", "reason", "retry_after"),
    [
        ("list-continue", Expired, "Expired", 0.0),
        ("list-exact", Expired, "Expired", 0.0),
        ("list-future", Unreachable, "Timeout", 1.0),
        ("watch-bad-rv", Unreachable, "", 0.0),
        ("watchlist-without-match", Rejected, "Invalid", 0.0),
    ],
)
def test_recorded_errors_keep_their_reason_and_text(
    name: str, expected: type[KubeError], reason: str, retry_after: float
) -> None:
    found = json.loads((RECORDINGS / f"error-{name}.json").read_text())
    error = error_of(found["status"], {}, json.dumps(found["body"]).encode())
    assert (type(error), error.reason, error.retry_after) == (expected, reason, retry_after)
    assert found["body"]["message"][:60] in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0", 1.0), ("", 1.0), ("-5", 1.0), ("99999999", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0)],
)
def test_retry_after_is_a_number_of_seconds_within_reason(header: str, seconds: float) -> None:
    assert error_of(429, {"Retry-After": header}, b"").retry_after == seconds


def test_a_patch_for_an_earlier_pod_of_the_name_is_a_conflict_in_either_form() -> None:
    body = json.dumps({"message": 'Pod "a" is invalid: metadata.uid: Invalid value: "x": field is immutable'})
    assert type(error_of(422, {}, body.encode())) is Conflict


def test_a_page_of_html_does_not_fill_the_log() -> None:
    assert len(str(error_of(502, {}, b"<html>" + b"x" * 100_000))) < 600


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (aiohttp.ServerDisconnectedError(), Unreachable),
        (aiohttp.ClientPayloadError("cut"), Unreachable),
        (aiohttp.ServerTimeoutError(), Unreachable),
        (TimeoutError(), Unreachable),
        (ConnectionResetError(), Unreachable),
        (Conflict("kept"), Conflict),
    ],
)
def test_what_the_client_raises_leaves_as_ours(raised: Exception, expected: type[KubeError]) -> None:
    with pytest.raises(expected) as caught, translated("GET /x"):
        raise raised
    assert str(caught.value)


def test_cancellation_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError), translated("GET /x"):
        raise asyncio.CancelledError
