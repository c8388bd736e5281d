"""Set-ups for `extender doctor`: a service, an API server and a configuration, and what the command says of them."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from aiohttp import web
from msgspec.structs import replace

from extender.cli.files import read_settings
from extender.cli.main import main
from extender.compose.embedded import FREE_PORT, service_running
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Clients, Server, Tls
from extender.simulator.apiserver.fault_points import Call
from extender.simulator.apiserver.kinds import PODS, ServedKind, Target
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.cli.serving import PENDING, QUESTION, configuration
from tests.deploy.building import DEPLOY, load_all
from tests.deploy.policies.examples import policy
from tests.fakes import PATIENCE
from tests.server.serving import app_with

ROOT = Path(__file__).resolve().parents[2]
WEBHOOK = "placement-extender-webhook"


class Strict(ApiServer):
    """An API server that allows what a test says, and has the clock that it says."""

    denied: frozenset[str] = frozenset()
    behind: float = 0.0
    hides_pods: bool = False
    lacks: frozenset[ServedKind] = frozenset()
    guards: dict[str, list[dict[str, Any]]] | None = None
    requests: list[dict[str, Any]]
    version: str = "v1.36.2"
    drops: str = ""
    endpoints: int | None = None  # how many are ready, of each Service
    crds: Sequence[JsonObject] = ()  # whose schemas it publishes

    async def _special(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if call.path == "/version":
            moment = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - self.behind))
            return web.json_response({"gitVersion": self.version}, headers={"Date": moment})
        if self.guards is not None and "validatingadmissionpolic" in call.path:
            return web.json_response({"metadata": {}, "items": self.guards.get(call.path.rpartition("/")[2], [])})
        if self.endpoints is not None and call.path.endswith("/endpointslices"):
            endpoints = [{"addresses": ["10.0.0.7"]}] * self.endpoints
            return web.json_response({"metadata": {}, "items": [{"endpoints": endpoints}]})
        if self.crds and call.path.startswith("/openapi/v3/"):
            return web.json_response({"components": {"schemas": dict(map(_published, self.crds))}})
        if "accessreviews" in call.path:
            review = await request.json()
            self.requests.append(review["spec"])
            wanted = review["spec"]["resourceAttributes"]
            name = "/".join(part for part in (wanted["verb"], wanted["resource"], wanted["subresource"]) if part)
            return web.json_response({**review, "status": {"allowed": name not in self.denied}}, status=201)
        return await super()._special(request, call)

    def _write(self, request: web.BaseRequest, target: Target, body: Any) -> web.StreamResponse:
        if self.drops and "dryRun" in request.query and target.kind is PODS:
            spec = {**body["spec"], "restartPolicy": "Always"}
            del spec[self.drops]
            return web.json_response({**body, "spec": spec}, status=201)
        return super()._write(request, target, body)

    async def _list(self, request: web.BaseRequest, target: Target, call: Call) -> web.StreamResponse:
        if self.hides_pods and "spec.nodeName" in request.query.get("fieldSelector", ""):
            return web.json_response({"kind": "Status", "code": 403, "message": "pods is forbidden"}, status=403)
        if target.kind in self.lacks:
            return web.Response(status=404, text="404 page not found")
        return await super()._list(request, target, call)


def _published(crd: JsonObject) -> tuple[str, JsonObject]:
    """The schema of a CRD as an API server publishes it."""
    return f"dev.{crd['spec']['names']['kind']}", crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@dataclass
class Setup:
    """A running service and what a doctor is told of it."""

    api: Strict
    url: str
    kubeconfig: str
    folder: Path

    async def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        command = ["doctor", "-o", "json", "--url", self.url, "--kubeconfig", self.kubeconfig, *arguments]
        with redirect_stdout(io.StringIO()) as out:
            code = await asyncio.to_thread(main, command)
        return code, json.loads(out.getvalue())

    def scheduler(self, mode: str = "offload", **changes: object) -> str:
        """Our scheduler configuration of a mode, pointing at the service."""
        document = yaml.safe_load((ROOT / f"config/kube-scheduler-{mode}.yaml").read_text("utf-8"))
        document["extenders"][0] |= {"urlPrefix": self.url, **changes}
        path = self.folder / "kube-scheduler.yaml"
        path.write_text(json.dumps(document), "utf-8")
        return str(path)


@asynccontextmanager
async def set_up(
    folder: Path, *, requests: int = 1, pods: Sequence[dict[str, Any]] = (), **sections: object
) -> AsyncIterator[Setup]:
    """A service that follows a cluster, with these pods beside the usual ones, and was asked by name so many times."""
    async with Strict() as api:
        api.requests = []
        api.store.load([*json.loads(json.dumps(PENDING)), *pods])
        kubeconfig = str(api.write_kubeconfig(folder / "kubeconfig"))
        config = configuration(folder, kube={"kubeconfig": kubeconfig}, **sections)
        settings = read_settings(config)
        settings = replace(settings, server=replace(settings.server, bind_address=FREE_PORT))
        async with service_running(settings, api.url, 1) as (url, service), aiohttp.ClientSession() as session:
            if service.admission is not None:
                api.admission.services["default", WEBHOOK] = ("127.0.0.1", urlsplit(service.admission.url).port or 0)
            for _ in range(requests):
                await session.post(f"{url}/filter", json=QUESTION)
            yield Setup(api, url, kubeconfig, folder)


def checks(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(found["severity"], found["check"]) for found in document["findings"]]


MUTATING = "MutatingWebhookConfiguration placement-extender"


def with_policies() -> dict[str, Any]:
    """The section of the configuration; nothing listens for webhooks at a fixed port."""
    return {"enabled": True, "webhook": {"bindAddress": "127.0.0.1:0", "serviceNamespace": "default"}}


def installed_policies() -> list[JsonObject]:
    """What deploy/policies applies, a Service, and three policies: one for all pods, one for none."""
    found = list(load_all(DEPLOY / "policies" / "webhooks.yaml"))
    metadata = {"name": WEBHOOK, "namespace": "default"}
    found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
    found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
    used, idle = policy("PodSchedulingPolicy", "used", podSelector={}), policy("PodSchedulingPolicy", "idle")
    found += ({**used, "status": {"matchedPods": 2}}, {**idle, "status": {"matchedPods": 0}})
    return [*found, policy("ClusterPodSchedulingPolicy", "old", priority="high")]


async def kept(setup: Setup) -> None:
    """Return once the leader has written the authority into both configurations."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession(setup.url) as session:
        while True:
            async with session.get("/metrics") as page:
                lines = [line for line in (await page.text()).splitlines() if "webhook_configuration_correct{" in line]
            if len(lines) == 2 and all(line.endswith(" 1.0") for line in lines):
                return
            await asyncio.sleep(0.05)


def stands(name: str, node: str, message: str = "", scheduler: str = "default-scheduler") -> dict[str, Any]:
    """A pod as kube-scheduler leaves it: bound an hour from now, or rejected with a message."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    condition = {"type": "PodScheduled", "status": "True" if node else "False", "lastTransitionTime": moment}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"schedulerName": scheduler, "containers": [], **({"nodeName": node} if node else {})},
        "status": {"conditions": [{**condition, "message": message}]},
    }


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[str]:
    """A service that speaks HTTPS and asks for client certificates, with the files of `extender certs`."""
    assert main(["certs", "--out", str(folder)]) == 0
    tls = Tls(
        cert_file=f"{folder}/server.crt",
        key_file=f"{folder}/server.key",
        client_ca_file=f"{folder}/ca.crt",
        clients=Clients(scheduler=("system:kube-scheduler",), admin=("placement-extender-admin",)),
    )
    app = app_with(server=Server(bind_address=FREE_PORT, tls=tls))
    async with listening(app, FREE_PORT, ServerTls(tls)) as url:
        yield url
