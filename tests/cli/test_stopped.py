"""A process that is stopped and goes on: what others placed meanwhile lies unread in its sockets, and counts all the same."""

from __future__ import annotations

import asyncio
import signal
from itertools import count
from pathlib import Path

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.oracle.violations import violations
from tests.cli.balancing import balancing
from tests.cli.test_replicas import NODES, VARIANTS, api, traffic
from tests.cli.test_serve import configuration, serving
from tests.simulator.plain import pod

__all__ = ["api"]  # a fixture

STOPS = (0.1, 0.8)  # seconds; the scheduler waits for five


async def test_a_process_that_is_stopped_again_and_again_misplaces_no_pod(
    api: ApiServer,
    tmp_path: Path,
) -> None:
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    config = configuration(tmp_path, kube={"kubeconfig": str(kubeconfig)}, placement="decisive")
    numbers = count()

    def place_by_hand() -> None:
        """Pods that stand in the way of others, one of each variant, on nodes that are drawn one after the other."""
        for variant in range(VARIANTS):
            number = next(numbers)
            labels, node = {"app": f"apart-{variant}"}, f"node-{number % NODES}"
            api.operations.create(PODS, pod(f"by-hand-{number}", labels=labels, cpu="1m", on=node))

    async with serving("--config", config) as (process, url), balancing(url) as balancer:
        assert process.stderr
        logs = asyncio.create_task(process.stderr.read())
        async with traffic(api, balancer) as load:
            for seconds in STOPS:
                await load.more(40)
                process.send_signal(signal.SIGSTOP)
                place_by_hand()
                await asyncio.sleep(seconds)
                process.send_signal(signal.SIGCONT)
            await load.more(40)
        logs.cancel()
    assert violations(load.loop.journal) == []
