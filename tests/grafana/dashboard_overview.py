"""The overview: whether calls are answered, how fast, and how recent the data is. Data only."""

from __future__ import annotations

from tests.grafana.panels import Dashboard, Panel
from tests.grafana.queries import at, quantile, rate

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
                "Instances whose readiness checks all pass. With leaderElection only the leader is ready.",
                {"ready": f"count(min by (job, instance) ({at('extender_ready')}) == 1) or vector(0)"},
                kind="stat",
                width=4,
                height=4,
                steps=_ALARM,
            ),
            Panel(
                "Since the last question",
                "Seconds since the last answer, decision and failure of each verb, and since the last write. Grows without calls.",
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
                "99 of 100 filter answers are given within this time. The objective is 100 ms.",
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
                "Quiet for",
                "The longest time since the last event or bookmark of a resource. A quiet resource has one bookmark a minute.",
                {"lag": f"max({at('extender_cache_lag_seconds')})"},
                "s",
                "stat",
                4,
                4,
                steps=((None, "green"), (120, "yellow"), (180, "red")),
            ),
            Panel(
                "Version",
                "Running versions, by number of instances.",
                {
                    "{{version}} on Python {{python_version}}": f"count by (version, python_version) ({at('extender_build_info')})"
                },
                kind="stat",
                width=4,
                height=4,
            ),
        ],
        "Load": [
            Panel("Questions", "Requests per second.", {"{{verb}}": rate("extender_requests_total", "verb")}, "reqps"),
            Panel(
                "Latency",
                "Time from the request's header to the finished answer.",
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
                "Objects",
                "Objects in the index.",
                {"{{kind}}": f"sum by (kind) ({at('extender_index_entries', 'kind=~`pods|nodes|namespaces`')})"},
            ),
            Panel(
                "Processor time",
                "Cores in use. The extender can use one core: it gives one answer after the other.",
                {"{{instance}}": f"rate({at('process_cpu_seconds_total')}[$__rate_interval])"},
            ),
            Panel("Memory", "Resident memory.", {"{{instance}}": at("process_resident_memory_bytes")}, "bytes"),
        ],
        "Leadership": [
            Panel(
                "Leaders",
                "Replicas that lead: one, or none for a moment; and for how many seconds no replica answered when each took over. "
                "Nothing here: leaderElection is off.",
                {
                    "{{job}}": f"sum by (job) ({at('extender_leader')})",
                    "{{instance}}: seconds": at("extender_leader_gap_seconds"),
                },
                width=12,
                height=5,
            ),
            Panel(
                "Terms",
                "Changes of leadership, per second. A stable leader begins none.",
                {"{{instance}}": f"rate({at('extender_leader_terms_total')}[$__rate_interval])"},
                "ops",
                width=12,
                height=5,
            ),
        ],
        "Set-up": [
            Panel(
                "Mode and placement",
                "Mode and placement of the instances. All of them should have the same.",
                {"{{mode}}, {{placement}}": f"count by (mode, placement) ({at('extender_config_info')})"},
                kind="stat",
                width=6,
                height=5,
            ),
            Panel(
                "Questions by form",
                "The scheduler sends whole nodes, 12 KB each, when nodeCacheCapable is false. Names are cheap.",
                {"{{verb}} by {{form}}": rate("extender_requests_by_form_total", "verb, form")},
                "reqps",
                width=9,
                height=5,
            ),
            Panel(
                "Certificates expire in",
                "Nothing here: plain HTTP.",
                {"{{name}}": f"min by (name) ({at('extender_certificate_expiry_timestamp_seconds')}) - time()"},
                "s",
                "stat",
                6,
                5,
                steps=((None, "red"), (172800, "yellow"), (1209600, "green")),
            ),
            Panel(
                "Read again",
                "Changes of the certificate files, loaded or not, and whether the files on disk cannot be used now.",
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
