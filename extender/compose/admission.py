"""Builds the admission webhook: the verb, its port, its certificates, and the tasks of the leader for it.

Every replica serves the webhook. Tasks that write run only on the leader. Called by `service`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from extender.compose.foundation import Foundation, Job
from extender.index.cluster import ClusterIndex
from extender.kube.listing import read_list
from extender.kube.session import Session
from extender.kube.timing import Clock
from extender.kube.writer import WebhookObjects
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import FailurePolicy, JsonObject
from extender.model.units import Address
from extender.server.admission import AdmissionService, admitting
from extender.server.transport.tls import WebhookTls
from extender.tasks.endpoints import Endpoint, WebhookEndpoint
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter, in_turns, turns_of_work
from extender.tasks.policy_status import EVENT_LIMIT, PolicyStatus
from extender.tasks.readiness import ListedOnce, Part, Readiness
from extender.tasks.webhook.keeper import (
    MUTATING,
    VALIDATING,
    FileCertificates,
    OwnCertificates,
    OwnCertificatesOptions,
    WebhookConfigurations,
    WebhookKeeper,
)
from extender.tasks.webhook.namespaces import NamespacesOfReviews
from extender.telemetry import catalogue
from extender.telemetry.metrics import AdmissionMetrics
from extender.verbs.admit.decision import AdmitVerb
from extender.wire.api_server import loss_of
from extender.wire.objects.kinds import NAMESPACES, policy_kinds
from extender.wire.webhook_configurations import (
    OwnPod,
    WebhookTarget,
    mutating_webhooks,
    target_of,
    validating_webhooks,
)

Source: TypeAlias = OwnCertificates | FileCertificates


@dataclass(slots=True)
class AdmissionPart:
    """The webhook of one replica. ``url`` is where it listens, empty before."""

    service: AdmissionService
    tls: WebhookTls
    address: Address
    readiness: Readiness
    keeper: WebhookKeeper
    status: PolicyStatus
    endpoint: WebhookEndpoint | None
    clock: Clock
    drain_seconds: float
    jobs: tuple[Job, ...]
    url: str = field(default="", init=False)
    _withdrawn: float = field(default=0.0, init=False)

    @property
    def parts_of_pod(self) -> tuple[Part, ...]:
        """The conditions under which this replica can replace another one: it serves the webhook, and the API server finds it."""
        return (self.readiness, self.endpoint) if self.endpoint is not None else (self.readiness,)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Answer the API server until the block is left; yields the base URL. Raises OSError if the address is taken."""
        async with AsyncExitStack() as stack:
            try:
                self.url = await stack.enter_async_context(admitting(self.service, self.address, self.tls.context))
            except OSError as error:
                text = f"policies.webhook.bindAddress {self.address}: {error.strerror or error}"
                raise OSError(error.errno, text) from None
            yield self.url

    async def withdraw(self) -> None:
        """The replica stops: takes its address away from API servers. It still answers."""
        self.service.is_draining = True
        self._withdrawn = self.clock.now()
        if self.endpoint is not None:
            await self.endpoint.withdraw()

    async def drain(self) -> None:
        """Waits until no API server calls this replica any more. Call `withdraw` first."""
        # From the withdrawal on: other steps of the shutdown have used a part of the time.
        await self.clock.sleep(max(0.0, self._withdrawn + self.drain_seconds - self.clock.now()))


async def _decide(
    verb: AdmitVerb, turns: RateLimiter, metrics: AdmissionMetrics, status: PolicyStatus | None, review: JsonObject
) -> JsonObject:
    """The review with its response. Counts the changes by kind of policy; a dry run counts too, because it costs the same.

    Reviews of many namespaces take turns, and calls of the scheduler are answered between the steps: one pod under a hundred policies
    takes 3 ms, and the API server sends hundreds of reviews at once.

    ``status``: records the changes for the status of policies. None where a client could forge reviews.
    """
    admission = await in_turns(verb.admit_in_steps(review), turns, _namespace_of(review))
    counts: Counter[tuple[str, str]] = Counter((key.kind, "failed") for key in admission.failed)
    for at, change in enumerate(admission.changes, start=1):
        if not at % _CHANGES_A_STEP:
            await asyncio.sleep(0)
        result = "conflict" if change.conflicts else "unchanged" if change.is_empty else "applied"
        result = "failed" if change.has(*FailurePolicy) else result
        counts[change.policy.key.kind, result] += 1
        if status is not None and not admission.dry_run:
            status.record(change)
    for (kind, result), count in counts.items():
        metrics.record_policies(kind, result, count)
    return admission.review


def _namespace_of(review: JsonObject) -> str:
    """The namespace of a review. Empty without one, or if it is no valid name: names are kept in memory."""
    name = review["request"].get("namespace")
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME else ""


_LONGEST_NAME: Final = 63
_CHANGES_A_STEP: Final = 1000  # at 3 µs
_MOST_LOOKS: Final = 50_000  # of terms at nodes in one review: 15 ms


async def _prepare(verb: AdmitVerb, namespaces: NamespacesOfReviews, review: JsonObject, peer: str) -> None:
    """Waits until the labels of the review's namespace are known, if policies may select it by labels."""
    if name := verb.namespace_of(review):
        await namespaces.find(name, peer)


async def _labels_of(session: Session, name: str) -> Labels | None:
    """The labels of a namespace. Read by a list request, because `get` would need one more permission."""
    items = await read_list(session.reads, NAMESPACES.path, fieldSelector=f"metadata.name={name}")
    return next((NAMESPACES.decode_object(item).labels for item in items), None)


