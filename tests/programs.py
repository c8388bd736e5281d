"""Programs of the machine that tests start: found on PATH, else the test is skipped and names the package.

`.ci/run` installs all of them and sets `REQUIRE_TOOLS`; a missing program is a failure there, never a skip.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest

REQUIRED = "REQUIRE_TOOLS"


def tool(name: str, package: str = "") -> str:
    """The path of a program. Skips the test where it is missing, fails it where `REQUIRE_TOOLS` is set."""
    found = shutil.which(name)
    if found is None:
        _is_missing(f"{name} is not installed (package {package or name})")
    return found


def library(name: str, target: str) -> None:
    """The same for a Python package of another extra, which a target of make installs."""
    if find_spec(name) is None:
        _is_missing(f"{name} is not installed (make {target})")


def _is_missing(what: str) -> NoReturn:
    if os.environ.get(REQUIRED):
        pytest.fail(what)
    pytest.skip(what)
