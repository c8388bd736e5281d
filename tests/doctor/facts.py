"""A set-up without a finding, and what doctor says of others."""

from __future__ import annotations

from dataclasses import replace

from extender.doctor.facts import Facts, Finding, Sample, SchedulerCalls
from extender.doctor.service import examine_service
from extender.doctor.surroundings import examine_surroundings
from extender.settings.configuration import API_VERSION, KIND, Settings, parse_settings

NOW = 1_800_000_000.0
FILTER = {"verb": "filter"}
GOOD_SAMPLES = (
    Sample("extender_requests_total", FILTER | {"code": "200"}, 1000),
    Sample("extender_last_request_timestamp_seconds", FILTER, NOW - 60),
    Sample("extender_last_decision_timestamp_seconds", FILTER, NOW - 60),
    Sample("extender_requests_by_form_total", FILTER | {"form": "names"}, 1000),
    Sample("extender_requests_by_form_total", FILTER | {"form": "nodes"}, 0),
    Sample("extender_request_failures_total", FILTER | {"reason": "not_ready"}, 3),
    Sample("extender_last_failure_timestamp_seconds", FILTER | {"reason": "not_ready"}, NOW - 300),
    Sample("extender_last_api_write_timestamp_seconds", {"call": "nominate", "result": "ok"}, NOW - 30),
    Sample("extender_last_api_write_timestamp_seconds", {"call": "nominate", "result": "forbidden"}, NOW - 90),
    Sample("extender_cache_lag_seconds", {"resource": "pods"}, 20),
    Sample("extender_unreadable_objects", {"resource": "pods"}, 0),
    Sample("extender_certificate_expiry_timestamp_seconds", {"name": "server"}, NOW + 90 * 86400),
    Sample("extender_certificate_reloads_total", {"result": "failed"}, 1),
    Sample("extender_index_entries", {"kind": "nodes"}, 500),
)
CLOCKS = {"the service": 1.0, "the apiserver": -1.0}
GOOD = Facts(Settings(), NOW, {"pods": "", "nodes": ""}, GOOD_SAMPLES, (), CLOCKS, "extender-1", 2.0)


def settings(**sections: object) -> Settings:
    """A configuration with these sections."""
    return parse_settings({"apiVersion": API_VERSION, "kind": KIND, **sections})


def sampled(*changed: Sample, facts: Facts = GOOD) -> Facts:
    """The facts with some series changed, or some more."""
    names = {(one.name, tuple(one.labels.items())) for one in changed}
    kept = [one for one in facts.samples or () if (one.name, tuple(one.labels.items())) not in names]
    return replace(facts, samples=[*kept, *changed])


def diagnose(facts: Facts) -> list[Finding]:
    """All findings from facts of the service and its surroundings."""
    return [*examine_service(facts), *examine_surroundings(facts)]


def reported(found: list[Finding]) -> list[tuple[str, str, str]]:
    """The findings without their remedies."""
    return [(one.severity, one.check, one.problem) for one in found]


def failed(reason: str, count: float, seconds_ago: float) -> Facts:
    """So many requests failed for a reason, the last one so long ago."""
    labels = FILTER | {"reason": reason}
    return sampled(
        Sample("extender_request_failures_total", labels, count),
        Sample("extender_last_failure_timestamp_seconds", labels, NOW - seconds_ago),
    )


def uncalled(queue: SchedulerCalls | None) -> Facts:
    """A service that kube-scheduler has never called, beside these pods."""
    samples = [one for one in GOOD_SAMPLES if not one.name.startswith(("extender_requests", "extender_last"))]
    return replace(GOOD, samples=samples, queue=queue)


def unusable(cause: str) -> Facts:
    """Certificate files on disk that cannot be used for a cause."""
    return sampled(Sample("extender_certificate_files_unusable", {"cause": cause}, 1))


def standing_by(problem: str, **others: str) -> Facts:
    """A replica that does not lead."""
    return replace(uncalled(None), readiness={"pods": "", "leadership": problem, **others})


def compared(
    differed: int = 0, unproven: int = 0, affinity: int = 150, spread: int = 100, hours: float = 25
) -> list[tuple[str, str, str]]:
    """What is said of shadow decisions with these results."""
    name, rule = "extender_shadow_decisions_total", "extender_shadow_rule_decisions_total"
    shadow = replace(GOOD, settings=settings(mode="augment", shadow=True))
    facts = sampled(
        Sample(name, {"source": "request", "result": "agreed"}, affinity),
        Sample(name, {"source": "condition", "result": "agreed"}, spread),
        Sample(name, {"source": "request", "result": "differed"}, differed),
        Sample(name, {"source": "request", "result": "unproven"}, unproven),
        Sample(name, {"source": "request", "result": "unconstrained"}, 5000),
        Sample(rule, {"rule": "InterPodAffinity", "result": "agreed"}, affinity),
        Sample(rule, {"rule": "PodTopologySpread", "result": "agreed"}, spread),
        Sample("process_start_time_seconds", {}, NOW - hours * 3600),
        facts=shadow,
    )
    return [(one.severity, one.problem, one.remedy) for one in diagnose(facts) if one.check == "shadow"]
