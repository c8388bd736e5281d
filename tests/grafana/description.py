"""The four dashboards: what is shown of each metric, in which unit, and what a person should make of it.

Data only. A metric that is on no dashboard fails `test_dashboards`, and so does a query for one that does not exist.
"""

from __future__ import annotations

from tests.grafana.panels import Dashboard, Panel

_ALL = 'job=~"$job", instance=~"$instance"'


def at(name: str, more: str = "") -> str:
    """The series of a metric that the variables choose."""
    return f"{name}{{{_ALL}{', ' + more if more else ''}}}"


def rate(name: str, by: str = "", more: str = "") -> str:
    """The summed rate of a counter, per second."""
    over = f"rate({at(name, more)}[$__rate_interval])"
    return f"sum by ({by}) ({over})" if by else f"sum({over})"


def quantile(share: float, name: str, by: str = "verb") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{name}_bucket', f'le, {by}')})"


def mean(name: str, by: str = "verb") -> str:
    """The mean of what a histogram has seen."""
    return f"{rate(f'{name}_sum', by)} / {rate(f'{name}_count', by)}"


_LATENCY_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.05, "yellow"), (0.1, "red"))
_SHARE_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.001, "yellow"), (0.01, "red"))
_ALARM: tuple[tuple[float | None, str], ...] = ((None, "red"), (1, "green"))
_NO_ERRORS = f"(({rate('extender_request_failures_total')}) or vector(0))"

OVERVIEW = Dashboard(
    "overview.json",
    "Overview",
    "Whether the scheduler is answered, how fast, and on what state of the cluster.",
    {
        "Now": [
            Panel(
                "Ready",
                "Instances whose readiness checks all pass. Behind a Lease only the holder is ready.",
                {"ready": f"count(min by (job, instance) ({at('extender_ready')}) == 1) or vector(0)"},
                kind="stat",
                width=4,
                height=4,
                steps=_ALARM,
            ),
            Panel(
                "Since the last question",
                "Seconds since a verb was answered last. Grows while no pod is to be placed, or nobody asks us.",
                {"age": f"time() - max({at('extender_last_request_timestamp_seconds')})"},
                "s",
                "stat",
                4,
                4,
            ),
            Panel(
                "Failed share",
                "Share of requests that got an error for an answer. The objective is less than one in a thousand.",
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
                "The longest time since the apiserver told anything of a resource. Quiet ones are heard of once a minute.",
                {"lag": f"max({at('extender_cache_lag_seconds')})"},
                "s",
                "stat",
                4,
                4,
                steps=((None, "green"), (120, "yellow"), (180, "red")),
            ),
            Panel(
                "Version",
                "Versions that run, by number of instances.",
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
                "Requests that got an error for an answer, per second, by reason.",
                {"{{verb}} {{reason}}": rate("extender_request_failures_total", "verb, reason")},
                "reqps",
            ),
            Panel(
                "Objects",
                "What the index holds of the cluster.",
                {"{{kind}}": f"sum by (kind) ({at('extender_index_entries', 'kind=~`pods|nodes|namespaces`')})"},
            ),
            Panel(
                "Processor time",
                "Cores in use. One is all that can be used: answers are given one after the other.",
                {"{{instance}}": f"rate({at('process_cpu_seconds_total')}[$__rate_interval])"},
            ),
            Panel("Memory", "Resident memory.", {"{{instance}}": at("process_resident_memory_bytes")}, "bytes"),
        ],
        "Set-up": [
            Panel(
                "Mode and placement",
                "How instances decide. All of them should do it in one way.",
                {"{{mode}}, {{placement}}": f"count by (mode, placement) ({at('extender_config_info')})"},
                kind="stat",
                width=6,
                height=5,
            ),
            Panel(
                "Questions by form",
                "Names are cheap; whole nodes are sent where nodeCacheCapable is false, 12 KB for each node.",
                {"{{verb}} by {{form}}": rate("extender_questions_total", "verb, form")},
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
                "Changes of the certificate files, taken in or not.",
                {"{{result}}": f"sum by (result) ({at('extender_certificate_reloads_total')})"},
                kind="stat",
                width=3,
                height=5,
            ),
        ],
    },
)

