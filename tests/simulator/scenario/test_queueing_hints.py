"""Pods that are nominated outside of the scheduler's sample are all bound, whether or not the scheduler has QueueingHints."""

from __future__ import annotations

import pytest

from extender.simulator.scenario.language import parse_scenario
from extender.telemetry.metrics import read_page
from tests.simulator.plain import HOSTNAME, anti_affinity, term
from tests.simulator.scenario.playing import scenario, serving

METRIC = "extender_rejected_pod_actions_total"
NODES, ARRIVING = 300, 30  # the scheduler asks about 100 nodes at a time
APART = {"labels": {"app": "web"}, "spec": {"affinity": anti_affinity(term(HOSTNAME, app="web"))}}


@pytest.mark.parametrize("queueing_hints", [True, False])
async def test_every_nominated_pod_is_bound(*, queueing_hints: bool) -> None:
    """Pods that exclude each other by node, one for each node that has none yet."""
    running = [{"template": "apart", "count": NODES - ARRIVING}]
    document = scenario(
        {"arrive": {"template": "apart", "count": ARRIVING}},
        {"settle": {"calm": "2500ms", "timeout": "60s"}},
        cluster={"nodes": [{"count": NODES, "zones": 3}], "namespaces": [{"name": "team"}], "running": running},
        templates={"apart": APART},
        scheduler={"percentageOfNodesToScore": 1, "queueingHints": queueing_hints},
    )
    async with serving(document) as (player, _, service):
        await player.run(parse_scenario(document).steps)
        report = await player.finish()
        page = read_page(service.metrics.render().decode())
    done = {labels["action"]: value for name, labels, value in page if name == METRIC and labels["result"] == "done"}
    assert done["nominate"] > 0
    assert (report.placed, report.waiting, report.violations) == (ARRIVING, (), ())
