"""The dashboard of what the extender writes: preemption, nominations elsewhere, requeues, API calls. Data only."""

from tests.tools.dashboards.panels import Dashboard, Panel, at, quantile, rate

_SHARE_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.001, "yellow"), (0.01, "red"))

PREEMPTION = Dashboard(
    "preemption.json",
    "Preemption and writes",
    "Preemptions, nominations elsewhere, requeues, and all writes to the API server.",
    {
        "Preemptions": [
            Panel(
                "Preemptions started",
                "Preemptions started per second, victims whose deletion violated a disruption budget, and preemptions that went "
                "back to the scheduler. `unbound`: a victim is on no node yet. `unexplained`: the extender does not know what each "
                "victim is needed for. `needless`: it knows a node that takes the pod as it is.",
                {
                    "preemptions": rate("extender_preemption_attempts_total"),
                    "left to the scheduler, {{reason}}": rate("extender_preemptions_left_total", "reason"),
                    "budgets violated": rate("extender_preemption_pdb_violations_total"),
                },
                "ops",
            ),
            Panel(
                "Failed share",
                "Share of preemptions whose writes failed. The objective of KEP-4832 is less than 1 %.",
                {
                    "failed": rate("extender_preemption_executions_total", more='result="error"')
                    + " / "
                    + rate("extender_preemption_executions_total")
                },
                "percentunit",
                steps=_SHARE_STEPS,
            ),
            Panel(
                "Active preemptions",
                "Active preemptions by phase. `stuck`: the preemptor is pending long after its victims are gone; `to_requeue`: "
                "the preemptor waits to be requeued.",
                {"{{phase}}": f"sum by (phase) ({at('extender_preemptions')})"},
            ),
            Panel(
                "Writes ended",
                "Preemptions whose writes have ended, per second, by result.",
                {"{{result}}": rate("extender_preemption_executions_total", "result")},
                "ops",
                width=6,
            ),
            Panel(
                "Time of the writes",
                "From the decision to the end of the writes, 99th percentile.",
                {"{{result}}": quantile(0.99, "extender_preemption_execution_seconds", "result")},
                "s",
                width=6,
            ),
            Panel(
                "Time to the end",
                "From the decision to the preemptor's binding, or to another outcome; median.",
                {"{{outcome}}": quantile(0.5, "extender_preemption_duration_seconds", "outcome")},
                "s",
                width=6,
            ),
            Panel(
                "Victims",
                "Victims of one preemption, on average.",
                {"victims": f"{rate('extender_preemption_victims_sum')} / {rate('extender_preemption_victims_count')}"},
                width=6,
            ),
        ],
        "Preempt verb": [
            Panel(
                "Calls",
                "Preempt calls per second, by HTTP status.",
                {"{{code}}": rate("extender_requests_total", "code", 'verb="preempt"')},
                "reqps",
            ),
            Panel(
                "Failed share",
                "Share of preempt calls that got an error. The scheduler then does not retry until the next event.",
                {
                    "failed": f"({rate('extender_request_failures_total', more='verb=`preempt`')} or vector(0)) / "
                    + rate("extender_requests_total", more='verb="preempt"')
                },
                "percentunit",
                steps=_SHARE_STEPS,
            ),
            Panel(
                "Candidate nodes",
                "Candidate nodes in a call, on average.",
                {
                    "candidates": f"{rate('extender_request_nodes_sum', more='verb=`preempt`')} / "
                    + rate("extender_request_nodes_count", more='verb="preempt"')
                },
            ),
        ],
        "Rejected pods": [
            Panel(
                "Nominated elsewhere",
                "Searches for a node outside the scheduler's sample, by result. `no_node`: no node passes.",
                {"{{result}}": rate("extender_rejected_pod_actions_total", "result", 'action="nominate"')},
                "ops",
                width=8,
            ),
            Panel(
                "Requeued",
                "Writes that make the scheduler try a rejected pod again, by result. `recheck`: rejections decided again because "
                "what they depend on changed within a second; those that pass are requeued.",
                {
                    "{{action}} {{result}}": rate(
                        "extender_rejected_pod_actions_total", "action, result", 'action!="nominate"'
                    )
                },
                "ops",
                width=8,
            ),
            Panel(
                "Events on rejected pods",
                "Pods that stayed rejected, by what became of their event. `suppressed`: too many at once. `outdated`: placed "
                "meanwhile.",
                {"{{result}}": rate("extender_rejection_events_total", "result")},
                "ops",
                width=8,
            ),
        ],
        "Writes to the API server": [
            Panel(
                "Writes",
                "Writes per second, by call and result. `conflict` and `notfound` mean that another client was faster.",
                {"{{call}} {{result}}": rate("extender_api_write_duration_seconds_count", "call, result")},
                "ops",
                width=12,
            ),
            Panel(
                "Latency of writes",
                "The 99th percentile of the duration of writes.",
                {"{{call}}": quantile(0.99, "extender_api_write_duration_seconds", "call")},
                "s",
                width=12,
            ),
        ],
    },
)