VERBS = Dashboard(
    "verbs.json",
    "Verbs",
    "The scheduler's questions and our answers, by verb.",
    {
        "Requests": [
            Panel(
                "Answers by status",
                "Requests per second. Filter tells its errors with status 200; see Failures.",
                {"{{verb}} {{code}}": rate("extender_requests_total", "verb, code")},
                "reqps",
            ),
            Panel(
                "Failures",
                "Requests that got an error for an answer, per second. What each reason means stands in the runbook.",
                {"{{verb}} {{reason}}": rate("extender_request_failures_total", "verb, reason")},
                "reqps",
            ),
            Panel(
                "Answers without a decision",
                "The picture of the cluster was too old, or the time was over: what was answered instead, per second.",
                {"{{verb}} {{reason}}: {{answer}}": rate("extender_fallbacks_total", "verb, reason, answer")},
                "reqps",
            ),
            Panel(
                "In flight",
                "Requests being read or answered now. The scheduler asks one at a time for each profile.",
                {"{{instance}}": at("extender_requests_in_flight")},
            ),
        ],
        "Latency": [
            Panel(
                f"p{share * 100:.0f}",
                f"{share * 100:.0f} of 100 answers are given within this time.",
                {"{{verb}}": quantile(share, "extender_request_duration_seconds")},
                "s",
            )
            for share in (0.5, 0.9, 0.99)
        ],
        "Size": [
            Panel("Nodes asked", "Nodes in a question, on average.", {"{{verb}}": mean("extender_request_nodes")}),
            Panel(
                "Nodes passed",
                "Nodes named in a filter answer: the mean, and what 99 of 100 answers stay within.",
                {
                    "mean": f"{rate('extender_filter_passed_nodes_sum')} / {rate('extender_filter_passed_nodes_count')}",
                    "p99": f"histogram_quantile(0.99, {rate('extender_filter_passed_nodes_bucket', 'le')})",
                },
            ),
            Panel(
                "Bytes",
                "Size of bodies, on average.",
                {
                    "{{verb}} question": mean("extender_request_bytes"),
                    "{{verb}} answer": mean("extender_response_bytes"),
                },
                "bytes",
            ),
        ],
        "Refusals": [
            Panel(
                "No node passed, by reason",
                "Filter answers that let no node pass, per second, once for each reason that stood in the answer.",
                {"{{reason}}": rate("extender_filter_refusals_total", "reason")},
                "reqps",
                width=12,
                stacked=True,
            ),
            Panel(
                "Answered from memory",
                "Refusals given again unchanged: every event of the cluster asks all refused pods anew.",
                {"remembered": rate("extender_filter_remembered_total")},
                "reqps",
                width=6,
            ),
            Panel(
                "Memory of refusals",
                "Its size.",
                {"{{instance}}": at("extender_filter_memory_bytes")},
                "bytes",
                width=6,
            ),
        ],
    },
)

INDEX = Dashboard(
    "index.json",
    "Index and feeds",
    "The picture of the cluster that answers are given from, and how it is kept true.",
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
                "Each one costs the apiserver a full list.",
                {"{{resource}}": rate("extender_relists_total", "resource")},
                "ops",
            ),
            Panel(
                "Found by lists",
                "Objects that a later list changed: what the watch had not told.",
                {"{{resource}}": rate("extender_relist_changes_total", "resource")},
                "ops",
            ),
            Panel(
                "Unreadable objects",
                "Objects from the apiserver that could not be read, and do not count.",
                {"{{resource}}": rate("extender_decode_errors_total", "resource")},
                "ops",
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
                "Objects by kind, and what is counted for them. Groups are distinct questions of affinity and spread.",
                {"{{kind}}": f"sum by (kind) ({at('extender_index_entries')})"},
                width=16,
            ),
            Panel(
                "Garbage collections",
                "Rounds of the interpreter's collector; the oldest generation is the one that takes long.",
                {"generation {{generation}}": rate("python_gc_collections_total", "generation")},
                "ops",
            ),
        ],
        "Assumed pods": [
            Panel(
                "Assumed pods",
                "Let through and not yet seen on a node, by the number of nodes in the answer.",
                {"{{place}}": f"sum by (place) ({at('extender_assumed_pods')})"},
            ),
            Panel(
                "Ended without a binding",
                "Expired ones were never bound nor reported as failed.",
                {"{{how}}": rate("extender_assumed_endings_total", "how")},
                "ops",
            ),
            Panel(
                "Waits",
                "Questions that waited for an assumed pod, and those that gave up.",
                {"begun": rate("extender_settling_waits_total"), "given up": rate("extender_settling_given_up_total")},
                "ops",
            ),
        ],
    },
)

