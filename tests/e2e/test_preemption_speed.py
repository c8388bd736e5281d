"""Three ways to preempt, compared in one run: figures and ratios, asserted is only that every preemptor gets a node.

`make e2e` plays 40 nodes, with writes as fast as they are and with 200 ms added to each. `make e2e-preemption
KUBE_ASSETS_DIR=DIR` plays 100, 300 and 500 nodes; NODES and ROUNDS choose, and OTHERS how many other pods arrive each
second: with OTHERS=0 each way handles the same pods, so that processor times can be compared. The table goes to the screen, and with all
figures to results/e2e-preemption.json.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.making_room import BOTH_CLIENTS, SLOWER, WAYS, Crowd, ground
from tests.e2e.timed_preemptions import check, comparison, measured, play, record, sizes, teller


@pytest.mark.e2e
@pytest.mark.timeout(600)
async def test_every_preemptor_gets_room_and_no_pod_goes_in_vain(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await play(assets, tmp_path, capsys, Crowd(40, 40))


@pytest.mark.e2e
@pytest.mark.timeout(600)
async def test_so_they_do_while_each_write_takes_200_ms_longer(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the three ways: ours with only its own writes slow, against ours as it is. Others should feel nothing."""
    crowd, report = Crowd(40, 40), teller(capsys)
    report(f"{crowd.nodes} nodes, {crowd.preemptors} preemptors, {SLOWER * 1000:.0f} ms more for a write")
    async with ground(assets, tmp_path, crowd) as course:
        outcomes = [await measured(course, crowd, way, report, BOTH_CLIENTS) for way in WAYS]
        report(comparison(crowd, outcomes))
        alone = [await measured(course, crowd, "execute", report, slowed) for slowed in ("", "extender")]
    plain, slow = alone
    report(f"slow/plain: others' rate {slow.others / plain.others:.2f}, others' wait {slow.wait / plain.wait:.2f}\n")
    record(crowd, [*outcomes, *alone])
    check(crowd, [*outcomes, *alone])


@pytest.mark.scale
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", sizes())
async def test_so_they_do_on_many_nodes(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int
) -> None:
    crowd = Crowd(nodes, nodes, float(os.environ.get("PREEMPTION_OTHERS") or 20))
    await play(assets, tmp_path, capsys, crowd, int(os.environ.get("PREEMPTION_ROUNDS") or 1))
