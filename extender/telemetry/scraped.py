"""Metrics whose values are read at each scrape, as a table: `Metrics.report` connects one to the part that counts.

So the code that counts does not depend on Prometheus, and no value is kept between two scrapes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

T = TypeVar("T", float, Mapping[str, float], Mapping[tuple[str, str], float])
Family = CounterMetricFamily | GaugeMetricFamily
ByLabel = Mapping[str, float]
ByTwoLabels = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class ScrapedMetric(Generic[T]):
    """One metric. Without labels its value is a number; with one or two it is a mapping from their values."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    def family(self) -> Family:
        """The metric without values."""
        made = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return made(self.name, self.text, labels=self.labels)


class ScrapedCollector(Collector):
    """Reads one metric at each scrape. Cost: one call of ``read``, O(its items)."""

    def __init__(self, family: Callable[[], Family], read: Callable[[], float | ByLabel | ByTwoLabels]) -> None:
        self._family = family
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        family, value = self._family(), self._read()
        if isinstance(value, Mapping):
            for key, each in value.items():
                family.add_metric([key] if isinstance(key, str) else key, each)
        else:
            family.add_metric((), value)
        yield family

    def describe(self) -> list[Metric]:
        """Called at registration, so that two metrics of one name are rejected without reading figures."""
        return [self._family()]


READY: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_ready", "1 if the readiness check passes, 0 if it fails.", ("check",)
)
REQUESTS_IN_FLIGHT: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_requests_in_flight", "Verb requests that are read or answered now."
)
TASK_RESTARTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_task_restarts", "Restarts of long-lived tasks after a failure.", ("task",), is_counter=True
)

# -- the index, and the watches that fill it

INDEX_ENTRIES: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_index_entries",
    "Entries in the index: objects by kind, and the groups and counts kept for them.",
    ("kind",),
)
PODS_OVER_LIMIT: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_pods_over_limit",
    "Existing and pending pods above a limit, by limit; offload mode rejects the pending ones.",
    ("limit",),
)
NAMESPACE_BUDGETS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_namespace_budget_used_ratio",
    "Share of each limit of limits.perNamespace that the constraints of a namespace use; the 10 namespaces that use most.",
    ("namespace", "limit"),
)
NAMESPACE_BUDGET_WAITS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_namespace_budget_waiting_pods",
    "Pods that wait for the budget of their namespace: the 10 namespaces with most such pods, and (others).",
    ("namespace",),
)
CACHE_LAG: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_cache_lag_seconds",
    "Seconds since the last event, bookmark or page of a resource; without events a bookmark comes every minute.",
    ("resource",),
)
RELIST_CHANGES: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_relist_changes",
    "Objects changed by a list after the first: changes that the watch missed, 0 in a healthy cluster.",
    ("resource",),
    is_counter=True,
)
WATCH_EVENTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_watch_events", "Watch events read.", ("resource",), is_counter=True
)
WATCH_BYTES: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_watch_bytes", "Bytes of lists and watches read.", ("resource",), is_counter=True
)
WATCH_RESTARTS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_watch_restarts", "Restarts of watches and lists, by reason.", ("resource", "reason"), is_counter=True
)
RELISTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_relists", "Lists after the first.", ("resource",), is_counter=True
)
DECODE_ERRORS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_decode_errors",
    "Objects and events from the API server that could not be decoded.",
    ("resource",),
    is_counter=True,
)
UNREADABLE_OBJECTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_unreadable_objects",
    "Objects whose last version cannot be decoded: they count as last decoded, or not at all.",
    ("resource",),
)
KINDS_NOT_SERVED: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_kind_not_served",
    "1 for a custom resource that the API server does not serve: its CRD is missing, and nothing of it is in effect.",
    ("resource",),
)
AUDIT_ROUNDS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_audit_rounds", "Complete recounts of the index by the audit.", is_counter=True
)
AUDIT_DIFFERENCES: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_audit_differences",
    "Counts of the index that differed from the audit's recount; each difference rebuilds the index.",
    is_counter=True,
)

# -- requests

