"""Builds the service: each part once, passed to the parts that need it.

`serve` runs it against a cluster or a snapshot, the demo and the scenarios against the embedded control plane.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from extender.compose.foundation import Foundation, Job, make_index, make_reflectors, settle_memory
from extender.compose.leadership import SINGLE_REPLICA, Replica, leader_endpoint_of, replica_of
from extender.compose.preemption import (
    NullPlanTarget,
    PreemptionTask,
    make_preemption,
    without_writes,
)
from extender.compose.process import installed_version
from extender.compose.recording import verb_parts
from extender.compose.rejected_pods import rejected_pods_of_cluster
from extender.compose.release import release_of_cluster
from extender.compose.reporting import (
    metrics_of,
    report_assumed_pods,
    report_crossing,
    report_pending,
    report_reflectors,
    report_shadow,
    report_sliced_work,
    report_what_ifs,
)
from extender.features.execution.building import moves_of_cluster
from extender.features.quotas.crossing import Crossing, count_crossing, measure_crossing
from extender.index.audit import audit_steps
from extender.index.cluster import ClusterIndex
from extender.kube.session import Session
from extender.kube.timing import Clock, SystemClock, WallClock
from extender.model.bounded import at_once
from extender.model.objects import Object, Pod
from extender.model.policies import PolicyKey
from extender.server.app import listening, make_app
from extender.server.collaborators import Verbs
from extender.settings.configuration import DEFAULT_NAMESPACE, Settings, in_namespace
from extender.tasks.api_server_check import CHECK as API_SERVER
from extender.tasks.api_server_check import ApiServerCheck
from extender.tasks.browse_service import BrowseService, ExplainService, overview_of
from extender.tasks.deletion_costs import DeletionCosts
from extender.tasks.endpoints import LeaderEndpoint
from extender.tasks.events import EventLimit, EventRecorder, missed_admission
from extender.tasks.filter_service import (
    AssumedPodOptions,
    FilterService,
    ScheduledPods,
    SchedulerCounts,
    WatchedPods,
    WhatIfFilter,
)
from extender.tasks.index_upkeep import Auditing, ExclusionClock, GroupUpkeep, PolicyRecount, SlicedFigure
from extender.tasks.preempt_and_bind import BindService, PreemptService, UnansweredBindings
from extender.tasks.readiness import Readiness
from extender.tasks.reflectors import InjectedPods, OverLimits, Reflectors
from extender.tasks.scheduler_requests import SchedulerRequests, UnaskedPods
from extender.tasks.shadow import Shadow
from extender.tasks.sliced_work import SlicedWork, Traffic
from extender.tasks.what_if.service import WhatIfService
from extender.telemetry import catalogue
from extender.telemetry.decision_log import DecisionLog
from extender.telemetry.metrics import Metrics
from extender.verbs.browse.pending import PendingPods, measure_pending
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.release.progress import GroupOverview
from extender.verbs.spread_skew import SkewFigures, skew_figures
from extender.wire.objects.kinds import PODS
from extender.wire.webhook_configurations import OwnPod

if TYPE_CHECKING:  # with what reads and makes certificates, 9 MB that plain HTTP without policies does not need
    from extender.compose.admission import AdmissionPart
    from extender.server.transport.tls import ServerTls

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a service, and its jobs by name. A service that answers from a file has no jobs.

    ``preemption``: set if the service executes preemptions; it is drained on shutdown. ``filter_service``, ``reflectors``: set if it
    follows a cluster.
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
    reflectors: Reflectors | None = None
    what_ifs: WhatIfService | None = None
    leader_endpoint: LeaderEndpoint | None = None

    @asynccontextmanager
    async def listening(self, tls: ServerTls | None = None) -> AsyncIterator[str]:
        """Answers the scheduler until the block is left; yields the base URL. Raises OSError, which names a taken address.

        The webhook is another server (`admission.listening`), because it ends later.
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
    redaction_key: bytes = b"",
) -> Service:
    """A service whose index follows a cluster. The caller runs its jobs.

    ``pod`` and ``namespace``: this pod's. The namespace becomes part of the settings in force, which `/configz` shows.
    ``redaction_key``: see `verb_parts`.
    """
    settings = in_namespace(settings, namespace)
    # 1. The index, and the chain of event handlers in front of it. A recorder needs the index while it is empty.
    index = make_index(settings)
    parts = verb_parts(index, settings, clock, redaction_key)
    over_limits = OverLimits(index, clock)
    injected = InjectedPods(over_limits, index.pods)
    sink = injected if settings.policies.enabled else over_limits
    traffic = Traffic(clock)
    shadow = Shadow(index, sink, clock, time.time, traffic) if settings.shadow else None
    reflectors = make_reflectors(index, shadow or sink, settings, session, clock, rng)
    # 2. The foundation: leader election, the webhook, readiness. Readiness depends on the webhook, which must be found by the API
    #    server before this replica replaces another one.
    metrics = metrics_of(index, parts.filter)
    replica = replica_of(settings.leader_election, session, reflectors, clock, rng, metrics)
    api_server = ApiServerCheck(session.reads, settings, clock, reflectors.statuses)
    base = Foundation(
        settings, index, session, clock, rng, reflectors, metrics, replica, namespace, WallClock(clock), api_server
    )
    admission = _admission(base, pod, injected)
    beside = () if admission is None else admission.parts_of_pod
    remarks = {API_SERVER: api_server.remark}
    readiness = Readiness(reflectors.freshness, replica=replica.state, beside=beside, remarks=remarks)
    leader_endpoint = leader_endpoint_of(
        settings, replica, (namespace, pod), session, lambda: readiness.is_ready, clock, metrics
    )
    report_reflectors(metrics, reflectors, clock)
    metrics.report(catalogue.API_SERVER_LACKS, api_server.lacks)
    metrics.report(catalogue.PODS_OVER_LIMIT, over_limits.counts)
    crossing = SlicedFigure(partial(measure_crossing, index), clock, Crossing())
    report_crossing(metrics, lambda: crossing.value)
    pending = SlicedFigure(partial(measure_pending, index.view, index.assumed.held), clock, PendingPods())
    report_pending(metrics, lambda: pending.value, base.wall.seconds)

    # 3. What decisions are handed to: preemption plans, rejections, events. Before the verbs, which get them as arguments.
    preemption = make_preemption(base, traffic) if settings.preemption.mode == "execute" else None
    plans = preemption.target if preemption is not None else NullPlanTarget()
    work = SlicedWork(clock, traffic)
    report_sliced_work(metrics, work)
    log, decisions, begun = DecisionLog(), SchedulerCounts(), clock.now()
    asking = SchedulerRequests(decisions, log, clock, partial(datetime.now, UTC), lambda: replica.answers_since(begun))
    explainer = ExplainService(
        index.view, settings, clock, partial(_assumed_nodes, index), work, partial(_group_of, index), asking.about
    )
    on_rejection, on_refused, rejected_pod_jobs = rejected_pods_of_cluster(
        base, parts.filter, explainer.rejection, traffic
    )
    missed = EventRecorder(base.writer().create_event, clock, EventLimit())
    moves, move_jobs = moves_of_cluster(base, None if admission is None else admission.status, decisions.asks)
    # 4. The verbs.
    # One for filter and preempt, so that both share the places of waiting requests.
    pods = _watched_pods(base)
    filter_service = FilterService(
        index,
        pods,
        clock,
        _assumed_pod_options(settings),
        parts.filter,
        rng,
        plans,
        on_rejection,
        reflectors.known_until(PODS.name),
        partial(_record_missed, missed),
        ScheduledPods(metrics.record_scheduled, time.time),
        decisions,
    )
    report_assumed_pods(metrics, index, filter_service)
    unanswered = UnansweredBindings(index, base.writer(), clock)
    preempt_service = PreemptService(
        index.view, settings, rng, plans, pods.find, parts.on_preemption, parts.filter.meter, on_refused
    )
    metrics.report(catalogue.PREEMPTIONS_LEFT, preempt_service.left)
    if shadow is not None:
        report_shadow(metrics, shadow)
    verbs = Verbs(
        filter=filter_service.filter if shadow is None else shadow.beside(filter_service.filter),
        prioritize=parts.prioritize,
        preempt=preempt_service.preempt,
        preempt_refused=on_refused,
        bind=BindService(index, base.writer(), clock, unanswered).bind,
        attempt_failed=filter_service.attempt_failed,
        catch_up=reflectors.freshness.catch_up,
        traffic=traffic,
        is_handed_over=None if leader_endpoint is None else leader_endpoint.is_handed_over,
        explainer=explainer,
        browser=BrowseService(
            index,
            settings,
            work,
            clock,
            partial(datetime.now, UTC),
            tuple if preemption is None else preemption.target.in_flight,
            reflectors.freshness.lag,
            asking.unasked,
        ),
        what_ifs=(what_ifs := _what_ifs(index, settings, clock, metrics)),
        shadow=None if shadow is None else shadow.page,
        decisions=log,
        moves=moves,
    )
    # 5. The jobs. Those that write are wrapped (`while_leading`); the others run on every replica.
    jobs: list[Job] = [
        *reflectors.jobs(),
        ("progress of the first lists", reflectors.log_progress),
        ("version of the API server", api_server.run),
        *replica.jobs(),
        *([base.while_leading("leader endpoint", leader_endpoint.run)] if leader_endpoint is not None else []),
        *([("preemption", preemption.run)] if preemption is not None else []),
        *rejected_pod_jobs,
        *_unasked_jobs(base, asking),
        *release_of_cluster(base, preemption),
        *move_jobs,
        *_policy_jobs(base, missed),
        *([("assumed pods", filter_service.run)] if settings.assumed_pods.enabled else []),
        *([("unanswered bindings", unanswered.run)] if settings.server.paths.bind else []),
        *([base.while_leading("shadow decisions", shadow.run)] if shadow is not None else []),
        *_audit(base),
        ("figures of affinity across namespaces", crossing.run),
        ("figures of pending pods", pending.run),
        *parts.jobs(metrics),
        *(admission.jobs if admission is not None else ()),
    ]
    return Service(
        settings,
        index,
        readiness,
        metrics,
        verbs,
        tuple(jobs),
        preemption,
        replica,
        filter_service,
        admission,
        reflectors,
        what_ifs,
        leader_endpoint,
    )


