"""Eight schedulers with late and failing bindings: much is wrong where room is left to each of them.

With one truth for all of them nothing is: `tests/scenarios` plays it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import yaml

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "schedulers.yaml"


async def test_room_is_given_away_twice_where_each_scheduler_counts_its_own(tmp_path: Path) -> None:
    scenario, path = yaml.safe_load(SCENARIO.read_text("utf-8")), tmp_path / "schedulers.yaml"
    scenario["extender"]["schedulers"] = "one"
    # It does not settle: pods are bound to full nodes again and again.
    scenario["steps"] = [scenario["steps"][0], {"settle": {"timeout": "10s"}}]
    path.write_text(yaml.safe_dump(scenario), "utf-8")
    command = (sys.executable, "-m", "extender", "simulate", str(path), "--short", "--seed", "3", "-o", "json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, _ = await process.communicate()
    assert json.loads(output)["violations"]
    assert process.returncode == 1
