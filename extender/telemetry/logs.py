"""The form of log lines, as text in klog's manner or as JSON, and the request that a line belongs to.

Fields go with a line as `extra`: `logger.info("pod bound", extra={"pod": "team-a/web-1"})`. Objects are never logged
whole. The floors below telemetry do not log.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import orjson

# The number of the request being answered, 0 outside of one. Set by the server for each request.
request_id: ContextVar[int] = ContextVar("request_id", default=0)

Level = Literal["debug", "info", "warning", "error"]
_ROOT: Final = "extender"
_LAST_SHORT: Final = 0xFFFF
_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: Level, form: Literal["text", "json"], stream: TextIO = sys.stderr) -> None:
    """Send the service's log lines to a stream, in place of where they went before; warnings of libraries go there too."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in [held for held in root.handlers if isinstance(held.formatter, JsonFormatter | TextFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)


def set_level(level: Level) -> None:
    """Change what is logged from now on; may be called while the service runs. Libraries log warnings and up."""
    logging.getLogger(_ROOT).setLevel(level.upper())


def current_level() -> str:
    """What is logged now, as a word of `Level`."""
    return logging.getLevelName(logging.getLogger(_ROOT).getEffectiveLevel()).lower()


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What was given as `extra`, and the request's number where there is one."""
    fields: dict[str, object] = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
    if number := request_id.get():
        fields["request_id"] = number
    return fields


class JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, msg, then the fields; `error` holds a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """A value that JSON does not know is written as its text."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return printable(_json(line))


class TextFormatter(logging.Formatter):
    """klog's form: `I1120 19:05:00.123456 4711 server.app] message key="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        """Times are UTC, as in the JSON form."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%m%d %H:%M:%S.%f")
        source = record.name.removeprefix(f"{_ROOT}.")
        message = printable(record.getMessage())
        line = f"{record.levelname[0]}{at} {os.getpid()} {source}] {message}{_pairs(fields_of(record))}"
        return f"{line}\n{_indented(self.formatException(record.exc_info))}" if record.exc_info else line


def _pairs(fields: Mapping[str, object]) -> str:
    """The fields as ` key="value"`, quotes and line ends escaped so that a line stays one line."""
    return "".join(f" {printable(name)}={printable(_json(value))}" for name, value in fields.items())


def _json(value: object) -> str:
    """JSON, also of values that it does not know (their text) and of text that is no Unicode (escaped)."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # lone surrogates, or keys that are no text
        return json.dumps(value, default=str, skipkeys=True)


def printable(text: str) -> str:
    """The text with all that a terminal would obey, or show out of order, written as an escape.

    Control characters of both sets (ANSI sequences begin with one), line and paragraph ends, changes of direction, lone
    surrogates. Text without them, almost all, is handed back as it is.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(ord(char)) for char in text)


def _escape(code: int) -> str:
    """In JSON's form, which writes what lies above 16 bits as two."""
    if code <= _LAST_SHORT:
        return f"\\u{code:04x}"
    high, low = divmod(code - _LAST_SHORT - 1, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _indented(traceback: str) -> str:
    """Each line moved to the right, so that no text of an exception can look like a line of the log."""
    return "\n".join(f"    {printable(line)}" for line in traceback.split("\n"))
