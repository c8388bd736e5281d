"""Builds the service: each part once, passed to the parts that need it.

`serve` runs it against a cluster or a snapshot, the demo and the scenarios against the embedded control plane.
"""

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Final

import msgspec

from extender.compose.admission import AdmissionPart, admission_of_cluster
from extender.compose.leadership import SINGLE_REPLICA, Replica, replica_of
from extender.compose.preemption import (
    COMPONENT,
    NullPlanTarget,
    PreemptionTask,
    make_preemption,
    without_writes,
)
from extender.compose.process import freeze_gc, installed_version
from extender.compose.recording import verb_parts
from extender.compose.release import release_of_cluster
from extender.index.audit import audit_steps
from extender.index.cluster import ClusterIndex
from extender.index.crossing import closed_nodes, crossing_pods
from extender.kube.session import Session
from extender.kube.timing import BackoffOptions, Clock, SystemClock
from extender.kube.watch.reflector import Reflector
from extender.kube.watch.reflector_values import ReflectorStatus, WatchOptions
from extender.kube.writer import Writer
from extender.model.objects import Object, Pod
from extender.server.app import listening, make_app
from extender.server.collaborators import Verbs
from extender.server.tls import ServerTls
from extender.settings import DEFAULT_NAMESPACE, Settings, Watch
from extender.tasks.auditing import Auditing
from extender.tasks.event_handler import OverLimits
from extender.tasks.explain_service import ExplainService
from extender.tasks.filter_service import AssumedPodOptions, FilterService, OnRejection, WhatIfFilter
from extender.tasks.injected_pods import InjectedPods
from extender.tasks.missed_admissions import MissedAdmissions
from extender.tasks.policy_recount import PolicyRecount
from extender.tasks.ports import ClusterWriter, ObjectIndex
from extender.tasks.preempt_and_bind import BindService, PreemptService
from extender.tasks.readiness import Readiness
from extender.tasks.reflectors import Reflectors, ReflectorsOptions
from extender.tasks.rejected_pods.events import Explain, RejectionEvents
from extender.tasks.rejected_pods.nominator import Nominator, NominatorOptions
from extender.tasks.rejected_pods.rechecker import Rechecker
from extender.tasks.rejected_pods.requeuer import Requeuer
from extender.tasks.rejected_pods.writes import RejectedPodWriter
from extender.tasks.watched_pods import WatchedPods
from extender.telemetry import scraped
from extender.telemetry.metrics import Metrics
from extender.verbs.effective_pod import policy_terms
from extender.verbs.filter.pipeline import FilterVerb
from extender.verbs.filter.select_host import find_node_elsewhere
from extender.verbs.prioritize import prioritize_nodes
from extender.wire.kinds import PODS
from extender.wire.watched_kinds import watched_kinds
from extender.wire.webhook_configurations import OwnPod

_LOG = logging.getLogger(__name__)

Job = tuple[str, Callable[[], Awaitable[None]]]

# A watch is replaced after `inactivityTimeout`; only if that does not help either is the index not to be trusted.
_STALE_FACTOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class Service:
    """The parts, and the jobs that keep them going, by name; a service that answers from a file has none.

    ``preemption`` is set where the service executes preemptions; it is drained on shutdown. ``filter_service`` is set where
    it follows a cluster.
    """

    settings: Settings
    index: ClusterIndex
    readiness: Readiness
    metrics: Metrics
    verbs: Verbs
    jobs: tuple[Job, ...] = ()
    preemption: PreemptionTask | None = None
    replica: Replica = SINGLE_REPLICA
    filter_service: FilterService | None = None
    admission: AdmissionPart | None = None

    @asynccontextmanager
    async def listening(self, tls: ServerTls | None = None) -> AsyncIterator[str]:
        """Answers the scheduler until the block is left; yields the base URL. Raises OSError, which names a taken address.

        The webhook is another server, `admission.listening`, as it ends later.
        """
        app = make_app(self.settings, self.verbs, self.readiness, self.metrics, installed_version())
        async with AsyncExitStack() as stack:
            address = self.settings.server.bind_address
            try:
                url = await stack.enter_async_context(listening(app, address, tls))
            except OSError as error:
                raise OSError(error.errno, f"{address}: {error.strerror or error}") from None
            _LOG.info("answering", extra={"url": url, "mode": self.settings.mode})
            yield url


