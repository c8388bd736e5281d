"""The dashboard of the admission webhook: its reviews, its certificates and its configurations. Data only."""

from tests.tools.dashboards.panels import Dashboard, Panel, at, quantile, rate

_UNANSWERED = 'result!~"allowed|patched|denied"'
_SHARE_STEPS: tuple[tuple[float | None, str], ...] = ((None, "green"), (0.001, "yellow"), (0.01, "red"))

ADMISSION = Dashboard(
    "admission.json",
    "Admission of policies",
    "Reviews of the admission webhook, and what keeps it reachable. Empty unless policies.enabled.",
    {
        "Reviews": [
            Panel(
                "Reviews of objects",
                "Reviews per second by kind of object and result. `patched`: a policy was injected.",
                {"{{kind}} {{result}}": rate("extender_admission_reviews_total", "kind, result", 'webhook="mutate"')},
                "ops",
                width=12,
            ),
            Panel(
                "Policies applied",
                "Policies that selected an object, per second. `unchanged`: it had all of it; `failed`: see the warning.",
                {"{{kind}} {{result}}": rate("extender_policy_applications_total", "kind, result")},
                "ops",
                width=12,
            ),
            Panel(
                "Reviews of policies",
                "Policies that were written, per second, by result. `denied`: the policy is invalid.",
                {"{{result}}": rate("extender_admission_reviews_total", "result", 'webhook="validate"')},
                "ops",
                width=8,
            ),
            Panel(
                "Reviews without an answer",
                "Share of reviews after which the API server follows the failure policy, by result.",
                {
                    "{{result}}": rate("extender_admission_reviews_total", "result", _UNANSWERED)
                    + " / on() group_left() "
                    + rate("extender_admission_reviews_total")
                },
                "percentunit",
                steps=_SHARE_STEPS,
                width=8,
            ),
            Panel(
                "Time of a review",
                "From the head of a review to its answer: 99th percentile and median.",
                {
                    "{{webhook}} p99": quantile(0.99, "extender_admission_duration_seconds", "webhook"),
                    "{{webhook}} p50": quantile(0.5, "extender_admission_duration_seconds", "webhook"),
                },
                "s",
                width=8,
            ),
            Panel(
                "Pods that admission missed",
                "Pods per second that lacked what a policy directs when they were scheduled. `missed`: the webhook was "
                "down, or the policy is younger than the pod; scheduling held the pod to it.",
                {"{{kind}} {{result}}": rate("extender_policy_misses_total", "kind, result")},
                "ops",
                width=24,
            ),
        ],
        "Webhook": [
            Panel(
                "Configurations as required",
                "1 where the leader last found or made the configuration as the settings and the certificates require.",
                {"{{configuration}}": f"max by (configuration) ({at('extender_webhook_configuration_correct')})"},
                kind="stat",
                width=6,
            ),
            Panel(
                "Repairs of configurations",
                "Writes per second because a configuration was not as required. More than a few: another writer disagrees.",
                {"{{configuration}}": rate("extender_webhook_configuration_repairs_total", "configuration")},
                "ops",
                width=6,
            ),
            Panel(
                "Status of policies",
                "Writes and events per second by the leader. `failed`: see the log. `suppressed`: repetitions, or too many at once. "
                "Of a pod: one that admission missed.",
                {
                    "status {{result}}": rate("extender_policy_status_writes_total", "result"),
                    "event {{result}}": rate("extender_policy_events_total", "result"),
                    "event of a pod {{result}}": rate("extender_missed_admission_events_total", "result"),
                },
                "ops",
                width=6,
            ),
            Panel(
                "Certificates expire in",
                "Time to the expiry of the certificate that is served, and of the newest own authority.",
                {"{{name}}": f"min by (name) ({at('extender_webhook_certificate_expiry_timestamp_seconds')}) - time()"},
                "s",
                "stat",
                6,
                steps=((None, "red"), (259200, "yellow"), (1209600, "green")),
            ),
            Panel(
                "Steps of certificates",
                "made, prepared (a new authority beside the old one), switched, pruned; restored: the Secret was deleted; "
                "failed: see the log.",
                {"{{step}}": f"sum by (step) ({at('extender_webhook_certificate_rotations_total')})"},
                kind="stat",
                width=6,
            ),
        ],
        "Release of groups": [
            Panel(
                "Groups of gated pods",
                "Groups that the leader releases, by phase and by what they wait for.",
                {"{{phase}} {{reason}}": f"sum by (phase, reason) ({at('extender_release_groups')})"},
                width=8,
            ),
            Panel(
                "Longest wait",
                "How long the group that waits longest has waited for its decision or for room.",
                {"wait": f"max({at('extender_release_oldest_wait_seconds')})"},
                "s",
                "stat",
                4,
            ),
            Panel(
                "Patches of pods",
                "Releases of pods per second. `refused`, `forbidden`: see the events of the pods; `unknown`: no usable answer.",
                {"{{result}}": rate("extender_release_patches_total", "result")},
                "ops",
                width=6,
            ),
            Panel(
                "Ends by timeout",
                "Groups whose decisionTimeout was over, by what their policy says happens then.",
                {"{{action}}": f"sum by (action) ({at('extender_release_timeouts_total')})"},
                kind="stat",
                width=6,
            ),
            Panel(
                "Time to choose a domain",
                "For one group: 99th percentile, by result.",
                {"{{result}} p99": quantile(0.99, "extender_release_decision_seconds", "result")},
                "s",
                width=8,
            ),
            Panel(
                "Time until all pods are released",
                "From the first sight of a group until the last of its pods was released.",
                {
                    "p99": quantile(0.99, "extender_release_wait_seconds"),
                    "p50": quantile(0.5, "extender_release_wait_seconds"),
                },
                "s",
                width=8,
            ),
            Panel(
                "Releases that the watch has not shown",
                "Pods whose release was sent and is not seen yet, how many had to be read because that took too long, and failures, which are bugs.",
                {
                    "expected": f"sum({at('extender_release_expectations')})",
                    "expired": f"sum({at('extender_release_expectations_expired_total')})",
                    "failures": f"sum({at('extender_release_failures_total')})",
                },
                width=4,
            ),
            Panel(
                "Pods without a policy",
                "Pods with our gate that no policy releases any more: waiting for release.orphanGrace, or released unpinned.",
                {"{{state}}": f"sum by (state) ({at('extender_release_orphans')})"},
                width=4,
            ),
        ],
    },
)
