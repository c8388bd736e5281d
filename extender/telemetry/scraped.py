"""Metrics whose values are read at each scrape, as a table: `Metrics.report` connects one to the part that counts.

So the code that counts does not depend on Prometheus, and no value is kept between two scrapes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Values = float | Mapping[str, float] | Mapping[tuple[str, str], float] | Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, slots=True)
class ScrapedMetric:
    """One metric by its series, as in a query: a counter's name ends in "_total", and its labels stand in braces.

    Without labels its value is a number; with one to three it is a mapping from their values.
    """

    series: str
    text: str

    @property
    def name(self) -> str:
        """Without labels."""
        return self.series.partition("{")[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """Their names."""
        inner = self.series.partition("{")[2].removesuffix("}")
        return tuple(inner.split(", ")) if inner else ()

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """The metric without values."""
        made = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return made(self.name, self.text, labels=self.labels)


class ScrapedCollector(Collector):
    """Reads one metric at each scrape. Cost: one call of ``read``, O(its items)."""

    def __init__(self, metric: ScrapedMetric, read: Callable[[], Values]) -> None:
        self._metric = metric
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        family, value = self._metric.family(), self._read()
        for key, each in value.items() if isinstance(value, Mapping) else (((), value),):
            labels = (key,) if isinstance(key, str) else key
            if len(labels) != len(self._metric.labels):
                raise ValueError(f"{self._metric.series}: got {labels}")
            family.add_metric(labels, each)
        yield family

    def describe(self) -> list[Metric]:
        """Called at registration, so that two metrics of one name are rejected without reading figures."""
        return [self._metric.family()]


READY: Final = ScrapedMetric("extender_ready{check}", "1 if the readiness check passes, 0 if it fails.")
REQUESTS_IN_FLIGHT: Final = ScrapedMetric("extender_requests_in_flight", "Verb requests that are read or answered now.")
TASK_RESTARTS: Final = ScrapedMetric(
    "extender_task_restarts_total{task}",
    "Restarts of long-lived tasks after a failure.",
)

# -- the index, and the watches that fill it

INDEX_ENTRIES: Final = ScrapedMetric(
    "extender_index_entries{kind}",
    "Entries in the index: objects by kind, and the groups and counts kept for them.",
)
PODS_OVER_LIMIT: Final = ScrapedMetric(
    "extender_pods_over_limit{limit}",
    "Existing and pending pods above a limit, by limit; offload mode rejects the pending ones.",
)
NAMESPACE_BUDGETS: Final = ScrapedMetric(
    "extender_namespace_budget_used_ratio{namespace, limit}",
    "Share of each limit of limits.perNamespace that the constraints of a namespace use; the 10 namespaces that use most.",
)
NAMESPACE_BUDGET_WAITS: Final = ScrapedMetric(
    "extender_namespace_budget_waiting_pods{namespace}",
    "Pods that wait for the budget of their namespace: the 10 namespaces with most such pods, and (others).",
)
CACHE_LAG: Final = ScrapedMetric(
    "extender_cache_lag_seconds{resource}",
    "Seconds since the last event, bookmark or page of a resource, or since the start; without events a bookmark comes every minute.",
)
RELIST_CHANGES: Final = ScrapedMetric(
    "extender_relist_changes_total{resource}",
    "Objects changed by a list after the first: changes that the watch missed, 0 in a healthy cluster.",
)
WATCH_EVENTS: Final = ScrapedMetric("extender_watch_events_total{resource}", "Watch events read.")
WATCH_BYTES: Final = ScrapedMetric("extender_watch_bytes_total{resource}", "Bytes of lists and watches read.")
WATCH_RESTARTS: Final = ScrapedMetric(
    "extender_watch_restarts_total{resource, reason}",
    "Restarts of watches and lists, by reason.",
)
RELISTS: Final = ScrapedMetric("extender_relists_total{resource}", "Lists after the first.")
DECODE_ERRORS: Final = ScrapedMetric(
    "extender_decode_errors_total{resource}",
    "Objects and events from the API server that could not be decoded.",
)
UNREADABLE_OBJECTS: Final = ScrapedMetric(
    "extender_unreadable_objects{resource}",
    "Objects whose last version cannot be decoded: they count as last decoded, or not at all.",
)
KINDS_NOT_SERVED: Final = ScrapedMetric(
    "extender_kind_not_served{resource}",
    "1 for a custom resource that the API server does not serve: its CRD is missing, and nothing of it is in effect.",
)
AUDIT_ROUNDS: Final = ScrapedMetric("extender_audit_rounds_total", "Complete recounts of the index by the audit.")
AUDIT_DIFFERENCES: Final = ScrapedMetric(
    "extender_audit_differences_total",
    "Counts of the index that differed from the audit's recount; each difference rebuilds the index.",
)

EXCLUDED_DOMAINS: Final = ScrapedMetric(
    "extender_excluded_topology_domains{reason}",
    "Topology domains that spread constraints leave out by policies: unavailable (no node takes pods) or operator.",
)

DELETION_COSTS: Final = ScrapedMetric(
    "extender_deletion_cost_writes_total{result}",
    "Writes of pod-deletion-cost by the leader where policies direct it, by result: written, removed, failed.",
)

SPREAD_SKEW: Final = ScrapedMetric(
    "extender_spread_skew{namespace, workload, topology_key}",
    "Skew of a workload whose hard spread constraint a policy directs, without domains that are left out; 100 "
    "workloads, of each namespace in turn those furthest above maxSkew.",
)
SPREAD_MAX_SKEW: Final = ScrapedMetric(
    "extender_spread_max_skew{namespace, workload, topology_key}",
    "maxSkew of the constraint that extender_spread_skew is measured for, of the same 100 workloads.",
)
SPREAD_WORKLOADS: Final = ScrapedMetric(
    "extender_spread_workloads{state}",
    "Workloads whose hard spread constraints policies direct, by skew: within or above maxSkew, or not_looked_at.",
)

# -- requests

REJECTION_CACHE_HITS: Final = ScrapedMetric(
    "extender_rejection_cache_hits_total",
    "Rejections answered from the rejection cache, because the counts they depend on had not changed.",
)
REJECTION_CACHE_BYTES: Final = ScrapedMetric("extender_rejection_cache_bytes", "Size of the rejection cache.")
RULE_EVALUATIONS: Final = ScrapedMetric(
    "extender_plugin_evaluation_total{plugin, extension_point, verb}",
    "Evaluations of rules by rule, extension point (Filter, Score, PostFilter: preemption) and verb. Answers from the rejection "
    "cache evaluate none.",
)
CONSTRAINT_FIELDS: Final = ScrapedMetric(
    "extender_evaluated_constraints_total{field}",
    "Constraints of pods that filter decided by the optional field that they have: minDomains (above 1), namespaceSelector.",
)
SHADOW_DECISIONS: Final = ScrapedMetric(
    "extender_shadow_decisions_total{source, result}",
    "Decisions of kube-scheduler's own plugins beside those of offload (shadow: true), by what shows them (request, condition) and "
    "result: agreed, assumed or late (an assumed pod or a late watch explains it), differed, unproven (only a request says that it "
    "differs); not compared: unconfirmed (no outcome was seen), unconstrained, skipped.",
)
SHADOW_RULES: Final = ScrapedMetric(
    "extender_shadow_rule_decisions_total{rule, result}",
    "The compared decisions of shadow: true that a rule had something to say about, by rule and result.",
)
SHADOW_SECONDS: Final = ScrapedMetric(
    "extender_shadow_seconds_total",
    "Seconds of the event loop that shadow decisions took, after the answers.",
)
ASSUMED_PODS: Final = ScrapedMetric(
    "extender_assumed_pods{state}",
    "Pods that filter let through and the watch does not show bound, by state: node known (the answer had one), "
    "undetermined (it had several), doubted (no binding within assumedPods.doubt).",
)
ASSUMED_PODS_FORGOTTEN: Final = ScrapedMetric(
    "extender_assumed_pods_forgotten_total{reason}",
    "Assumed pods forgotten without a binding: expired, or failed as the scheduler reported.",
)
SCHEDULER_DECISIONS: Final = ScrapedMetric(
    "extender_scheduler_decisions_total{scheduler, result}",
    "Filter decisions by the scheduler of the pod (schedulerName) and result: passed, rejected or error; 32 schedulers, and (others).",
)
ASSUMED_POD_WAITS: Final = ScrapedMetric(
    "extender_assumed_pod_waits_total",
    "Requests that waited for the node of an assumed pod.",
)
ASSUMED_POD_WAIT_TIMEOUTS: Final = ScrapedMetric(
    "extender_assumed_pod_wait_timeouts_total",
    "Requests that waited for assumedPods.wait without a result, and then assumed the worst node of the pod.",
)
POD_WAITS: Final = ScrapedMetric(
    "extender_pod_waits_total",
    "Requests that waited for the watch to show their pod, or its newest constraints.",
)
UNCONFIRMED_POD_REJECTIONS: Final = ScrapedMetric(
    "extender_unconfirmed_pod_rejections_total{reason}",
    "Filter and preempt requests answered with an error because the watch shows no such pod to place.",
)
REJECTED_POD_ACTIONS: Final = ScrapedMetric(
    "extender_rejected_pod_actions_total{action, result}",
    "Rejected pods nominated elsewhere, requeued, or decided again after a late event (recheck), by result; no_node: no node "
    "outside the sample passes.",
)
REJECTION_EVENTS: Final = ScrapedMetric(
    "extender_rejection_events_total{result}",
    "Pods that stayed rejected, by what became of their event: written, failed, repeated (the same text as before), "
    "suppressed (too many at once), outdated (placed meanwhile).",
)
POLICY_MISSES: Final = ScrapedMetric(
    "extender_policy_misses_total{kind, result}",
    "Pods that lacked what a policy directs when they were scheduled, by kind of policy and result: missed (admission "
    "should have injected it; scheduling held the pod to it), audited (the policy only audits), escaped (the pod has no "
    "gate, so it is placed alone and not with its group).",
)

# -- quotas

CROSS_NAMESPACE_PODS: Final = ScrapedMetric(
    "extender_cross_namespace_pods{namespace}",
    "Placed pods with affinity across namespaces, as the quota scope CrossNamespacePodAffinity counts them: the 10 "
    "namespaces with most, and (others).",
)
CROSS_NAMESPACE_CLOSED_NODES: Final = ScrapedMetric(
    "extender_cross_namespace_closed_nodes{namespace}",
    "Nodes that required anti-affinity across namespaces closes to pods of other namespaces; the 10 namespaces that close most.",
)
QUOTAS: Final = ScrapedMetric(
    "extender_quotas{state}",
    "Quotas of the scope CrossNamespacePodAffinity by state: free; full; forbidding (a limit of 0 pods); without_number "
    "(limits no number of pods, so it covers none); inert (can charge no pod at all).",
)
QUOTA_FINDINGS: Final = ScrapedMetric(
    "extender_quota_findings_total{limit, result}",
    "Pods over a limit on affinity across namespaces, each once by limit and result: quota, default (no quota covers the "
    "pod), max_namespaces, topology_keys, consent, unread (too large to be read); rejected, or audited (only counted).",
)

# -- leader election and certificates

LEADER: Final = ScrapedMetric("extender_leader", "1 if this replica is the leader, 0 if it stands by.")
LEADER_GAP: Final = ScrapedMetric(
    "extender_leader_gap_seconds",
    "Seconds from the previous leader's last renewal to this replica's first answer; 0 without a takeover.",
)
LEADER_TERMS: Final = ScrapedMetric("extender_leader_terms_total", "How often this replica became the leader.")
CERTIFICATE_EXPIRY: Final = ScrapedMetric(
    "extender_certificate_expiry_timestamp_seconds{name}",
    "Unix time at which a certificate in use expires; for client CAs, the earliest that is still valid.",
)
CERTIFICATE_RELOADS: Final = ScrapedMetric(
    "extender_certificate_reloads_total{result}",
    "Reloads of changed certificate files, by result.",
)
CERTIFICATE_FILES_UNUSABLE: Final = ScrapedMetric(
    "extender_certificate_files_unusable{cause}",
    "1 while the certificate files on disk are unusable, by cause; the previous ones stay in use.",
)

# -- the admission webhook

WEBHOOK_CERTIFICATE_EXPIRY: Final = ScrapedMetric(
    "extender_webhook_certificate_expiry_timestamp_seconds{name}",
    "Unix time at which a certificate of the webhook expires: serving, or the newest authority of its own.",
)
WEBHOOK_CERTIFICATE_ROTATIONS: Final = ScrapedMetric(
    "extender_webhook_certificate_rotations_total{step}",
    "Steps of the webhook's certificates: made, prepared, switched, pruned; restored: the Secret was deleted; failed: a "
    "problem that was logged.",
)
WEBHOOK_CONFIGURATION_REPAIRS: Final = ScrapedMetric(
    "extender_webhook_configuration_repairs_total{configuration}",
    "Writes to a webhook configuration that was not as the settings and the certificates require.",
)
WEBHOOK_CONFIGURATION_CORRECT: Final = ScrapedMetric(
    "extender_webhook_configuration_correct{configuration}",
    "1 if the leader last found or made the webhook configuration as required, 0 if it could not, or on a standby.",
)
POLICY_STATUS_WRITES: Final = ScrapedMetric(
    "extender_policy_status_writes_total{result}",
    "Writes of the status of a policy by the leader, by result: written, failed.",
)
POLICY_EVENTS: Final = ScrapedMetric(
    "extender_policy_events_total{result}",
    "Events about policies by the leader, by result: written, failed, suppressed (a repetition, or too many at once).",
)
MISSED_ADMISSION_EVENTS: Final = ScrapedMetric(
    "extender_missed_admission_events_total{result}",
    "Events by the leader about pods that admission missed, by result: written, failed, suppressed (too many at once).",
)

# -- the release of gated pods

RELEASE_GROUPS: Final = ScrapedMetric(
    "extender_release_groups{phase, reason}",
    "Groups of gated pods that the leader releases, by phase and by what they wait for.",
)
RELEASE_OLDEST: Final = ScrapedMetric(
    "extender_release_oldest_wait_seconds",
    "How long the group of gated pods that waits longest has waited for its decision or for room; 0 where none waits.",
)
RELEASE_EXPECTATIONS: Final = ScrapedMetric(
    "extender_release_expectations",
    "Pods whose release was sent and that the watch still shows as gated.",
)
RELEASE_EXPECTATIONS_EXPIRED: Final = ScrapedMetric(
    "extender_release_expectations_expired_total",
    "Released pods that had to be read because the watch did not show the release in time.",
)
RELEASE_FAILURES: Final = ScrapedMetric(
    "extender_release_failures_total",
    "Times that a group of gated pods could not be worked on because of a bug; it is tried again, and others go on.",
)
RELEASE_ORPHANS: Final = ScrapedMetric(
    "extender_release_orphans{state}",
    "Pods with our gate that no policy releases any more: waiting, or released unpinned after release.orphanGrace.",
)

# -- the recording

RECORDER_RECORDS: Final = ScrapedMetric(
    "extender_recorder_records_total{result}",
    "Records of questions and changes, by result: written, dropped (the queue was full, or the file could not be written).",
)
RECORDER_BYTES: Final = ScrapedMetric("extender_recorder_bytes_total", "Bytes written to the files of the recording.")

# -- work for people

SLICED_WORK: Final = ScrapedMetric(
    "extender_sliced_work_total{work, outcome}",
    "Explanations, pages and texts of events that were computed between the scheduler's requests, by outcome: done, unknown (no "
    "such pod or node), busy (enough others were wanted), too_expensive, abandoned (the client was gone), failed.",
)
SLICED_WORK_SECONDS: Final = ScrapedMetric(
    "extender_sliced_work_seconds_total{work}",
    "Time of the event loop that explanations, pages and texts of events have taken.",
)
WHAT_IFS: Final = ScrapedMetric(
    "extender_what_ifs_total{outcome}",
    "What-ifs by outcome: done, busy (another was being computed), too_expensive (whatIf.seconds or whatIf.memory), invalid (the "
    "changes), abandoned (the client was gone), unavailable, failed.",
)
WHAT_IFS_RUNNING: Final = ScrapedMetric(
    "extender_what_ifs_running",
    "What-ifs that are computed now, in a child process: 0 or 1.",
)
WHAT_IF_SECONDS: Final = ScrapedMetric(
    "extender_what_if_seconds_total",
    "Time from the fork of the child to its end, of all what-ifs that were computed.",
)
DECISION_STREAMS: Final = ScrapedMetric("extender_decision_streams", "Open streams of decisions.")
DECISION_STREAMS_REJECTED: Final = ScrapedMetric(
    "extender_decision_streams_rejected_total",
    "Streams of decisions that were rejected because as many as are allowed (64) were open.",
)

# -- preemption

PREEMPTIONS: Final = ScrapedMetric(
    "extender_preemptions{phase}",
    "Active preemptions by phase; stuck: the preemptor is pending preemption.stuckAfter after its victims are "
    "gone; to_requeue: the preemptor waits to be requeued.",
)
PREEMPTIONS_LEFT: Final = ScrapedMetric(
    "extender_preemptions_left_total{reason}",
    "Preemptions that went back to the scheduler, by reason: unbound, unexplained or needless victims.",
)
