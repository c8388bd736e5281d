"""Runs files of cases, telling by each case's fields which kind it is."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.parity import picking, placement, policies, quota, resizes, updates

Case = dict[str, Any]


@dataclass
class Outcome:
    """How a file went: the number of cases that agree, and the differences of those that do not, by case."""

    passed: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)


def cases(path: Path) -> Iterator[Case]:
    """The cases of a file: a JSON object a line, gzipped or plain."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield orjson.loads(line)


def check_of(case: Case) -> Callable[[Case], list[str]]:
    """The comparison for a kind of case; raises ``ValueError`` for an unknown kind."""
    if "candidates" in case:
        return picking.differences
    if "crossNamespace" in case:
        return quota.differences
    if "resize" in case:
        return resizes.differences
    if case.get("kind") in ("inject", "validate"):
        return policies.differences
    if "config" in case and "nodes" in case:
        return placement.differences
    if "old" in case and "new" in case:
        return updates.differences
    raise ValueError(f"case {case.get('id', '?')}: no known kind of case")


def run(path: Path) -> Outcome:
    """Runs every case of a file. A case that raises has failed, with the error as its difference."""
    outcome = Outcome()
    for case in cases(path):
        try:
            found = check_of(case)(case)
        except Exception as error:  # noqa: BLE001 (reported as the case's failure)
            found = [f"{type(error).__name__}: {error}"]
        if found:
            outcome.failures[case["id"]] = found
        else:
            outcome.passed += 1
    return outcome
