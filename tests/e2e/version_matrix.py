"""The core of the tests with each version of Kubernetes, and one table: `make e2e-versions KUBE_ASSETS_DIR=DIR`.

DIR has a folder for each minor version, such as `1.29` or `29`, with kube-apiserver and kube-scheduler. Every other program may be in one
of the folders only. Tried are pairs of the same version, and pairs in which the scheduler is one minor version older than the API server.
Each pair is a run of pytest with its own programs, so that a fault of one pair leaves the others alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree as ET

from extender.cli.main import say
from tests.e2e.programs import NOT_TRIED, OLDER, VARIABLE

_FOLDER: Final = re.compile(r"(?:v?1\.)?(\d+)")
_OF_A_VERSION: Final = ("kube-apiserver", "kube-scheduler")
_SHARED: Final = ("etcd", "kubectl", "kube-controller-manager")
_LONGEST: Final = 160  # characters of a reason
_LIMIT: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The minor versions of an API server and a scheduler."""

    api: int
    scheduler: int

    def __str__(self) -> str:
        return f"1.{self.api}" if self.api == self.scheduler else f"1.{self.api}+1.{self.scheduler}"


@dataclass(slots=True)
class Cell:
    """What was seen of a feature: how many tests passed, why some failed, and what the version lacks for others."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.failures:
            return "FAILS"
        if self.passed:
            return "works in part" if self.lacks else "works"
        return "lacks" if self.lacks else ""


Column = Mapping[str, Cell]


def versions_in(folder: Path) -> dict[int, Path]:
    """The folders with an API server and a scheduler, by minor version, the oldest first."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _FOLDER.fullmatch(path.name))}
    return {
        minor: path for minor, path in sorted(found.items()) if all((path / name).exists() for name in _OF_A_VERSION)
    }


def pairs_of(minors: Iterable[int]) -> Iterator[Pair]:
    """The pairs to try, the newest first."""
    known = set(minors)
    for minor in sorted(known, reverse=True):
        yield Pair(minor, minor)
        if minor - 1 in known:
            yield Pair(minor, minor - 1)


def link(versions: Mapping[int, Path], pair: Pair, folder: Path) -> None:
    """Put the programs of a pair into one folder, the shared ones of the newest version that has them."""
    places = {"kube-apiserver": versions[pair.api], "kube-scheduler": versions[pair.scheduler]}
    for name in _SHARED:
        having = [path for path in versions.values() if (path / name).exists()]
        if having:
            places[name] = having[-1]
    for name, path in places.items():
        (folder / name).symlink_to((path / name).resolve())


def column_of(report: Path) -> dict[str, Cell]:
    """The cells of a run by feature, from pytest's JUnit report."""
    column: dict[str, Cell] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 (pytest has just written it)
        named = [one.get("value", "") for one in case.iter("property") if one.get("name") == "core"]
        cell = column.setdefault(named[0] if named else "other", Cell())
        skipped, failed = case.find("skipped"), case.find("failure")
        failed = failed if failed is not None else case.find("error")
        if failed is not None:
            cell.failures.append(f"{case.get('name')}: {_first(failed.get('message'))}")
        elif skipped is None:
            cell.passed += 1
        elif not (reason := _first(skipped.get("message"))).startswith(NOT_TRIED):
            cell.lacks.append(reason)
    return column


def _first(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:_LONGEST]


def table(columns: Mapping[Pair, tuple[Column, float]]) -> Iterator[str]:
    """The table as Markdown: a line for each feature, and below it each reason with the pairs that it holds for."""
    features = dict.fromkeys(name for column, _ in columns.values() for name in column)
    yield "| API server + scheduler | " + " | ".join(map(str, columns)) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for feature in features:
        yield f"| {feature} | " + " | ".join(str(column.get(feature, "")) for column, _ in columns.values()) + " |"
    yield (
        "| tests, seconds | "
        + " | ".join(
            f"{sum(cell.passed for cell in column.values())}, {seconds:.0f}" for column, seconds in columns.values()
        )
        + " |"
    )
    reasons: dict[str, list[str]] = {}
    for pair, (column, _) in columns.items():
        for feature, cell in column.items():
            for reason in dict.fromkeys((*cell.failures, *cell.lacks)):
                reasons.setdefault(f"{feature}: {reason}", []).append(str(pair))
    yield ""
    yield from (f"- {reason} ({', '.join(pairs)})" for reason, pairs in reasons.items())


def play(versions: Mapping[int, Path], pair: Pair, selected: Sequence[str]) -> tuple[dict[str, Cell], float]:
    """Run the core with a pair. Returns its column and its seconds."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        link(versions, pair, folder)
        report = folder / "report.xml"
        environment = {**os.environ, VARIABLE: str(folder)}
        environment.pop(OLDER, None)
        if pair.api == pair.scheduler and pair.api - 1 in versions:
            environment[OLDER] = str(versions[pair.api - 1].resolve())
        command = [sys.executable, "-m", "pytest", "-q", "-m", "core", "-p", "no:cacheprovider", f"--junitxml={report}"]
        began = time.monotonic()
        with (Path.cwd() / f"e2e-versions-{pair}.log").open("w") as log:
            subprocess.run([*command, *selected, "tests/e2e"], env=environment, stdout=log, check=False, timeout=_LIMIT)
        column = (
            column_of(report) if report.exists() else {"all": Cell(failures=["pytest wrote no report; see its log"])}
        )
        return column, time.monotonic() - began


def main() -> int:
    """Returns 0 where nothing has failed, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder for each minor version")
    parser.add_argument("--only", nargs="*", default=[], metavar="PAIR", help="such as 1.33, or 1.33+1.32")
    parser.add_argument("-k", dest="expression", default="", help="as for pytest")
    arguments = parser.parse_args()
    versions = versions_in(arguments.folder)
    pairs = [pair for pair in pairs_of(versions) if not arguments.only or str(pair) in arguments.only]
    columns: dict[Pair, tuple[Column, float]] = {}
    for pair in pairs:
        columns[pair] = play(versions, pair, ["-k", arguments.expression] if arguments.expression else [])
        column, seconds = columns[pair]
        failures = [failure for cell in column.values() for failure in cell.failures]
        say(
            f"{pair}: {sum(cell.passed for cell in column.values())} passed in {seconds:.0f} s",
            *(f"  {failure}" for failure in failures),
        )
    say(*table(columns))
    return int(not columns or any(cell.failures for column, _ in columns.values() for cell in column.values()))


if __name__ == "__main__":
    sys.exit(main())