def service_of_cluster(
    settings: Settings,
    session: Session,
    clock: Clock,
    rng: Random,
    namespace: str = DEFAULT_NAMESPACE,
    pod: OwnPod | None = None,
) -> Service:
    """A service whose index follows a cluster. The caller runs its jobs. ``namespace`` is that of ``pod``, this one.

    The pods of that namespace are exempt from policies, at each of their moments.
    """
    settings = msgspec.structs.replace(settings, policies=settings.policies.exempting(namespace))
    index = make_index(settings)
    parts = verb_parts(index, settings, clock)
    filter_verb = parts.filter
    over_limits = OverLimits(index, clock)
    injected = InjectedPods(over_limits, index.pods)
    sink = injected if settings.policies.enabled else over_limits
    reflectors = _reflectors(index, sink, settings, session, clock, rng)
    metrics = _metrics(index, filter_verb)
    replica = replica_of(settings.leader_election, namespace, session, reflectors, clock, rng, metrics)
    writer = replica.guard(Writer(session.writes, COMPONENT, socket.gethostname(), observe=metrics.record_write))
    jobs: list[Job] = [*reflectors.jobs(), *replica.jobs()]
    task = None
    if settings.preemption.mode == "execute":
        task = make_preemption(index, settings.preemption, session, clock, rng, reflectors, metrics, replica)
        jobs.append(("preemption", task.run))
    plans = task.target if task is not None else NullPlanTarget()
    explainer = ExplainService(index.view, settings, clock, lambda uid: _assumed_nodes(index, uid))
    on_rejection, rejected_pod_jobs = _rejected_pods(
        index, filter_verb, writer, clock, rng, replica, metrics, explainer.rejection
    )
    jobs += rejected_pod_jobs
    jobs += release_of_cluster(settings, index, reflectors, session, clock, rng, metrics, replica)
    pods = _watched_pods(index, settings, clock, metrics)
    known_until = reflectors.known_until(PODS.name)
    options = _assumed_pod_options(settings)
    missed = MissedAdmissions(writer, clock, partial(datetime.now, UTC))
    filter_service = FilterService(
        index, pods, clock, options, filter_verb, rng, plans, on_rejection, known_until, missed.record
    )
    if settings.policies.enabled:
        jobs.append(("missed admissions", replica.run_while_leading(missed.run)))
        metrics.report(scraped.MISSED_ADMISSION_EVENTS, lambda: missed.results)
        recount = PolicyRecount(index.counts, index.policies, index.view.namespace_changes, clock)
        jobs.append(("recount of policies", recount.run))
    if settings.assumed_pods.enabled:
        jobs.append(("assumed pods", filter_service.run))
    jobs += _audit(index, settings, clock, metrics)
    jobs += parts.jobs(metrics)
    verbs = Verbs(
        filter=filter_service.filter,
        prioritize=parts.prioritize,
        preempt=PreemptService(index.view, settings, rng, plans, pods.find, parts.on_preemption).preempt,
        bind=BindService(index, writer, clock).bind,
        attempt_failed=filter_service.attempt_failed,
        catch_up=reflectors.freshness.catch_up,
        explainer=explainer,
    )
    _report_reflectors(metrics, reflectors, clock)
    metrics.report(scraped.PODS_OVER_LIMIT, over_limits.counts)
    metrics.report(scraped.ASSUMED_PODS, index.assumed.places)
    metrics.report(scraped.ASSUMED_PODS_FORGOTTEN, index.assumed.endings)
    metrics.report(scraped.ASSUMED_POD_WAITS, lambda: filter_service.waits)
    metrics.report(scraped.ASSUMED_POD_WAIT_TIMEOUTS, lambda: filter_service.given_up)
    readiness = Readiness(reflectors.freshness, replica=replica.state)
    admission = admission_of_cluster(settings, index, reflectors, session, clock, metrics, replica, namespace, pod)
    if admission is not None:
        injected.tell = admission.status.note_injected
        jobs.extend(admission.jobs)
    return Service(settings, index, readiness, metrics, verbs, tuple(jobs), task, replica, filter_service, admission)


