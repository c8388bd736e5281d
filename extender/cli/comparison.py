"""Runs a scenario with and without some pods, to measure what they cost the others. Called by `simulate`.

The run without them is another process, because memory is compared too.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from extender.cli.command import CommandError
from extender.simulator.scenario.language import CostComparison
from extender.simulator.scenario.report import Cost

_MEGABYTE: Final = 1e6


def cost_without(path: str, seed: int, comparison: CostComparison) -> Cost:
    """Plays the scenario without these pods. Raises CommandError if that run fails or leaves pods pending."""
    command = [sys.executable, "-m", "extender", "simulate", path]
    command += ["--seed", str(seed), "--without", comparison.without, "--output", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (this program)
    try:
        report = json.loads(ended.stdout)
        answers = report["answers"]
        times = (answers["p50Seconds"], answers["p99Seconds"], answers["p99ProcessorSeconds"])
        cost = Cost(answers["count"], *times, report["residentMegabytes"])
    except (ValueError, KeyError):
        raise CommandError(f"{path}: the run without {comparison.without} failed: {ended.stderr.strip()}") from None
    if report["violations"] or report["failures"] or report["pending"]:
        raise CommandError(
            f"{path}: the run without {comparison.without} has violations, failures or pending pods: {ended.stderr.strip()}"
        )
    return cost


def describe(cost: Cost, before: Cost, comparison: CostComparison) -> list[str]:
    """A line for each of the two costs, and one for their ratio."""
    return [
        f"filter without {comparison.without}: {before}",
        f"filter with them, for all others: {cost}",
        f"p99 of processor time {_slowdown(cost, before):.2f} times, memory {cost.resident - before.resident:+.0f} MB",
    ]


def excesses(cost: Cost, before: Cost, comparison: CostComparison) -> Iterator[str]:
    """The bounds of the scenario that were exceeded."""
    slowdown, growth = _slowdown(cost, before), cost.resident - before.resident
    if comparison.max_slowdown is not None and slowdown > comparison.max_slowdown:
        yield f"comparison.maxSlowdown: expected at most {comparison.max_slowdown:g}, got {slowdown:.2f}"
    if comparison.max_growth is not None and growth * _MEGABYTE > comparison.max_growth:
        yield f"comparison.maxGrowth: expected at most {comparison.max_growth}, got {growth:.0f} MB"


def _slowdown(cost: Cost, before: Cost) -> float:
    return cost.processor / before.processor if before.processor else 1.0
