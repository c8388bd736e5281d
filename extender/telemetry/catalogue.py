"""The table of all metrics of the service: name, labels, kind, help text, buckets, and how a scrape gets the value.

The scrape, `config/reference/metrics.md` and the checks of dashboards, rules and alerts follow from it. Label values are bounded:
verbs, status codes, kinds and closed sets of reasons, never the name of a pod, node, group or policy. Metrics of preemption have
the names of KEP-4832 with the prefix `extender_`.
"""

from typing import Final

from extender.telemetry.metric_declaration import MetricDeclaration, Source, counter, exponential, gauge, histogram

# 0.1 ms to 1.6 s; kube-scheduler's histograms of the same calls start at 1 ms
_SECONDS: Final = exponential(0.0001, 2, 15)
# 256 B to 64 MiB: from an answer with one name to a request with 5,000 whole nodes
_BYTES: Final = exponential(256, 4, 10)
_NODES: Final = (0, 1, 5, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
# 10 us to 0.3 s, with the objective of KEP-3022 as a bound; kube-scheduler's of the same name ends at 22 ms
_RULE_SECONDS: Final = tuple(sorted({0.1, *exponential(0.00001, 2, 16)}))
_SCHEDULING_SECONDS: Final = exponential(0.01, 2, 20)  # as kube-scheduler's
_ATTEMPTS: Final = exponential(1, 2, 5)  # as kube-scheduler's
# 0.1 ms to 6.6 s; the API server waits 10 s. 10 ms and 50 ms are the aims for a usual and for the worst review.
_REVIEW_SECONDS: Final = tuple(sorted({0.01, 0.05, *exponential(0.0001, 2, 17)}))
_VICTIMS: Final = (0, 1, 2, 4, 8, 16, 32, 64)
_PREEMPTION_SECONDS: Final = exponential(0.01, 2, 15)  # 10 ms to 164 s: from one write to a long grace period
_DECISION_SECONDS: Final = exponential(0.0005, 2, 12)  # 0.5 ms to 1 s
_WAIT_SECONDS: Final = exponential(0.1, 2, 16)  # 0.1 s to an hour

# -- the service

BUILD: Final = gauge(
    "extender_build_info{python_version, version}", "Version of the extender and of its Python interpreter."
)
CONFIG: Final = gauge("extender_config_info{mode, placement}", "Mode and placement, which other metrics depend on.")
READY: Final = gauge("extender_ready{check}", "1 if the readiness check passes, 0 if it fails.")
REQUESTS_IN_FLIGHT: Final = gauge("extender_requests_in_flight", "Verb requests that are read or answered now.")
TASK_RESTARTS: Final = counter(
    "extender_task_restarts_total{task}",
    "Restarts of long-lived tasks after a failure.",
)

# -- the index, and the watches that fill it

INDEX_ENTRIES: Final = gauge(
    "extender_index_entries{kind}",
    "Entries in the index: objects by kind, and the groups and counts kept for them.",
)
PODS_OVER_LIMIT: Final = gauge(
    "extender_pods_over_limit{limit}",
    "Existing and pending pods above a limit, by limit; offload mode rejects the pending ones.",
)
NAMESPACE_BUDGETS: Final = gauge(
    "extender_namespace_budget_used_ratio{pod_namespace, limit}",
    "Share of each limit of limits.perNamespace that the constraints of a namespace use; the 10 namespaces that use most.",
)
NAMESPACE_BUDGET_WAITS: Final = gauge(
    "extender_namespace_budget_waiting_pods{pod_namespace}",
    "Pods that wait for the budget of their namespace: the 10 namespaces with most such pods, and (others).",
)
CACHE_LAG: Final = gauge(
    "extender_cache_lag_seconds{resource}",
    "Seconds since the last event, bookmark or page of a resource, or since the start; without events a bookmark comes every minute.",
)
RELIST_CHANGES: Final = counter(
    "extender_relist_changes_total{resource}",
    "Objects changed by a list after the first: changes that the watch missed, 0 in a healthy cluster.",
)
WATCH_EVENTS: Final = counter("extender_watch_events_total{resource}", "Watch events read.")
WATCH_BYTES: Final = counter("extender_watch_bytes_total{resource}", "Bytes of lists and watches read.")
WATCH_RESTARTS: Final = counter(
    "extender_watch_restarts_total{resource, reason}",
    "Restarts of watches and lists, by reason.",
)
RELISTS: Final = counter("extender_relists_total{resource}", "Lists after the first.")
DECODE_ERRORS: Final = counter(
    "extender_decode_errors_total{resource}",
    "Objects and events from the API server that could not be decoded.",
)
UNREADABLE_OBJECTS: Final = gauge(
    "extender_unreadable_objects{resource}",
    "Objects whose last version cannot be decoded: they count as last decoded, or not at all.",
)
KINDS_NOT_SERVED: Final = gauge(
    "extender_kind_not_served{resource}",
    "1 for a custom resource that the API server does not serve: its CRD is missing, and nothing of it is in effect.",
)
API_SERVER_LACKS: Final = gauge(
    "extender_apiserver_lacks{feature, version}",
    "1 if the API server of this version lacks what a feature in use needs: the feature is without effect, or limited; else 0.",
)
AUDIT_ROUNDS: Final = counter("extender_audit_rounds_total", "Complete recounts of the index by the audit.")
AUDIT_DIFFERENCES: Final = counter(
    "extender_audit_differences_total",
    "Counts of the index that differed from the audit's recount; each difference rebuilds the index.",
)

EXCLUDED_DOMAINS: Final = gauge(
    "extender_excluded_topology_domains{reason}",
    "Topology domains that spread constraints leave out by policies: unavailable (no node takes pods) or operator.",
)

DELETION_COSTS: Final = counter(
    "extender_deletion_cost_writes_total{result}",
    "Writes of pod-deletion-cost by the leader where policies direct it, by result: written, removed, failed.",
)

SPREAD_SKEW: Final = gauge(
    "extender_spread_skew{pod_namespace, workload, topology_key}",
    "Skew of a workload whose hard spread constraint a policy directs, without domains that are left out; 100 "
    "workloads, of each namespace in turn those furthest above maxSkew.",
)
SPREAD_MAX_SKEW: Final = gauge(
    "extender_spread_max_skew{pod_namespace, workload, topology_key}",
    "maxSkew of the constraint that extender_spread_skew is measured for, of the same 100 workloads.",
)
SPREAD_WORKLOADS: Final = gauge(
    "extender_spread_workloads{state}",
    "Workloads whose hard spread constraints policies direct, by skew: within or above maxSkew, or not_looked_at.",
)

EXECUTION_BROKEN: Final = gauge(
    "extender_execution_broken{constraint}",
    "What is broken of running pods that policies with `when: [Execution]` watch, by kind of constraint: pods above the "
    "limit of a domain, pairs of pods that exclude each other, pods whose affinity does not hold.",
)
EXECUTION_PHI: Final = gauge(
    "extender_execution_phi", "The sum of what is broken of running pods. Each move of a pod lowers it."
)
MOVES: Final = counter(
    "extender_moves_total{result}",
    "Moves of pods whose constraints were broken, by result: completed, in_vain (the replacement is broken too), refused (by "
    "a disruption budget), failed, not_replaced, not_ready.",
)
MOVE_SECONDS: Final = histogram(
    "extender_move_duration_seconds",
    "Time of a move, from the decision until the replacement is ready or the move is given up.",
    _SCHEDULING_SECONDS,
    Source.STATE,
)

# -- requests

REQUESTS: Final = counter("extender_requests_total{verb, code}", "Requests answered, by HTTP status.", Source.REQUEST)
REQUEST_FAILURES: Final = counter(
    "extender_request_failures_total{verb, reason}",
    "Requests answered with an error, by reason; errors of filter have HTTP status 200.",
    Source.REQUEST,
)
REQUESTS_BY_FORM: Final = counter(
    "extender_requests_by_form_total{verb, form}",
    "Decoded requests by the form of their nodes: names, or whole nodes (nodeCacheCapable false).",
    Source.REQUEST,
)
REQUEST_SECONDS: Final = histogram(
    "extender_request_duration_seconds{verb}",
    "Time from the request's header until the answer is ready to be sent.",
    _SECONDS,
    Source.REQUEST,
)
REQUEST_BYTES: Final = histogram("extender_request_bytes{verb}", "Size of request bodies.", _BYTES, Source.REQUEST)
RESPONSE_BYTES: Final = histogram("extender_response_bytes{verb}", "Size of answers.", _BYTES, Source.REQUEST)
REQUEST_NODES: Final = histogram(
    "extender_request_nodes{verb}",
    "Nodes in a request; for preempt, candidate nodes.",
    _NODES,
    Source.REQUEST,
)
LAST_REQUEST: Final = gauge(
    "extender_last_request_timestamp_seconds{verb}",
    "Unix time of the last answer, 0 before the first.",
    Source.REQUEST,
)
LAST_DECISION: Final = gauge(
    "extender_last_decision_timestamp_seconds{verb}",
    "Unix time of the last request decided without an error, 0 before the first.",
    Source.REQUEST,
)
LAST_FAILURE: Final = gauge(
    "extender_last_failure_timestamp_seconds{verb, reason}",
    "Unix time of the last request answered with an error, by reason.",
    Source.REQUEST,
)
FILTER_REJECTIONS: Final = counter(
    "extender_filter_rejections_total{reason}",
    "Filter answers in which no node passed, counted once for each reason in the answer.",
    Source.REQUEST,
)
FILTER_PASSED_NODES: Final = histogram(
    "extender_filter_passed_nodes", "Nodes named in a filter answer.", _NODES, Source.REQUEST
)
RULE_SECONDS: Final = histogram(
    "extender_plugin_execution_duration_seconds{plugin, extension_point}",
    "Processor time of a rule in one decision, by rule and extension point (Filter, Score, PostFilter: preemption); one "
    "decision in 101 is timed.",
    _RULE_SECONDS,
    Source.REQUEST,
)
SCHEDULING_SECONDS: Final = histogram(
    "extender_pod_scheduling_duration_seconds",
    "Time from the creation of a pod to its binding, of pods that this replica let pass. Creation times have no fractions "
    "of a second.",
    _SCHEDULING_SECONDS,
    Source.REQUEST,
)
SCHEDULING_ATTEMPTS: Final = histogram(
    "extender_pod_scheduling_attempts", "Filter requests about a pod until it was bound.", _ATTEMPTS, Source.REQUEST
)
FALLBACKS: Final = counter(
    "extender_fallbacks_total{verb, reason, answer}",
    "Answers without a decision: the watched data was stale, or server.requestTimeout was over.",
    Source.ACTION,
)
REJECTION_CACHE_HITS: Final = counter(
    "extender_rejection_cache_hits_total",
    "Rejections answered from the rejection cache, because the counts they depend on had not changed.",
)
REJECTION_CACHE_BYTES: Final = gauge("extender_rejection_cache_bytes", "Size of the rejection cache.")
RULE_EVALUATIONS: Final = counter(
    "extender_plugin_evaluation_total{plugin, extension_point, verb}",
    "Evaluations of rules by rule, extension point (Filter, Score, PostFilter: preemption) and verb. Answers from the rejection "
    "cache evaluate none.",
)
CONSTRAINT_FIELDS: Final = counter(
    "extender_evaluated_constraints_total{field}",
    "Constraints of pods that filter decided by the optional field that they have: minDomains (above 1), namespaceSelector.",
)
SHADOW_DECISIONS: Final = counter(
    "extender_shadow_decisions_total{source, result}",
    "Decisions of kube-scheduler's own plugins that were compared with offload (shadow: true), by source (request, condition) and "
    "result: agreed, assumed or late (an assumed pod or a late watch explains the difference), differed, unproven (only a request shows "
    "the difference); not compared: unconfirmed (no outcome was seen), unconstrained, skipped.",
)
SHADOW_RULES: Final = counter(
    "extender_shadow_rule_decisions_total{rule, result}",
    "The compared decisions of shadow: true that a rule had something to say about, by rule and result.",
)
SHADOW_SECONDS: Final = counter(
    "extender_shadow_seconds_total",
    "Seconds of the event loop that shadow decisions took, after the answers.",
)
ASSUMED_PODS: Final = gauge(
    "extender_assumed_pods{state}",
    "Pods that filter let through and the watch does not show bound, by state: node known (the answer had one), "
    "undetermined (it had several), doubted (no binding within assumedPods.doubt).",
)
ASSUMED_PODS_FORGOTTEN: Final = counter(
    "extender_assumed_pods_forgotten_total{reason}",
    "Assumed pods forgotten without a binding: expired, or failed as the scheduler reported.",
)
SCHEDULER_DECISIONS: Final = counter(
    "extender_scheduler_decisions_total{scheduler, result}",
    "Filter decisions by the scheduler of the pod (schedulerName) and result: passed, rejected or error; 32 schedulers, and (others).",
)
PENDING_PODS: Final = gauge(
    "extender_pending_pods{reason, scheduler}",
    "Pods without a node, by what keeps them from most nodes and by scheduler (schedulerName): reasons of filter, "
    "volumes, not_tried, scheduler_error, other, and the states gated, assumed, preempting, terminating; the 32 "
    "schedulers with most, and (others). Counted every 10 s.",
)
PENDING_POD_AGE: Final = gauge(
    "extender_pending_pod_oldest_age_seconds{reason, scheduler}",
    "Age of the oldest pod of extender_pending_pods.",
)
ASSUMED_POD_WAITS: Final = counter(
    "extender_assumed_pod_waits_total",
    "Requests that waited for the node of an assumed pod.",
)
ASSUMED_POD_WAIT_TIMEOUTS: Final = counter(
    "extender_assumed_pod_wait_timeouts_total",
    "Requests that waited for assumedPods.wait without a result, and then assumed the worst node of the pod.",
)
POD_WAITS: Final = counter(
    "extender_pod_waits_total",
    "Requests that waited for the watch to show their pod, or its newest constraints.",
)
UNCONFIRMED_POD_REJECTIONS: Final = counter(
    "extender_unconfirmed_pod_rejections_total{reason}",
    "Filter and preempt requests answered with an error because the watch shows no such pod to place.",
)
REJECTED_POD_ACTIONS: Final = counter(
    "extender_rejected_pod_actions_total{action, result}",
    "Rejected pods nominated elsewhere, requeued, or decided again after a late event (recheck), by result; no_node: no node "
    "outside the sample passes.",
)
REJECTION_EVENTS: Final = counter(
    "extender_rejection_events_total{result}",
    "Pods that stayed rejected, by what became of their event: written, failed, repeated (the same text as before), "
    "suppressed (too many at once), outdated (placed meanwhile).",
)
POLICY_MISSES: Final = counter(
    "extender_policy_misses_total{kind, result}",
    "Pods that lacked what a policy directs when they were scheduled, by kind of policy and result: missed (admission "
    "should have injected it; scheduling held the pod to it), audited (the policy only audits), escaped (the pod has no "
    "gate, so it is placed alone and not with its group).",
)

# -- quotas

CROSS_NAMESPACE_PODS: Final = gauge(
    "extender_cross_namespace_pods{pod_namespace}",
    "Placed pods with affinity across namespaces, as the quota scope CrossNamespacePodAffinity counts them: the 10 "
    "namespaces with most, and (others).",
)
CROSS_NAMESPACE_CLOSED_NODES: Final = gauge(
    "extender_cross_namespace_closed_nodes{pod_namespace}",
    "Nodes that required anti-affinity across namespaces closes to pods of other namespaces; the 10 namespaces that close most.",
)
QUOTAS: Final = gauge(
    "extender_quotas{state}",
    "Quotas of the scope CrossNamespacePodAffinity by state: free; full; forbidding (a limit of 0 pods); without_number "
    "(limits no number of pods, so it covers none); inert (can charge no pod at all).",
)
QUOTA_FINDINGS: Final = counter(
    "extender_quota_findings_total{limit, result}",
    "Pods over a limit on affinity across namespaces, each once by limit and result: quota, default (no quota covers the "
    "pod), max_namespaces, topology_keys, consent, unread (too large to be read); rejected, or audited (only counted).",
)

# -- leader election and certificates

LEADER: Final = gauge("extender_leader", "1 if this replica is the leader, 0 if it stands by.")
LEADER_GAP: Final = gauge(
    "extender_leader_gap_seconds",
    "Seconds from the previous leader's last renewal to this replica's first answer; 0 without a takeover.",
)
LEADER_TERMS: Final = counter("extender_leader_terms_total", "How often this replica became the leader.")
CERTIFICATE_EXPIRY: Final = gauge(
    "extender_certificate_expiry_timestamp_seconds{name}",
    "Unix time at which a certificate in use expires; for client CAs, the earliest that is still valid.",
)
CERTIFICATE_RELOADS: Final = counter(
    "extender_certificate_reloads_total{result}",
    "Reloads of changed certificate files, by result.",
)
CERTIFICATE_FILES_UNUSABLE: Final = gauge(
    "extender_certificate_files_unusable{cause}",
    "1 while the certificate files on disk are unusable, by cause; the previous ones stay in use.",
)

# -- the admission webhook

REVIEWS: Final = counter(
    "extender_admission_reviews_total{webhook, kind, result}",
    "Admission reviews by webhook, kind of object and result; other stands for kinds of custom resources.",
    Source.ACTION,
)
REVIEW_SECONDS: Final = histogram(
    "extender_admission_duration_seconds{webhook}",
    "Time from the head of an admission review to its answer.",
    _REVIEW_SECONDS,
    Source.ACTION,
)
POLICY_APPLICATIONS: Final = counter(
    "extender_policy_applications_total{kind, result}",
    "Policies that selected an object at admission, by kind of policy and result: applied, unchanged (the "
    "object had it all), conflict, failed.",
    Source.ACTION,
)
WEBHOOK_CERTIFICATE_EXPIRY: Final = gauge(
    "extender_webhook_certificate_expiry_timestamp_seconds{name}",
    "Unix time at which a certificate of the webhook expires: serving, or the newest authority of its own.",
)
WEBHOOK_CERTIFICATE_ROTATIONS: Final = counter(
    "extender_webhook_certificate_rotations_total{step}",
    "Steps of the webhook's certificates: made, prepared, switched, pruned; restored: the Secret was deleted; failed: a "
    "problem that was logged.",
)
WEBHOOK_CONFIGURATION_REPAIRS: Final = counter(
    "extender_webhook_configuration_repairs_total{configuration}",
    "Writes to a webhook configuration that was not as the settings and the certificates require.",
)
WEBHOOK_CONFIGURATION_CORRECT: Final = gauge(
    "extender_webhook_configuration_correct{configuration}",
    "1 if the leader last found or made the webhook configuration as required, 0 if it could not, or on a standby.",
)
POLICY_STATUS_WRITES: Final = counter(
    "extender_policy_status_writes_total{result}",
    "Writes of the status of a policy by the leader, by result: written, failed.",
)
POLICY_EVENTS: Final = counter(
    "extender_policy_events_total{result}",
    "Events about policies by the leader, by result: written, failed, suppressed (a repetition, or too many at once).",
)
MISSED_ADMISSION_EVENTS: Final = counter(
    "extender_missed_admission_events_total{result}",
    "Events by the leader about pods that admission missed, by result: written, failed, suppressed (too many at once).",
)

# -- the release of gated pods

RELEASE_DECISION_SECONDS: Final = histogram(
    "extender_release_decision_seconds{result}",
    "Time to find a domain for a group of gated pods, by result.",
    _DECISION_SECONDS,
    Source.ACTION,
)
RELEASE_PATCHES: Final = counter(
    "extender_release_patches_total{result}",
    "Releases of gated pods, by result. refused: the API server would refuse it again (422); unknown: no usable answer.",
    Source.ACTION,
)
RELEASE_TIMEOUTS: Final = counter(
    "extender_release_timeouts_total{action}",
    "Groups of gated pods whose time was over, by the last action of `noRoom` of the policy.",
    Source.ACTION,
)
RELEASE_WAIT_SECONDS: Final = histogram(
    "extender_release_wait_seconds",
    "Time from the first sight of a group of gated pods until all of its pods were released.",
    _WAIT_SECONDS,
    Source.ACTION,
)
RELEASE_GROUPS: Final = gauge(
    "extender_release_groups{phase, reason}",
    "Groups of gated pods that the leader releases, by phase and by what they wait for.",
)
RELEASE_OLDEST: Final = gauge(
    "extender_release_oldest_wait_seconds",
    "How long the group of gated pods that waits longest has waited for its decision or for room; 0 where none waits.",
)
RELEASE_EXPECTATIONS: Final = gauge(
    "extender_release_expectations",
    "Pods whose release was sent and that the watch still shows as gated.",
)
RELEASE_EXPECTATIONS_EXPIRED: Final = counter(
    "extender_release_expectations_expired_total",
    "Released pods that had to be read because the watch did not show the release in time.",
)
RELEASE_FAILURES: Final = counter(
    "extender_release_failures_total",
    "Times that a group of gated pods could not be worked on because of a bug; it is tried again, and others go on.",
)
RELEASE_ORPHANS: Final = gauge(
    "extender_release_orphans{state}",
    "Pods with our gate that no policy releases any more: waiting, or released unpinned after release.orphanGrace.",
)

# -- the recording

RECORDER_RECORDS: Final = counter(
    "extender_recorder_records_total{result}",
    "Records of questions and changes, by result: written, dropped (the queue was full, or the file could not be written).",
)
RECORDER_BYTES: Final = counter("extender_recorder_bytes_total", "Bytes written to the files of the recording.")

# -- work for people

SLICED_WORK: Final = counter(
    "extender_sliced_work_total{work, outcome}",
    "Explanations, pages and texts of events that were computed between the scheduler's requests, by outcome: done, unknown (no "
    "such pod or node), busy (enough others were wanted), too_expensive, abandoned (the client was gone), failed.",
)
SLICED_WORK_SECONDS: Final = counter(
    "extender_sliced_work_seconds_total{work}",
    "Time of the event loop that explanations, pages and texts of events have taken.",
)
WHAT_IFS: Final = counter(
    "extender_what_ifs_total{outcome}",
    "What-ifs by outcome: done, busy (another was being computed), too_expensive (whatIf.seconds or whatIf.memory), invalid (the "
    "changes), abandoned (the client was gone), unavailable, failed.",
)
WHAT_IFS_RUNNING: Final = gauge(
    "extender_what_ifs_running",
    "What-ifs that are computed now, in a child process: 0 or 1.",
)
WHAT_IF_SECONDS: Final = counter(
    "extender_what_if_seconds_total",
    "Time from the fork of the child to its end, of all what-ifs that were computed.",
)
DECISION_STREAMS: Final = gauge("extender_decision_streams", "Open streams of decisions.")
DECISION_STREAMS_REJECTED: Final = counter(
    "extender_decision_streams_rejected_total",
    "Streams of decisions that were rejected because as many as are allowed (64) were open.",
)

# -- preemption

PREEMPTIONS: Final = gauge(
    "extender_preemptions{phase}",
    "Active preemptions by phase; stuck: the preemptor is pending preemption.stuckAfter after its victims are "
    "gone; to_requeue: the preemptor waits to be requeued.",
)
PREEMPTIONS_LEFT: Final = counter(
    "extender_preemptions_left_total{reason}",
    "Preemptions that went back to the scheduler, by reason: unbound, unexplained or needless victims.",
)
PREEMPTION_ATTEMPTS: Final = counter("extender_preemption_attempts_total", "Preemptions started.", Source.ACTION)
PREEMPTION_VICTIMS: Final = histogram(
    "extender_preemption_victims",
    "Victims of one preemption, without pods that were terminating already.",
    _VICTIMS,
    Source.ACTION,
)
PREEMPTION_VIOLATIONS: Final = counter(
    "extender_preemption_pdb_violations_total",
    "Victims whose deletion violated a PodDisruptionBudget.",
    Source.ACTION,
)
PREEMPTION_EXECUTION_SECONDS: Final = histogram(
    "extender_preemption_execution_seconds{result}",
    "Time from the decision to the end of the writes of a preemption, by result.",
    _PREEMPTION_SECONDS,
    Source.ACTION,
)
PREEMPTION_EXECUTIONS: Final = counter(
    "extender_preemption_executions_total{result}", "Preemptions whose writes have ended.", Source.ACTION
)
PREEMPTION_SECONDS: Final = histogram(
    "extender_preemption_duration_seconds{outcome}",
    "Time from the decision to the end of a preemption, by outcome; bound is a success.",
    _PREEMPTION_SECONDS,
    Source.ACTION,
)

# -- writes to the API server

API_WRITE_SECONDS: Final = histogram(
    "extender_api_write_duration_seconds{call, result}",
    "Duration of writes to the API server, by call and result.",
    _SECONDS,
    Source.ACTION,
)
LAST_API_WRITE: Final = gauge(
    "extender_last_api_write_timestamp_seconds{call, result}",
    "Unix time at which the last write to the API server ended, by call and result.",
    Source.ACTION,
)

METRICS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, MetricDeclaration))
