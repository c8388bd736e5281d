"""Findings about differences between the configuration file and the settings of the running service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from extender.doctor.facts import Finding
from extender.settings import Settings, mode_defaults, settings_document

_BY_FLAG: Final = frozenset({"server.bindAddress", "logging.level"})  # a flag or a request can change them


def examine_differences(configured: Settings, running: Settings) -> Iterator[Finding]:
    """One finding for each setting that differs. Settings that differ only because the mode does are part of its finding."""
    theirs, ours = _paths(settings_document(running)), _paths(settings_document(configured))
    differing = [path for path, value in ours.items() if theirs.get(path) != value and path not in _BY_FLAG]
    followers: set[str] = set()
    if "mode" in differing:
        by_mode = mode_defaults(configured.mode)
        followers = {path for path in differing if path in by_mode and by_mode[path] == ours[path]}
    for path in differing:
        if path in followers:
            continue
        problem = f"{path} is {theirs.get(path)} in the running service but {ours[path]} in the file"
        if path == "mode" and followers:
            problem += f" ({', '.join(sorted(followers))} differ because of it)"
        yield Finding("warning", "configuration", problem, "restart the service: it reads the file only at its start")


def _paths(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values by dotted path."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            found |= _paths(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
