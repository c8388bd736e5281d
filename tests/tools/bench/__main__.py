"""`python -m tests.tools.bench`: measures decisions on synthetic clusters of a given size, next to echo servers in the same run.

Progress goes to standard error. The last lines are the result of the audit and the missed bounds. The exit code is 1
if a count has drifted, or with `--check` if a bound was missed.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace
from rich.console import Console

from extender.cli.files import own_file, read_bytes, read_yaml
from extender.cli.main import CommandError
from extender.cli.simulate import read_scenario, scenario_settings
from extender.model.documents import DocumentError
from tests.tools.bench.child_process import ChildError
from tests.tools.bench.in_process import play_in_process
from tests.tools.bench.mode_bursts import play_modes
from tests.tools.bench.over_http import play_over_http
from tests.tools.bench.results import (
    Checked,
    Played,
    Results,
    check_bounds,
    compare,
    decode_results,
    encode_results,
    results_of,
)
from tests.tools.bench.scenario import (
    KIND,
    MODES,
    AnyScenario,
    BenchScenario,
    Load,
    ModesLoad,
    labels_in,
    parse_bench,
    parse_modes,
    plan,
    plan_modes,
)
from tests.tools.bench.tables import ratio_table, tables

SCENARIOS: Final = "scenarios/bench"
_WIDTH: Final = 200

AnyLoad: TypeAlias = Load | ModesLoad


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line: scenarios, bounds and the form of the result. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.bench", description="Measures how long decisions take."
    )
    parser.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help=f"scenario files (default: those in config/{SCENARIOS})"
    )
    parser.add_argument("--label", default="", help="run only the cases with this label, such as short")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses a bound of its scenario")
    parser.add_argument("--compare", metavar="FILE", help="print the ratios to the results in FILE, of an earlier run")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="form of the result")
    parser.add_argument("--out", metavar="FILE", help="also write the results to FILE as JSON")
    try:
        return run(parser.parse_args(argv))
    except CommandError as error:
        for line in error.lines:
            _log(f"bench: {line}")
        return 1


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the audit found no drift and, with `--check`, no bound was missed."""
    workloads = read_workloads(arguments.scenarios)
    earlier = _read_results(arguments.compare) if arguments.compare else None
    try:
        results = results_of(list(_play(loads_of(workloads, arguments.label))))
    except ChildError as error:
        raise CommandError(str(error)) from None
    if arguments.out:  # before the bounds are checked: the results of most of an hour must not be lost
        Path(arguments.out).write_bytes(encode_results(results))
    checked = check_bounds([each.scenario for each in workloads], results.rows)
    is_json = arguments.output == "json"
    _print(results, earlier, as_json=is_json)
    missed = _conclude(results, checked, as_json=is_json, names_missed=arguments.check)
    return 1 if results.audit.drift or (arguments.check and missed) else 0


def _read_results(path: str) -> Results:
    try:
        return decode_results(read_bytes(path))
    except ValueError as error:
        raise CommandError(f"{path}: not the results of a bench: {error}") from None


def _play(loads: Sequence[AnyLoad]) -> Iterator[Played]:
    """Runs the loads one after the other, each in process and over HTTP as its measures require."""
    for number, load in enumerate(loads, start=1):
        title = f"{number}/{len(loads)} {load.scenario.name}: {load.pods:,} pods"
        if isinstance(load, ModesLoad):
            _log(f"{title}, {', '.join(MODES)}")
            yield from play_modes(load)
        else:
            _log(f"{title}, {load.selectors:,} selectors")
            yield from play_in_process(load)
            yield from play_over_http(load)


def _print(results: Results, earlier: Results | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(encode_results(results))
        sys.stdout.flush()
    # Not a terminal: rich would fold the tables to 80 columns.
    console = Console(stderr=as_json, width=None if sys.stdout.isatty() else _WIDTH)
    if not as_json:
        for table in tables(results):
            console.print(table, "")
    if earlier is not None:
        console.print(ratio_table(compare(results.rows, earlier.rows)), "")


def _conclude(results: Results, checked: Checked, *, as_json: bool, names_missed: bool) -> int:
    """Prints the last lines; returns how many bounds were missed."""
    write = _log if as_json else print
    audit = results.audit
    for line in audit.drift:
        write(f"drift: {line}")
    outcome = f"{len(audit.drift)} differences" if audit.drift else "no drift"
    write(f"audit: {outcome} ({audit.groups:,} groups recounted)")
    write(f"bounds: {len(checked.missed)} of {checked.compared} missed")
    if names_missed:
        for line in checked.missed:
            write(line)
    return len(checked.missed)


def _log(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Workload:
    """A scenario, and its loads by label."""

    scenario: AnyScenario
    plan: Callable[[str], Sequence[AnyLoad]]


def read_workloads(paths: Sequence[str]) -> list[Workload]:
    """The scenarios of these files, or all in config/. Raises CommandError with a line for each problem."""
    found = paths or [str(path) for path in sorted(own_file(SCENARIOS).glob("*.yaml"))]
    workloads = [_read_workload(path) for path in found]
    names = Counter(each.scenario.name for each in workloads)
    if twice := [name for name, times in names.items() if times > 1]:
        raise CommandError(*(f"{name}: two scenarios have this name, so their bounds are ambiguous" for name in twice))
    alone = [each for each in _bench(workloads).values() if each.control and each.control not in names]
    if alone:
        raise CommandError(*(f"{each.name}: its control {each.control} is not in this run" for each in alone))
    return workloads


def _bench(workloads: Sequence[Workload]) -> dict[str, BenchScenario]:
    """The scenarios that measure decisions, by name."""
    return {each.scenario.name: each.scenario for each in workloads if isinstance(each.scenario, BenchScenario)}


def _read_workload(path: str) -> Workload:
    try:
        document = read_yaml(path)
        if isinstance(document, dict) and document.get("kind") == KIND:
            return _read_modes(path, document)
        scenario = parse_bench(document)
        return Workload(scenario, partial(plan, scenario))
    except DocumentError as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from None


def _read_modes(path: str, document: object) -> Workload:
    """A scenario and its burst, which is a file in the same folder."""
    scenario = parse_modes(document)
    beside = str(Path(path).parent / scenario.burst)
    burst = read_scenario(beside)
    make = partial(plan_modes, scenario, burst, scenario_settings(burst, beside))
    make("")  # rejects a burst that cannot be played before any load runs
    return Workload(scenario, make)


def loads_of(workloads: Sequence[Workload], label: str) -> list[AnyLoad]:
    """The loads with a label, all for the empty one. Raises CommandError if there is none."""
    scenarios = _bench(workloads)
    loads = [_with_control(load, scenarios) for each in workloads for load in each.plan(label)]
    if not loads:
        known = ", ".join(labels_in(each.scenario for each in workloads))
        raise CommandError(f'no case has the label "{label}"; the labels are {known}')
    return loads


def _with_control(load: AnyLoad, known: Mapping[str, BenchScenario]) -> AnyLoad:
    if isinstance(load, ModesLoad) or not load.scenario.control:
        return load
    return replace(load, control=known[load.scenario.control])


if __name__ == "__main__":
    sys.exit(main())
