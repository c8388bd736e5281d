"""Prometheus and promtool of Debian's package `prometheus`; where they are missing a test is skipped and says so."""

from __future__ import annotations

import shutil

import pytest


def promtool() -> str:
    """The path of promtool; skips the test without it."""
    return _program("promtool")


def prometheus() -> str:
    """The path of the server; skips the test without it."""
    return _program("prometheus")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return found
