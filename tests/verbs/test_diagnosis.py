"""What `doctor` finds: each planted mistake, with its check and severity, and nothing where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.settings import API_VERSION, KIND, Settings, parse_settings
from extender.verbs.diagnosis import Facts, Finding, Sample, diagnose
from extender.verbs.permissions import needed_permissions
from extender.verbs.scheduler_stanza import examine_scheduler

NOW = 1_800_000_000.0
FILTER = {"verb": "filter"}
GOOD_SAMPLES = (
    Sample("extender_requests_total", FILTER | {"code": "200"}, 1000),
    Sample("extender_last_request_timestamp_seconds", FILTER, NOW - 60),
    Sample("extender_questions_total", FILTER | {"form": "names"}, 1000),
    Sample("extender_questions_total", FILTER | {"form": "nodes"}, 0),
    Sample("extender_request_failures_total", FILTER | {"reason": "not_ready"}, 3),
    Sample("extender_cache_lag_seconds", {"resource": "pods"}, 20),
    Sample("extender_decode_errors_total", {"resource": "pods"}, 0),
    Sample("extender_certificate_expiry_timestamp_seconds", {"name": "server"}, NOW + 90 * 86400),
    Sample("extender_certificate_reloads_total", {"result": "failed"}, 0),
    Sample("extender_index_entries", {"kind": "nodes"}, 500),
)
CLOCKS = {"the service": 1.0, "the apiserver": -1.0}
GOOD = Facts(Settings(), NOW, {"pods": "", "nodes": ""}, GOOD_SAMPLES, (), CLOCKS, "extender-1", 2.0)


def settings(**sections: object) -> Settings:
    """A configuration with these sections."""
    return parse_settings({"apiVersion": API_VERSION, "kind": KIND, **sections})


def sampled(name: str, value: float, /, **labels: str) -> Facts:
    """The good facts with one series changed, or one more."""
    kept = [one for one in GOOD_SAMPLES if (one.name, one.labels) != (name, labels)]
    return replace(GOOD, samples=[*kept, Sample(name, labels, value)])


def told(found: list[Finding]) -> list[tuple[str, str]]:
    """What scripts go by."""
    return [(finding.severity, finding.check) for finding in found]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert diagnose(GOOD) == []


def test_nothing_is_found_where_nothing_is_known() -> None:
    assert diagnose(Facts(Settings(), NOW)) == []


LOCAL_AND_OPEN = {"bindAddress": "0.0.0.0:8888"}
READ_PODS = needed_permissions(Settings())[4]
NOMINATE = next(one for one in needed_permissions(Settings()) if one.subresource == "status")


@pytest.mark.parametrize(
    ("facts", "expected", "words"),
    [
        (replace(GOOD, readiness={"pods": "not listed yet"}), ("error", "ready"), "not listed yet"),
        (sampled("extender_requests_total", 0, verb="filter", code="200"), ("error", "called"), "has not asked"),
        (
            sampled("extender_last_request_timestamp_seconds", NOW - 7200, verb="filter"),
            ("info", "called"),
            "120 minutes ago",
        ),
        (sampled("extender_questions_total", 2000, verb="filter", form="nodes"), ("warning", "names"), "whole nodes"),
        (
            sampled("extender_request_failures_total", 50, verb="filter", reason="forbidden"),
            ("error", "failures"),
            "forbidden",
        ),
        (
            sampled("extender_request_failures_total", 50, verb="filter", reason="overloaded"),
            ("warning", "failures"),
            "50 of 1000",
        ),
        (sampled("extender_cache_lag_seconds", 200, resource="pods"), ("warning", "feeds"), "pods for 200 s"),
        (sampled("extender_decode_errors_total", 2, resource="pods"), ("warning", "feeds"), "could not be read"),
        (replace(GOOD, denied=[READ_PODS]), ("error", "permissions"), "may not list pods"),
        (replace(GOOD, denied=[NOMINATE]), ("warning", "permissions"), "may not patch pods/status"),
        (replace(GOOD, clocks={"the apiserver": -30.0}), ("warning", "clock"), "30 s behind"),
        (
            sampled("extender_certificate_expiry_timestamp_seconds", NOW + 86400, name="server"),
            ("warning", "certificate"),
            "expires in 1.0 days",
        ),
        (
            sampled("extender_certificate_expiry_timestamp_seconds", NOW - 1, name="client_ca"),
            ("error", "certificate"),
            "client_ca has expired",
        ),
        (sampled("extender_certificate_reloads_total", 1, result="failed"), ("warning", "certificate"), "old ones"),
        (replace(GOOD, settings=settings(server=LOCAL_AND_OPEN)), ("info", "exposure"), "0.0.0.0:8888"),
        (replace(GOOD, settings=settings(assumedPods={"enabled": False})), ("warning", "assumed"), "can meet"),
        (replace(GOOD, lease_holder=""), ("error", "lease"), "nobody holds"),
        (replace(GOOD, lease_age=300.0), ("error", "lease"), "extender-1 holds the Lease and has not renewed"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_a_planted_mistake_is_found_alone(facts: Facts, expected: tuple[str, str], words: str) -> None:
    found = diagnose(facts)
    assert told(found) == [expected]
    assert words in found[0].problem
    assert found[0].remedy


def test_whole_nodes_that_do_not_fit_into_a_body_are_found() -> None:
    whole = Sample("extender_questions_total", FILTER | {"form": "nodes"}, 10)
    facts = sampled("extender_index_entries", 5000, kind="nodes")
    facts = replace(facts, samples=[*(facts.samples or ()), whole])
    assert told(diagnose(facts)) == [("warning", "body")]


def test_the_lease_needs_leave_in_its_namespace_and_by_its_name() -> None:
    leading = settings(leaderElection={"enabled": True, "leaseNamespace": "team"})
    found = {one.asked for one in needed_permissions(leading)} - {one.asked for one in needed_permissions(Settings())}
    assert {(verb, resource, namespace, name) for verb, _, resource, _, namespace, name in found} == {
        ("create", "leases", "team", ""),
        ("get", "leases", "team", "placement-extender"),
        ("update", "leases", "team", "placement-extender"),
    }


# -- the scheduler's configuration ----------------------------------------------------------------------------------

STANZA: dict[str, Any] = {
    "urlPrefix": "http://127.0.0.1:8888",
    "filterVerb": "filter",
    "preemptVerb": "preempt",
    "weight": 1,
    "nodeCacheCapable": True,
    "httpTimeout": "5s",
    "ignorable": False,
}
OFF = {"multiPoint": {"disabled": [{"name": "InterPodAffinity"}, {"name": "PodTopologySpread"}]}}
TLS = {"tls": {"certFile": "/tls.crt", "keyFile": "/tls.key", "clientCAFile": "/ca.crt"}}
SECURE: dict[str, Any] = {
    "urlPrefix": "https://127.0.0.1:8888",
    "enableHTTPS": True,
    "tlsConfig": {"caFile": "/ca.crt", "certFile": "/client.crt", "keyFile": "/client.key"},
}


def document(plugins: object = OFF, top: dict[str, Any] | None = None, **changes: object) -> dict[str, Any]:
    """A good configuration for offload mode, with changes of the stanza; None takes a field out."""
    stanza = {name: value for name, value in {**STANZA, **changes}.items() if value is not None}
    profile = {"schedulerName": "default-scheduler", "plugins": plugins}
    return {"kind": "KubeSchedulerConfiguration", "profiles": [profile], "extenders": [stanza], **(top or {})}


def scoring(**changes: Any) -> dict[str, Any]:
    """One that asks for scores as well."""
    return document(prioritizeVerb="prioritize", **changes)


@pytest.mark.parametrize(
    ("given", "ours", "severities", "words"),
    [
        ({"kind": "Pod"}, Settings(), ["error"], "kind is Pod"),
        (document(top={"extenders": []}), Settings(), ["error"], "none of the 0 extenders"),
        (document(urlPrefix="http://127.0.0.1:9999"), Settings(), ["warning"], "listens on port 8888"),
        (document(filterVerb=None), Settings(), ["error"], "filterVerb is missing"),
        (document(filterVerb="predicates"), Settings(), ["error"], "answers at /filter"),
        (document(), settings(placement="cooperative"), ["warning"], "prioritizeVerb is missing"),
        (scoring(), Settings(), ["info"], "every answer to it is empty"),
        (document(prioritizeVerb="priorities"), Settings(), ["info", "error"], "every answer to it is empty"),
        (document(preemptVerb=None), Settings(), ["warning"], "preemptVerb is missing"),
        (document(managedResources=[{"name": "x/y"}]), Settings(), ["warning"], "managedResources"),
        (
            document(urlPrefix="https://127.0.0.1:8888", enableHTTPS=True, tlsConfig={"caFile": "/ca"}),
            Settings(),
            ["error"],
            "plain HTTP",
        ),
        (
            document(**SECURE | {"tlsConfig": {"insecure": True, "certFile": "/c", "keyFile": "/k"}}),
            settings(server=TLS),
            ["error"],
            "without an authority",
        ),
        (document(**SECURE | {"enableHTTPS": False}), settings(server=TLS), ["error"], "enableHTTPS is not set"),
        (
            document(**SECURE | {"tlsConfig": {"caFile": "/ca.crt"}}),
            settings(server=TLS),
            ["error"],
            "tlsConfig has none",
        ),
        (document(urlPrefix="http://10.0.0.9:8888"), Settings(), ["warning"], "in plain HTTP"),
        (
            document(**SECURE | {"urlPrefix": "https://extender.kube-system.svc:8888"}),
            settings(server=TLS),
            ["info"],
            "cluster DNS",
        ),
        (scoring(weight=0), settings(placement="cooperative"), ["error"], "weight is 0"),
        (scoring(weight=100), settings(placement="cooperative"), ["warning"], "worth 1000"),
        (document(nodeCacheCapable=False), Settings(), ["warning"], "nodeCacheCapable is off"),
        (document(httpTimeout="4s"), Settings(), ["warning"], "not longer than server.requestTimeout (4s)"),
        (document(ignorable=True), Settings(), ["error"], "ignorable is on"),
        (scoring(plugins={}, ignorable=False), settings(mode="augment"), ["warning"], "ignorable is off"),
        (document(plugins={}), Settings(), ["warning", "warning"], "InterPodAffinity is still on"),
        (
            document(plugins={"filter": OFF["multiPoint"], "score": OFF["multiPoint"]}),
            Settings(),
            ["warning", "warning"],
            "at some points only",
        ),
        (scoring(ignorable=True), settings(mode="augment"), ["error", "error"], "does not decide in its place"),
        (document(), settings(steering={"nominate": False}), ["warning"], "sample of the nodes"),
        (document(top={"percentageOfNodesToScore": 100}), Settings(), ["info"], "percentageOfNodesToScore is 100"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_mistake_in_the_schedulers_configuration_is_found_alone(
    given: dict[str, Any], ours: Settings, severities: list[str], words: str
) -> None:
    found = examine_scheduler(given, ours, nodes=5000)
    assert [finding.severity for finding in found] == severities
    assert {finding.check for finding in found} == {"scheduler"}
    assert words in found[0].problem
    assert all(finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (document(), Settings()),
        (document(**SECURE), settings(server=TLS)),
        (scoring(plugins={}, ignorable=True), settings(mode="augment")),
        (scoring(), settings(placement="cooperative")),
        (document(weight=0), Settings()),
        (scoring(), settings(answers={"shortlist": 0})),
        (document(plugins={"multiPoint": {"disabled": [{"name": "*"}]}}), Settings()),
        (document(top={"percentageOfNodesToScore": 100}), settings(steering={"nominate": False})),
    ],
    ids=[
        "offload",
        "https",
        "augment",
        "cooperative",
        "no scores",
        "no shortlist",
        "all plugins off",
        "no steering and all nodes",
    ],
)
def test_a_good_configuration_of_the_scheduler_gives_no_finding(given: dict[str, Any], ours: Settings) -> None:
    assert examine_scheduler(given, ours, nodes=5000) == []
