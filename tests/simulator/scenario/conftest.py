"""`extender simulate` in this process, as a fixture."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import yaml

from extender.cli.main import main

SCENARIOS = Path(__file__).parents[3] / "config" / "scenarios"


class Run(NamedTuple):
    """The exit code and the output of `extender simulate`."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def report(self) -> Any:
        return json.loads(self.out)


Simulate: TypeAlias = Callable[..., Run]


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Plays a document, beside the files of the shipped scenario of this name."""

    def run(name: str, document: str | dict[str, Any], *options: str) -> Run:
        shutil.copytree(SCENARIOS, tmp_path, dirs_exist_ok=True)
        path = tmp_path / f"{name}.yaml"
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), "utf-8")
        return Run(main(["simulate", str(path), *options]), *capsys.readouterr())

    return run
