"""Hard constraints under load, with bindings that are seen late: many violations without the feature that prevents them.

With it there are none: `tests/scenarios` plays the three bursts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

BURST = Path(__file__).parents[3] / "config" / "scenarios" / "burst-decisive.yaml"


async def test_without_assumed_pods_some_stand_where_they_must_not(tmp_path: Path) -> None:
    text = BURST.read_text("utf-8")
    path = tmp_path / "burst.yaml"
    path.write_text(
        text.replace("placement: decisive", "placement: decisive\n  assumedPods: {enabled: false}"), "utf-8"
    )
    command = (sys.executable, "-m", "extender", "simulate", str(path), "--short", "--seed", "3", "-o", "json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, _ = await process.communicate()
    report = json.loads(output)
    assert (report["placed"], report["pending"], process.returncode) == (300, 0, 1)
    assert report["violations"]
