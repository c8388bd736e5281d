"""The dashboard of the index and the reflectors that update it. Data only."""

from tests.tools.dashboards.panels import Dashboard, Panel, at, rate

INDEX = Dashboard(
    "index.json",
    "Index and reflectors",
    "The data about the cluster that decisions use, and how it is updated.",
    {
        "Reflectors": [
            Panel(
                "Readiness",
                "1 if the check passes, 0 if it fails, by instance.",
                {"{{instance}} {{check}}": at("extender_ready")},
            ),
            Panel(
                "Time since the last event",
                "Seconds since the last event, bookmark or page of a resource. A bookmark comes every minute.",
                {"{{resource}}": f"max by (resource) ({at('extender_cache_lag_seconds')})"},
                "s",
            ),
            Panel(
                "Events",
                "Watch events per second.",
                {"{{resource}}": rate("extender_watch_events_total", "resource")},
                "ops",
            ),
            Panel(
                "Bytes read",
                "Bytes of lists and watches, per second.",
                {"{{resource}}": rate("extender_watch_bytes_total", "resource")},
                "Bps",
            ),
            Panel(
                "Watch restarts",
                "Watches end every few minutes: reason `ended`. Every other reason is a fault of the API server or the network.",
                {"{{resource}} {{reason}}": rate("extender_watch_restarts_total", "resource, reason")},
                "ops",
            ),
            Panel(
                "Relists",
                "Each list costs the API server as much as a start of the extender.",
                {"{{resource}}": rate("extender_relists_total", "resource")},
                "ops",
            ),
            Panel(
                "Changes found by lists",
                "Objects that a list after the first changed: changes that the watch missed.",
                {"{{resource}}": rate("extender_relist_changes_total", "resource")},
                "ops",
            ),
            Panel(
                "Unreadable objects",
                "Objects whose last version cannot be decoded: they count as last decoded, or not at all. Errors are per second. "
                "A kind is not served where its CRD is missing.",
                {
                    "{{resource}} not served": f"max by (resource) ({at('extender_kind_not_served')})",
                    "{{resource}}": f"max by (resource) ({at('extender_unreadable_objects')})",
                    "{{resource}} errors": rate("extender_decode_errors_total", "resource"),
                },
            ),
            Panel(
                "Task restarts",
                "Restarts of long-lived tasks after a failure. The log has the error.",
                {"{{task}}": rate("extender_task_restarts_total", "task")},
                "ops",
            ),
        ],
        "Index": [
            Panel(
                "Entries",
                "Objects by kind, and what the index keeps for them. A group holds the counts of one affinity term or spread "
                "constraint. Pods above a limit are shown by limit.",
                {
                    "{{kind}}": f"sum by (kind) ({at('extender_index_entries')})",
                    "above limits.{{limit}}": f"sum by (limit) ({at('extender_pods_over_limit')})",
                },
                width=16,
            ),
            Panel(
                "Garbage collections",
                "Rounds of Python's garbage collector. Only those of the oldest generation take long.",
                {"generation {{generation}}": rate("python_gc_collections_total", "generation")},
                "ops",
            ),
        ],
        "Recording": [
            Panel(
                "Records",
                "Questions and changes that were recorded, and those that were dropped as the queue was full or the file could not "
                "be written. After a gap the recording begins again with the state of the index.",
                {"{{result}}": rate("extender_recorder_records_total", "result")},
                "ops",
            ),
            Panel(
                "Bytes",
                "Bytes written to the files of the recording, per second.",
                {"{{instance}}": rate("extender_recorder_bytes_total", "instance")},
                "Bps",
            ),
        ],
        "Budgets of namespaces": [
            Panel(
                "Budget used",
                "The namespaces that use most of a limit of limits.perNamespace, by limit. At 1 a pod that needs more waits.",
                {
                    "{{namespace}} {{limit}}": f"topk(10, max by (namespace, limit) "
                    f"({at('extender_namespace_budget_used_ratio')}))"
                },
                "percentunit",
                width=16,
            ),
            Panel(
                "Pods that wait for a budget",
                "The pod's condition names the namespace, its use, and the setting.",
                {"{{namespace}}": f"max by (namespace) ({at('extender_namespace_budget_waiting_pods')})"},
            ),
        ],
        "Assumed pods": [
            Panel(
                "Assumed pods",
                "Pods that filter let through and the watch does not show bound. Their node is known, undetermined (the answer "
                "had several) or doubted (no binding within assumedPods.doubt).",
                {"{{state}}": f"sum by (state) ({at('extender_assumed_pods')})"},
                width=6,
            ),
            Panel(
                "Forgotten without a binding",
                "Failed: the scheduler reported it. Expired: neither bound nor failed within assumedPods.expiry.",
                {"{{reason}}": rate("extender_assumed_pods_forgotten_total", "reason")},
                "ops",
                width=6,
            ),
            Panel(
                "Waits",
                "Calls that waited for an assumed pod, those that timed out, and calls that waited for the watch to show their pod.",
                {
                    "assumed pod": rate("extender_assumed_pod_waits_total"),
                    "timed out": rate("extender_assumed_pod_wait_timeouts_total"),
                    "own pod": rate("extender_pod_waits_total"),
                },
                "ops",
                width=6,
            ),
            Panel(
                "Audit",
                "Complete recounts, and counts that differed from the recount. A difference is a bug of the extender.",
                {
                    "rounds": f"sum({at('extender_audit_rounds_total')})",
                    "differences": f"sum({at('extender_audit_differences_total')})",
                },
                "short",
                width=6,
            ),
        ],
    },
)
