"""What a command of `extender` printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from extender.cli.main import main


@dataclass
class Result:
    """The exit code and what was printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    """Calls the command."""
    code = main(arguments)
    printed = capsys.readouterr()
    return Result(code, printed.out, printed.err)
