"""The wheel and the sdist: what `demo` and `simulate` play and the page are in the one, what the tests read is in the other."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.programs import tool

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {".gitignore"}  # hatch adds it by itself, or not


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_from_the_wheel_demo_and_simulate_find_what_they_play_in_an_empty_folder(
    distributions: Path, tmp_path: Path
) -> None:
    (wheel,) = distributions.glob("*.whl")
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True, capture_output=True)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        """The installed command, in the empty folder; dependencies are those of this interpreter."""
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=empty,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )

    commands = {path.name for path in (installed / "bin").iterdir()}
    assert {"extender", "kubectl-placement", "kubectl_complete-placement"} <= commands
    assert str(installed) in run("inspect", "--details", "extender").stdout
    demo = run("extender", "demo", "--once")
    assert demo.stdout.splitlines()[-1:] == ["placed 34, pending 0, violations 0"], demo.stderr
    scenario = installed / "extender" / "data" / "scenarios" / "pending.yaml"
    simulated = run("extender", "simulate", str(scenario), "--short")
    assert simulated.stdout.splitlines()[-1:][0].endswith("violations 0"), simulated.stderr


def test_the_wheel_holds_every_file_of_the_page(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    page = ROOT / "extender" / "server" / "page" / "files"
    files = {path.relative_to(ROOT).as_posix() for path in page.rglob("*") if path.is_file()}
    assert len(files) > 5
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_the_package_and_no_program_of_the_checkout(distributions: Path) -> None:
    """Tests and what generates files of deploy/ and grafana/ are not installed."""
    (wheel,) = distributions.glob("*.whl")
    assert {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} == {
        "extender"
    }


def test_the_sdist_holds_every_file_of_the_repository(distributions: Path) -> None:
    listed = subprocess.run([tool("git"), "ls-files"], cwd=ROOT, check=False, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no checkout: there is nothing to compare with")
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    # Links of the chart to folders: hatch would follow them. A release has the chart as a package of its own.
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists() and not (ROOT / name).is_dir()}
    assert len(tracked) > 500
    assert tracked - held - LEFT_OUT == set()
