"""Eight schedulers with late and failing bindings: nothing is wrong, and much is where room is left to each of them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "config" / "scenarios" / "schedulers.yaml").read_text("utf-8")
# A quarter of the pods and nodes.
SMALLER = (
    ("count: 1000", "count: 250"),
    ("count: 200", "count: 50"),
    ("count: 110", "count: 27"),
    ("count: 10, zones", "count: 3, zones"),
    ("template: old, count: 60", "template: old, count: 15"),
    ("calm: 1500ms", "calm: 700ms"),
)


async def violations(text: str, folder: Path, seed: int) -> int:
    """Plays the scenario in a process of its own; returns the number in its last line."""
    for old, new in SMALLER:
        assert old in text
        text = text.replace(old, new)
    path = folder / "schedulers.yaml"
    path.write_text(text, "utf-8")
    command = (sys.executable, "-m", "extender", "simulate", str(path), "--seed", str(seed))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return int(output.decode().splitlines()[-1].rpartition("violations ")[2])


@pytest.mark.parametrize("seed", [3, 4])
async def test_constraints_and_room_are_exact_among_eight_schedulers(tmp_path: Path, seed: int) -> None:
    assert await violations(TEXT, tmp_path, seed) == 0


async def test_room_is_given_away_twice_where_each_scheduler_counts_its_own(tmp_path: Path) -> None:
    assert await violations(TEXT.replace("schedulers: many", "schedulers: one"), tmp_path, 3) > 0
