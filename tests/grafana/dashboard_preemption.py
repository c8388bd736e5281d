"""The dashboard of everything that changes the cluster: preemption, nominations elsewhere, requeues, writes. Data only."""

from __future__ import annotations

from tests.grafana.panels import Dashboard, Panel
from tests.grafana.queries import at, quantile, rate

_SHARE_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.001, "yellow"), (0.01, "red"))

PREEMPTION = Dashboard(
    "preemption.json",
    "Preemption and writes",
    "Room for pods of higher priority, nominations elsewhere and requeues: everything that changes the cluster.",
    {
        "Preemptions": [
            Panel(
                "Begun",
                "Preemptions begun per second, and victims that a disruption budget protects.",
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
                "Preemptions by phase. `stuck`: pending long after the victims were gone; `to_requeue`: to be tried again.",
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
                "From the decision to the end of the writes: 99 of 100 preemptions.",
                {"{{result}}": quantile(0.99, "extender_preemption_execution_seconds", "result")},
                "s",
                width=6,
            ),
            Panel(
                "Time to room",
                "From the decision until the preemptor was bound, or the preemption ended otherwise: half of the preemptions.",
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
                "Questions",
                "Preempt requests per second, by status.",
                {"{{code}}": rate("extender_requests_total", "code", 'verb="preempt"')},
                "reqps",
            ),
            Panel(
                "Failed share",
                "Preempt requests that got an error. The scheduler then does not retry until an event.",
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
        "Steering": [
            Panel(
                "Steered",
                "Rejected pods for which the extender looked for another node, by result. `nowhere`: no other node passes either.",
                {"{{result}}": rate("extender_rejected_pod_actions_total", "result", 'action="nominate"')},
                "ops",
                width=12,
            ),
            Panel(
                "Nudged",
                "Rejected pods with a write that makes the scheduler try them again, by result.",
                {"{{result}}": rate("extender_rejected_pod_actions_total", "result", 'action="requeue"')},
                "ops",
                width=12,
            ),
        ],
        "Writes to the apiserver": [
            Panel(
                "Writes",
                "Per second, by call and result. `conflict` and `notfound` mean that another client was faster.",
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
