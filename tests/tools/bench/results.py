"""Measured times and their figures: median, 99th percentile, maximum and mean, in milliseconds."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from statistics import fmean, geometric_mean
from typing import Any

import msgspec
from msgspec import Struct

from tests.tools.bench.scenario import DIMENSIONS, AnyScenario, Bound, Place

NANOSECONDS_PER_MILLISECOND = 1e6

Figures = dict[str, float]


def quantile(times: Sequence[int], share: float) -> int:
    """The quantile by nearest rank; ``share`` is above 0."""
    return sorted(times)[ceil(len(times) * share) - 1]


def milliseconds(times: Sequence[int], name: str) -> Figures:
    """`name.p50`, `.p99`, `.max` and `.mean` of times in nanoseconds; empty without times."""
    if not times:
        return {}
    found = {"p50": quantile(times, 0.5), "p99": quantile(times, 0.99), "max": max(times), "mean": fmean(times)}
    return {f"{name}.{key}": value / NANOSECONDS_PER_MILLISECOND for key, value in found.items()}


def shares(parts: Mapping[str, Sequence[int]]) -> Figures:
    """`share.NAME` of each part of the sum, 0 to 1."""
    whole = sum(map(sum, parts.values()))
    return {f"share.{name}": sum(times) / whole for name, times in parts.items()} if whole else {}


_TIMED = ("filter", "decode", "decide", "encode", "rejected", "echo", "prioritize", "event", "cpu")


@dataclass(slots=True)
class Times:
    """`filter` is the wall time of an answer; decode, decide and encode are its parts, if the player measures them.

    `cpu` is the processor time of the answer, which other processes do not change.
    """

    decode: list[int] = field(default_factory=list)
    decide: list[int] = field(default_factory=list)
    encode: list[int] = field(default_factory=list)
    filter: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    echo: list[int] = field(default_factory=list)
    echo_all: list[int] = field(default_factory=list)
    prioritize: list[int] = field(default_factory=list)
    prioritize_echo: list[int] = field(default_factory=list)
    event: list[int] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0

    def figures(self) -> Figures:
        answered = len(self.filter)
        found = shares({"decode": self.decode, "decide": self.decide, "encode": self.encode})
        for name in _TIMED:
            found |= milliseconds(getattr(self, name), name)
        found |= milliseconds(self.echo_all, "echoAll") | milliseconds(self.prioritize_echo, "prioritizeEcho")
        if answered:
            found |= {"bytesIn": self.bytes_in / answered, "bytesOut": self.bytes_out / answered}
            found["requestsPerSecond"] = 1e9 * answered / sum(self.filter)
        return found | {"rejectedShare": len(self.rejected) / max(1, answered + len(self.rejected))}


class Audit(Struct, frozen=True):
    """The differences that the recount found, and the number of recounted groups."""

    drift: tuple[str, ...]
    groups: int


class Row(Struct, frozen=True):
    """The figures of one point: scenario, way of measuring (`process` or `http`), and dimensions."""

    scenario: str
    via: str
    place: Place
    figures: Figures

    @property
    def name(self) -> str:
        """The name in messages: `w1 via process (pods 5000, selectors 100, names 500, answer decisive)`."""
        place = ", ".join(f"{name} {self.place[name]}" for name in DIMENSIONS if name in self.place)
        return f"{self.scenario} via {self.via} ({place})"

    @property
    def key(self) -> tuple[str, str, tuple[tuple[str, int | str], ...]]:
        """Identifies the same point in another run."""
        return self.scenario, self.via, tuple(sorted(self.place.items()))


class Played(Struct, frozen=True):
    """The results of one load."""

    rows: list[Row]
    audit: Audit


class Results(Struct, frozen=True):
    """The results of a run."""

    made: str
    machine: dict[str, str]
    rows: list[Row]
    audit: Audit


def results_of(played: Sequence[Played]) -> Results:
    """Joins the results of the loads."""
    rows = [row for each in played for row in each.rows]
    drift = tuple(line for each in played for line in each.audit.drift)
    return Results(_now(), _machine(), rows, Audit(drift, sum(each.audit.groups for each in played)))


def encode_results(results: Results) -> bytes:
    """Encodes JSON with one line per row, so that two files can be compared with diff."""
    rows = b",\n  ".join(msgspec.json.encode(row) for row in results.rows)
    head = msgspec.json.encode({"made": results.made, "machine": results.machine, "audit": results.audit})
    return head[:-1] + b',\n "rows": [\n  ' + rows + b"\n]}\n"


def decode_results(body: bytes) -> Results:
    """Decodes the output of `encode_results`. Raises ValueError."""
    return msgspec.json.decode(body, type=Results)


def rows_by_key(rows: Iterable[Row]) -> dict[Any, Row]:
    return {row.key: row for row in rows}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _machine() -> dict[str, str]:
    return {"python": platform.python_version(), "machine": platform.machine(), "processors": str(os.cpu_count())}


@dataclass(frozen=True, slots=True)
class Checked:
    """The number of comparisons, and a line for each missed bound."""

    compared: int
    missed: tuple[str, ...]


def check_bounds(scenarios: Iterable[AnyScenario], rows: Sequence[Row]) -> Checked:
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
