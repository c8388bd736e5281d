"""What `doctor` finds of scheduling policies: each planted mistake, with its check and severity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.doctor.facts import Facts, PolicyFacts, PolicyInUse, Sample
from extender.doctor.policies import examine_policies
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from tests.deploy.policies.examples import policy
from tests.doctor.test_findings import GOOD, sampled, told

KEPT = "WebhookConfiguration placement-extender"
INVALID = "PodSchedulingPolicy/default/one is invalid"
NUMBER = 'spec.priority: Invalid value: "high": must be an integer'


def policed(**facts: Any) -> Facts:
    """A good set-up with these facts about policies."""
    return replace(GOOD, policies=PolicyFacts(**facts))


def in_use(matched: int | None = 3, **spec: Any) -> PolicyInUse:
    """A policy of the cluster with these fields."""
    found = policy("PodSchedulingPolicy", **spec)
    try:
        return PolicyInUse(read_policy(found), matched)
    except PolicyError as error:
        return PolicyInUse(error.invalid)


# A wrong set-up, and all that is found of it.
MISTAKES: dict[str, tuple[Facts, tuple[str, str, str]]] = {
    "no CRD": (
        policed(not_served=("podschedulingpolicies.placement.extender.dev",)),
        ("error", "crds", "the API server does not serve podschedulingpolicies.placement.extender.dev"),
    ),
    "an older CRD": (
        policed(dropped={"PodSchedulingPolicy": ("spec.mode", "spec.when")}),
        (
            "warning",
            "crds",
            "the CRD of PodSchedulingPolicy is older than the service: the API server drops spec.mode, spec.when",
        ),
    ),
    "no webhook configuration": (
        policed(no_configuration=("MutatingWebhookConfiguration placement-extender",)),
        (
            "error",
            "webhook",
            "MutatingWebhookConfiguration placement-extender does not exist: the API server calls no webhook",
        ),
    ),
    "another authority": (
        policed(untrusted=(f"Mutating{KEPT}",)),
        (
            "error",
            "webhook",
            f"the caBundle of Mutating{KEPT} is not that of the serving certificate: every call of the webhook fails",
        ),
    ),
    "no Service": (
        policed(services={"kube-system/webhook": None}),
        ("error", "webhook", "the Service kube-system/webhook of the webhook does not exist"),
    ),
    "a Service without endpoints": (
        policed(services={"kube-system/webhook": 0, "kube-system/other": 1}),
        ("error", "webhook", "the Service kube-system/webhook of the webhook has no ready endpoint"),
    ),
    "a URL that leads nowhere": (
        policed(lost_urls={"https://10.0.0.7:1/mutate": "Connection refused"}),
        ("error", "webhook", "https://10.0.0.7:1/mutate, the webhook's, does not lead to it: Connection refused"),
    ),
    "a URL that only the API server may know": (
        policed(unproven={"https://webhook.example/mutate": "timed out"}),
        (
            "warning",
            "webhook",
            "https://webhook.example/mutate, the webhook's, cannot be reached from this machine: timed out",
        ),
    ),
    "an invalid policy": (
        policed(policies=(in_use(priority="low"), in_use())),
        ("warning", "policies", f"{INVALID}, so it is not applied: {NUMBER}".replace("high", "low")),
    ),
    "an invalid policy that must not be missed": (
        policed(policies=(in_use(priority="high", failurePolicy="Fail"),)),
        ("error", "policies", f"{INVALID}, so pods that it may select are rejected: {NUMBER}"),
    ),
    "a policy without a selector": (
        policed(policies=(in_use(podSelector=None),)),
        ("warning", "policies", "PodSchedulingPolicy/default/one can match no pod: podSelector is absent"),
    ),
    "a policy without pods": (
        policed(policies=(in_use(matched=0), in_use(matched=None))),
        ("info", "policies", "PodSchedulingPolicy/default/one matches no pod of the cluster"),
    ),
}


@pytest.mark.parametrize(("facts", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_set_up_gives_exactly_one_finding(facts: Facts, expected: tuple[str, str, str]) -> None:
    found = examine_policies(facts)
    assert told(found) == [expected]
    assert found[0].remedy


def test_nothing_is_found_where_nothing_is_wrong_or_known() -> None:
    assert examine_policies(GOOD) == []
    assert examine_policies(policed()) == []
    assert examine_policies(policed(services={"kube-system/webhook": 2}, policies=(in_use(),))) == []


def test_a_url_that_the_api_server_reaches_is_right_wherever_doctor_runs() -> None:
    reviews = Sample("extender_admission_reviews_total", {"webhook": "mutate", "kind": "Pod", "result": "allowed"}, 1)
    facts = sampled(reviews, facts=policed(unproven={"https://webhook.example/mutate": "timed out"}))
    assert examine_policies(facts) == []


def test_a_kind_of_kupid_has_a_remedy_of_its_own() -> None:
    (found,) = examine_policies(policed(not_served=("podschedulingpolicies.kupid.gardener.cloud",)))
    assert found.remedy == "apply the CRDs of kupid, or set policies.kupid: false"


def test_many_policies_of_one_fault_are_counted_beyond_ten() -> None:
    found = examine_policies(policed(policies=(in_use(matched=0),) * 13))
    assert len(found) == 11
    assert told(found)[-1] == ("info", "policies", "3 more policies match no pod")


def test_an_invalid_policy_that_rejects_pods_is_named_before_ten_others() -> None:
    others = (in_use(mode="Maybe"),) * 12
    found = examine_policies(policed(policies=(*others, in_use(mode="Maybe", failurePolicy="Fail"))))
    assert [one.severity for one in found] == ["error", *["warning"] * 10]