class _Nodes:
    """The nodes of the index, for the verb's warnings."""

    def __init__(self, index: ClusterIndex) -> None:
        self._topology = index.topology

    def are_matched(self, affinity: NodeAffinity) -> bool | None:
        """Whether an affinity matches any node now, None where that takes too long to tell. O(nodes × terms)."""
        nodes = self._topology.nodes
        if len(nodes) * len(affinity.terms or ()) > _MOST_LOOKS:
            return None
        return any(node is not None and affinity.matches(node.name, node.labels) for node in nodes)


def admission_of_cluster(base: Foundation, pod: OwnPod | None) -> AdmissionPart:
    """The webhook of a replica whose settings enable policies. ``pod`` is the replica's own."""
    settings, index, session, clock, metrics = base.settings, base.index, base.session, base.clock, base.metrics
    reflectors, namespace = base.reflectors, base.namespace
    policies, tls = settings.policies, WebhookTls(settings.policies.webhook.client_ca_file)
    # 1. The verb. It is ready once namespaces and policies were listed. A watch that is late later does not stop the creation of pods.
    listed = ListedOnce(reflectors.freshness, {NAMESPACES.name, *policy_kinds(settings)})
    # Not ready without a certificate: the API server could not call this replica.
    readiness = Readiness(listed, tls)
    namespaces = NamespacesOfReviews(index.namespaces, partial(_labels_of, session), policies.webhook.timeout)
    verb = AdmitVerb(index.policies, namespaces, settings, _Nodes(index), index.domains)
    # 2. Status and events of policies, which the leader writes.
    counts = metrics.admission()
    observe, check = metrics.record_write, base.replica.check_term
    objects_of_policies = base.policy_writer()
    events = EventRecorder(objects_of_policies.create_event, clock, EVENT_LIMIT)
    status = PolicyStatus(
        objects_of_policies,
        events,
        index.policies,
        lambda: index.counts.compiler.pods,
        index.namespaces,
        policies.exempt,
        clock,
        partial(datetime.now, UTC),
        lambda: reflectors.freshness.is_ready,
        index.gated.charges.uses,
        index.domains,
        lambda policy: loss_of(policy, base.api_server.server),
    )
    # Without a client CA any client that reaches the port could put texts into the status of policies.
    decide = partial(_decide, verb, turns_of_work(clock), counts, status if policies.webhook.client_ca_file else None)
    service = AdmissionService(decide, readiness, counts, settings.server, policies.webhook)
    service.prepare = partial(_prepare, verb, namespaces)
    # 3. Certificates, webhook configurations and the EndpointSlice.
    objects = WebhookObjects(session.writes, observe=observe, check=check)
    target = target_of(policies, namespace)
    certificates = _certificates(base, objects, target, tls)
    wanted = {
        MUTATING: partial(mutating_webhooks, policies, target),
        VALIDATING: partial(validating_webhooks, policies, target),
    }
    configurations = WebhookConfigurations(objects, policies.webhook.configuration, wanted)
    keeper = WebhookKeeper(certificates, configurations, clock)
    endpoint = None
    # An EndpointSlice can only list pods of its own namespace.
    if pod is not None and (target.namespace or namespace) == namespace:
        place = Endpoint(namespace, policies.webhook.service, pod, policies.webhook.bind_address.port)
        # Each replica writes its own EndpointSlice, so it need not lead.
        endpoint = WebhookEndpoint(WebhookObjects(session.writes, observe=observe), place, readiness, clock)
    metrics.report(catalogue.WEBHOOK_CERTIFICATE_EXPIRY, lambda: {**tls.ends, **certificates.ends})
    metrics.report(catalogue.WEBHOOK_CERTIFICATE_ROTATIONS, lambda: certificates.steps)
    metrics.report(catalogue.WEBHOOK_CONFIGURATION_REPAIRS, lambda: configurations.repairs)
    metrics.report(catalogue.WEBHOOK_CONFIGURATION_CORRECT, lambda: configurations.correct)
    metrics.report(catalogue.POLICY_STATUS_WRITES, lambda: status.results)
    metrics.report(catalogue.POLICY_EVENTS, lambda: events.results)
    jobs: tuple[Job, ...] = (
        base.while_leading("events of policies", events.run),
        base.while_leading("policy status", status.run),
        # Every replica serves the webhook and so follows the certificates. Only the leader rotates them, in `keeper`.
        ("webhook certificates", certificates.follow),
        base.while_leading("webhook configurations", keeper.run),
        *((("webhook endpoint", endpoint.run),) if endpoint is not None else ()),
    )
    address, drain = policies.webhook.bind_address, policies.webhook.drain
    return AdmissionPart(service, tls, address, readiness, keeper, status, endpoint, clock, drain, jobs)


def _certificates(base: Foundation, objects: WebhookObjects, target: WebhookTarget, tls: WebhookTls) -> Source:
    webhook = base.settings.policies.webhook
    if webhook.certificates != "own":
        return FileCertificates(webhook.cert_file, webhook.key_file, webhook.ca_file, base.clock, tls.use)
    options = OwnCertificatesOptions(
        namespace=webhook.service_namespace,
        secret=webhook.secret,
        names=_names(target),
        lifetime=timedelta(seconds=webhook.lifetime),
    )
    return OwnCertificates(objects, options, base.clock, base.wall.utc, tls.use)


def _names(target: WebhookTarget) -> tuple[str, ...]:
    """The names that the certificate needs for the API server: the URL's host, or the Service's name in cluster DNS."""
    if target.url:
        return (urlsplit(target.url).hostname or "",)
    # The API server verifies this name alone, and no shorter or longer name of cluster DNS.
    return (f"{target.service}.{target.namespace}.svc",)
