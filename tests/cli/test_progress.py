"""What a command prints while it works for long."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest

from extender.cli import doctor, explain, groups, replay, sources, whatif
from extender.cli.main import main
from extender.cli.progress import progress
from extender.settings.limits import ConstraintLimits
from tests.fakes import PATIENCE


class Terminal:
    """Standard error as a terminal, which notes when a line came."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.came = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.lines += text.splitlines()
        self.came.set()
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


def test_a_terminal_gets_a_line_after_each_interval_and_none_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("reads cluster.json", every=0.001):
        assert terminal.came.wait(PATIENCE)
    count = len(terminal.lines)
    assert terminal.lines[0] == "reads cluster.json (0 s)"
    terminal.came.clear()
    assert not terminal.came.wait(0.02)
    assert len(terminal.lines) == count


def test_a_file_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reads cluster.json", every=0.0):
        pass
    assert capsys.readouterr().err == ""


def test_reading_a_snapshot_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []

    def noted(what: str) -> AbstractContextManager[None]:
        shown.append(what)
        return progress(what)

    monkeypatch.setattr(sources, "progress", noted)
    (tmp_path / "cluster.json").write_text('{"kind": "List", "items": []}', "utf-8")
    sources.snapshot_of(str(tmp_path / "cluster.json"), ConstraintLimits())
    assert shown == [f"reads {tmp_path / 'cluster.json'}"]


NOWHERE = ("--kubeconfig", "/nowhere")
LONG = [
    (doctor, ("doctor", "--no-cluster", "--url", "http://127.0.0.1:1"), "examines the installation"),
    (replay, ("replay", "/nowhere"), "replays /nowhere"),
    (groups, ("groups", *NOWHERE), "reads the cluster"),
    (explain, ("explain", "shop/web-1", "--snapshot", "SNAPSHOT"), "computes the explanation"),
    (whatif, ("whatif", "--snapshot", "SNAPSHOT"), "computes where pods would go"),
]


@pytest.mark.parametrize(("module", "arguments", "what"), LONG, ids=[each[1][0] for each in LONG])
def test_a_command_that_may_take_long_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, arguments: tuple[str, ...], what: str
) -> None:
    shown: list[str] = []

    def noted(text: str) -> AbstractContextManager[None]:
        shown.append(text)
        return progress(text)

    monkeypatch.setattr(module, "progress", noted)
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text('{"kind": "List", "items": []}', "utf-8")
    main([each.replace("SNAPSHOT", str(snapshot)) for each in arguments])
    assert shown == [what]