def service_of_objects(settings: Settings, objects: Iterable[Object], rng: Random) -> Service:
    """A service that answers from given objects for as long as it runs: what-if requests, also about pods not among them.

    Each is answered for the pod as the request has it. Nothing is assumed, as nothing will confirm it, and nothing is written.
    """
    index = make_index(settings)
    for found in objects:
        index.upsert(found)
    freeze_gc()
    settings = without_writes(settings)
    filter_verb = FilterVerb(index.view, settings)

    async def as_requested(pod: Pod) -> Pod:
        return pod

    verbs = Verbs(
        filter=WhatIfFilter(filter_verb, rng).filter,
        prioritize=lambda args: prioritize_nodes(args, index.view, settings),
        preempt=PreemptService(index.view, settings, rng, NullPlanTarget(), as_requested).preempt,
        explainer=ExplainService(index.view, settings, SystemClock()),
    )
    return Service(settings, index, Readiness(), _metrics(index, filter_verb), verbs)


def _rejected_pods(
    index: ClusterIndex,
    verb: FilterVerb,
    writer: ClusterWriter,
    clock: Clock,
    rng: Random,
    replica: Replica,
    metrics: Metrics,
    explain: Explain,
) -> tuple[list[OnRejection], list[Job]]:
    """What each rejection is passed to, and the jobs about rejected pods: those that the settings switch on."""

    def find(pod: Pod) -> tuple[str, bool]:
        return find_node_elsewhere(pod, index.view, verb.settings, rng.getrandbits(32))

    chosen, shared = verb.settings.rejected_pods, RejectedPodWriter(index, writer, find)
    metrics.report(scraped.REJECTED_POD_ACTIONS, lambda: shared.results)
    calls, jobs, search_elsewhere = list[OnRejection](), list[Job](), list[OnRejection]()
    if chosen.nominate_elsewhere:
        nominator = Nominator(shared, clock, NominatorOptions(per_second=chosen.per_second))
        search_elsewhere.append(nominator.consider)
        jobs.append(("nominate elsewhere", replica.run_while_leading(nominator.run)))
    if chosen.requeue:
        requeuer = Requeuer(shared, clock, chosen.per_second)
        rechecker = Rechecker(shared, clock, chosen.per_second, verb.would_pass, search_elsewhere)
        calls += [requeuer.consider, rechecker.consider]
        jobs.append(("requeue rejected pods", replica.run_while_leading(requeuer.run)))
        jobs.append(("recheck rejected pods", replica.run_while_leading(rechecker.run)))
    if chosen.events:
        events = RejectionEvents(shared, writer, explain, clock, partial(datetime.now, UTC))
        calls.append(events.consider)
        jobs.append(("events on rejected pods", replica.run_while_leading(events.run)))
        metrics.report(scraped.REJECTION_EVENTS, lambda: events.results)
    return [*calls, *search_elsewhere], jobs


def _assumed_nodes(index: ClusterIndex, uid: str) -> Sequence[str]:
    """The nodes that a pod is assumed on."""
    held = index.assumed.held.get(uid)
    return () if held is None else held.nodes


