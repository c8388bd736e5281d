"""Programs of the machine that tests start: found on PATH, else the test is skipped and names the package.

`.ci/run` installs all of them and sets `REQUIRE_TOOLS`; a missing program is a failure there, never a skip.
"""

from __future__ import annotations

import os
import shutil

import pytest

REQUIRED = "REQUIRE_TOOLS"


def tool(name: str, package: str = "") -> str:
    """The path of a program. Skips the test where it is missing, fails it where `REQUIRE_TOOLS` is set."""
    found = shutil.which(name)
    if found is not None:
        return found
    missing = f"{name} is not installed (package {package or name})"
    if os.environ.get(REQUIRED):
        pytest.fail(missing)
    pytest.skip(missing)
