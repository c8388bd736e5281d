"""Connects the metrics of a service to their sources: the index, the verbs, the assumed pods and the watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from extender.compose.process import installed_version
from extender.features.quotas.crossing import Crossing
from extender.features.quotas.table import QuotasView
from extender.index.cluster import ClusterIndex
from extender.kube.reflector_status import ReflectorStatus
from extender.kube.timing import Clock
from extender.tasks.filter_service import FilterService
from extender.tasks.reflectors import Reflectors
from extender.tasks.shadow import Shadow
from extender.tasks.sliced_work import SlicedWork
from extender.tasks.what_if.service import WhatIfService
from extender.telemetry import catalogue
from extender.telemetry.metrics import Metrics
from extender.verbs.browse.pending import PendingPods
from extender.verbs.filter import FilterVerb


def metrics_of(index: ClusterIndex, filter_verb: FilterVerb) -> Metrics:
    """New metrics, which report the index and the verb."""
    metrics, rejections = Metrics(installed_version()), filter_verb.rejections
    metrics.report(catalogue.INDEX_ENTRIES, index.statistics)
    budgets, pods = index.namespace_budgets, index.counts.compiler
    metrics.report(catalogue.NAMESPACE_BUDGETS, budgets.shares)
    metrics.report(catalogue.NAMESPACE_BUDGET_WAITS, lambda: budgets.waiting_pods(pods.pods))
    metrics.report(catalogue.REJECTION_CACHE_HITS, lambda: rejections.hits)
    metrics.report(catalogue.REJECTION_CACHE_BYTES, lambda: rejections.bytes)
    metrics.report(catalogue.POLICY_MISSES, lambda: filter_verb.policies.counts)
    quotas = index.view.table(QuotasView)
    if quotas is not None:
        metrics.report(catalogue.QUOTAS, quotas.states)
    metrics.report(catalogue.QUOTA_FINDINGS, lambda: filter_verb.quotas.counts)
    metrics.report(catalogue.RULE_EVALUATIONS, filter_verb.meter.totals)
    metrics.report(catalogue.CONSTRAINT_FIELDS, lambda: filter_verb.meter.fields)
    # Processor time: a rule is not charged for the time in which this thread did not run.
    filter_verb.meter.start(time.thread_time, metrics.record_rule)
    return metrics


def report_pending(metrics: Metrics, read: Callable[[], PendingPods], now: Callable[[], float]) -> None:
    """The metrics of pods without a node. ``now``: Unix seconds."""
    metrics.report(catalogue.PENDING_PODS, lambda: read().counts)
    metrics.report(catalogue.PENDING_POD_AGE, lambda: read().ages(now()))


def report_crossing(metrics: Metrics, read: Callable[[], Crossing]) -> None:
    """The metrics of pods with affinity across namespaces."""
    metrics.report(catalogue.CROSS_NAMESPACE_PODS, lambda: read().pods)
    metrics.report(catalogue.CROSS_NAMESPACE_CLOSED_NODES, lambda: read().closed_nodes)


def report_sliced_work(metrics: Metrics, work: SlicedWork) -> None:
    """The metrics of work for people: explanations and pages."""
    metrics.report(catalogue.SLICED_WORK, lambda: work.outcomes)
    metrics.report(catalogue.SLICED_WORK_SECONDS, lambda: work.seconds)


def report_what_ifs(metrics: Metrics, what_ifs: WhatIfService) -> None:
    """The metrics of what-ifs."""
    metrics.report(catalogue.WHAT_IFS, lambda: what_ifs.outcomes)
    metrics.report(catalogue.WHAT_IFS_RUNNING, lambda: what_ifs.running)
    metrics.report(catalogue.WHAT_IF_SECONDS, lambda: what_ifs.seconds)


def report_shadow(metrics: Metrics, shadow: Shadow) -> None:
    """The metrics of shadow decisions."""
    metrics.report(catalogue.SHADOW_DECISIONS, lambda: shadow.decisions)
    metrics.report(catalogue.SHADOW_RULES, lambda: shadow.rules)
    metrics.report(catalogue.SHADOW_SECONDS, lambda: shadow.seconds)


def report_assumed_pods(metrics: Metrics, index: ClusterIndex, filter_service: FilterService) -> None:
    """The metrics of assumed pods, and of the filter requests that wait for them."""
    metrics.report(catalogue.ASSUMED_PODS, index.assumed.places)
    assumed = index.assumed
    metrics.report(
        catalogue.ASSUMED_PODS_FORGOTTEN,
        lambda: {"expired": assumed.expired, "failed": assumed.ended - assumed.expired},
    )
    metrics.report(catalogue.SCHEDULER_DECISIONS, lambda: filter_service.decisions.counts)
    metrics.report(catalogue.ASSUMED_POD_WAITS, lambda: filter_service.waits)
    metrics.report(catalogue.ASSUMED_POD_WAIT_TIMEOUTS, lambda: filter_service.given_up)


def report_reflectors(metrics: Metrics, reflectors: Reflectors, clock: Clock) -> None:
    """The metrics of the watches, by kind."""

    def by_kind(figure: Callable[[ReflectorStatus], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {kind: figure(status) for kind, status in reflectors.statuses().items()}

    def restarts() -> Mapping[tuple[str, str], float]:
        statuses = reflectors.statuses().items()
        return {(kind, reason): count for kind, status in statuses for reason, count in status.restarts.items()}

    began = clock.now()  # where a watch has never worked; the clock may have begun long before
    metrics.report(catalogue.CACHE_LAG, by_kind(lambda status: clock.now() - max(status.last_heard, began)))
    metrics.report(catalogue.WATCH_EVENTS, by_kind(lambda status: status.events))
    metrics.report(catalogue.WATCH_BYTES, by_kind(lambda status: status.bytes_read))
    metrics.report(catalogue.WATCH_RESTARTS, restarts)
    metrics.report(catalogue.RELISTS, by_kind(lambda status: status.relists))
    metrics.report(catalogue.RELIST_CHANGES, reflectors.relist_changes)
    metrics.report(catalogue.DECODE_ERRORS, by_kind(lambda status: status.decode_errors))
    metrics.report(catalogue.KINDS_NOT_SERVED, by_kind(lambda status: status.not_served))
    metrics.report(catalogue.UNREADABLE_OBJECTS, by_kind(lambda status: status.unreadable))
