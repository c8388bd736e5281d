"""A set-up without a finding, and what doctor says of others."""

from __future__ import annotations

from dataclasses import replace

from extender.doctor.facts import Facts, Finding, Sample
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


def told(found: list[Finding]) -> list[tuple[str, str, str]]:
    """The findings without their remedies."""
    return [(one.severity, one.check, one.problem) for one in found]
