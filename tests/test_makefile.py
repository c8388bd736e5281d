"""What `make` would do, by its own account: `make run` installs what running needs, and no tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import tool

ROOT = Path(__file__).resolve().parents[1]


def would_install(venv: Path, target: str) -> list[str]:
    """What pip is told to install for a target."""
    command = [tool("make"), "--no-print-directory", "--dry-run", f"VENV={venv}", target]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [line.split()[-1].strip("'") for line in done.stdout.splitlines() if " -m pip " in line]


@pytest.mark.parametrize(("target", "wanted"), [("run", ".[uvloop]"), ("check", ".[dev]")])
def test_a_target_installs_what_it_needs_and_no_more(tmp_path: Path, target: str, wanted: str) -> None:
    assert would_install(tmp_path, target) == [wanted]


def test_where_the_tools_are_installed_run_installs_nothing(tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    assert would_install(tmp_path, "run") == []


def test_after_run_the_tools_are_still_installed_for_what_needs_them(tmp_path: Path) -> None:
    (tmp_path / "run-ready").touch()
    assert would_install(tmp_path, "run") == []
    assert would_install(tmp_path, "check") == [".[dev]"]
