"""What `doctor` finds: each planted mistake, with its check and severity, and nothing where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from extender.doctor.facts import APPLY_OVERLAY, Deployment, Facts, Sample, SchedulerCalls, needed_permissions
from extender.doctor.service import examine_differences
from extender.model.units import ago
from extender.server.transport.tls import TLSFileProblem
from extender.settings.configuration import Settings, in_namespace
from tests.doctor.facts import (
    FILTER,
    GOOD,
    NOW,
    compared,
    diagnose,
    failed,
    reported,
    sampled,
    settings,
    standing_by,
    uncalled,
    unusable,
)


def test_namespaces_are_named_whose_pods_wait_for_the_budget_or_will_soon() -> None:
    used = "extender_namespace_budget_used_ratio"
    facts = sampled(
        Sample("extender_namespace_budget_waiting_pods", {"pod_namespace": "(others)"}, 0),
        Sample("extender_namespace_budget_waiting_pods", {"pod_namespace": "team-a"}, 7),
        Sample(used, {"pod_namespace": "team-a", "limit": "selectors"}, 1.0),
        Sample(used, {"pod_namespace": "team-b", "limit": "topologyKeys"}, 0.81),
        Sample(used, {"pod_namespace": "team-b", "limit": "selectors"}, 0.59),
    )
    assert reported(diagnose(facts)) == [
        ("warning", "budget", "7 pods of namespace team-a wait for its budget"),
        ("info", "budget", "namespace team-b uses 81% of limits.perNamespace.topologyKeys"),
    ]


@pytest.mark.parametrize(
    ("check", "problem", "remedy"),
    [
        ("pods", "not yet", "requests are answered with 503"),
        ("webhook certificate", "not yet", "the API server does not call this replica"),
        ("webhook certificate", "expired on 2026-02-01T00:00:00Z", "the leader makes and renews it"),
        ("webhook certificate", "not valid before 2026-02-01T00:00:00Z", "synchronize the clocks"),
    ],
)
def test_the_remedy_of_a_readiness_check_says_what_is_not_served_until_then(
    check: str, problem: str, remedy: str
) -> None:
    (found,) = diagnose(replace(GOOD, readiness={check: problem}))
    assert found.remedy.startswith(remedy)


# What is right, over, rare or not known.
NOTHING: dict[str, Facts] = {
    "nothing is wrong": GOOD,
    "nothing is known": Facts(Settings(), NOW),
    "one request of a hundred failed": failed("overloaded", 10, 100),
    "less than one of a hundred was too large": failed("too_large", 5, 80),
    "one unauthenticated curl": failed("unauthenticated", 1, 80),
    "strangers of yesterday": failed("unauthenticated", 300, 86400),
    "an outage of yesterday": failed("overloaded", 300, 86400),
    "a pod of this moment": replace(GOOD, queue=SchedulerCalls(untried=1, untried_since=NOW - 10)),
    "a pod behind others": replace(GOOD, queue=SchedulerCalls(untried=1, untried_since=NOW - 60, tried_at=NOW - 1)),
    "an error of another kind": replace(GOOD, queue=SchedulerCalls(failed=("running PreBind plugin: timed out",))),
}


@pytest.mark.parametrize("facts", NOTHING.values(), ids=NOTHING)
def test_nothing_is_found_where_nothing_is_wrong(facts: Facts) -> None:
    assert diagnose(facts) == []


@pytest.mark.parametrize(("result", "count"), [("ok", 0), ("notfound", 0), ("conflict", 0), ("unreachable", 1)])
def test_a_call_that_was_forbidden_is_allowed_by_a_later_result_that_only_allowed_calls_have(
    result: str, count: int
) -> None:
    name = "extender_last_api_write_timestamp_seconds"
    forbidden = Sample(name, {"call": "get_lease", "result": "forbidden"}, NOW - 60)
    found = diagnose(sampled(forbidden, Sample(name, {"call": "get_lease", "result": result}, NOW - 30)))
    assert [one.check for one in found] == ["writes"] * count


LOCAL_AND_OPEN = {"bindAddress": "0.0.0.0:8888"}
WITHOUT_ROLES = {"tls": {"certFile": "a.crt", "keyFile": "a.key", "clientCAFile": "ca.crt"}}
READ_PODS = needed_permissions(Settings())[4]
NOMINATE = next(one for one in needed_permissions(Settings()) if one.subresource == "status")
EVENTS = next(one for one in needed_permissions(Settings()) if one.resource == "events")
NEVER = "kube-scheduler has not called filter since the service started"
FAIL = "kube-scheduler's calls fail, 2 pods wait: "
POST = 'Post "http://127.0.0.1:1/filter": '
NAMES = "tls: x509: certificate is valid for 127.0.0.1, not 10.0.0.7"
PAST = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time is after 2026-01-01"
STATUS = "failed filter with extender at URL http://127.0.0.1:8888/v2/filter, code "
TAINTED = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."
STANDBY = "standby, the leader is extender-2"

# A wrong set-up, and all that is found of it.
MISTAKES: dict[str, tuple[Facts, tuple[str, str, str]]] = {
    "a kind is not listed": (
        replace(GOOD, readiness={"pods": "not listed yet"}),
        ("error", "ready", "readiness check pods fails: not listed yet"),
    ),
    "it may not watch": (
        replace(GOOD, readiness={"namespaces": "watch of namespaces rejected: 403 namespaces is forbidden"}),
        (
            "error",
            "ready",
            "readiness check namespaces fails: watch of namespaces rejected: 403 namespaces is forbidden",
        ),
    ),
    "a healthy standby": (
        standing_by(STANDBY),
        ("info", "standby", "this replica is a standby, the leader is extender-2"),
    ),
    "the other scheduler of two leads": (
        replace(uncalled(SchedulerCalls(scheduled=3)), deployment=Deployment(schedulers=2)),
        ("info", "called", f"{NEVER}; 2 pods have a scheduler beside the extender, and this one may stand by"),
    ),
    "this scheduler of two leads, and places pods without us": (
        replace(uncalled(SchedulerCalls(scheduled=1)), deployment=Deployment(schedulers=2), leads=True),
        ("error", "called", f"{NEVER}, but 1 pod was bound meanwhile: it places pods without the extender"),
    ),
    "a scheduler that places pods without us": (
        uncalled(SchedulerCalls(scheduled=3)),
        ("error", "called", f"{NEVER}, but 3 pods were bound meanwhile: it places pods without the extender"),
    ),
    "its calls meet nothing": (
        uncalled(SchedulerCalls(failed=(f"{POST}dial tcp 127.0.0.1:1: connect: connection refused", "other") * 2)),
        ("error", "called", f"{FAIL}nothing listens there ({POST}dial tcp 127.0.0.1:1: connect: connection refused)"),
    ),
    "its calls lead to another path, long after the service was called": (
        replace(GOOD, queue=SchedulerCalls(failed=(f"binding rejected: {STATUS}404",) * 2)),
        ("error", "called", f"{FAIL}{STATUS}404"),
    ),
    "it has no name for us": (
        uncalled(SchedulerCalls(failed=(f"{POST}dial tcp: lookup extender on 10.0.0.10:53: no such host",) * 2)),
        (
            "error",
            "called",
            f"{FAIL}the scheduler cannot resolve the name ({POST}dial tcp: lookup extender on 10.0.0.10:53: no such host)",
        ),
    ),
    "it is shut out": (
        uncalled(SchedulerCalls(failed=(f"{POST}context deadline exceeded",) * 2)),
        ("error", "called", f"{FAIL}no answer comes ({POST}context deadline exceeded)"),
    ),
    "it expects HTTPS": (
        uncalled(SchedulerCalls(failed=(f"{POST}http: server gave HTTP response to HTTPS client",) * 2)),
        (
            "error",
            "called",
            f"{FAIL}the extender serves plain HTTP ({POST}http: server gave HTTP response to HTTPS client)",
        ),
    ),
    "a name that our certificate lacks": (
        uncalled(SchedulerCalls(failed=(f"{POST}{NAMES}",) * 2)),
        (
            "error",
            "called",
            f"{FAIL}the extender's certificate does not have the name in urlPrefix ({POST}{NAMES})",
        ),
    ),
    "our certificate has expired": (
        uncalled(SchedulerCalls(failed=(f"{POST}{PAST}",) * 2)),
        ("error", "called", f"{FAIL}the extender's certificate, or its CA, has expired ({POST}{PAST})"),
    ),
    "it does not run": (
        uncalled(SchedulerCalls(untried=1, untried_since=NOW - 60, tried_at=NOW - 61)),
        ("error", "called", "kube-scheduler has not tried 1 pod, the oldest for 1 minute: it does not run"),
    ),
    "every node is tainted": (
        uncalled(SchedulerCalls(rejected=(TAINTED,))),
        ("info", "called", f'{NEVER}: its own plugins reject every node first ("{TAINTED}")'),
    ),
    "no pod to place": (
        uncalled(SchedulerCalls()),
        ("info", "called", f"{NEVER}, and no pod was bound meanwhile"),
    ),
    "never called, and the cluster not looked at": (uncalled(None), ("error", "called", NEVER)),
    "never called, and the pods refused": (
        replace(uncalled(None), unread_pods="403 pods is forbidden"),
        ("warning", "called", f"{NEVER}; it is unknown whether any pod waited for it: 403 pods is forbidden"),
    ),
    "silent for long": (
        sampled(
            Sample("extender_last_request_timestamp_seconds", FILTER, NOW - 7200),
            Sample("extender_last_decision_timestamp_seconds", FILTER, NOW - 7200),
            Sample("extender_last_failure_timestamp_seconds", FILTER | {"reason": "not_ready"}, NOW - 7200),
        ),
        ("info", "called", "the last request came 2 hours ago"),
    ),
    "whole nodes": (
        sampled(Sample("extender_requests_by_form_total", FILTER | {"form": "nodes"}, 2000)),
        ("warning", "names", "most requests contain whole nodes instead of names"),
    ),
    "the scheduler has no certificate": (
        failed("unauthenticated", 1, 5),
        ("error", "failures", "the last request failed 5 s ago: unauthenticated (1 since the start)"),
    ),
    "the scheduler has another name": (
        failed("forbidden", 40, 50),
        ("error", "failures", "the last request failed 50 s ago: forbidden (40 since the start)"),
    ),
    "a stranger asks often beside the scheduler": (
        failed("forbidden", 50, 100),
        ("info", "failures", "50 of 1000 requests failed, the last one 2 minutes ago: forbidden"),
    ),
    "a little more than one of a hundred": (
        failed("overloaded", 11, 100),
        ("warning", "failures", "11 of 1000 requests failed, the last one 2 minutes ago: overloaded"),
    ),
    "overload": (
        failed("overloaded", 50, 100),
        ("warning", "failures", "50 of 1000 requests failed, the last one 2 minutes ago: overloaded"),
    ),
    "a silent watch": (
        sampled(Sample("extender_cache_lag_seconds", {"resource": "pods"}, 200)),
        ("warning", "watches", "the watch of pods has had no event for 3 minutes; a bookmark comes every minute"),
    ),
    "objects that cannot be read": (
        sampled(Sample("extender_unreadable_objects", {"resource": "pods"}, 2)),
        ("warning", "watches", "2 objects of pods cannot be decoded: they count as last decoded, if ever"),
    ),
    "writes are forbidden": (
        sampled(Sample("extender_last_api_write_timestamp_seconds", {"call": "nominate", "result": "forbidden"}, NOW)),
        ("error", "writes", "the API server forbids the service's call nominate, last 0 s ago"),
    ),
    "no permission to read": (
        replace(GOOD, denied=[READ_PODS]),
        ("error", "permissions", "the account may not list pods"),
    ),
    "no permission to nominate": (
        replace(GOOD, denied=[NOMINATE]),
        ("error", "permissions", "the account may not patch pods/status"),
    ),
    "no permission for events": (
        replace(GOOD, denied=[EVENTS]),
        ("warning", "permissions", "the account may not create events.events.k8s.io"),
    ),
    "another account was looked up": (
        replace(GOOD, account="the account of this command"),
        (
            "info",
            "account",
            "permissions were checked for the account of this command, which may not be the service's account",
        ),
    ),
    "another account that may not be looked up": (
        replace(GOOD, account="system:serviceaccount:a:b", denied=None),
        (
            "info",
            "account",
            "the permissions of system:serviceaccount:a:b were not checked: this command may not review permissions of other accounts",
        ),
    ),
    "a clock behind": (
        replace(GOOD, clocks={"the apiserver": -30.0}),
        ("warning", "clock", "the clock of the apiserver is 30 s behind this one"),
    ),
    "a clock ahead": (
        replace(GOOD, clocks={"the service": 30.0}),
        ("warning", "clock", "the clock of the service is 30 s ahead of this one"),
    ),
    "a certificate that ends today": (
        sampled(Sample("extender_certificate_expiry_timestamp_seconds", {"name": "server"}, NOW + 2000)),
        ("warning", "certificate", "the certificate server expires in 33 minutes"),
    ),
    "a certificate that ends tomorrow": (
        sampled(Sample("extender_certificate_expiry_timestamp_seconds", {"name": "server"}, NOW + 86400)),
        ("warning", "certificate", "the certificate server expires in 1 day"),
    ),
    "a certificate that ends in ten days": (
        sampled(Sample("extender_certificate_expiry_timestamp_seconds", {"name": "client_ca"}, NOW + 10 * 86400)),
        ("warning", "certificate", "the certificate client_ca expires in 10 days"),
    ),
    "a certificate in use has expired": (
        sampled(Sample("extender_certificate_expiry_timestamp_seconds", {"name": "client_ca"}, NOW - 1)),
        ("error", "certificate", "the certificate client_ca expired 1 s ago"),
    ),
    "an expired certificate on disk": (
        unusable("expired"),
        (
            "warning",
            "certificate",
            "the certificate files on disk contain an expired certificate; the previous ones stay in use",
        ),
    ),
    "key and certificate differ": (
        unusable("mismatch"),
        (
            "warning",
            "certificate",
            "the certificate files on disk are a certificate and the key of another one; the previous ones stay in use",
        ),
    ),
    "open to the network": (
        replace(GOOD, settings=settings(server=LOCAL_AND_OPEN)),
        ("warning", "exposure", "the service answers every client that can connect to 0.0.0.0:8888"),
    ),
    "clients without roles": (
        replace(GOOD, settings=settings(server=WITHOUT_ROLES)),
        ("warning", "roles", "every client of server.tls.clientCAFile has every role"),
    ),
    "nothing is assumed": (
        replace(GOOD, settings=settings(assumedPods={"enabled": False})),
        ("warning", "assumed", "assumedPods.enabled is false: two pods with anti-affinity can get the same node"),
    ),
    "whole nodes that do not fit": (
        sampled(
            Sample("extender_requests_by_form_total", FILTER | {"form": "nodes"}, 10),
            Sample("extender_index_entries", {"kind": "nodes"}, 5000),
        ),
        ("warning", "body", "server.maxBodyBytes is enough for about 699 whole nodes, but the cluster has 5000"),
    ),
    "no leader": (replace(GOOD, lease_holder=""), ("error", "lease", "no replica holds the Lease, so none answers")),
    "a leader that is gone": (
        replace(GOOD, lease_age=300.0),
        ("error", "lease", "extender-1 holds the Lease but has not renewed it for 5 minutes"),
    ),
}


@pytest.mark.parametrize(("facts", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_set_up_gives_exactly_one_finding(facts: Facts, expected: tuple[str, str, str]) -> None:
    found = diagnose(facts)
    assert reported(found) == [expected]
    assert found[0].remedy


def test_a_kind_that_was_never_listed_is_no_silent_watch_as_well() -> None:
    lag = Sample("extender_cache_lag_seconds", {"resource": "pods"}, 7200)
    facts = replace(sampled(lag), readiness={"pods": "retrying: connection refused"})
    assert [one.check for one in diagnose(facts)] == ["ready"]


@pytest.mark.parametrize(
    ("code", "words"),
    [("404", "answers at /filter"), ("403", "server.tls.clients"), ("503", "normal after a start"), ("500", "log")],
)
def test_each_status_of_a_call_has_a_remedy_of_its_own(code: str, words: str) -> None:
    (found,) = diagnose(replace(GOOD, queue=SchedulerCalls(failed=(STATUS + code,))))
    assert words in found.remedy


@pytest.mark.parametrize("end", ["EOF", "read: connection reset by peer", "remote error: tls: bad certificate"])
def test_a_connection_that_the_extender_ends_is_a_rejected_certificate_where_it_asks_for_one(end: str) -> None:
    queue = SchedulerCalls(failed=(POST + end,))
    tls = {"tls": WITHOUT_ROLES["tls"] | {"clients": {"admin": ["a"]}}}
    (found,) = diagnose(replace(GOOD, queue=queue, settings=settings(server=tls)))
    assert "rejects the scheduler's client certificate" in found.problem
    (found,) = diagnose(replace(GOOD, queue=queue))
    assert "no answer comes" in found.problem


def test_two_causes_share_neither_problem_nor_both_texts() -> None:
    found = [finding for facts, _ in MISTAKES.values() for finding in diagnose(facts)]
    assert len({one.problem for one in found}) == len(MISTAKES)


def test_each_cause_of_unusable_certificate_files_has_its_own_words() -> None:
    texts = {
        tuple(one.remedy for one in diagnose(unusable(cause.value)))
        for cause in TLSFileProblem
        if cause is not TLSFileProblem.EXPIRED
    }
    problems = {tuple(one.problem for one in diagnose(unusable(cause.value))) for cause in TLSFileProblem}
    assert len(problems) == len(TLSFileProblem)
    assert len(texts) == len(TLSFileProblem) - 1


@pytest.mark.parametrize(
    "facts",
    [
        standing_by("standby, no replica leads"),
        standing_by(f"{STANDBY}; the Lease cannot be read"),
        standing_by(STANDBY, nodes="not listed yet"),
    ],
    ids=["no leader", "a problem of its own", "behind the cluster"],
)
def test_a_standby_that_lacks_more_than_the_lease_is_not_ready(facts: Facts) -> None:
    assert ("error", "ready") in [(one.severity, one.check) for one in diagnose(facts)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 minute"), (3599, "60 minutes"), (7200, "2 hours"), (86400 * 3, "3 days")],
)
def test_a_time_span_is_written_in_one_unit(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_a_change_of_mode_is_one_finding() -> None:
    found = list(examine_differences(settings(mode="augment"), settings(mode="offload")))
    followers = "answers.shortlist, placement, rules.interPodAffinity.enabled, rules.topologySpread.enabled"
    problem = f"mode is offload in the running service but augment in the file ({followers} differ because of it)"
    assert [one.problem for one in found] == [problem]


POLICIES: Final[dict[str, Any]] = {"enabled": True}
OURS = settings(leaderElection={"enabled": True}, policies=POLICIES)
WITHOUT_EXEMPT = settings(policies={"enabled": True, "exemptNamespaces": []})
BESIDE = settings(mode="augment", answers={"shortlist": 7}, audit={"pause": "1s"})
DIFFERENCES: dict[str, tuple[Settings, Settings, list[str]]] = {
    "the namespace of the pod": (OURS, in_namespace(OURS, "placement-extender"), []),
    "a namespace of the Lease": (
        settings(leaderElection={"enabled": True, "leaseNamespace": "other"}, policies=POLICIES),
        in_namespace(OURS, "placement-extender"),
        ["leaderElection.leaseNamespace"],
    ),
    "the namespace of a service outside of a pod": (
        WITHOUT_EXEMPT,
        in_namespace(settings(policies=POLICIES), "kube-system"),
        [],
    ),
    "an exempt namespace that no pod filled in": (
        WITHOUT_EXEMPT,
        settings(policies=POLICIES | {"webhook": {"serviceNamespace": "hooks"}}),
        ["policies.exemptNamespaces"],
    ),
    "a setting that does not follow the mode": (
        BESIDE,
        settings(mode="offload"),
        ["mode", "answers.shortlist", "audit.pause"],
    ),
}


@pytest.mark.parametrize(("ours", "running", "fields"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_settings_that_differ_are_named(ours: Settings, running: Settings, fields: list[str]) -> None:
    assert [one.problem.split(" ")[0] for one in examine_differences(ours, running)] == fields


def test_the_lease_needs_permissions_in_its_namespace_and_by_its_name() -> None:
    leading = settings(leaderElection={"enabled": True, "leaseNamespace": "team"})
    found = {one.review_arguments for one in needed_permissions(leading)} - {
        one.review_arguments for one in needed_permissions(Settings())
    }
    assert {(verb, resource, namespace, name) for verb, _, resource, _, namespace, name in found} == {
        ("create", "leases", "team", ""),
        ("get", "leases", "team", "placement-extender"),
        ("update", "leases", "team", "placement-extender"),
    }


def test_a_rejected_watch_is_cured_by_a_permission() -> None:
    rejected = 'watch of namespaces rejected: 403 namespaces is forbidden: User "x" cannot list resource "namespaces"'
    facts = replace(GOOD, readiness={"namespaces": rejected})
    assert [found.remedy for found in diagnose(facts)] == [
        f"apply your overlay, where deploy/base/reader.yaml grants it: {APPLY_OVERLAY}"
    ]


def test_shadow_decisions_are_counted_and_it_is_said_when_it_is_safe_to_switch() -> None:
    agreed = "250 decisions compared, 0 differ (InterPodAffinity 150, PodTopologySpread 100 agreed)"
    ((severity, problem, remedy),) = compared()
    assert (severity, problem) == ("info", agreed)
    assert remedy.startswith("it is safe to switch to offload")
    ((severity, problem, remedy),) = compared(hours=3)
    assert (severity, problem) == ("info", agreed)
    assert remedy == "wait until a day has passed since the start, 3 hours ago; then it is safe to switch to offload"
    ((severity, problem, remedy),) = compared(spread=99)
    assert (severity, remedy.partition(";")[0]) == ("info", "wait until 100 of each agreed")


def test_it_is_not_safe_to_switch_while_a_shadow_decision_differs() -> None:
    ((severity, problem, remedy),) = compared(differed=1, unproven=2)
    assert (severity, problem) == ("warning", "253 decisions compared, 3 differ")
    assert remedy.startswith("do not switch to offload")
    ((severity, problem, remedy),) = compared(unproven=1)
    assert (severity, problem) == (
        "warning",
        "251 decisions compared, 1 differs, all by filter requests alone, which no binding and no condition confirms",
    )
    assert "another client" in remedy


def test_nothing_is_said_of_shadow_decisions_where_there_are_none() -> None:
    assert [one for one in diagnose(GOOD) if one.check == "shadow"] == []
