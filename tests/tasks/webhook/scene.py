"""The leader's work on the webhook at an embedded API server, with a clock and a date that the test moves."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from extender.certificates.rotation import ServingPair, certificates_in
from extender.kube.credentials import Access
from extender.kube.session import open_session
from extender.kube.writer import WebhookObjects
from extender.settings.policies import Policies
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS, ServedKind
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from extender.tasks.webhook.keeper import (
    MUTATING,
    VALIDATING,
    OwnCertificates,
    OwnCertificatesOptions,
    WebhookConfigurations,
    WebhookKeeper,
)
from extender.wire.webhook_configurations import mutating_webhooks, target_of, validating_webhooks
from tests.fakes import FakeClock
from tests.simulator.plain import namespace
from tests.simulator.webhook import configuration

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIME = timedelta(days=90)
NAME = "placement-extender-webhook"
NAMES = (f"{NAME}.ours.svc",)
POLICIES = Policies().exempting("ours")
CONFIGURATION = "placement-extender"


@dataclass
class Replica:
    """One replica: what it serves, and its part in keeping the webhook."""

    certificates: OwnCertificates
    configurations: WebhookConfigurations
    keeper: WebhookKeeper
    served: list[ServingPair]

    @property
    def serving(self) -> ServingPair:
        return self.served[-1]

    async def poll(self) -> None:
        """One look at the Secret, as `follow` takes it."""
        await self.certificates._attempt(self.certificates._read)


@dataclass
class Scene:
    """The API server, and the time."""

    api: ApiServer
    objects: WebhookObjects
    clock: FakeClock = field(default_factory=FakeClock)
    now: datetime = BEGIN

    def replica(self) -> Replica:
        served: list[ServingPair] = []
        options = OwnCertificatesOptions("ours", NAME, NAMES, LIFETIME)
        certificates = OwnCertificates(self.objects, options, self.clock, lambda: self.now, served.append)
        target = target_of(POLICIES, "ours")
        wanted = {
            MUTATING: partial(mutating_webhooks, POLICIES, target),
            VALIDATING: partial(validating_webhooks, POLICIES, target),
        }
        configurations = WebhookConfigurations(self.objects, CONFIGURATION, wanted)
        return Replica(certificates, configurations, WebhookKeeper(certificates, configurations, self.clock), served)

    def stored(self, kind: ServedKind) -> JsonObject:
        """The Secret, or one of the configurations."""
        return self.api.store.find(kind, f"ours/{NAME}" if kind is SECRETS else CONFIGURATION).read()

    def webhook(self, kind: ServedKind) -> JsonObject:
        (found,) = self.stored(kind)["webhooks"]
        return dict(found)

    def bundle(self, kind: ServedKind) -> bytes:
        """The authorities that an API server trusts."""
        return base64.b64decode(self.webhook(kind)["clientConfig"].get("caBundle", ""))

    def is_trusted(self, pair: ServingPair) -> bool:
        """Whether an API server would accept the certificate by both configurations."""
        for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            issuers = {each.subject for each in certificates_in(self.bundle(kind))}
            if pair.certificate.issuer not in issuers:
                return False
        return not pair.problem(self.now)

    def edit(self, kind: ServedKind, **fields: Any) -> None:
        """Change the one webhook of a configuration, as an administrator would."""

        def change(obj: JsonObject) -> None:
            obj["webhooks"][0].update(fields)

        self.api.operations.change(kind, CONFIGURATION, change)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """What deploy/policies has applied: an empty Secret, and both configurations without a bundle."""
    async with ApiServer() as api, open_session(Access(host=api.url), FakeClock()) as session:
        api.operations.create(NAMESPACES, namespace("ours"))
        api.operations.create(SECRETS, {"metadata": {"name": NAME}, "type": "Opaque"}, namespace="ours")
        target = target_of(POLICIES, "ours")
        for kind, webhooks in (
            (MUTATING_WEBHOOKS, mutating_webhooks(POLICIES, target, None)),
            (VALIDATING_WEBHOOKS, validating_webhooks(POLICIES, target, None)),
        ):
            api.operations.create(kind, configuration(CONFIGURATION, *webhooks))
        yield Scene(api, WebhookObjects(session.writes))
