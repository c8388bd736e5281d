"""Whether the figures keep the bounds that the scenarios set. Pure: rows in, sentences out.

A bound applies to every row that has its figure and stands where it says. One that no row of the run can be held
against is no miss: a run of the label `short` has no point with 150,000 pods.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.simulator.bench.results import Row, rows_by_key
from extender.simulator.bench.scenario import Bound, Bounded


@dataclass(frozen=True, slots=True)
class Checked:
    """How many comparisons were made, and a sentence for each that was missed."""

    compared: int
    missed: tuple[str, ...]


def check_bounds(scenarios: Iterable[Bounded], rows: Sequence[Row]) -> Checked:
    """Hold every row against the bounds of its scenario."""
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
    """Why the row misses the bound; empty if it keeps it, None if the bound says nothing about the row."""
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
        text = " × itself at " + ", ".join(f"{name} {wanted}" for name, wanted in bound.baseline.items())
    return _compare(bound, value / against if against else float("inf"), text)


def _compare(bound: Bound, value: float, text: str) -> str:
    if bound.at_most is not None and value > bound.at_most:
        return f"{bound.figure} is {value:.4g}{text}, at most {bound.at_most:g} is allowed"
    if bound.at_least is not None and value < bound.at_least:
        return f"{bound.figure} is {value:.4g}{text}, at least {bound.at_least:g} is wanted"
    return ""
