"""The command as a whole: its exit codes, and where its words go."""

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from extender.cli.main import COMMANDS, OUTPUT_CLOSED, main

ROOT = Path(__file__).resolve().parents[2]


def test_version_prints_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"extender {version('placement-extender')}\n"


@pytest.mark.parametrize(
    ("argv", "without"),
    [
        (["version"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich", "yaml", "msgspec"}),
        (["config", "validate", "config/extender.yaml"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich"}),
        (["config", "generate"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich"}),
        (["certs", "--help"], {"aiohttp", "kubernetes_asyncio", "rich"}),
        (["serve", "--help"], {"rich", "extender.simulator"}),
        (["doctor", "--help"], {"extender.simulator"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_no_library_that_it_does_not_need(argv: list[str], without: set[str]) -> None:
    """The Kubernetes client alone takes half a second to import, which every command would take longer to start."""
    script = f"import sys\nfrom extender.cli.main import main\ntry: main({argv})\nfinally: print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(ran.stdout.splitlines()[-1].split())
    assert "extender.cli.main" in imported
    assert imported & without == set()


def test_output_that_is_read_in_part_ends_the_command_quietly() -> None:
    command = [sys.executable, "-m", "extender", "config", "generate"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.wait(30) == OUTPUT_CLOSED
        assert running.stderr.read() == b""


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("argv", [[], ["dance"], ["config"], ["serve", "--log-level", "loud"]], ids=" ".join)
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "usage: extender" in capsys.readouterr().err


def test_a_wrong_address_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--bind-address", "8888"])
    assert 'expected an address such as "127.0.0.1:8888"' in capsys.readouterr().err


def test_what_a_command_cannot_do_is_reported_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", "/nowhere/extender.yaml"]) == 1
    assert capsys.readouterr().err == "extender: /nowhere/extender.yaml: No such file or directory\n"


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("extender.cli.main.print_version", interrupted)
    assert main(["version"]) == 130


def test_the_console_script_and_python_m_are_the_same_command(tmp_path: Path) -> None:
    (script,) = entry_points(group="console_scripts", name="extender")
    assert script.load() is main
    ran = subprocess.run(
        [sys.executable, "-m", "extender", "version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"extender {version('placement-extender')}\n"
