"""In-tree plugins against the extender at 5,000 nodes, with the real scheduler: figures and ratios, none of them asserted.

`make e2e-scale KUBE_ASSETS_DIR=DIR` runs everything, in most of an hour; WORKLOADS, EXISTING, NODES, ASKING and
PERCENTAGE choose: `make e2e-scale WORKLOADS="W1 W5" EXISTING="5000 30000"`. The table goes to the screen, and with all
figures to results/e2e-scale.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from tests.e2e.measuring import Measurement, Size, compare
from tests.e2e.workloads import WORKLOADS

pytestmark = [pytest.mark.scale, pytest.mark.timeout(3600)]

RESULTS = Path(__file__).resolve().parents[2] / "results" / "e2e-scale.json"
_LARGER = {"W2": (5000, 30_000, 100_000)}


def chosen() -> Iterator[tuple[str, int]]:
    """The workloads and numbers of existing pods that were asked for."""
    existing = tuple(int(number) for number in os.environ.get("SCALE_EXISTING", "").split())
    for name in os.environ.get("SCALE_WORKLOADS", "").split() or WORKLOADS:
        for number in existing or _LARGER.get(name, (WORKLOADS[name].existing,)):
            yield name, number


def number_of(variable: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(variable) or default)


@pytest.mark.parametrize(("name", "existing"), list(chosen()))
async def test_all_pods_are_placed_rightly_at_the_speed_reported(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, existing: int
) -> None:
    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)  # noqa: T201 -- minutes pass between two lines

    size = Size(
        nodes=number_of("SCALE_NODES", 5000),
        existing=existing,
        asking=number_of("SCALE_ASKING", 1000),
        percentage=number_of("SCALE_PERCENTAGE", 0),
    )
    results = await compare(assets, tmp_path, WORKLOADS[name], size, tell)
    tell(report(name, size, results))
    assert {result.variant: (result.bound, result.violations) for result in results} == {
        "in-tree": (size.asking, 0),
        "offload": (size.asking, 0),
    }


def report(name: str, size: Size, results: list[Measurement]) -> str:
    """A line for people; all figures are added to the file."""
    in_tree, offload = results
    ratio = round(offload.rate / in_tree.rate, 2) if in_tree.rate else 0.0
    rows = [{"rate": round(result.rate, 1), **asdict(result)} for result in results]
    entry = {"workload": name, "title": WORKLOADS[name].title, "size": asdict(size), "ratio": ratio, "runs": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    earlier = orjson.loads(RESULTS.read_bytes()) if RESULTS.exists() else []
    RESULTS.write_bytes(orjson.dumps([*earlier, entry], option=orjson.OPT_INDENT_2))
    return (
        f"{name} {WORKLOADS[name].title:30} existing {size.existing:>6}  in-tree {in_tree.rate:6.1f}/s  "
        f"offload {offload.rate:6.1f}/s  ratio {ratio:5.2f}  cpu {deciding(in_tree):5.1f}/{deciding(offload):5.1f} s  "
        f"violations {in_tree.violations}/{offload.violations}  load {in_tree.load}/{offload.load}"
    )


def deciding(result: Measurement) -> float:
    """Processor time of scheduler and extender: what deciding cost, however busy the machine was with other things."""
    return sum(seconds for name, seconds in result.cpu.items() if name in {"kube-scheduler", "extender"})
