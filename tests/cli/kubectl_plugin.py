"""kubectl placement with a program in the place of kubectl."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extender.cli.kubectl import LEADER_SLICE, complete, main
from extender.simulator.apiserver.fault_points import Call
from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.simulator.plain import pod

LABELS = {"app.kubernetes.io/name": "placement-extender", "app.kubernetes.io/component": "extender"}


class Leading(ApiServer):
    """With the EndpointSlice of the leader, and the ClusterRoleBinding of an account, once there are such."""

    leader = ""
    granted = ""

    async def _special(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if self.granted and call.path.endswith("/clusterrolebindings"):
            subjects = [
                {"kind": "User", "name": "a"},
                {"kind": "ServiceAccount", "name": "b", "namespace": self.granted},
            ]
            other = {"kind": "ServiceAccount", "name": "b", "namespace": "shop"}
            bindings: list[JsonObject] = [
                {"metadata": {"name": "view"}, "subjects": [other]},
                {"metadata": {"name": "placement-extender-reader-service"}, "subjects": subjects},
            ]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": bindings})
        if self.leader and call.path.endswith(f"/placement-extender/endpointslices/{LEADER_SLICE}"):
            return web.json_response({"endpoints": [{"targetRef": {"kind": "Pod", "name": self.leader}}]})
        return await super()._special(request, call)


@dataclass
class Plugin:
    """A cluster, a service that follows it, and the words that kubectl was called with."""

    api: Leading
    calls: Path
    capsys: pytest.CaptureFixture[str]

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, list(arguments))
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    async def completed(self, *words: str) -> list[str]:
        assert await asyncio.to_thread(complete, list(words)) == 0
        return self.capsys.readouterr().out.splitlines()

    def add(
        self,
        name: str,
        space: str,
        *,
        phase: str = "Running",
        ready: str = "True",
        scheme: str = "HTTP",
        port: int | str = 8888,
        node: str = "node-a",
        **status: Any,
    ) -> None:
        """A pod of the extender."""
        status |= {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        made = pod(name, space, on=node, labels=LABELS)
        probe = {"httpGet": {"path": "/livez", "port": port, "scheme": scheme}}
        made["spec"]["containers"][0] |= {"name": "extender", "livenessProbe": probe}
        self.api.operations.change(
            PODS, self.api.operations.create(PODS, made).key, lambda one: one.update(status=status)
        )

    def forwarded(self) -> list[str]:
        """The pods, and what of the arguments chooses a cluster."""
        return self.calls.read_text("utf-8").splitlines() if self.calls.exists() else []


def as_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), "utf-8")
    path.chmod(0o755)
