"""The ratios of a run's figures to those of an earlier one. Pure: rows in, ratios out."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from extender.simulator.bench.results import Row, rows_by_key


@dataclass(frozen=True, slots=True)
class Compared:
    """One row that both runs have, with the ratio new / old of every figure that both have and that is not zero."""

    row: Row
    ratios: dict[str, float]


def compare(rows: Sequence[Row], earlier: Sequence[Row]) -> list[Compared]:
    """Every row that stands in both runs, in the order of the new one."""
    old = rows_by_key(earlier)
    return [Compared(row, _ratios(row, old[row.key])) for row in rows if row.key in old]


def typical(compared: Sequence[Compared], figure: str) -> float | None:
    """The geometric mean of a figure's ratios over all rows; None where no row has it."""
    ratios = [each.ratios[figure] for each in compared if figure in each.ratios]
    return geometric_mean(ratios) if ratios else None


def _ratios(row: Row, old: Row) -> dict[str, float]:
    both = row.figures.keys() & old.figures.keys()
    return {
        name: row.figures[name] / old.figures[name]
        for name in sorted(both)
        if row.figures[name] > 0 and old.figures[name] > 0
    }
