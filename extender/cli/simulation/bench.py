"""`extender bench`: measures decisions on synthetic clusters of a given size, next to an echo server in the same run.

Progress goes to standard error. The last lines are the result of the audit and the missed bounds. The exit code is 1
if a count has drifted, or with `--check` if a bound was missed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from extender.cli.command import CommandError, Commands
from extender.cli.files import read_bytes
from extender.cli.simulation.bench_scenarios import SCENARIOS, AnyLoad, loads_of, read_workloads
from extender.compose.bench_service import run_service
from extender.compose.bench_subject import make_subject
from extender.simulator.bench.measurement.child_process import ChildError
from extender.simulator.bench.measurement.in_process import play_in_process
from extender.simulator.bench.measurement.mode_bursts import play_modes
from extender.simulator.bench.measurement.over_http import play_over_http
from extender.simulator.bench.reporting.comparison import Checked, check_bounds, compare
from extender.simulator.bench.reporting.runs import Played, Results, decode_results, encode_results, results_of
from extender.simulator.bench.reporting.tables import ratio_table, tables
from extender.simulator.bench.workload.modes import MODES, ModesLoad

_WIDTH: Final = 200


def add_parser(commands: Commands) -> None:
    """Adds the parser: scenarios, bounds and the form of the result."""
    parser = commands.add_parser("bench", help="measure how long decisions take")
    parser.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help=f"scenario files (default: those in config/{SCENARIOS})"
    )
    parser.add_argument("--label", default="", help="run only the cases with this label, such as short")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses a bound of its scenario")
    parser.add_argument("--compare", metavar="FILE", help="print the ratios to the results in FILE, of an earlier run")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="form of the result")
    parser.add_argument("--out", metavar="FILE", help="also write the results to FILE as JSON")
    parser.set_defaults(run=run)


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
            yield from play_modes(load, run_service)
        else:
            _log(f"{title}, {load.selectors:,} selectors")
            yield from play_in_process(load, make_subject)
            yield from play_over_http(load, run_service)


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