def _watched_pods(index: ClusterIndex, settings: Settings, clock: Clock, metrics: Metrics) -> WatchedPods:
    """Waits end before the request's deadline, and leave half of the places in flight to requests that need not wait."""
    server = settings.server
    wait = min(settings.kube.unknown_pod_wait, server.request_timeout / 2)
    pods = WatchedPods(index, clock, wait, server.max_in_flight // 2)
    metrics.report(scraped.POD_WAITS, lambda: pods.waits)
    metrics.report(scraped.UNCONFIRMED_POD_REJECTIONS, pods.rejected)
    return pods


def _audit(index: ClusterIndex, settings: Settings, clock: Clock, metrics: Metrics) -> list[Job]:
    """The job that audits the index, where the settings switch it on."""
    auditing = Auditing(index, partial(audit_steps, index), clock, settings.audit.pause)
    metrics.report(scraped.AUDIT_ROUNDS, lambda: auditing.rounds)
    metrics.report(scraped.AUDIT_DIFFERENCES, lambda: auditing.differences)
    return [("audit", auditing.run)] if settings.audit.pause else []


def make_index(settings: Settings) -> ClusterIndex:
    """An empty index. In augment mode a pod above a limit is left to the in-tree plugins."""
    index = ClusterIndex(
        settings.rules,
        rejects_excess=settings.mode == "offload",
        quota=settings.quota,
        exempt_from_policies=settings.policies.exempt_namespaces,
        namespace_limits=settings.limits.per_namespace,
    )
    if settings.policies.enabled:
        index.counts.policy_terms = partial(policy_terms, view=index.view, settings=settings)
    return index


def _reflectors(
    index: ClusterIndex, sink: ObjectIndex, settings: Settings, session: Session, clock: Clock, rng: Random
) -> Reflectors:
    """The reflectors of every kind that the settings need."""
    options = watch_options(settings.kube.watch)
    kinds = [each.within(settings.limits) for each in watched_kinds(settings)]
    found = [Reflector(session.reads, kind, options, clock, rng) for kind in kinds]
    stale_after = settings.kube.watch.inactivity_timeout * _STALE_FACTOR

    def listed(kind: str, begun: float) -> None:
        if kind == PODS.name:
            index.assumed.listed(index.pods, begun)

    return Reflectors(sink, found, clock, ReflectorsOptions(stale_after=stale_after), freeze_gc, listed)


def _report_reflectors(metrics: Metrics, reflectors: Reflectors, clock: Clock) -> None:
    """The metrics of the watches, by kind."""

    def by_kind(figure: Callable[[ReflectorStatus], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {kind: figure(status) for kind, status in reflectors.statuses().items()}

    def restarts() -> Mapping[tuple[str, str], float]:
        statuses = reflectors.statuses().items()
        return {(kind, reason): count for kind, status in statuses for reason, count in status.restarts.items()}

    metrics.report(scraped.CACHE_LAG, by_kind(lambda status: status.lag(clock.now())))
    metrics.report(scraped.WATCH_EVENTS, by_kind(lambda status: status.events))
    metrics.report(scraped.WATCH_BYTES, by_kind(lambda status: status.bytes_read))
    metrics.report(scraped.WATCH_RESTARTS, restarts)
    metrics.report(scraped.RELISTS, by_kind(lambda status: status.relists))
    metrics.report(scraped.RELIST_CHANGES, reflectors.relist_changes)
    metrics.report(scraped.DECODE_ERRORS, by_kind(lambda status: status.decode_errors))
    metrics.report(scraped.KINDS_NOT_SERVED, by_kind(lambda status: status.not_served))
    metrics.report(scraped.UNREADABLE_OBJECTS, by_kind(lambda status: status.unreadable))


def _metrics(index: ClusterIndex, filter_verb: FilterVerb) -> Metrics:
    metrics, rejections = Metrics(installed_version()), filter_verb.rejections
    metrics.report(scraped.INDEX_ENTRIES, index.statistics)
    budgets, pods = index.namespace_budgets, index.counts.compiler
    metrics.report(scraped.NAMESPACE_BUDGETS, budgets.shares)
    metrics.report(scraped.NAMESPACE_BUDGET_WAITS, lambda: budgets.waiting_pods(pods.pods))
    metrics.report(scraped.REJECTION_CACHE_HITS, lambda: rejections.hits)
    metrics.report(scraped.REJECTION_CACHE_BYTES, lambda: rejections.bytes)
    metrics.report(scraped.POLICY_MISSES, lambda: filter_verb.policies.counts)
    metrics.report(scraped.CROSS_NAMESPACE_PODS, partial(crossing_pods, index))
    metrics.report(scraped.CROSS_NAMESPACE_CLOSED_NODES, partial(closed_nodes, index))
    metrics.report(scraped.QUOTAS, index.quotas.states)
    metrics.report(scraped.QUOTA_FINDINGS, lambda: filter_verb.quotas.counts)
    return metrics


def _assumed_pod_options(settings: Settings) -> AssumedPodOptions:
    found = settings.assumed_pods
    return AssumedPodOptions(found.enabled, found.expiry, found.wait, found.failure_grace, found.doubt)


def watch_options(watch: Watch) -> WatchOptions:
    """The settings as options of `kube`. Caps the list timeouts at `inactivityTimeout`."""
    usual, patience = WatchOptions(), watch.inactivity_timeout
    return WatchOptions(
        page_limit=watch.list_page_size,
        watch_list=watch.watch_list,
        list_timeout=min(usual.list_timeout, patience),
        confirm_timeout=min(usual.confirm_timeout, patience),
        initial_silence=min(usual.initial_silence, patience),
        max_silence=patience,
        backoff=BackoffOptions(first=watch.backoff.initial, longest=watch.backoff.max),
    )