def service_of_objects(settings: Settings, objects: Iterable[Object], rng: Random) -> Service:
    """A service that answers from fixed objects. Requests may be about pods that are not among these.

    The pod of each request is used as it is. No pod is assumed, because no watch would confirm it. Nothing is written.
    """
    index = make_index(settings)
    for obj in objects:
        index.upsert(obj)
    # No clock runs here, so exclusions are judged once, by the time of day.
    index.domains.step(time.time())
    # Nothing is read later, so all objects can leave the garbage collection now.
    settle_memory(index, settings)
    settings = without_writes(settings)
    filter_verb = FilterVerb(index.view, settings)
    clock = SystemClock()
    traffic = Traffic(clock)
    work = SlicedWork(clock, traffic)

    async def as_requested(pod: Pod) -> Pod:
        return pod

    metrics, crossing = metrics_of(index, filter_verb), count_crossing(index)
    verbs = Verbs(
        filter=WhatIfFilter(filter_verb, rng).filter,
        prioritize=lambda args: prioritize_nodes(args, index.view, settings, filter_verb.meter),
        preempt=PreemptService(
            index.view, settings, rng, NullPlanTarget(), as_requested, meter=filter_verb.meter
        ).preempt,
        traffic=traffic,
        explainer=ExplainService(index.view, settings, clock, work=work, group_of=partial(_group_of, index)),
        browser=BrowseService(index, settings, work, clock, partial(datetime.now, UTC)),
        what_ifs=(what_ifs := _what_ifs(index, settings, clock, metrics)),
    )
    report_crossing(metrics, lambda: crossing)
    pending = at_once(measure_pending(index.view, ()))
    report_pending(metrics, lambda: pending, time.time)
    report_sliced_work(metrics, work)
    return Service(settings, index, Readiness(), metrics, verbs, what_ifs=what_ifs)