PREEMPTION = Dashboard(
    "preemption.json",
    "Preemption and writes",
    "Room for pods of higher priority, steering and nudges: everything that changes the cluster.",
    {
        "Preemptions": [
            Panel(
                "Begun",
                "Preemptions begun per second, and victims for which a disruption budget had to give way.",
                {
                    "preemptions": rate("extender_preemption_attempts_total"),
                    "budgets violated": rate("extender_preemption_pdb_violations_total"),
                },
                "ops",
            ),
            Panel(
                "Failed share",
                "Preemptions whose writes failed. KEP-4832 asks for less than one in a hundred.",
                {
                    "failed": rate("extender_preemption_executions_total", more='result="error"')
                    + " / "
                    + rate("extender_preemption_executions_total")
                },
                "percentunit",
                steps=_SHARE_STEPS,
            ),
            Panel(
                "Under way",
                "Preemptions by phase. `stuck`: pending long after the victims went; `to_wake`: to be tried again.",
                {"{{phase}}": f"sum by (phase) ({at('extender_preemptions')})"},
            ),
            Panel(
                "Writes ended",
                "Preemptions whose writes have ended, per second, by result.",
                {"{{result}}": rate("extender_preemption_executions_total", "result")},
                "ops",
            ),
            Panel(
                "Time of the writes",
                "From the decision to the end of the writes: 99 of 100 preemptions.",
                {"{{result}}": quantile(0.99, "extender_preemption_execution_seconds", "result")},
                "s",
            ),
            Panel(
                "Time to room",
                "From the decision until the preemptor was bound, or what else became of it: half of the preemptions.",
                {"{{outcome}}": quantile(0.5, "extender_preemption_duration_seconds", "outcome")},
                "s",
            ),
            Panel(
                "Victims",
                "Victims of one preemption, on average.",
                {"victims": f"{rate('extender_preemption_victims_sum')} / {rate('extender_preemption_victims_count')}"},
            ),
        ],
        "Preempt verb": [
            Panel(
                "Questions",
                "Preempt requests per second, by status.",
                {"{{code}}": rate("extender_requests_total", "code", 'verb="preempt"')},
                "reqps",
            ),
            Panel(
                "Failed share",
                "Preempt requests that got an error for an answer. The scheduler then gives up until an event.",
                {
                    "failed": f"({rate('extender_request_failures_total', more='verb=`preempt`')} or vector(0)) / "
                    + rate("extender_requests_total", more='verb="preempt"')
                },
                "percentunit",
                steps=_SHARE_STEPS,
            ),
            Panel(
                "Candidate nodes",
                "Candidates in a question, on average.",
                {
                    "candidates": f"{rate('extender_request_nodes_sum', more='verb=`preempt`')} / "
                    + rate("extender_request_nodes_count", more='verb="preempt"')
                },
            ),
        ],
        "Steering": [
            Panel(
                "Steered",
                "Refused pods for which another node was looked for, by result. `nowhere`: no other node passes either.",
                {"{{result}}": rate("extender_steering_results_total", "result", 'action="steer"')},
                "ops",
                width=12,
            ),
            Panel(
                "Nudged",
                "Refused pods that were touched so that the scheduler asks again, by result.",
                {"{{result}}": rate("extender_steering_results_total", "result", 'action="nudge"')},
                "ops",
                width=12,
            ),
        ],
        "Writes to the apiserver": [
            Panel(
                "Writes",
                "Per second, by call and result. `conflict` and `notfound` mean that somebody else was faster.",
                {"{{call}} {{result}}": rate("extender_api_write_duration_seconds_count", "call, result")},
                "ops",
                width=12,
            ),
            Panel(
                "Latency of writes",
                "99 of 100 writes end within this time.",
                {"{{call}}": quantile(0.99, "extender_api_write_duration_seconds", "call")},
                "s",
                width=12,
            ),
        ],
    },
)

DASHBOARDS = (OVERVIEW, VERBS, INDEX, PREEMPTION)
