"""The overview: whether calls are answered, how fast, and how recent the data is. Data only."""

from tests.tools.dashboards.panels import Dashboard, Panel, at, quantile, rate

_LATENCY_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.05, "yellow"), (0.1, "red"))
_SHARE_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.001, "yellow"), (0.01, "red"))
_ALARM: tuple[tuple[float | None, str], ...] = ((None, "red"), (1, "green"))
_NO_ERRORS = f"(({rate('extender_request_failures_total')}) or vector(0))"

OVERVIEW = Dashboard(
    "overview.json",
    "Overview",
    "Whether calls are answered, how fast, and how recent the data is.",
    {
        "Now": [
            Panel(
                "Ready",
                "Instances that pass all readiness checks. With leaderElection only the leader does.",
                {"ready": f"count(min by (job, instance) ({at('extender_ready')}) == 1) or vector(0)"},
                kind="stat",
                width=4,
                height=4,
                steps=_ALARM,
            ),
            Panel(
                "Time since the last call",
                "Seconds since the last answer, decision, failure and write. They grow while there are no calls.",
                {
                    "answered": f"time() - max({at('extender_last_request_timestamp_seconds')})",
                    "decided": f"time() - max({at('extender_last_decision_timestamp_seconds')})",
                    "{{reason}}": f"time() - max by (reason) ({at('extender_last_failure_timestamp_seconds')})",
                    "write {{result}}": f"time() - max by (result) ({at('extender_last_api_write_timestamp_seconds')})",
                },
                "s",
                "stat",
                4,
                4,
            ),
            Panel(
                "Failed share",
                "Share of requests that got an error. The objective is less than one in a thousand.",
                {"failed": f"{_NO_ERRORS} / {rate('extender_requests_total')}"},
                "percentunit",
                "stat",
                4,
                4,
                steps=_SHARE_STEPS,
            ),
            Panel(
                "Filter p99",
                "The 99th percentile of the duration of filter calls. The objective is 100 ms.",
                {
                    "p99": "histogram_quantile(0.99, "
                    + rate("extender_request_duration_seconds_bucket", "le", 'verb="filter"')
                    + ")"
                },
                "s",
                "stat",
                4,
                4,
                steps=_LATENCY_STEPS,
            ),
            Panel(
                "Time since the last event",
                "The largest value of all resources. A resource without events has a bookmark every minute.",
                {"lag": f"max({at('extender_cache_lag_seconds')})"},
                "s",
                "stat",
                4,
                4,
                steps=((None, "green"), (120, "yellow"), (180, "red")),
            ),
            Panel(
                "Version",
                "Number of instances by version.",
                {
                    "{{version}} on Python {{python_version}}": f"count by (version, python_version) ({at('extender_build_info')})"
                },
                kind="stat",
                width=4,
                height=4,
            ),
        ],
        "Load": [
            Panel("Calls", "Requests per second.", {"{{verb}}": rate("extender_requests_total", "verb")}, "reqps"),
            Panel(
                "Latency",
                "Time from the request's header until the answer is ready to be sent.",
                {
                    "{{verb}} p50": quantile(0.5, "extender_request_duration_seconds"),
                    "{{verb}} p99": quantile(0.99, "extender_request_duration_seconds"),
                },
                "s",
            ),
            Panel(
                "Failures",
                "Requests that got an error, per second, by reason.",
                {"{{verb}} {{reason}}": rate("extender_request_failures_total", "verb, reason")},
                "reqps",
            ),
            Panel(
                "Decisions by scheduler",
                "Filter decisions per second, by the scheduler of the pod and result. With schedulers: many all of them share the nodes.",
                {"{{scheduler}} {{result}}": rate("extender_scheduler_decisions_total", "scheduler, result")},
                "ops",
            ),
            Panel(
                "Objects",
                "Objects in the index.",
                {"{{kind}}": f"sum by (kind) ({at('extender_index_entries', 'kind=~`pods|nodes|namespaces`')})"},
            ),
            Panel(
                "Processor time",
                "Cores in use. The extender has one thread, so it uses at most one core.",
                {"{{instance}}": f"rate({at('process_cpu_seconds_total')}[$__rate_interval])"},
            ),
            Panel("Memory", "Resident memory.", {"{{instance}}": at("process_resident_memory_bytes")}, "bytes"),
        ],
        "Leadership": [
            Panel(
                "Leaders",
                "Leaders: one, or none during a takeover. Seconds: how long no replica answered before the takeover. "
                "Empty if leaderElection is off.",
                {
                    "{{job}}": f"sum by (job) ({at('extender_leader')})",
                    "{{instance}}: seconds": at("extender_leader_gap_seconds"),
                },
                width=12,
                height=5,
            ),
            Panel(
                "Terms",
                "Takeovers per second. A stable leader has none.",
                {"{{instance}}": f"rate({at('extender_leader_terms_total')}[$__rate_interval])"},
                "ops",
                width=12,
                height=5,
            ),
        ],
        "Set-up": [
            Panel(
                "Mode and placement",
                "Number of instances by mode and placement. All instances should have the same.",
                {"{{mode}}, {{placement}}": f"count by (mode, placement) ({at('extender_config_info')})"},
                kind="stat",
                width=6,
                height=5,
            ),
            Panel(
                "Calls by form",
                "With nodeCacheCapable false the scheduler sends whole nodes of 12 KB each instead of names.",
                {"{{verb}} by {{form}}": rate("extender_requests_by_form_total", "verb, form")},
                "reqps",
                width=9,
                height=5,
            ),
            Panel(
                "Certificates expire in",
                "Time to the expiry of each certificate. Empty with plain HTTP.",
                {"{{name}}": f"min by (name) ({at('extender_certificate_expiry_timestamp_seconds')}) - time()"},
                "s",
                "stat",
                6,
                5,
                steps=((None, "red"), (172800, "yellow"), (1209600, "green")),
            ),
            Panel(
                "Certificate reloads",
                "Reloads of changed certificate files by result, and whether the files on disk are unusable now.",
                {
                    "{{result}}": f"sum by (result) ({at('extender_certificate_reloads_total')})",
                    "unusable now": f"sum({at('extender_certificate_files_unusable')})",
                },
                kind="stat",
                width=3,
                height=5,
            ),
        ],
    },
)
