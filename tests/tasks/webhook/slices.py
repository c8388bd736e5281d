"""The EndpointSlice of one replica, an API server that keeps it, and a tenant that writes another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from extender.index.objects.namespaces import Namespaces
from extender.kube.writer import WebhookObjects
from extender.model.constraints.labels import Labels
from extender.model.objects import Namespace
from extender.tasks.endpoints import Endpoint, WebhookEndpoint
from extender.tasks.readiness import Readiness
from extender.wire.webhook_configurations import OwnPod
from tests.fake_api import FakeApi
from tests.fakes import FakeClock

PLACE = Endpoint("ours", "placement-extender-webhook", OwnPod("extender-7f9c-abcde", "uid-1", "10.0.0.7"), 9443)


class State(Readiness):
    """Whether the webhook can answer."""

    is_ready = False


class Scene:
    """One replica, looked at as its job does."""

    def __init__(self) -> None:
        self.api, self.state, self.clock = FakeApi(), State(), FakeClock()
        self.endpoint = WebhookEndpoint(WebhookObjects(self.api), PLACE, self.state, self.clock)

    async def look(self) -> None:
        await self.endpoint._look()


TENANT = {"tenant": "yes"}


@dataclass
class NamespaceReads:
    """Answers with labels, or with an error; ``hangs`` until it is cancelled."""

    answer: Labels | Exception | None = None
    hangs: bool = False
    requests: list[str] = field(default_factory=list)

    async def read(self, name: str) -> Labels | None:
        self.requests.append(name)
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def show(known: Namespaces, name: str = "shop", labels: Labels = TENANT) -> None:
    known.change(name, Namespace(name, labels))
    known.changes.notify(None, Namespace(name, labels))
