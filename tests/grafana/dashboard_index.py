"""The dashboard of the index and the feeds: the data about the cluster, and how it is updated. Data only."""

from __future__ import annotations

from tests.grafana.panels import Dashboard, Panel
from tests.grafana.queries import at, rate

INDEX = Dashboard(
    "index.json",
    "Index and feeds",
    "The data about the cluster that decisions use, and how it is updated.",
    {
        "Feeds": [
            Panel(
                "Readiness",
                "1 where a check passes, by instance.",
                {"{{instance}} {{check}}": at("extender_ready")},
            ),
            Panel(
                "Quiet for",
                "Seconds since the last event, bookmark or page. A bookmark comes once a minute.",
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
                "Lists and watches, per second.",
                {"{{resource}}": rate("extender_watch_bytes_total", "resource")},
                "Bps",
            ),
            Panel(
                "Watches begun anew",
                "`ended` is normal, every few minutes. All others say that the apiserver or the way to it is unwell.",
                {"{{resource}} {{reason}}": rate("extender_watch_restarts_total", "resource, reason")},
                "ops",
            ),
            Panel(
                "Lists after the first",
                "Each list costs the API server as much as a start of the extender.",
                {"{{resource}}": rate("extender_relists_total", "resource")},
                "ops",
            ),
            Panel(
                "Found by lists",
                "Objects that a later list changed: changes that the watch missed.",
                {"{{resource}}": rate("extender_relist_changes_total", "resource")},
                "ops",
            ),
            Panel(
                "Unreadable objects",
                "Objects that cannot be read now: they count as last read, or not at all. Errors are per second.",
                {
                    "{{resource}}": f"max by (resource) ({at('extender_unreadable_objects')})",
                    "{{resource}} errors": rate("extender_decode_errors_total", "resource"),
                },
            ),
            Panel(
                "Tasks started again",
                "Long-lived tasks that failed. The log has the error.",
                {"{{task}}": rate("extender_task_restarts_total", "task")},
                "ops",
            ),
        ],
        "Index": [
            Panel(
                "Entries",
                "Objects by kind, and the counts for them. Groups are distinct terms and constraints of affinity and spread. "
                "Pods above a limit are shown by limit.",
                {
                    "{{kind}}": f"sum by (kind) ({at('extender_index_entries')})",
                    "above limits.{{limit}}": f"sum by (limit) ({at('extender_pods_over_limit')})",
                },
                width=16,
            ),
            Panel(
                "Garbage collections",
                "Rounds of the interpreter's collector; only the oldest generation takes long.",
                {"generation {{generation}}": rate("python_gc_collections_total", "generation")},
                "ops",
            ),
        ],
        "Assumed pods": [
            Panel(
                "Assumed pods",
                "Pods that filter let through and the watch does not show on a node yet, by the number of nodes in the answer.",
                {"{{place}}": f"sum by (place) ({at('extender_assumed_pods')})"},
                width=6,
            ),
            Panel(
                "Ended without a binding",
                "Expired: neither bound nor reported as failed.",
                {"{{how}}": rate("extender_assumed_endings_total", "how")},
                "ops",
                width=6,
            ),
            Panel(
                "Waits",
                "Calls that waited for an assumed pod, calls that gave up, and calls whose own pod the watch did not show yet.",
                {
                    "begun": rate("extender_assumed_pod_waits_total"),
                    "given up": rate("extender_assumed_pod_waits_given_up_total"),
                    "own pod": rate("extender_pod_waits_total"),
                },
                "ops",
                width=6,
            ),
            Panel(
                "Audit",
                "Rounds of recounting, and running counts that were wrong. A wrong count is a fault of the extender.",
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