REJECTION_CACHE_HITS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_rejection_cache_hits",
    "Rejections answered from the rejection cache, because the counts they depend on had not changed.",
    is_counter=True,
)
REJECTION_CACHE_BYTES: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_rejection_cache_bytes", "Size of the rejection cache."
)
ASSUMED_PODS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_assumed_pods",
    "Pods that filter let through and the watch does not show bound, by state: node known (the answer had one), "
    "undetermined (it had several), doubted (no binding within assumedPods.doubt).",
    ("state",),
)
ASSUMED_PODS_FORGOTTEN: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_assumed_pods_forgotten",
    "Assumed pods forgotten without a binding: expired, or failed as the scheduler reported.",
    ("reason",),
    is_counter=True,
)
SCHEDULER_DECISIONS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_scheduler_decisions",
    "Filter decisions by the scheduler of the pod (schedulerName) and result: passed, rejected or error; 32 schedulers, and (others).",
    ("scheduler", "result"),
    is_counter=True,
)
ASSUMED_POD_WAITS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_assumed_pod_waits", "Requests that waited for the node of an assumed pod.", is_counter=True
)
ASSUMED_POD_WAIT_TIMEOUTS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_assumed_pod_wait_timeouts",
    "Requests that waited for assumedPods.wait without a result, and then assumed the worst node of the pod.",
    is_counter=True,
)
POD_WAITS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_pod_waits",
    "Requests that waited for the watch to show their pod, or its newest constraints.",
    is_counter=True,
)
UNCONFIRMED_POD_REJECTIONS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_unconfirmed_pod_rejections",
    "Filter and preempt requests answered with an error because the watch shows no such pod to place.",
    ("reason",),
    is_counter=True,
)
REJECTED_POD_ACTIONS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_rejected_pod_actions",
    "Rejected pods nominated elsewhere, requeued, or decided again after a late event (recheck), by result; no_node: no node "
    "outside the sample passes.",
    ("action", "result"),
    is_counter=True,
)
REJECTION_EVENTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_rejection_events",
    "Pods that stayed rejected, by what became of their event: written, failed, repeated (the same text as before), "
    "suppressed (too many at once), outdated (placed meanwhile).",
    ("result",),
    is_counter=True,
)

POLICY_MISSES: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_policy_misses",
    "Pods that lacked what a policy directs when they were scheduled, by kind of policy and result: missed (admission "
    "should have injected it; scheduling held the pod to it), audited (the policy only audits), escaped (the pod has no "
    "gate, so it is placed alone and not with its group).",
    ("kind", "result"),
    is_counter=True,
)

# -- quotas

CROSS_NAMESPACE_PODS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_cross_namespace_pods",
    "Placed pods with affinity across namespaces, as the quota scope CrossNamespacePodAffinity counts them: the 10 "
    "namespaces with most, and (others).",
    ("namespace",),
)
CROSS_NAMESPACE_CLOSED_NODES: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_cross_namespace_closed_nodes",
    "Nodes that required anti-affinity across namespaces closes to pods of other namespaces; the 10 namespaces that close most.",
    ("namespace",),
)
QUOTAS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_quotas",
    "Quotas of the scope CrossNamespacePodAffinity by state: free; full; forbidding (a limit of 0 pods); without_number "
    "(limits no number of pods, so it covers none); inert (can charge no pod at all).",
    ("state",),
)
QUOTA_FINDINGS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_quota_findings",
    "Pods over a limit on affinity across namespaces, each once by limit and result: quota, default (no quota covers the "
    "pod), max_namespaces, topology_keys, consent, unread (too large to be read); rejected, or audited (only counted).",
    ("limit", "result"),
    is_counter=True,
)

# -- leader election and certificates

LEADER: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_leader", "1 if this replica is the leader, 0 if it stands by."
)
LEADER_GAP: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_leader_gap_seconds",
    "Seconds from the previous leader's last renewal to this replica's first answer; 0 without a takeover.",
)
LEADER_TERMS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_leader_terms", "How often this replica became the leader.", is_counter=True
)
CERTIFICATE_EXPIRY: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_certificate_expiry_timestamp_seconds",
    "Unix time at which a certificate in use expires; for client CAs, the earliest that is still valid.",
    ("name",),
)
CERTIFICATE_RELOADS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_certificate_reloads", "Reloads of changed certificate files, by result.", ("result",), is_counter=True
)
CERTIFICATE_FILES_UNUSABLE: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_certificate_files_unusable",
    "1 while the certificate files on disk are unusable, by cause; the previous ones stay in use.",
    ("cause",),
)

# -- the admission webhook

