"""Scheduling policies on a real apiserver: the kinds, the permissions, the webhook and its service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any

import yaml

from deploy.policies.crds import FILE
from extender.simulator.json_objects import JsonObject, name_of
from tests.deploy.building import DEPLOY, load_all
from tests.deploy.policies.examples import API_VERSION, policy
from tests.e2e.client import Api, path_of
from tests.e2e.cluster import Cluster, eventually_ready, in_namespace, served
from tests.e2e.control_plane import EXTENDER_ACCOUNT, HOST
from tests.e2e.programs import free_ports
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.simulator.plain import pod

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/placement-extender"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/placement-extender"
NAMESPACE = EXTENDER_ACCOUNT.split(":")[2]
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/placement-extender-webhook"
PODS = "/api/v1/namespaces/default/pods"
_WRITERS = 4
_READER: JsonObject = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "placement-extender-policies"},
}


async def established(api: Api) -> list[JsonObject]:
    """Install the CRDs and return them once the apiserver serves them."""
    documents = list(yaml.safe_load_all(FILE.read_text("utf-8")))
    for document in documents:
        await api.request("POST", CRDS, document, allow=[409])
    async with asyncio.timeout(PATIENCE):
        for document in documents:
            path = f"/apis/{API_VERSION}/{document['spec']['names']['plural']}"
            while (await api.request("GET", path, allow=[404, 429]))["kind"] == "Status":  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.05)
    return [await api.request("GET", f"{CRDS}/{name_of(document)}") for document in documents]


async def without_crds(api: Api) -> None:
    """Remove the CRDs that earlier tests have left, with their objects."""
    async with asyncio.timeout(PATIENCE):
        for document in yaml.safe_load_all(FILE.read_text("utf-8")):
            path = f"{CRDS}/{name_of(document)}"
            await api.delete(path)
            while (await api.request("GET", path, allow=[404]))["kind"] != "Status":  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.05)


async def without_policies(api: Api) -> None:
    for kind in ("ClusterPodSchedulingPolicy", "PodSchedulingPolicy"):
        path = path_of(policy(kind))
        found, _ = await api.list(path)
        for each in found:
            await api.delete(f"{path}/{name_of(each)}")


def reader_documents() -> list[JsonObject]:
    """What deploy/policies lets the extender's account read."""
    component = yaml.safe_load((DEPLOY / "policies" / "kustomization.yaml").read_text("utf-8"))
    rules = [each["value"] for each in yaml.safe_load(component["patches"][0]["patch"])]
    subject = {"kind": "ServiceAccount", "name": "placement-extender", "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name_of(_READER)}
    return [
        {**_READER, "rules": rules},
        {**_READER, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]


def installed() -> list[JsonObject]:
    """The objects of deploy/policies beside the CRDs, in the namespace of the extender's account."""
    documents = reader_documents()
    for file in ("role.yaml", "admission.yaml", "secret.yaml", "webhooks.yaml"):
        documents += [_placed(each) for each in load_all(DEPLOY / "policies" / file)]
    return documents


def _placed(found: JsonObject) -> JsonObject:
    if found["kind"].startswith("ValidatingAdmissionPolicy"):
        placed = deepcopy(found)
        for condition in placed["spec"].get("matchConditions", ()):
            condition["expression"] = f'request.userInfo.username == "{EXTENDER_ACCOUNT}"'
        return placed
    if "webhooks" not in found:
        return in_namespace(found)
    placed = deepcopy(found)
    for webhook in placed["webhooks"]:
        webhook["clientConfig"]["service"]["namespace"] = NAMESPACE
    return placed


@dataclass
class Policed:
    """A cluster whose apiserver asks the extender about pods and policies."""

    cluster: Cluster
    extender: Extender
    webhook_url: str

    @property
    def api(self) -> Api:
        return self.cluster.api

    async def apply(self, found: JsonObject) -> None:
        """Create a policy; returns once the extender applies it."""
        before = await self.extender.metric("extender_index_entries", kind="policies")
        await self.api.create(found)
        async with asyncio.timeout(PATIENCE):
            while await self.extender.metric("extender_index_entries", kind="policies") == before:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.02)

    async def until_kept(self) -> None:
        """Return once the leader has made both configurations as they must be."""
        async with asyncio.timeout(PATIENCE):
            while await self.extender.metric("extender_webhook_configuration_correct") < 2:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.05)


def db_pod(name: str, **spec: Any) -> JsonObject:
    """A pod of app `db`."""
    found = pod(name, labels={"app": "db"}, **spec)
    del found["status"]
    return found


class Creations:
    """Pods created by several writers until told to end."""

    def __init__(self, api: Api) -> None:
        self.made: list[JsonObject] = []
        self.problems: list[str] = []
        self._api = api
        self._numbers = count()
        self._is_over = False

    async def run(self) -> None:
        """All writers together."""
        await asyncio.gather(*(self._write() for _ in range(_WRITERS)))

    def end(self) -> None:
        """No more after those under way."""
        self._is_over = True

    async def _write(self) -> None:
        while not self._is_over:
            wanted = db_pod(f"p{next(self._numbers)}")
            answer = await self._api.request("POST", PODS, wanted, allow=[500])
            if answer["kind"] == "Status":
                self.problems.append(str(answer["message"]))
            else:
                self.made.append(answer)


@asynccontextmanager
async def with_policies(api: Api) -> AsyncIterator[None]:
    """What deploy/policies installs, until the block is left."""
    async with AsyncExitStack() as stack:
        await established(api)
        stack.push_async_callback(without_policies, api)
        for document in await served(api, installed()):
            path = path_of(document)
            await api.request("POST", path, document)
            stack.push_async_callback(api.delete, f"{path}/{name_of(document)}")
        yield


@asynccontextmanager
async def policed(
    cluster: Cluster, more_settings: Mapping[str, Any] | None = None, **webhook: Any
) -> AsyncIterator[Policed]:
    """What deploy/policies installs, and `extender serve` behind it; everything is removed on leaving."""
    (port,) = free_ports(1)
    url = f"https://{HOST}:{port}"
    settings = {
        "preemption": {"mode": "off"},
        "policies": {"enabled": True, "webhook": {"bindAddress": f"{HOST}:{port}", "url": url, **webhook}},
        **(more_settings or {}),
    }
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(with_policies(cluster.api))
        extender = stack.enter_context(cluster.extender(settings))
        await eventually_ready(extender)
        found = Policed(cluster, extender, url)
        await found.until_kept()
        yield found
