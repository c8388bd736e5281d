"""Formats log lines as text in klog's form or as JSON, and adds the number of the request that a line belongs to.

Fields are passed as `extra`: `logger.info("pod bound", extra={"pod": "team-a/web-1"})`. Whole objects are never logged.
The floors below telemetry do not log.

A scheduler under load sends hundreds of requests a second, so what may happen with each of them is logged at most once in ten
seconds, with a count (`RepeatedWarning`).
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Final, Literal, TextIO

import orjson

# The number of the request being answered, 0 outside of one. Set by the server for each request.
request_id: ContextVar[int] = ContextVar("request_id", default=0)

Level = Literal["debug", "info", "warning", "error"]
_ROOT: Final = "extender"
_LAST_SHORT: Final = 0xFFFF
_QUIET_SECONDS: Final = 10.0
_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: Level, form: Literal["text", "json"], stream: TextIO = sys.stderr) -> None:
    """Sends log lines to a stream and no longer to the previous one. Includes warnings of libraries."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    # Only handlers of an earlier `configure`: others belong to the program that embeds the service, or to a test
    # runner.
    for old in [held for held in root.handlers if isinstance(held.formatter, JsonFormatter | TextFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)


def set_level(level: Level) -> None:
    """Changes the level, also of a running service. Libraries log warnings and above whatever the level."""
    logging.getLogger(_ROOT).setLevel(level.upper())


def current_level() -> str:
    """The current level, as a value of `Level`."""
    return logging.getLevelName(logging.getLogger(_ROOT).getEffectiveLevel()).lower()


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields passed as `extra`, and the number of the current request if there is one."""
    fields: dict[str, object] = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
    if number := request_id.get():
        fields["request_id"] = number
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, msg, then the fields; `error` holds a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Values that JSON cannot express are written as `str(value)`."""
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
        """Times are UTC, unlike klog's, so that both forms agree."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%m%d %H:%M:%S.%f")
        source = record.name.removeprefix(f"{_ROOT}.")
        message = printable(record.getMessage())
        line = f"{record.levelname[0]}{at} {os.getpid()} {source}] {message}{_pairs(fields_of(record))}"
        return f"{line}\n{_indented(self.formatException(record.exc_info))}" if record.exc_info else line


def _pairs(fields: Mapping[str, object]) -> str:
    """The fields as ` key="value"`. Quotes and line ends are escaped, so that the result stays one line."""
    return "".join(f" {printable(name)}={printable(_json(value))}" for name, value in fields.items())


def _json(value: object) -> str:
    """JSON, also of other values (as `str(value)`) and of lone surrogates (escaped)."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # lone surrogates, or keys that are not strings
        return json.dumps(value, default=str, skipkeys=True)


def printable(text: str) -> str:
    """Escapes characters that would control a terminal or reorder its output, so that no name can forge a log line.

    These are control characters of both sets (an ANSI sequence begins with one), line and paragraph separators,
    bidirectional controls and lone surrogates. Text without them is returned unchanged.
    """
    # Nearly every text ends here: one call in native code.
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(ord(char)) for char in text)


def _escape(code: int) -> str:
    """JSON's escape, which is a pair of surrogates above 16 bits."""
    if code <= _LAST_SHORT:
        return f"\\u{code:04x}"
    # UTF-16: 0x10000 is subtracted, and the 20 bits that remain are split into two halves.
    high, low = divmod(code - _LAST_SHORT - 1, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _indented(traceback: str) -> str:
    """The lines indented, so that the text of an exception cannot look like a log line."""
    return "\n".join(f"    {printable(line)}" for line in traceback.split("\n"))


class RepeatedWarning:
    """One message, at most once per ten seconds; `times` counts the occurrences since the line before."""

    def __init__(self, logger: logging.Logger, message: str, now: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._message = message
        self._now = now
        self._next = float("-inf")
        self._times = 0

    def warn(self, **fields: object) -> None:
        """Logs or counts one occurrence; the fields of a counted one are dropped."""
        self._times += 1
        if self._now() >= self._next:
            self._logger.warning(self._message, extra=fields | {"times": self._times})
            self._next, self._times = self._now() + _QUIET_SECONDS, 0


class RepeatedWarnings:
    """One message for several kinds of occurrence, each with a limit of its own.

    Kinds beyond `most` share one limit: the name of a kind may come from a client.
    """

    def __init__(
        self, logger: logging.Logger, message: str, most: int = 100, now: Callable[[], float] = monotonic
    ) -> None:
        self._new: Callable[[], RepeatedWarning] = partial(RepeatedWarning, logger, message, now)
        self._most = most
        self._kinds: dict[Hashable, RepeatedWarning] = {}

    def warn(self, kind: Hashable, **fields: object) -> None:
        """Logs or counts one occurrence of a kind."""
        # None is the kind that all further kinds share.
        if kind not in self._kinds and len(self._kinds) >= self._most:
            kind = None
        self._kinds.setdefault(kind, self._new()).warn(**fields)
