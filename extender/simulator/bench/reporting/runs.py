"""The results of a run as values and as JSON, so that a later run can be compared with it."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from extender.simulator.bench.reporting.figures import Figures
from extender.simulator.bench.workload.scenario import DIMENSIONS, Place


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
    """The rows by key."""
    return {row.key: row for row in rows}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _machine() -> dict[str, str]:
    return {"python": platform.python_version(), "machine": platform.machine(), "processors": str(os.cpu_count())}
