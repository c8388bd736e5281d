"""The scenarios that are played, one run of one of them, and the table of many runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from extender.cli.main import main

ROOT: Final = Path(__file__).resolve().parents[2]
# `make scenarios` and `make test` play these; a test fails where config/ has another one.
SCENARIOS: Final = (
    ROOT / "config/demo/scenario.yaml",
    *sorted((ROOT / "config/scenarios").glob("*.yaml")),
)
_WITHIN_SECONDS: Final = 900.0  # of a run; hostile.yaml is ten runs of twenty seconds
_FIGURES: Final = ("decisions", "placed", "pending", "violations")
_SHOWN: Final = 10  # problems of one run


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its figures, empty where it did not come to a result, and what the scenario promises and did not hold."""

    name: str
    seed: int | None
    figures: dict[str, int]
    seconds: float
    problems: tuple[str, ...]

    def cells(self) -> list[str]:
        """The row of the table."""
        counts = [str(self.figures.get(name, "-")) for name in _FIGURES]
        held = "no" if self.problems else "yes"
        return [self.name, "" if self.seed is None else str(self.seed), *counts, f"{self.seconds:.1f}", held]


def name_of(path: Path) -> str:
    """How a scenario is called: by its file, but for the demo."""
    return path.parent.name if path.stem == "scenario" else path.stem


def play_here(path: Path) -> Run:
    """One short run in this process: an interpreter that begins takes as long as many a run."""
    begun, out, err = time.monotonic(), StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(_words(path, None, short=True))
    return _read(name_of(path), None, code, out.getvalue(), err.getvalue(), time.monotonic() - begun)


def play(path: Path, seed: int | None = None, *, short: bool = False) -> Run:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "extender", *_words(path, seed, short=short)]
    begun = time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        problem = f"it did not end within {_WITHIN_SECONDS:g} s"
        return Run(name_of(path), seed, {}, time.monotonic() - begun, (problem,))
    return _read(name_of(path), seed, ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begun)


def _words(path: Path, seed: int | None, *, short: bool) -> list[str]:
    words = ["simulate", str(path), "--output", "json"]
    return [*words, *(["--seed", str(seed)] if seed is not None else []), *(["--short"] if short else [])]


def _read(name: str, seed: int | None, code: int, out: str, err: str, seconds: float) -> Run:
    """What a run printed. Its exit code decides: 0 only if everything that the scenario promises held."""
    try:
        report = json.loads(out)
    except ValueError:
        return Run(name, seed, {}, seconds, (err.strip() or f"exit code {code}",))
    violations = [*report["violations"], *report["groupViolations"]]
    figures = {name: report[name] for name in _FIGURES} | {"violations": len(violations)}
    problems = [*report["failures"], *(f"violation: {_text(each)}" for each in violations)]
    if code and not problems:
        problems = [f"exit code {code}"]
    return Run(name, report["seed"], figures, seconds, tuple(problems if code else ()))


def _text(violation: dict[str, Any]) -> str:
    if "group" in violation:
        return f"{violation['group']}: {violation['reason']}"
    return f"{violation['pod']} on {violation['node'] or 'no node'}: {violation['reason']}"


def table(runs: Iterable[Run]) -> Iterator[str]:
    """The lines of the table, and what did not hold."""
    kept = list(runs)
    rows = [["scenario", "seed", *_FIGURES, "seconds", "held"], *(run.cells() for run in kept)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([row[0].ljust(len(first)), *others])
    for run in kept:
        for problem in run.problems[:_SHOWN]:
            yield f"{run.name}, seed {run.seed}: {problem}"
        if run.problems[_SHOWN:]:
            yield f"{run.name}, seed {run.seed}: and {len(run.problems) - _SHOWN} more"
    broken = sum(bool(run.problems) for run in kept)
    yield f"{len(kept)} runs, {broken} of them did not hold what the scenario promises"
