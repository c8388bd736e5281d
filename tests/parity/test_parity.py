"""The cases that stand beside this module, with the answers of the real scheduler, of kupid for policies or of the API server for updates: every one of them agrees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.parity.runner import cases, run

CASES = Path(__file__).parent / "cases"


_FILES = (
    "edges",
    "malformed",
    "placement-open",
    "policies-open",
    "preemption-pick",
    "quota",
    "resizes",
    "updates-open",
)


@pytest.mark.parametrize("name", _FILES)
def test_every_case_gets_the_answer_of_the_original(name: str) -> None:
    outcome = run(CASES / f"{name}.ndjson.gz")
    assert outcome.failures == {}
    assert outcome.passed > 100


def test_the_command_names_what_differs_and_fails(tmp_path: Path) -> None:
    case = next(iter(cases(CASES / "edges.ndjson.gz")))
    case["expected"]["feasible"] = ["nowhere"]
    case.pop("expectedIfFixed", None)
    wrong = tmp_path / "wrong.ndjson"
    wrong.write_bytes(orjson.dumps(case))
    done = subprocess.run(
        [sys.executable, "-m", "tests.parity", str(wrong)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "wrong: 0 passed, 1 failed"
    assert "expected ['nowhere']" in done.stdout
