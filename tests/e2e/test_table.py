"""One table of speed: each workload in-tree and offload, by default sampling and by the one recommended, on one machine.

`make e2e-table KUBE_ASSETS_DIR=DIR` measures all rows in most of an hour; WORKLOADS, EXISTING, PERCENTAGE and NODES
choose. Each row is added to results/e2e-table.json, and the tables are written anew to results/e2e-table.md. A run that
was cut goes on where it ended; FRESH=1 begins again. Asserted is only that offload mode places all pods rightly, as far as
one of ten decisions shows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.measuring import Course, Measurement, extender_at, open_course
from tests.e2e.table import IN_TREE, OFFLOAD, Key, Plan, Row, Rows, markdown
from tests.e2e.workloads import WORKLOADS

RESULTS = Path(__file__).resolve().parents[2] / "results"
_LONGEST = (
    60.0  # seconds for a row; in-tree at 100,000 existing pods a slow machine places only some of the pods in them
)
_JUDGE_EVERY = 10
_FILE, _NODES = "e2e-table.json", 5000  # of another number of nodes in a file of its own


def planned() -> Plan:
    """What was asked for. First the pods without constraints, with which the others are compared."""
    ours = [name for name, workload in WORKLOADS.items() if not workload.published]
    named = os.environ.get("TABLE_WORKLOADS", "").split() or sorted(ours, key=lambda name: name != "W7")
    existing = [int(number) for number in os.environ.get("TABLE_EXISTING", "").split()] or [5000, 30_000, 100_000]
    percentage = int(os.environ.get("TABLE_PERCENTAGE") or 2)
    return Plan(named, sorted(existing), percentage, int(os.environ.get("TABLE_NODES") or 5000))


@pytest.mark.scale
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workload", planned().workloads)
async def test_each_row_is_measured_once_and_offload_places_all_pods_rightly(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str
) -> None:
    plan = planned()
    file = RESULTS / (_FILE if plan.nodes == _NODES else f"e2e-table-{plan.nodes}-nodes.json")
    if os.environ.get("TABLE_FRESH") and workload == plan.workloads[0]:
        file.unlink(missing_ok=True)
    rows = Rows(file)
    wanted = {existing: _missing(plan, rows, workload, existing) for existing in plan.existing}

    def report(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {time.strftime('%H:%M:%S')} {text}", end="", flush=True)  # noqa: T201 -- minutes pass between two lines

    if any(wanted.values()):
        async with open_course(assets, WORKLOADS[workload], plan.nodes, _JUDGE_EVERY) as course:
            for existing, keys in wanted.items():
                if keys:
                    report(f"{workload}: {existing:,} pods after {await course.fill(existing):.0f} s more")
                    await _measure(course, tmp_path, plan, keys, rows, report)
    file.with_suffix(".md").write_text(markdown(rows.by_key, plan), "utf-8")
    ours = [row for row in rows.by_key.values() if row.workload == workload and row.variant == OFFLOAD]
    assert [(row.key, row.bound, row.violations) for row in ours] == [(row.key, row.requested, 0) for row in ours]


def _missing(plan: Plan, rows: Rows, workload: str, existing: int) -> list[Key]:
    return [key for key in plan.keys(workload, existing) if key not in rows.by_key]


async def _measure(
    course: Course, folder: Path, plan: Plan, keys: list[Key], rows: Rows, report: Callable[[str], None]
) -> None:
    """The rows at one number of existing pods: with one extender, then without."""
    async with AsyncExitStack() as stack:
        extender = None
        if any(variant == OFFLOAD for _, _, variant, _ in keys):
            extender = await stack.enter_async_context(extender_at(course.plane, folder))
        for key in [each for each in keys if each[2] == OFFLOAD]:
            found = await course.measure(OFFLOAD, plan.incoming(key), extender, key[3], _LONGEST)
            _keep(key, plan.incoming(key), found, rows, report)
    for key in [each for each in keys if each[2] == IN_TREE]:
        found = await course.measure(IN_TREE, plan.incoming(key), None, key[3], _LONGEST)
        _keep(key, plan.incoming(key), found, rows, report)


def _keep(key: Key, requested: int, found: Measurement, rows: Rows, report: Callable[[str], None]) -> None:
    row = Row(*key, requested, found.bound, found.seconds, found.violations, found.cpu, found.load, found.algorithm)
    rows.add(row)
    report(
        f"{key}: {row.rate:.1f} pods/s, {row.cost():.1f} s for 1,000 pods, algorithm {row.algorithm} ms a pod, "
        f"violations {row.violations}, load {row.load}"
    )
