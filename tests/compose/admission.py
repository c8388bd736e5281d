"""The service with policies beside an API server that calls its webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from extender.compose.admission import AdmissionPart
from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.settings.configuration import DEFAULT_NAMESPACE, Settings
from extender.simulator.apiserver.fault_points import Faults
from extender.simulator.apiserver.kinds import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.builders import settings
from tests.deploy.building import DEPLOY, load_all
from tests.fakes import until
from tests.simulator.client import Client, connect
from tests.simulator.plain import namespace, pod

PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/placement.extender.dev/v1alpha1/namespaces/default/podschedulingpolicies"
SERVICE = "placement-extender-webhook"


def enabled(**policies: Any) -> Settings:
    """Settings with policies, on free ports."""
    webhook = {"bindAddress": FREE_PORT, **policies.pop("webhook", {})}
    return settings(
        server={"bindAddress": FREE_PORT},
        preemption={"mode": "off"},
        policies={"enabled": True, "webhook": webhook, **policies},
    )


@dataclass
class Cluster:
    """The embedded API server with the service behind its webhooks."""

    api: ApiServer
    client: Client
    service: Service

    @property
    def admission(self) -> AdmissionPart:
        assert self.service.admission is not None
        return self.service.admission

    async def create(self, name: str, **spec: Any) -> JsonObject:
        """A pod of app `db` as it is stored."""
        requested = pod(name, labels={"app": "db"}, **spec)
        del requested["status"]
        code, made = await self.client.post(PODS, requested)
        assert code == 201, made
        return dict(made)

    async def scheduler_of(self, name: str) -> str:
        """The scheduler of a new pod, as it is stored."""
        return str((await self.create(name))["spec"]["schedulerName"])

    async def apply(self, found: JsonObject) -> tuple[int, Any]:
        """Create a policy; returns once the service knows it."""
        code, answer = await self.client.post(POLICIES, found)
        if code == 201:
            table, name = self.service.index.policies, found["metadata"]["name"]
            await until(lambda: any(each.key.name == name for each in table))
        return code, answer


def installed(api: ApiServer) -> None:
    """What deploy/policies applies, in the namespace that the service takes for its own."""
    for name in ("default", DEFAULT_NAMESPACE):
        api.operations.create(NAMESPACES, namespace(name))
    api.operations.create(SECRETS, {"metadata": {"name": SERVICE}, "type": "Opaque"}, namespace=DEFAULT_NAMESPACE)
    for document in load_all(DEPLOY / "policies" / "webhooks.yaml"):
        kind = MUTATING_WEBHOOKS if document["kind"].startswith("Mutating") else VALIDATING_WEBHOOKS
        api.operations.create(kind, document)


@asynccontextmanager
async def running(given: Settings, faults: Faults | None = None) -> AsyncIterator[Cluster]:
    """The service, once both webhook configurations lead to it."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer())
        api.faults = faults or api.faults
        installed(api)
        _, service = await stack.enter_async_context(service_running(given, api.url, seed=1))
        cluster = Cluster(api, await stack.enter_async_context(connect(api.url)), service)
        api.admission.services[DEFAULT_NAMESPACE, SERVICE] = (
            "127.0.0.1",
            int(cluster.admission.url.rpartition(":")[2]),
        )
        await until(lambda: all(cluster.admission.keeper.configurations.correct.values()))
        yield cluster
