"""The form of log lines."""

import io
import json
import logging
import re
from collections.abc import Iterator

import orjson
import pytest

from extender.telemetry.logs import Level, configure, request_id, set_level

LOG = logging.getLogger("extender.server.app")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave the loggers as other tests expect them."""
    root, ours = logging.getLogger(), logging.getLogger("extender")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


def test_a_json_line_holds_time_level_logger_message_and_fields() -> None:
    stream = io.StringIO()
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


def test_a_text_line_has_the_form_of_klog() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    LOG.warning("pod %s", "refused", extra={"pod": "team-a/web-1"})
    assert re.fullmatch(
        r'W\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ server\.app\] pod refused pod="team-a/web-1"\n', stream.getvalue()
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_comes_from_outside_cannot_begin_a_line_of_its_own(form: str) -> None:
    stream = io.StringIO()
    configure("info", "json" if form == "json" else "text", stream)
    LOG.info("pod refused", extra={"pod": 'web\n"forged'})
    assert stream.getvalue().count("\n") == 1


def test_a_line_inside_a_request_bears_its_number() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    token = request_id.set(17)
    LOG.info("inside")
    request_id.reset(token)
    LOG.info("outside")
    inside, outside = map(orjson.loads, stream.getvalue().splitlines())
    assert (inside["request_id"], outside.get("request_id")) == (17, None)


def test_an_exception_is_reported_with_its_traceback_in_one_object() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    try:
        int("no number")
    except ValueError:
        LOG.exception("request failed")
    assert orjson.loads(stream.getvalue())["error"].endswith("no number'")


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_can_be_changed_while_the_service_runs(level: Level, seen: int) -> None:
    stream = io.StringIO()
    configure("error", "text", stream)
    set_level(level)
    for method in (LOG.debug, LOG.info, LOG.warning, LOG.error):
        method("a line")
    assert stream.getvalue().count("a line") == seen


def test_configuring_again_replaces_the_first_stream() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("info", "text", first)
    configure("info", "json", second)
    LOG.info("a line")
    assert (first.getvalue(), second.getvalue().count("a line")) == ("", 1)


HOSTILE = {
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
def test_what_comes_from_outside_is_escaped_wherever_it_stands(form: str, text: str) -> None:
    stream = io.StringIO()
    configure("info", "json" if form == "json" else "text", stream)
    LOG.info("pod %s", text, extra={"pod": text, text: 1})
    (line, end) = stream.getvalue().split("\n")
    assert end == ""
    assert line.isprintable()
    if form == "json":
        assert json.loads(line)["pod"] == text


def test_an_exceptions_text_cannot_look_like_a_line_of_the_log() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    try:
        b"a".decode(HOSTILE["a line of its own"])  # which its error repeats as it is
    except LookupError:
        LOG.exception("request failed")
    _, *others, end = stream.getvalue().split("\n")
    assert end == ""
    assert all(line.startswith("    ") and line.isprintable() for line in others)
