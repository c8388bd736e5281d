"""The one error of this floor: bytes that are no JSON, or a field that has the wrong type."""

from __future__ import annotations

import re

import msgspec

_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)


class WireError(ValueError):
    """Raised when bytes cannot be read as what they should be; ``path`` names the field, empty for the whole body."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def from_msgspec(error: msgspec.MsgspecError, prefix: str = "") -> WireError:
    """The decoder's error with the path in Kubernetes' notation (``Pod.spec.priority``) in front."""
    found = _AT.match(str(error))
    problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
    full = f"{prefix}{path}".removeprefix(".")
    return WireError(full, problem[:1].lower() + problem[1:].replace("`", ""))
