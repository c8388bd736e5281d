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


@pytest.mark.parametrize(
    ("there", "target", "installed"),
    [
        ("", "run", [".[uvloop]"]),
        ("", "check", [".[dev]"]),
        ("", "image", []),
        ("ready", "run", []),
        ("run-ready", "run", []),
        ("run-ready", "check", [".[dev]"]),
        ("", "docs", [".[docs]"]),
        ("docs-ready", "docs", []),
    ],
)
def test_a_target_installs_what_it_needs_and_no_more(
    tmp_path: Path, there: str, target: str, installed: list[str]
) -> None:
    (tmp_path / there).touch()
    lines = would_run(tmp_path, target)
    assert [line.split()[-1].strip("'") for line in lines if " -m pip " in line] == installed


def test_the_image_is_built_on_the_base_and_under_the_name_that_are_given(tmp_path: Path) -> None:
    *_, last = would_run(tmp_path, "image", "BASE=any/python:3", "IMAGE=registry.example/a")
    assert last.rstrip().endswith('-m deploy.release.image --base "any/python:3" --name "registry.example/a"')
    assert would_run(tmp_path, "image")[-1].rstrip().endswith("-m deploy.release.image")


def test_a_release_has_the_base_and_the_name_of_its_image(tmp_path: Path) -> None:
    *_, last = would_run(tmp_path, "release", "BASE=any/python:3", "IMAGE=registry.example/a")
    assert last.rstrip().endswith('-m deploy.release --out dist --base "any/python:3" --name "registry.example/a"')


def test_helm_and_kubectl_are_fetched_for_tests_and_not_where_they_are(tmp_path: Path) -> None:
    fetching = f"-m deploy.programs {tmp_path}/programs "
    (tmp_path / "ready").touch()
    assert any(fetching in line for line in would_run(tmp_path, "test"))
    assert not any(fetching in line for line in would_run(tmp_path, "check"))
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "ready").touch()
    assert not any(fetching in line for line in would_run(tmp_path, "test"))