def _record_missed(events: EventRecorder, pod: Pod, policies: Sequence[PolicyKey]) -> None:
    events.record(missed_admission(pod, policies, datetime.now(UTC)))


def _what_ifs(index: ClusterIndex, settings: Settings, clock: Clock, metrics: Metrics) -> WhatIfService | None:
    if not settings.what_if.enabled:
        return None
    service = WhatIfService(index, settings, clock)
    report_what_ifs(metrics, service)
    return service


def _group_of(index: ClusterIndex, uid: str) -> GroupOverview | None:
    """The pod group of a pod."""
    group = index.gated.group_of(uid)
    return None if group is None else overview_of(index, group)


def _assumed_nodes(index: ClusterIndex, uid: str) -> Sequence[str]:
    """The nodes that a pod is assumed on."""
    held = index.assumed.held.get(uid)
    return () if held is None else held.nodes


def _admission(base: Foundation, pod: OwnPod | None, injected: InjectedPods) -> AdmissionPart | None:
    if not base.settings.policies.enabled:
        return None
    from extender.compose.admission import admission_of_cluster  # noqa: PLC0415 - see the imports for type checking

    part = admission_of_cluster(base, pod)
    # Set afterwards: the handler is in front of the index, and the status needs the index.
    injected.on_injected = part.status.note_injected
    return part


