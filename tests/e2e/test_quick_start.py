"""README's quick start, followed literally with a real control plane: the real kube-scheduler places a pod."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.programs import free_ports
from tests.quick_start import follow, prepared, shell
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def command_in(folder: Path, assets: Path) -> Path:
    """A folder for PATH with kube-scheduler as README starts it; only its port of loopback is one that is free."""
    (port,) = free_ports(1)
    folder.mkdir()
    flags = f"--bind-address=127.0.0.1 --secure-port={port} --cert-dir={folder}"
    command = folder / "kube-scheduler"
    command.write_text(f'#!/bin/sh\nexec {assets}/kube-scheduler "$@" {flags} >{folder}/log 2>&1\n', "utf-8")
    command.chmod(0o755)
    return folder


async def test_the_quick_start_starts_a_real_scheduler_that_asks_us_without_a_finding(
    cluster: Cluster, assets: Path, tmp_path: Path
) -> None:
    await cluster.add_nodes(zones=1, per_zone=2)
    serve, generate, start, prove = prepared(tmp_path, cluster.plane.kubeconfig)
    environment = {
        "KUBECONFIG": str(cluster.plane.extender_kubeconfig),
        "PATH": f"{command_in(tmp_path / 'bin', assets)}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    affinity = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{number}", labels={"app": "web"}, affinity=affinity) for number in range(2)]
    async with shell(tmp_path, environment) as process:
        assert "readyz check passed" in await follow(process, serve)
        await follow(process, generate)
        await follow(process, start)
        await cluster.api.create(*pods)
        placed = await cluster.board.bound(*pods)
        proven = await follow(process, prove)
    assert len(set(placed)) == 2
    assert "0 errors" in proven
    assert 'extender_requests_total{code="200",verb="filter"}' in proven
