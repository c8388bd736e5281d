"""Compares the figures of a run with the bounds of its scenarios, and with an earlier run. Pure.

A bound applies to every row with its figure and dimensions. A bound without such a row is not missed: a run of the label
`short` has no point with 150,000 pods.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from extender.simulator.bench.reporting.runs import Row, rows_by_key
from extender.simulator.bench.workload.scenario import Bound, Bounded


@dataclass(frozen=True, slots=True)
class Checked:
    """The number of comparisons, and a line for each missed bound."""

    compared: int
    missed: tuple[str, ...]


def check_bounds(scenarios: Iterable[Bounded], rows: Sequence[Row]) -> Checked:
    """Compares every row with the bounds of its scenario."""
    compared, missed = 0, list[str]()
    known = rows_by_key(rows)
    bounds = {scenario.name: scenario.bounds for scenario in scenarios}
    for row in rows:
        for bound in bounds.get(row.scenario, ()):
            verdict = _verdict(bound, row, known)
            if verdict is not None:
                compared += 1
                missed += [f"missed: {row.name}: {verdict}"] if verdict else []
    return Checked(compared, tuple(missed))


def _verdict(bound: Bound, row: Row, known: dict[object, Row]) -> str | None:
    """How the row misses the bound; empty if it keeps it, None if the bound does not apply to it."""
    value = row.figures.get(bound.figure)
    if value is None or bound.via not in {None, row.via}:
        return None
    if any(row.place.get(name) != wanted for name, wanted in bound.where.items()):
        return None
    against, text = 1.0, ""
    if bound.relative_to:
        if bound.relative_to not in row.figures:
            return None
        against, text = row.figures[bound.relative_to], f" × {bound.relative_to}"
    elif bound.baseline:
        base = known.get(Row(row.scenario, row.via, row.place | bound.baseline, {}).key)
        if base is None or base is row or bound.figure not in base.figures:
            return None
        against = base.figures[bound.figure]
        text = " × the same figure at " + ", ".join(f"{name} {wanted}" for name, wanted in bound.baseline.items())
    return _compare(bound, value / against if against else float("inf"), text)


def _compare(bound: Bound, value: float, text: str) -> str:
    if bound.at_most is not None and value > bound.at_most:
        return f"{bound.figure} is {value:.4g}{text}, expected at most {bound.at_most:g}"
    if bound.at_least is not None and value < bound.at_least:
        return f"{bound.figure} is {value:.4g}{text}, expected at least {bound.at_least:g}"
    return ""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of both runs, with the ratio new / old of every figure that both have and that is not zero."""

    row: Row
    ratios: dict[str, float]


def compare(rows: Sequence[Row], earlier: Sequence[Row]) -> list[Compared]:
    """Every row of both runs, in the order of the new one."""
    old = rows_by_key(earlier)
    return [Compared(row, _ratios(row, old[row.key])) for row in rows if row.key in old]


def typical(compared: Sequence[Compared], figure: str) -> float | None:
    """The geometric mean of a figure's ratios over all rows; None if no row has it."""
    ratios = [each.ratios[figure] for each in compared if figure in each.ratios]
    return geometric_mean(ratios) if ratios else None


def _ratios(row: Row, old: Row) -> dict[str, float]:
    both = row.figures.keys() & old.figures.keys()
    return {
        name: row.figures[name] / old.figures[name]
        for name in sorted(both)
        if row.figures[name] > 0 and old.figures[name] > 0
    }
