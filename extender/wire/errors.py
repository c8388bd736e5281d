"""The one error of this floor: bytes that are no JSON, or a field that has the wrong type."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)


# Every error that a decoder may raise on bytes from outside: not only its own.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class WireError(ValueError):
    """Raised when bytes cannot be read as what they should be; ``path`` names the field, empty for the whole body."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def from_msgspec(error: Exception, prefix: str = "") -> WireError:
    """One of the ``UNREADABLE`` errors with the path in Kubernetes' notation (``Pod.spec.priority``) in front."""
    if isinstance(error, UnicodeDecodeError):
        return WireError(prefix, "is not UTF-8")
    if isinstance(error, RecursionError):
        return WireError(prefix, "is nested too deeply")
    found = _AT.match(str(error))
    problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
    if missing := _MISSING.fullmatch(problem):
        problem, path = "is missing", f"{path}.{missing['field']}"
    if problem[1:2].islower():  # "JSON is malformed" keeps its capitals
        problem = problem[:1].lower() + problem[1:]
    return WireError(f"{prefix}{path}".removeprefix("."), problem.replace("`", ""))
