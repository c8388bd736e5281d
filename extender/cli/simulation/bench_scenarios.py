"""Reads the scenario files of `extender bench`, of both kinds, and selects their loads by label. Called by `bench.py`."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from extender.cli.command import CommandError
from extender.cli.files import own_file, read_yaml
from extender.cli.simulation.scenarios import read_scenario, scenario_settings
from extender.model.documents import DocumentError
from extender.simulator.bench.workload.modes import KIND, ModesLoad, parse_modes, plan_modes
from extender.simulator.bench.workload.scenario import Bounded, Load, labels_in, parse_bench, plan

SCENARIOS: Final = "scenarios/bench"

AnyLoad: TypeAlias = Load | ModesLoad


@dataclass(frozen=True, slots=True)
class Workload:
    """A scenario, and its loads by label."""

    scenario: Bounded
    plan: Callable[[str], Sequence[AnyLoad]]


def read_workloads(paths: Sequence[str]) -> list[Workload]:
    """The scenarios of these files, or all in config/. Raises CommandError with a line for each problem."""
    found = paths or [str(path) for path in sorted(own_file(SCENARIOS).glob("*.yaml"))]
    workloads = [_read_workload(path) for path in found]
    names = Counter(each.scenario.name for each in workloads)
    if twice := [name for name, times in names.items() if times > 1]:
        raise CommandError(*(f"{name}: two scenarios have this name, so their bounds are ambiguous" for name in twice))
    return workloads


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
    loads = [load for each in workloads for load in each.plan(label)]
    if not loads:
        known = ", ".join(labels_in(each.scenario for each in workloads))
        raise CommandError(f'no case has the label "{label}"; the labels are {known}')
    return loads
