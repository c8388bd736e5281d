"""What the settings switch on and off when the service is built."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from extender.compose.service import service_of_objects
from extender.model.answers.pages import PageOf, PendingQuestion
from extender.model.policies import PolicyObject
from extender.model.units import rfc3339
from tests.builders import REQUIRED, extender_args, matching, node, pod, pod_json, settings, term
from tests.compose.services import unconnected
from tests.fakes import FakeClock
from tests.policies import policy
from tests.verbs.admit.reviewing import review

WEB: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}
CROWDED = (node("n1"), pod("there", on="n1", app="web"), pod("incoming", **WEB))
POLICIES = settings(policies={"enabled": True}, preemption={"mode": "off"}, answers={"shortlist": 50})


@pytest.mark.parametrize("requeue", [True, False])
async def test_rejected_pods_are_recorded_and_reviewed_only_where_they_are_to_be_requeued(*, requeue: bool) -> None:
    used = settings(rejectedPods={"requeue": requeue}, preemption={"mode": "off"})
    service = unconnected(used, *CROWDED)
    result = await service.verbs.filter(extender_args(pod_json("incoming", **WEB), "n1"))
    assert (list(result.passed), result.error) == ([], "")
    assert ("requeue rejected pods" in dict(service.jobs), len(service.index.rejected)) == (requeue, int(requeue))


async def test_a_bound_pod_that_a_policy_selects_counts_against_others() -> None:
    lonely = policy(affinity={"podAntiAffinity": {REQUIRED: [term("host", app="web")]}}, podSelector=matching(app="db"))
    pods = (pod("db", on="n1", app="db"), pod("incoming", app="web"))
    service = unconnected(POLICIES, PolicyObject(lonely), node("n1"), node("n2"), *pods)
    result = await service.verbs.filter(extender_args(pod_json("incoming", app="web"), "n1", "n2"))
    assert list(result.passed) == ["n2"]
    assert "recount of policies" in dict(service.jobs)


async def test_shadow_decisions_reject_nothing_and_have_a_job_metrics_and_a_page() -> None:
    used = replace(settings(mode="augment"), shadow=True)
    service = unconnected(used, *CROWDED)
    result = await service.verbs.filter(extender_args(pod_json("incoming", **WEB), "n1"))
    assert list(result.passed) == ["n1"]
    assert "shadow decisions" in dict(service.jobs)
    assert service.verbs.shadow is not None
    assert service.verbs.shadow(1).compared == 0
    assert b"extender_shadow_decisions_total{" in service.metrics.render()


@pytest.mark.parametrize(("path", "reads"), [("", False), ("/bind", True)])
async def test_bindings_without_an_answer_are_asked_about_where_the_service_binds(path: str, *, reads: bool) -> None:
    used = settings(server={"paths": {"bind": path}})
    assert ("unanswered bindings" in dict(unconnected(used).jobs)) is reads


@pytest.mark.parametrize(
    ("namespace", "passed"), [("ours", ["n1", "n2"]), ("kube-system", ["n1", "n2"]), ("shop", ["n2"])]
)
async def test_pods_of_the_services_own_namespace_are_exempt_from_policies_at_each_moment(
    namespace: str, passed: list[str]
) -> None:
    """The settings name kube-system alone."""
    incoming = pod_json("incoming", namespace=namespace)
    pending = pod("incoming", namespace=namespace)
    objects = (node("n1"), node("n2"), pending, PolicyObject(policy(nodeName="n2")))
    service = unconnected(POLICIES, *objects, namespace="ours")
    result = await service.verbs.filter(extender_args(incoming, "n1", "n2"))
    assert list(result.passed) == passed
    assert service.admission is not None
    reviewed = await service.admission.service.decide(review(incoming, namespace=namespace))
    assert ("patch" in reviewed["response"]) is (len(passed) == 1)


def test_the_settings_in_force_name_the_namespace_of_the_pod() -> None:
    used = settings(policies={"enabled": True}, leaderElection={"enabled": True})
    found = unconnected(used, namespace="ours").settings
    assert (found.leader_election.lease_namespace, found.policies.webhook.service_namespace) == ("ours", "ours")
    assert "ours" in found.policies.exempt_namespaces


@pytest.mark.parametrize("enabled", [True, False])
async def test_places_of_moves_that_an_earlier_leader_began_are_kept_before_the_first_answer(*, enabled: bool) -> None:
    used = settings(policies={"enabled": True}, leaderElection={"enabled": True}, execution={"enabled": enabled})
    moved = {"namespace": "default", "pod": "web-0", "uid": "uid-web-0", "kind": "ReplicaSet", "controller": "web"}
    moved |= {"node": "n1", "target": "n2", "constraint": "NodeAffinity", "since": rfc3339(datetime.now(UTC))}
    watching = PolicyObject(policy(when=["Execution"]), moves=({**moved, "requests": {"cpu": "1"}},))
    service = unconnected(used, node("n1"), node("n2", allocatable={"cpu": "2", "pods": "9"}), watching)
    takeover = service.replica.takeover
    assert takeover is not None
    for restore in takeover.before_answers:
        restore()
    assert list(service.index.reserved.by_node) == (["n2"] if enabled else [])


def test_a_watch_that_never_worked_is_silent_since_the_start_of_the_service() -> None:
    clock = FakeClock()
    service = unconnected(settings(), clock=clock)
    clock.time += 3
    assert 'extender_cache_lag_seconds{resource="pods"} 3.0' in service.metrics.render().decode()


async def test_pages_of_a_service_that_follows_a_cluster_know_what_is_assumed_and_in_flight() -> None:
    service = unconnected(settings(), *CROWDED, node("n2"))
    important = pod_json("important", priority=100, **WEB)
    assert (await service.verbs.filter(extender_args(pod_json("incoming", **WEB), "n1", "n2"))).passed == ["n2"]
    service.index.upsert(pod("important", priority=100, **WEB))
    await service.verbs.filter(extender_args(important, "n1"))
    browser = service.verbs.browser
    assert browser is not None
    page = await browser.pending(PendingQuestion())
    assert {row.pod: row.state for row in page.pods} == {"incoming": "assumed", "important": "preempting"}
    (preemption,) = (await browser.preemptions(PageOf())).preemptions
    assert (preemption.pod, preemption.node) == ("default/important", "n1")
    assert [(each.pod, each.state) for each in preemption.victims] == [("default/there", "running")]
    figures = await browser.figures()
    assert (figures.assumed, figures.preemptions_in_flight, figures.pending) == (1, 1, 1)
    assert browser.freshness() is None, "nothing is listed yet"


@pytest.mark.parametrize("enabled", [True, False])
async def test_what_ifs_are_on_the_metrics_page_where_they_are_answered(*, enabled: bool) -> None:
    used = settings(whatIf={"enabled": enabled})
    for service in (unconnected(used), service_of_objects(used, (), Random(1))):
        page = service.metrics.render().decode()
        assert ('extender_what_ifs_total{outcome="busy"} 0.0' in page) is enabled
        assert ("extender_what_ifs_running 0.0" in page) is enabled
