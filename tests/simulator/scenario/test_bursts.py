"""Hard constraints under load, with bindings that are seen late: what happens without what prevents violations, or with few places.

`tests/scenarios` plays the three bursts as they are.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).parents[3] / "config" / "scenarios"


async def played(name: str, old: str, new: str, folder: Path) -> tuple[int, Any]:
    """The exit code and the report of a shortened scenario in which a text is replaced."""
    text = (SCENARIOS / name).read_text("utf-8")
    assert old in text
    path = folder / "burst.yaml"
    path.write_text(text.replace(old, new), "utf-8")
    command = (sys.executable, "-m", "extender", "simulate", str(path), "--short", "--seed", "3", "-o", "json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, _ = await process.communicate()
    report = json.loads(output)
    assert (report["placed"], report["pending"]) == (300, 0)
    return process.returncode or 0, report


async def test_without_assumed_pods_some_stand_where_they_must_not(tmp_path: Path) -> None:
    blind = "placement: decisive\n  assumedPods: {enabled: false}"
    code, report = await played("burst-decisive.yaml", "placement: decisive", blind, tmp_path)
    assert code == 1
    assert report["violations"]


async def test_as_many_bindings_under_way_as_there_are_pods_need_no_place_among_the_connections(tmp_path: Path) -> None:
    """kube-scheduler has a connection for each binding under way, which is silent while it waits."""
    few = "server: {maxConnections: 8, maxConnectionsPerPeer: 8, "
    code, report = await played("burst-bind.yaml", "server: {", few, tmp_path)
    assert (code, report["violations"], report["failures"]) == (0, [], [])
