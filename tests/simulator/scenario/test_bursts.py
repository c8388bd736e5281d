"""Hard constraints under load, with bindings that are seen late: no violation in any mode, and many without the feature."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parents[3] / "config" / "scenarios"
PODS = 300


async def last_line(text: str, folder: Path, seed: int) -> str:
    """Plays the scenario in a process of its own, with fewer pods and nodes; its last line."""
    shorter = text.replace("count: 2000", f"count: {PODS}").replace("placed: 2000", f"placed: {PODS}")
    path = folder / "burst.yaml"
    path.write_text(shorter.replace("count: 400, zones", "count: 80, zones").replace("calm: 1500ms", "calm: 700ms"))
    command = (sys.executable, "-m", "extender", "simulate", str(path), "--seed", str(seed))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().splitlines()[-1]


@pytest.mark.parametrize("mode", ["decisive", "bind", "cooperative"])
async def test_no_pod_stands_where_it_must_not(mode: str, tmp_path: Path) -> None:
    text = (SCENARIOS / f"burst-{mode}.yaml").read_text()
    assert await last_line(text, tmp_path, seed=3) == f"placed {PODS}, pending 0, violations 0"


async def test_without_assumed_pods_some_do(tmp_path: Path) -> None:
    text = (SCENARIOS / "burst-decisive.yaml").read_text()
    blind = text.replace("placement: decisive", "placement: decisive\n  assumedPods: {enabled: false}")
    line = await last_line(blind, tmp_path, seed=3)
    assert line.startswith(f"placed {PODS}, pending 0, violations ")
    assert int(line.rsplit(" ", 1)[1]) > 0
