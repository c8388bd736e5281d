"""The form of log lines."""

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import orjson
import pytest

from extender.telemetry.logs import Level, RepeatedWarnings, configure, request_id, set_level

LOG = logging.getLogger("extender.server.app")
LEVELS = {"debug", "info", "warning", "error", "exception", "log"}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Leaves the loggers as other tests expect them."""
    root, ours = logging.getLogger(), logging.getLogger("extender")
    handlers, level = list(root.handlers), ours.level
    yield io.StringIO()
    root.handlers[:] = handlers
    ours.setLevel(level)


def test_a_json_line_holds_time_level_logger_message_and_fields(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    LOG.info("pod refused", extra={"pod": "team-a/web-1", "nodes": 3})
    line = orjson.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", line.pop("ts"))
    assert line == {
        "level": "info",
        "logger": "extender.server.app",
        "msg": "pod refused",
        "pod": "team-a/web-1",
        "nodes": 3,
    }


def test_a_text_line_has_the_form_of_klog(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    LOG.warning("pod %s", "refused", extra={"pod": "team-a/web-1"})
    assert re.fullmatch(
        r'W\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ server\.app\] pod refused pod="team-a/web-1"\n', stream.getvalue()
    )


def test_a_line_inside_a_request_bears_its_number(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    token = request_id.set(17)
    LOG.info("inside")
    request_id.reset(token)
    LOG.info("outside")
    inside, outside = map(orjson.loads, stream.getvalue().splitlines())
    assert (inside["request_id"], outside.get("request_id")) == (17, None)


def test_an_exception_is_reported_with_its_traceback_in_one_object(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    try:
        int("no number")
    except ValueError:
        LOG.exception("request failed")
    assert orjson.loads(stream.getvalue())["error"].endswith("no number'")


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_can_be_changed_while_the_service_runs(stream: io.StringIO, level: Level, seen: int) -> None:
    configure("error", "text", stream)
    set_level(level)
    for method in (LOG.debug, LOG.info, LOG.warning, LOG.error):
        method("a line")
    assert stream.getvalue().count("a line") == seen


def test_configuring_again_replaces_the_first_stream(stream: io.StringIO) -> None:
    second = io.StringIO()
    configure("info", "text", stream)
    configure("info", "json", second)
    LOG.info("a line")
    assert (stream.getvalue(), second.getvalue().count("a line")) == ("", 1)


HOSTILE = {
    "a quote": 'web\n"forged',
    "a line of its own": "web\nI1120 19:05:00.123456 1 server.app] forged",
    "a terminal sequence": "\x1b[2J\x9b31m",
    "other line ends": "a\r\x0b\x0c\x85\u2028\u2029b",
    "a change of direction": "\u202egnp.exe",
    "no Unicode": "\ud800",
    "above 16 bits": "\U000e0001",
    "the end of the value": '" level="error',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("form", ["text", "json"])
def test_what_comes_from_outside_is_escaped_wherever_it_stands(
    stream: io.StringIO, form: Literal["text", "json"], text: str
) -> None:
    configure("info", form, stream)
    LOG.info("pod %s", text, extra={"pod": text, text: 1})
    (line, end) = stream.getvalue().split("\n")
    assert end == ""
    assert line.isprintable()
    if form == "json":
        assert json.loads(line)["pod"] == text


def test_an_exceptions_text_cannot_look_like_a_line_of_the_log(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    try:
        b"a".decode(HOSTILE["a line of its own"])  # which its error repeats as it is
    except LookupError:
        LOG.exception("request failed")
    _, *others, end = stream.getvalue().split("\n")
    assert end == ""
    assert all(line.startswith("    ") and line.isprintable() for line in others)


# -- warnings that come again and again


def reported(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """The kind and the count of each line."""
    return [(vars(record)["reason"], vars(record)["times"]) for record in caplog.records]


def test_the_first_of_each_kind_is_reported_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warnings = RepeatedWarnings(logging.getLogger("extender.test"), "rejected", now=lambda: now[0])
    for reason in ("forbidden", "forbidden", "malformed", "forbidden"):
        warnings.warn(reason, reason=reason)
    now[0] = 20.0
    warnings.warn("forbidden", reason="forbidden")
    assert reported(caplog) == [("forbidden", 1), ("malformed", 1), ("forbidden", 3)]


def test_kinds_beyond_the_most_share_one(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("extender.test"), "rejected", most=2, now=lambda: 0.0)
    for number in range(100):
        warnings.warn(number, reason=str(number))
    assert reported(caplog) == [("0", 1), ("1", 1), ("2", 1)]


def test_figures_and_names_are_fields_of_a_line_and_not_parts_of_its_message() -> None:
    """So one message can be searched and counted, and a figure be read by a program."""
    found = []
    for path in sorted((Path(__file__).resolve().parents[2] / "extender").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id == "_LOG" and call.func.attr in LEVELS:
                message, *more = call.args[1:] if call.func.attr == "log" else call.args
                if more or isinstance(message, ast.JoinedStr):
                    found.append(f"{path.name}:{call.lineno}")
    assert found == []
