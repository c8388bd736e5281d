"""The rows of the one table of speed: which there are, what was measured for each, and how they are shown.

A row is written down as soon as it is measured. A run that was cut goes on with the rows that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import orjson

from tests.e2e.workloads import WORKLOADS

IN_TREE, OFFLOAD = "in-tree", "offload"
PROGRAMS: Final = {
    "kube-scheduler": "scheduler",
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "extender": "extender",
}
UNCONSTRAINED: Final = "W7"

# (Workload, existing pods, in-tree or offload, percentageOfNodesToScore).
Key: TypeAlias = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. ``cpu``: processor seconds of each program while ``bound`` pods were placed in ``seconds``.

    ``algorithm``: milliseconds of a pod in kube-scheduler's scheduling algorithm, which does one pod after the other.
    """

    workload: str
    existing: int
    variant: str
    percentage: int
    requested: int
    bound: int
    seconds: float
    violations: int
    cpu: Mapping[str, float] = field(default_factory=dict)
    load: float = 0.0
    algorithm: float = 0.0

    @property
    def key(self) -> Key:
        """What tells it from other rows."""
        return self.workload, self.existing, self.variant, self.percentage

    @property
    def rate(self) -> float:
        """Pods per second."""
        return self.bound / self.seconds if self.seconds else 0.0

    def cost(self, program: str = "") -> float:
        """Processor seconds for 1,000 pods, of one program or of all."""
        used = self.cpu.get(program, 0.0) if program else sum(self.cpu.values())
        return used / self.bound * 1000 if self.bound else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. ``percentage``: the sampling beside the default one."""

    workloads: Sequence[str]
    existing: Sequence[int]
    percentage: int
    nodes: int = 5000

    def keys(self, workload: str, existing: int) -> Iterator[Key]:
        """The rows for a workload at one number of existing pods."""
        for percentage in (0, self.percentage):
            for variant in (OFFLOAD, IN_TREE):
                yield workload, existing, variant, percentage

    def incoming(self, key: Key) -> int:
        """How many pods are placed for a row: fewer where each takes the in-tree plugins long."""
        workload, existing, variant, _ = key
        if variant == OFFLOAD or workload == UNCONSTRAINED:
            return self.nodes // 5
        return max(self.nodes // 5 // (3 if existing <= self.nodes else 8 if existing <= self.nodes * 6 else 16), 5)


class Rows:
    """The rows measured so far, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        found = orjson.loads(file.read_bytes()) if file.exists() else []
        self.by_key: dict[Key, Row] = {row.key: row for row in (Row(**each) for each in found)}

    def add(self, row: Row) -> None:
        """Writes it down; a file that is half written does not replace one that is whole."""
        self.by_key[row.key] = row
        self._file.parent.mkdir(exist_ok=True)
        half = self._file.with_suffix(".half")
        half.write_bytes(orjson.dumps([asdict(each) for each in self.by_key.values()], option=orjson.OPT_INDENT_2))
        half.replace(self._file)


def markdown(rows: Mapping[Key, Row], plan: Plan) -> str:
    """The tables: one line for each workload, one for each pair of a workload and its control, and one for each measurement."""
    return "\n".join([*_summary(rows, plan), "", *_pairs(rows, plan), "", *_details(rows, plan)]) + "\n"


def _summary(rows: Mapping[Key, Row], plan: Plan) -> Iterator[str]:
    """Pods per second and processor seconds for 1,000 pods, side by side.

    The last column compares offload mode with pods without constraints that the scheduler places alone, at the same
    sampling and with as many existing pods.
    """
    ways = [(variant, percentage) for variant in (IN_TREE, OFFLOAD) for percentage in (0, plan.percentage)]
    heads = [f"{variant}, {f'{percentage} %' if percentage else 'default'}" for variant, percentage in ways]
    yield f"| workload | existing pods | {' | '.join(heads)} | cost of offload, {plan.percentage} % / of no constraints |"
    yield "|---" * (len(ways) + 3) + "|"
    for workload in plan.workloads:
        for existing in plan.existing:
            found = [rows.get((workload, existing, *way)) for way in ways]
            base, ours = rows.get((UNCONSTRAINED, existing, IN_TREE, plan.percentage)), found[-1]
            ratio = f"{ours.cost() / base.cost():.2f}" if ours is not None and base is not None and base.cost() else ""
            cells = [f"{each.rate:.1f}/s, {each.cost():.1f} s" if each is not None else "" for each in found]
            yield f"| {_title(workload)} | {existing:,} | {' | '.join(cells)} | {ratio} |"


def _pairs(rows: Mapping[Key, Row], plan: Plan) -> Iterator[str]:
    """What a workload costs of what its control costs, in processor seconds of all programs, and how fast it is placed."""
    yield "| workload / control | existing pods | | sampling | cost, with / without | pods/s, with / without |"
    yield "|---|---|---|---|---|---|"
    for workload in plan.workloads:
        control = WORKLOADS[workload].control
        for existing in plan.existing if control else ():
            for key in plan.keys(workload, existing):
                ours, its = rows.get(key), rows.get((control, *key[1:]))
                if ours is not None and its is not None and its.cost() and its.rate:
                    sampling = f"{key[3]} %" if key[3] else "default"
                    ratios = f"{ours.cost() / its.cost():.2f} | {ours.rate / its.rate:.2f}"
                    yield f"| {workload} / {control} | {existing:,} | {key[2]} | {sampling} | {ratios} |"


def _details(rows: Mapping[Key, Row], plan: Plan) -> Iterator[str]:
    yield (
        "| workload | existing pods | | sampling | pods placed | pods/s | "
        f"{' | '.join(f'{name}, s for 1,000 pods' for name in PROGRAMS.values())} | all | algorithm, ms | violations | load |"
    )
    yield "|---" * (11 + len(PROGRAMS)) + "|"
    for workload in plan.workloads:
        for existing in plan.existing:
            for key in plan.keys(workload, existing):
                if key in rows:
                    yield _detail(rows[key])


def _detail(row: Row) -> str:
    used = " | ".join(f"{row.cost(program):.2f}" if program in row.cpu else "" for program in PROGRAMS)
    sampling = f"{row.percentage} %" if row.percentage else "default"
    placed = str(row.bound) if row.bound == row.requested else f"{row.bound} of {row.requested}"
    return (
        f"| {_title(row.workload)} | {row.existing:,} | {row.variant} | {sampling} | {placed} | {row.rate:.1f} | {used} | "
        f"{row.cost():.2f} | {row.algorithm:.2f} | {row.violations} | {row.load} |"
    )


def _title(workload: str) -> str:
    found = WORKLOADS[workload]
    return f"{workload} {found.title}{f', as {found.published}' if found.published else ''}"