def _unasked_jobs(base: Foundation, asking: SchedulerRequests) -> list[Job]:
    is_told = base.settings.rejected_pods.events
    events = EventRecorder(base.writer().create_event, base.clock, EventLimit()) if is_told else None
    unasked = UnaskedPods(base.index, asking, events, base.clock)
    return [
        base.while_leading("pods that no scheduler asks about", unasked.run),
        *([] if events is None else [base.while_leading("events on pods that no scheduler asks about", events.run)]),
    ]


def _policy_jobs(base: Foundation, missed: EventRecorder) -> list[Job]:
    if not base.settings.policies.enabled:
        return []
    base.metrics.report(catalogue.MISSED_ADMISSION_EVENTS, lambda: missed.results)
    recount = PolicyRecount(base.index.counts, base.index.policies, base.index.view.namespace_changes, base.clock)
    upkeep = GroupUpkeep(base.index.gated, base.clock)
    exclusions = ExclusionClock(base.index.domains, base.clock, base.wall.seconds)
    base.metrics.report(catalogue.EXCLUDED_DOMAINS, base.index.domains.counts)
    costs = DeletionCosts(
        base.index,
        base.settings,
        base.writer().set_deletion_cost,
        base.clock,
        lambda: base.reflectors.freshness.is_ready,
    )
    base.metrics.report(catalogue.DELETION_COSTS, lambda: costs.results)
    skew = SlicedFigure(partial(skew_figures, base.index.view, base.settings), base.clock, SkewFigures())
    base.metrics.report(
        catalogue.SPREAD_SKEW,
        lambda: {workload: workload_skew.skew for workload, workload_skew in skew.value.shown.items()},
    )
    base.metrics.report(
        catalogue.SPREAD_MAX_SKEW,
        lambda: {workload: workload_skew.max_skew for workload, workload_skew in skew.value.shown.items()},
    )
    base.metrics.report(catalogue.SPREAD_WORKLOADS, lambda: skew.value.workloads)
    return [
        base.while_leading("costs of deletion", costs.run),
        base.while_leading("missed admissions", missed.run),
        ("recount of policies", recount.run),
        ("upkeep of groups", upkeep.run),
        ("excluded topology domains", exclusions.run),
        ("skew of workloads", skew.run),
    ]


def _watched_pods(base: Foundation) -> WatchedPods:
    """The pods of the watch. Waits for a pod end before the request's deadline, and take at most half of the requests in flight."""
    server = base.settings.server
    # Half of the deadline is left for the decision.
    wait = min(base.settings.kube.unknown_pod_wait, server.request_timeout / 2)
    pods = WatchedPods(base.index, base.clock, wait, server.max_in_flight // 2)
    base.metrics.report(catalogue.POD_WAITS, lambda: pods.waits)
    base.metrics.report(catalogue.UNCONFIRMED_POD_REJECTIONS, pods.rejected)
    return pods


def _audit(base: Foundation) -> list[Job]:
    pause = base.settings.audit.pause
    auditing = Auditing(base.index, partial(audit_steps, base.index), base.clock, pause)
    base.metrics.report(catalogue.AUDIT_ROUNDS, lambda: auditing.rounds)
    base.metrics.report(catalogue.AUDIT_DIFFERENCES, lambda: auditing.differences)
    return [("audit", auditing.run)] if pause else []


def _assumed_pod_options(settings: Settings) -> AssumedPodOptions:
    options = settings.assumed_pods
    return AssumedPodOptions(options.enabled, options.expiry, options.wait, options.failure_grace, options.doubt)
