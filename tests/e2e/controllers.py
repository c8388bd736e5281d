"""A real kube-controller-manager with the controllers that replace pods and count disruptions, where the binary is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from extender.simulator.json_objects import JsonObject, name_of, namespace_of
from tests.e2e.certificates import TOKEN_KEY
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.programs import Program, free_ports

PROGRAM = "kube-controller-manager"
_CONTROLLERS = (
    *("deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller"),
    "disruption-controller",
)
_OWNED = (
    ("/apis/apps/v1/{}s", ("deployment", "replicaset", "statefulset", "daemonset")),
    ("/apis/batch/v1/{}s", ("job",)),
    ("/apis/policy/v1/{}s", ("poddisruptionbudget",)),
)


def is_there(assets: Path) -> bool:
    return os.access(assets / PROGRAM, os.X_OK)


@asynccontextmanager
async def controlled(cluster: Cluster, assets: Path, *more: str) -> AsyncIterator[None]:
    """The controllers, and ``more`` of them, run until the block is left; then what they work on is removed, so that no pod comes back."""
    (port,) = free_ports(1)
    command = [
        str(assets / PROGRAM),
        f"--kubeconfig={cluster.plane.kubeconfig}",
        f"--controllers={','.join((*_CONTROLLERS, *more))}",
        *(
            f"--service-account-private-key-file={cluster.plane.folder / TOKEN_KEY}",
            f"--root-ca-file={cluster.plane.authority}",
        ),
        *(f"--bind-address={HOST}", f"--secure-port={port}", f"--cert-dir={cluster.folder / 'controllers'}"),
        *("--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=2000"),
    ]
    program = Program(PROGRAM, command, cluster.folder)
    try:
        await asyncio.to_thread(
            program.start, lambda: "Caches are synced" in program.log() or "synced" in program.log()
        )
        yield
    finally:
        program.stop()
        await _remove(cluster)


async def _remove(cluster: Cluster) -> None:
    for path, kinds in _OWNED:
        for kind in kinds:
            found, _ = await cluster.api.list(path.format(kind))
            for each in found:
                await cluster.api.delete(
                    f"{path.rpartition('/')[0]}/namespaces/{namespace_of(each)}/{kind}s/{name_of(each)}"
                )


def deployment(name: str, replicas: int, template: JsonObject) -> JsonObject:
    """A Deployment of pods like this one."""
    labels = template["metadata"]["labels"]
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": namespace_of(template)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def job(name: str, pods: int, template: JsonObject, **spec: Any) -> JsonObject:
    """A Job of so many pods like this one, at the same time. ``spec``: other fields of the Job."""
    labels = template["metadata"]["labels"]
    pod = {"metadata": {"labels": labels}, "spec": {**template["spec"], "restartPolicy": "Never"}}
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"name": name, "namespace": namespace_of(template)},
        "spec": {"completions": pods, "parallelism": pods, "template": pod, **spec},
    }
