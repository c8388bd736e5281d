"""The dashboard of the verbs: calls and answers. Data only."""

from tests.tools.dashboards.panels import Dashboard, Panel, at, mean, quantile, rate

VERBS = Dashboard(
    "verbs.json",
    "Verbs",
    "The scheduler's calls and the extender's answers, by verb.",
    {
        "Requests": [
            Panel(
                "Answers by status",
                "Requests per second. Errors of filter have status 200; see Failures.",
                {"{{verb}} {{code}}": rate("extender_requests_total", "verb, code")},
                "reqps",
                width=6,
            ),
            Panel(
                "Failures",
                "Requests that got an error, per second. The runbook explains each reason.",
                {"{{verb}} {{reason}}": rate("extender_request_failures_total", "verb, reason")},
                "reqps",
                width=6,
            ),
            Panel(
                "Answers without a decision",
                "Calls per second that were answered without a decision: the watched data was stale, or server.requestTimeout was "
                "over. By reason and answer.",
                {"{{verb}} {{reason}}: {{answer}}": rate("extender_fallbacks_total", "verb, reason, answer")},
                "reqps",
                width=6,
            ),
            Panel(
                "In flight",
                "Calls that are read or answered now. Each scheduler sends one at a time.",
                {"{{instance}}": at("extender_requests_in_flight")},
                width=6,
            ),
        ],
        "Latency": [
            Panel(
                f"p{share * 100:.0f}",
                f"The {share * 100:.0f}th percentile of the duration of calls.",
                {"{{verb}}": quantile(share, "extender_request_duration_seconds")},
                "s",
            )
            for share in (0.5, 0.9, 0.99)
        ],
        "Size": [
            Panel("Nodes in a call", "Nodes in a call, on average.", {"{{verb}}": mean("extender_request_nodes")}),
            Panel(
                "Nodes that passed",
                "Nodes named in a filter answer: the mean and the 99th percentile.",
                {
                    "mean": f"{rate('extender_filter_passed_nodes_sum')} / {rate('extender_filter_passed_nodes_count')}",
                    "p99": f"histogram_quantile(0.99, {rate('extender_filter_passed_nodes_bucket', 'le')})",
                },
            ),
            Panel(
                "Bytes",
                "Average size of bodies.",
                {
                    "{{verb}} request": mean("extender_request_bytes"),
                    "{{verb}} answer": mean("extender_response_bytes"),
                },
                "bytes",
            ),
        ],
        "Rejections": [
            Panel(
                "No node passed, by reason",
                "Filter answers in which no node passed, per second, counted once for each reason in the answer; and calls "
                "answered with an error because the watch shows no such pod to place.",
                {
                    "{{reason}}": rate("extender_filter_rejections_total", "reason"),
                    "pod {{reason}}": rate("extender_unconfirmed_pod_rejections_total", "reason"),
                },
                "reqps",
                width=12,
                stacked=True,
            ),
            Panel(
                "Rejection cache hits",
                "Rejections answered from the cache: the scheduler retries rejected pods at almost every event.",
                {"hits": rate("extender_rejection_cache_hits_total")},
                "reqps",
                width=6,
            ),
            Panel(
                "Rejection cache size",
                "Size of the rejection cache.",
                {"{{instance}}": at("extender_rejection_cache_bytes")},
                "bytes",
                width=6,
            ),
        ],
        "Work for people": [
            Panel(
                "Explanations, pages and events",
                "What is computed between the scheduler's requests, by outcome. `busy`: enough others were wanted. `too_expensive`: it "
                "took more loop time than one may. `abandoned`: the client was gone.",
                {"{{work}} {{outcome}}": rate("extender_sliced_work_total", "work, outcome")},
                "ops",
                width=6,
            ),
            Panel(
                "Their share of the event loop",
                "Work begins after an answer where a scheduler asks, so it delays no request that comes later than a millisecond.",
                {"{{work}}": rate("extender_sliced_work_seconds_total", "work")},
                "percentunit",
                width=6,
            ),
            Panel(
                "What-ifs",
                "Computed one at a time in a child process: per second by outcome, whether one is running, and the share of the time in "
                "which one is. `busy`: another was being "
                "computed. `too_expensive`: more than whatIf.seconds or whatIf.memory.",
                {
                    "{{outcome}}": rate("extender_what_ifs_total", "outcome"),
                    "running": f"sum({at('extender_what_ifs_running')})",
                    "share of time": rate("extender_what_if_seconds_total"),
                },
                width=6,
            ),
            Panel(
                "Streams of decisions",
                "Open streams, such as those of pages in a browser, and streams per second that were rejected because 64 were open.",
                {
                    "{{instance}}": at("extender_decision_streams"),
                    "rejected/s": rate("extender_decision_streams_rejected_total"),
                },
                width=6,
            ),
        ],
        "Quotas for affinity across namespaces": [
            Panel(
                "Pods over a limit",
                "Pods over a quota, or a limit on what affinity reaches, per second, each once. `audited`: it was only counted. "
                "Empty unless quota.enabled.",
                {"{{limit}} {{result}}": rate("extender_quota_findings_total", "limit, result")},
                "ops",
                width=12,
            ),
            Panel(
                "Quotas",
                "Quotas of the scope CrossNamespacePodAffinity by state. `without_number` and `inert` hold no tenant back.",
                {"{{state}}": f"max by (state) ({at('extender_quotas')})"},
                width=12,
            ),
            Panel(
                "Pods with affinity across namespaces",
                "Placed pods by namespace, whether there is a quota or not. `extender quota report` has the details.",
                {"{{namespace}}": f"max by (namespace) ({at('extender_cross_namespace_pods')})"},
                width=12,
            ),
            Panel(
                "Nodes closed to other namespaces",
                "Nodes that required anti-affinity of a namespace closes to the pods of others that it selects.",
                {"{{namespace}}": f"max by (namespace) ({at('extender_cross_namespace_closed_nodes')})"},
                width=12,
            ),
        ],
    },
)
