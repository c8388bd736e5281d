"""What the kubelet does for the extender's pods: runs each as a process of its own, probes it, and ends it with its grace period.

A pod has an address 10.9.W.N, as the API server takes none of loopback for an endpoint. Its process listens on 127.9.W.N, with the
ports of the manifest; `host_of` translates. W is the number of pytest's worker, as two of them may play a rollout at a time.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.simulator.json_objects import JsonObject, name_of
from tests.e2e.client import Api, ApiFailure, pod_path
from tests.e2e.programs import Program, our_command

_LOOK_SECONDS = 0.1
NODE = "machine"
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")


def host_of(address: str) -> str:
    """Where the process of a pod with this address listens."""
    return address.replace("10.9.", "127.9.")


@dataclass
class Running:
    """A pod and its process. ``ending``: what ends both."""

    pod: JsonObject
    address: str
    program: Program
    is_ready: bool = False
    ending: asyncio.Task[None] | None = None


class Kubelet:
    """Runs the pods of one component. ``settings`` is the configuration in their ConfigMap. ``ended``: how many went in order.

    ``versions``: by image what makes Python import another version.
    """

    def __init__(self, api: Api, selector: str, namespace: str, settings: Mapping[str, Any], folder: Path) -> None:
        self.running: dict[str, Running] = {}
        self.ended = 0
        self.versions: dict[str, Mapping[str, str]] = {}
        self._api = api
        self._selector = selector
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._settings = settings
        self._folder = folder
        self._numbers = count(1)
        self._trust = ssl.create_default_context()
        self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE  # as the kubelet's probes

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Until the block is left; then every process is ended."""
        try:
            async with asyncio.TaskGroup() as tasks:  # what fails here fails the test
                following = tasks.create_task(self._follow())
                yield
                following.cancel()
        finally:
            for each in self.running.values():
                if each.ending is not None:
                    each.ending.cancel()
                await asyncio.to_thread(each.program.stop)

    def of_address(self, host: str) -> Running:
        """The pod whose process listens there."""
        (found,) = [each for each in self.running.values() if host_of(each.address) == host]
        return found

    async def _follow(self) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._trust)) as session:
            while True:
                try:
                    for found in (await self._api.list(self._pods, labelSelector=self._selector))[0]:
                        await self._look(found, session)
                except aiohttp.ClientError:
                    pass  # the apiserver is away: tried again
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, found: JsonObject, session: aiohttp.ClientSession) -> None:
        known = self.running.get(found["metadata"]["uid"])
        if known is None:
            if "deletionTimestamp" not in found["metadata"]:
                await self._start(found)
        elif "deletionTimestamp" in found["metadata"] and known.ending is None:
            known.ending = asyncio.create_task(self._end(known))
        elif await self._probe(known, session) != known.is_ready:
            await self._report(known, is_ready=not known.is_ready)
            known.is_ready = not known.is_ready

    async def _start(self, found: JsonObject) -> None:
        await self._bind(found)
        address = f"10.9.{_WORKER}.{next(self._numbers)}"
        program = self._program(found, address)
        running = self.running[found["metadata"]["uid"]] = Running(found, address, program)
        await asyncio.to_thread(program.start, lambda: True)
        await self._report(running, is_ready=False)

    async def _bind(self, found: JsonObject) -> None:
        if not found["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(found)}, "target": target}
            await self._api.request("POST", f"{pod_path(found)}/binding", binding, allow=[409])

    def _program(self, found: JsonObject, address: str) -> Program:
        """The container `extender`, with what the downward API tells it."""
        (container,) = [each for each in found["spec"]["containers"] if each["name"] == "extender"]
        values = {"metadata.name": name_of(found), "metadata.uid": found["metadata"]["uid"], "status.podIP": address}
        environment = {each["name"]: values[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        settings, host = deepcopy(dict(self._settings)), host_of(address)
        settings["server"]["bindAddress"] = f"{host}:{ports['extender']}"
        settings["policies"]["webhook"]["bindAddress"] = f"{host}:{ports['webhook']}"
        folder = self._folder / name_of(found)
        folder.mkdir()
        file = folder / "extender.yaml"
        file.write_text(yaml.safe_dump(settings), "utf-8")
        verb, flag, _ = container["args"]
        environment |= {"PYTHONUNBUFFERED": "1", **self.versions.get(container["image"], {})}
        return Program("extender", our_command(verb, flag, str(file)), folder, environment)

    async def _probe(self, running: Running, session: aiohttp.ClientSession) -> bool:
        container = running.pod["spec"]["containers"][0]
        probe = container["readinessProbe"]["httpGet"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == probe["port"]]
        url = f"{probe['scheme'].lower()}://{host_of(running.address)}:{port}{probe['path']}"
        try:
            async with session.get(url, timeout=aiohttp.ClientTimeout(5)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _report(self, running: Running, *, is_ready: bool) -> None:
        status = "True" if is_ready else "False"
        conditions = [{"type": name, "status": status} for name in ("Ready", "ContainersReady")]
        fields = {"phase": "Running", "podIP": running.address, "podIPs": [{"ip": running.address}]}
        change = {"status": {**fields, "conditions": conditions}}
        await self._api.request(
            "PATCH",
            f"{pod_path(running.pod)}/status",
            change,
            content_type="application/merge-patch+json",
            allow=[404],
        )

    async def _end(self, running: Running) -> None:
        """SIGTERM, and after the grace period SIGKILL; then the pod is gone."""
        grace = float(running.pod["spec"]["terminationGracePeriodSeconds"])
        await asyncio.to_thread(running.program.stop, grace)
        self.ended += "stopped" in running.program.log().splitlines()[-1]
        while True:
            try:
                await self._api.delete(pod_path(running.pod), grace=0)
            except ApiFailure:
                pass  # with its Deployment
            except aiohttp.ClientError:
                await asyncio.sleep(_LOOK_SECONDS)  # the apiserver is away
                continue
            return
