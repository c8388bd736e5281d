"""Every process collects the same tests in the same order: pytest-xdist ends a run in which two workers differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# A parameter whose id holds the time, such as the header of a gzip file, differs an hour later, not only at times.
AN_HOUR_LATER = (
    "import time; now = time.time; time.time = lambda: now() + 3607; import pytest; raise SystemExit(pytest.main())"
)


@pytest.mark.timeout(600)  # all modules of the tests are imported once more
def test_another_process_collects_the_same_tests_in_the_same_order(request: pytest.FixtureRequest) -> None:
    """Ids must depend neither on the hash seed nor on the time."""
    config = request.config
    chosen = ["-m", config.option.markexpr, "-k", config.option.keyword, *config.args]
    command = [sys.executable, "-c", AN_HOUR_LATER, "--collect-only", "--quiet", "-p", "no:cacheprovider", *chosen]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if "::" in line] == [
        item.nodeid for item in request.session.items
    ]
