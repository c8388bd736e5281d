"""What is measured of a row at growing sizes, and what is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.costs.building import Row, base
from tests.costs.measuring import Measured, Meter, Seconds, World, settings_of
from tests.costs.rows import ROWS

MOST_SECONDS: Final = 0.05
_SIZES: Final = 5
_GROWTH: Final = 3.0  # with a doubling: n log n has 2.2, n² 4, and what leaves the caches of the processor up to 2.9
_SHORT: Final = 3.0  # seconds; memory is not measured where a play takes longer, as tracing takes four times that
_NOISE: Final = 0.05  # seconds of all steps; smaller differences say nothing

# Rows that fail, and why. Each must fail: one that does not is to be taken out.
KNOWN: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Result:
    """``by_size`` has the figures at growing sizes, the last of them at the limit; ``held`` and ``left`` are bytes."""

    name: str
    limit: str
    by_size: Mapping[int, Measured]
    held: int = 0
    left: int = 0

    @property
    def at_limit(self) -> Measured:
        """The figures of the largest size."""
        return self.by_size[max(self.by_size)]

    @property
    def growth(self) -> float:
        """How many times the sum of all steps is what it was at half the size; 1 where it is too little to tell."""
        *_, before, last = [0.0, *(self.by_size[size].spent for size in sorted(self.by_size))]
        return last / before if before and last > _NOISE else 1.0

    @property
    def problems(self) -> list[str]:
        """What is wrong."""
        found = [] if self.limit else ["no limit"]
        if not self.at_limit.what:
            found.append("measures nothing")
        if self.at_limit.longest > MOST_SECONDS:
            found.append(f"a step of {self.at_limit.longest * 1000:.0f} ms ({self.at_limit.what})")
        if self.growth > _GROWTH:
            found.append(f"grows {self.growth:.1f} times with a doubling")
        return found


def sizes(most: int, first: int = 0) -> list[int]:
    """Powers of two below a size and the size itself: the last ones, or those from ``first`` on."""
    powers = [2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most]
    powers = [each for each in powers if each >= first] if first else powers[-_SIZES:]
    # The steps before the last are doublings up to it, so that growth can be told.
    return sorted({most >> shift for shift in range(len(powers)) if most >> shift})


def measured(row: Row, meter: Meter, *, with_memory: bool = False) -> Result:
    """Measures a row up to its limit, in a world of its own."""
    world = World(meter, base(row.nodes), row.sections)
    most = min(row.most(world.settings), row.measured)
    world.measure(row.play(1))  # what is made once
    by_size = {size: world.measure(row.play(size)) for size in sizes(most)}
    if Result(
        row.name, row.limit, by_size
    ).problems:  # once more: the first play of a size also meets cold caches and new memory
        again = {size: world.measure(row.play(size)) for size in sizes(most)[-2:]}
        by_size |= {size: min(by_size[size], found, key=lambda each: each.spent) for size, found in again.items()}
    is_short = by_size[most].spent < _SHORT
    held, left = world.memory(row.play(most)) if with_memory and is_short else (0, 0)
    errors = world.errors
    world.close()
    if errors:
        raise RuntimeError(f"{row.name}: {errors[0]}")
    return Result(row.name, row.limit, by_size, held, left)


def measured_by_name(name: str) -> Result:
    """The same in seconds and with memory, for a process that is given only a name."""
    logging.disable(logging.CRITICAL)
    return measured(next(row for row in ROWS if row.name == name), Seconds(), with_memory=True)


def judged(results: Sequence[Result]) -> list[str]:
    """What is wrong, and what is known to be wrong and is not."""
    found = []
    for each in results:
        if each.problems and each.name not in KNOWN:
            found.append(f"{each.name}: {'; '.join(each.problems)}")
        if not each.problems and each.name in KNOWN:
            found.append(f"{each.name}: is known to fail, and does not: take it out of KNOWN")
    return found


_HEAD: Final = ("dimension", "limit", "most", "who makes it", "longest step", "growth", "memory")
_COMPARED: Final = 4  # columns; the others are measured


def table(rows: Sequence[Row], results: Mapping[str, Result]) -> list[tuple[str, ...]]:
    """The rows of the documentation. Where one was not measured, its figures are those of the page."""
    known = figures_of_page()
    return [_HEAD, *((*_bounds(row), *_figures(row, results, known)) for row in rows)]


def _bounds(row: Row) -> tuple[str, ...]:
    return row.name.replace("|", "/"), row.limit or "none", f"{row.most(settings_of(row.sections)):,}", row.pays


def _figures(row: Row, results: Mapping[str, Result], known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = results.get(row.name)
    if found is None:
        return known.get(_bounds(row)[0], ("", "", ""))
    memory = f"{found.held / 2**20:.1f} MiB, {found.left / 2**20:.1f} left" if found.held else ""
    return f"{found.at_limit.longest * 1000:.0f} ms", f"{found.growth:.1f}", memory


def as_text(lines: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    head, *rest = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest]) + "\n"


PAGE: Final = Path(__file__).parents[2] / "config" / "reference" / "costs.md"
_TITLE: Final = "| dimension"


def write(lines: Sequence[tuple[str, ...]]) -> None:
    """Puts the table in place of that of the page, which ends with it."""
    PAGE.write_text(PAGE.read_text("utf-8").partition(_TITLE)[0] + as_text(lines), "utf-8")


def written() -> list[tuple[str, ...]]:
    """What the page says of each dimension but for the figures."""
    return [line[:_COMPARED] for line in _lines()]


def figures_of_page() -> dict[str, tuple[str, ...]]:
    """The figures of the page by dimension: step, growth, memory."""
    return {line[0]: line[_COMPARED:] for line in _lines()}


def _lines() -> list[tuple[str, ...]]:
    _, _, text = PAGE.read_text("utf-8").partition(_TITLE)
    return [tuple(each.strip() for each in line.strip().strip("|").split("|")) for line in text.splitlines()[2:]]


def wanted(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What it should say."""
    return [_bounds(row) for row in rows]
