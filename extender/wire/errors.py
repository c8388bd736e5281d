"""The error of this package: bytes that are not JSON, or a field of the wrong type."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)


# Every error that a msgspec decoder raises for untrusted bytes; msgspec's own errors are only some of them.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class WireError(ValueError):
    """Raised when bytes cannot be decoded to the expected type. ``path``: the field; empty for the whole body."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def from_msgspec(error: Exception, prefix: str = "") -> WireError:
    """Converts one of the ``UNREADABLE`` errors. The path is in Kubernetes' notation, such as ``Pod.spec.priority``."""
    # For these two msgspec does not report the position.
    if isinstance(error, UnicodeDecodeError):
        return WireError(prefix, "is not UTF-8")
    if isinstance(error, RecursionError):
        return WireError(prefix, "is nested too deeply")
    match = _AT.match(str(error))
    problem, path = (match["problem"], match["path"] or "") if match else (str(error), "")
    # For a missing field msgspec's path ends at its parent.
    if missing := _MISSING.fullmatch(problem):
        problem, path = "is missing", f"{path}.{missing['field']}"
    if problem[1:2].islower():  # "JSON is malformed" keeps its capitals
        problem = problem[:1].lower() + problem[1:]
    return WireError(f"{prefix}{path}".removeprefix("."), problem.replace("`", ""))
