"""What `make` would do, by its own account: what a target installs, and what it passes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import tool

ROOT = Path(__file__).resolve().parents[1]


def would_run(venv: Path, *arguments: str) -> list[str]:
    """The lines that a shell would be given."""
    command = [tool("make"), "--no-print-directory", "--dry-run", f"VENV={venv}", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def would_install(venv: Path, target: str) -> list[str]:
    """What pip is told to install for a target."""
    return [line.split()[-1].strip("'") for line in would_run(venv, target) if " -m pip " in line]


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


def test_the_image_is_built_without_any_tool_and_on_the_base_and_under_the_name_that_are_given(tmp_path: Path) -> None:
    assert would_install(tmp_path, "image") == []
    *_, last = would_run(tmp_path, "image", "BASE=any/python:3", "IMAGE=registry.example/a")
    assert last.endswith('-m deploy.release.image --base "any/python:3" --name "registry.example/a"')
    assert would_run(tmp_path, "image")[-1].rstrip().endswith("-m deploy.release.image")


def test_a_release_has_the_base_and_the_name_of_its_image(tmp_path: Path) -> None:
    *_, last = would_run(tmp_path, "release", "BASE=any/python:3", "IMAGE=registry.example/a")
    assert last.endswith('-m deploy.release --out dist --base "any/python:3" --name "registry.example/a"')