WEBHOOK_CERTIFICATE_EXPIRY: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_webhook_certificate_expiry_timestamp_seconds",
    "Unix time at which a certificate of the webhook expires: serving, or the newest authority of its own.",
    ("name",),
)
WEBHOOK_CERTIFICATE_ROTATIONS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_webhook_certificate_rotations",
    "Steps of the webhook's certificates: made, prepared, switched, pruned; restored: the Secret was deleted; failed: a "
    "problem that was logged.",
    ("step",),
    is_counter=True,
)
WEBHOOK_CONFIGURATION_REPAIRS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_webhook_configuration_repairs",
    "Writes to a webhook configuration that was not as the settings and the certificates require.",
    ("configuration",),
    is_counter=True,
)
WEBHOOK_CONFIGURATION_CORRECT: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_webhook_configuration_correct",
    "1 if the leader last found or made the webhook configuration as required, 0 if it could not, or on a standby.",
    ("configuration",),
)

POLICY_STATUS_WRITES: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_policy_status_writes",
    "Writes of the status of a policy by the leader, by result: written, failed.",
    ("result",),
    is_counter=True,
)
POLICY_EVENTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_policy_events",
    "Events about policies by the leader, by result: written, failed, suppressed (a repetition, or too many at once).",
    ("result",),
    is_counter=True,
)
MISSED_ADMISSION_EVENTS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_missed_admission_events",
    "Events by the leader about pods that admission missed, by result: written, failed, suppressed (too many at once).",
    ("result",),
    is_counter=True,
)

# -- the release of gated pods

RELEASE_GROUPS: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_release_groups",
    "Groups of gated pods that the leader releases, by phase and by what they wait for.",
    ("phase", "reason"),
)
RELEASE_OLDEST: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_release_oldest_wait_seconds",
    "How long the group of gated pods that waits longest has waited for its decision or for room; 0 where none waits.",
)
RELEASE_EXPECTATIONS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_release_expectations", "Pods whose release was sent and that the watch still shows as gated."
)
RELEASE_EXPECTATIONS_EXPIRED: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_release_expectations_expired",
    "Released pods that had to be read because the watch did not show the release in time.",
    is_counter=True,
)
RELEASE_FAILURES: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_release_failures",
    "Times that a group of gated pods could not be worked on because of a bug; it is tried again, and others go on.",
    is_counter=True,
)
RELEASE_ORPHANS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_release_orphans",
    "Pods with our gate that no policy releases any more: waiting, or released unpinned after release.orphanGrace.",
    ("state",),
)

# -- the recording

RECORDER_RECORDS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_recorder_records",
    "Records of questions and changes, by result: written, dropped (the queue was full, or the file could not be written).",
    ("result",),
    is_counter=True,
)
RECORDER_BYTES: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_recorder_bytes", "Bytes written to the files of the recording.", is_counter=True
)

# -- work for people

SLICED_WORK: Final[ScrapedMetric[ByTwoLabels]] = ScrapedMetric(
    "extender_sliced_work",
    "Explanations, pages and texts of events that were computed between the scheduler's requests, by outcome: done, unknown (no "
    "such pod or node), busy (enough others were wanted), too_expensive, abandoned (the client was gone), failed.",
    ("work", "outcome"),
    is_counter=True,
)
SLICED_WORK_SECONDS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_sliced_work_seconds",
    "Time of the event loop that explanations, pages and texts of events have taken.",
    ("work",),
    is_counter=True,
)

WHAT_IFS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_what_ifs",
    "What-ifs by outcome: done, busy (another was being computed), too_expensive (whatIf.seconds or whatIf.memory), invalid (the "
    "changes), abandoned (the client was gone), unavailable, failed.",
    ("outcome",),
    is_counter=True,
)
WHAT_IFS_RUNNING: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_what_ifs_running", "What-ifs that are computed now, in a child process: 0 or 1."
)
WHAT_IF_SECONDS: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_what_if_seconds",
    "Time from the fork of the child to its end, of all what-ifs that were computed.",
    is_counter=True,
)
DECISION_STREAMS: Final[ScrapedMetric[float]] = ScrapedMetric("extender_decision_streams", "Open streams of decisions.")
DECISION_STREAMS_REJECTED: Final[ScrapedMetric[float]] = ScrapedMetric(
    "extender_decision_streams_rejected",
    "Streams of decisions that were rejected because as many as are allowed (64) were open.",
    is_counter=True,
)

# -- preemption

PREEMPTIONS: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_preemptions",
    "Active preemptions by phase; stuck: the preemptor is pending preemption.stuckAfter after its victims are "
    "gone; to_requeue: the preemptor waits to be requeued.",
    ("phase",),
)
PREEMPTIONS_LEFT: Final[ScrapedMetric[ByLabel]] = ScrapedMetric(
    "extender_preemptions_left",
    "Preemptions that went back to the scheduler, by reason: unbound, unexplained or needless victims.",
    ("reason",),
    is_counter=True,
)
