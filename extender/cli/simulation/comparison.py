"""The comparison of a scenario: what some of its pods cost all others, in rounds of one run without and one run with them.

Memory is compared too, so every run has a process of its own; the last one is that of the caller. The two runs of a round
follow each other, and the median of the rounds is judged: a hundredth of the calls is the ten longest of a thousand, so a
single round shows the noise of the machine as well. Called by `simulate.py`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from extender.cli.command import CommandError
from extender.simulator.scenario.language import CostComparison
from extender.simulator.scenario.report import Cost

_MEGABYTE: Final = 1e6


class Round(NamedTuple):
    """The costs of one round for the other pods."""

    without: Cost
    beside: Cost

    @property
    def slowdown(self) -> float:
        """How many times as much processor time the slowest hundredth of the calls takes beside these pods."""
        return self.beside.processor / self.without.processor if self.without.processor else 1.0

    @property
    def growth(self) -> float:
        """Megabytes more."""
        return self.beside.resident - self.without.resident


def measure(path: str, seed: int, without: str, *, short: bool) -> Cost:
    """Plays the scenario without these pods in another process. Raises CommandError if its result is not as expected."""
    command = [sys.executable, "-m", "extender", "simulate", path]
    command += ["--seed", str(seed), "--without", without, "--output", "json", *(["--short"] if short else [])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (this program)
    run = f"{path}: the run without {without or 'any'}"
    try:
        report = json.loads(ended.stdout)
        answers = report["answers"]
        times = (answers["p50Seconds"], answers["p99Seconds"], answers["p99ProcessorSeconds"])
        cost = Cost(answers["count"], *times, report["residentMegabytes"])
    except (ValueError, KeyError):
        raise CommandError(f"{run} failed: {ended.stderr.strip()}") from None
    if report["violations"] or report["failures"] or (without and report["pending"]):
        raise CommandError(f"{run} has violations, failures or pending pods: {ended.stderr.strip()}")
    return cost


def describe(rounds: Sequence[Round], comparison: CostComparison) -> Iterator[str]:
    """Two lines for each round, and one for what is judged."""
    for each in rounds:
        yield f"filter without {comparison.without}: {each.without}"
        yield f"filter with them, for all others: {each.beside}"
    slowdown, growth = _medians(rounds)
    of = f" (the median of {', '.join(f'{each.slowdown:.2f}' for each in rounds)})" if rounds[1:] else ""
    yield f"p99 of processor time {slowdown:.2f} times{of}, memory {growth:+.0f} MB"


def excesses(rounds: Sequence[Round], comparison: CostComparison) -> Iterator[str]:
    """The bounds of the scenario that were exceeded."""
    slowdown, growth = _medians(rounds)
    if comparison.max_slowdown is not None and slowdown > comparison.max_slowdown:
        yield f"comparison.maxSlowdown: expected at most {comparison.max_slowdown:g}, got {slowdown:.2f}"
    if comparison.max_growth is not None and growth * _MEGABYTE > comparison.max_growth:
        yield f"comparison.maxGrowth: expected at most {comparison.max_growth / _MEGABYTE:g} MB, got {growth:.0f} MB"


def _medians(rounds: Sequence[Round]) -> tuple[float, float]:
    return median(each.slowdown for each in rounds), median(each.growth for each in rounds)
