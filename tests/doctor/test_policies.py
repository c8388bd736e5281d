"""What `doctor` finds of scheduling policies: each planted mistake, with its check and severity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.doctor.facts import Facts, PolicyFacts, PolicyInUse, Sample
from extender.doctor.policies import examine_policies
from extender.settings.configuration import default_settings
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from tests.builders import PREFERRED, REQUIRED
from tests.deploy.policies.examples import policy
from tests.doctor.facts import GOOD, reported, sampled

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
            f"the caBundle of Mutating{KEPT} does not verify the serving certificate: every call of the webhook fails",
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
    assert reported(found) == [expected]
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
    (found,) = examine_policies(policed(not_served=("podschedulingpolicies.placement.extender.dev",)))
    assert "none of these policies is in effect" in found.remedy


def test_many_policies_of_one_fault_are_counted_beyond_ten() -> None:
    found = examine_policies(policed(policies=(in_use(matched=0),) * 13))
    assert len(found) == 11
    assert reported(found)[-1] == ("info", "policies", "3 more policies match no pod")


def test_an_invalid_policy_that_rejects_pods_is_named_before_ten_others() -> None:
    others = (in_use(mode="Maybe"),) * 12
    found = examine_policies(policed(policies=(*others, in_use(mode="Maybe", failurePolicy="Fail"))))
    assert [one.severity for one in found] == ["error", *["warning"] * 10]


# -- What autoscalers do not see: which findings each policy gives, by the words of what will happen -------------------

ZONE = "topology.kubernetes.io/zone"
GATES = "no node is added for a group before it is released"
ROOM = "no node is added for other pods that would fit there, until the room is used or free again"
LOST = "they may add nodes for pods that get a place in other domains, and a node in an excluded domain"
FULL = "they may add a node in one, which the pod does not wait for"
DECLARED = "they add a node in a new domain only if they have a group of nodes for it"
HIDDEN = "they add no node for a pod that fits a node by its own fields alone"
LATE: dict[str, Any] = {"when": ["Scheduling"]}
RELEASE: dict[str, Any] = {"topology": [ZONE]}
GROWING = RELEASE | {
    "domains": [{"name": "a", "values": ["a"], "mayGrow": True}],
    "noRoom": [{"action": "GrowingDomain"}],
}
TERM = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}


def spread(**fields: Any) -> dict[str, Any]:
    """A directive for constraints over zones."""
    return {"spread": [{"topologyKey": ZONE, **fields}]}


def constraint(when: str) -> dict[str, Any]:
    """A spread constraint."""
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}]}


UNSEEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a gate": ({"when": ["Release"], "release": RELEASE}, [GATES, ROOM]),
    "a gate until there is no room": ({"when": ["Release"], "release": GROWING}, [GATES, ROOM]),
    "unavailable domains": (spread(unavailableDomains="Exclude"), [LOST]),
    "full domains": (spread(fullDomains="Exclude"), [FULL]),
    "declared domains": (spread(minDomains="Declared"), [DECLARED]),
    "declared domains of pods as they are": (LATE | spread(minDomains="Declared"), [HIDDEN]),
    "label keys of pods as they are": (LATE | spread(matchLabelKeys="IfMissing"), [HIDDEN]),
    "nodes for scheduling only": (LATE | {"nodeSelector": {"pool": "db"}}, [HIDDEN]),
    "a node for scheduling only": (LATE | {"nodeName": "n1"}, [HIDDEN]),
    "terms for scheduling only": (LATE | {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}, [HIDDEN]),
    "constraints for scheduling only": (LATE | constraint("DoNotSchedule"), [HIDDEN]),
    "wishes for scheduling only": (
        LATE
        | constraint("ScheduleAnyway")
        | {
            "affinity": {
                "podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
                "nodeAffinity": {
                    PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]
                },
            }
        },
        [],
    ),
    "nodes at admission too": ({"nodeSelector": {"pool": "db"}}, []),
    "spread that is written into pods": (spread(matchLabelKeys="IfMissing", minDomains=3), []),
    "costs of deletion": (spread(deletionCost="Fullest"), []),
    "domains that are kept": (spread(unavailableDomains="Keep", fullDomains="Keep"), []),
    "an audit": ({"mode": "Audit"} | spread(unavailableDomains="Exclude", fullDomains="Exclude"), []),
}


@pytest.mark.parametrize(("spec", "expected"), UNSEEN.values(), ids=UNSEEN.keys())
def test_what_autoscalers_do_not_see_is_reported_with_what_they_do_then(
    spec: dict[str, Any], expected: list[str]
) -> None:
    found = examine_policies(policed(policies=(in_use(**spec), in_use())))
    assert [(one.severity, one.check) for one in found] == [("info", "autoscalers")] * len(expected)
    for one, words in zip(found, expected, strict=True):
        assert words in one.problem
        assert "PodSchedulingPolicy/default/one" in one.problem
        assert one.remedy.endswith("; see config/explanation/other-controllers.md")


def test_a_group_without_room_is_seen_where_it_is_released() -> None:
    waiting, growing = in_use(when=["Release"], release=RELEASE), in_use(when=["Release"], release=GROWING)
    found = [one.remedy.partition(":")[0] for one in examine_policies(policed(policies=(waiting, growing)))]
    assert found[:2] == [
        "for a group without room let release.noRoom have GrowingDomain, with mayGrow",
        "nothing to do",
    ]


def test_policies_without_pods_hide_nothing_from_autoscalers() -> None:
    found = examine_policies(policed(policies=(in_use(0, **spread(fullDomains="Exclude")),)))
    assert [one.check for one in found] == ["policies"]


def test_many_policies_that_hide_the_same_are_one_finding() -> None:
    (found,) = examine_policies(policed(policies=(in_use(**spread(fullDomains="Exclude")),) * 13))
    assert found.problem.count("PodSchedulingPolicy/default/one") == 10
    assert " and 3 more exclude as full" in found.problem


@pytest.mark.parametrize("field", ["unavailableDomains", "fullDomains"])
def test_domains_that_are_excluded_where_the_plugin_decides_spread_are_a_warning(field: str) -> None:
    facts = policed(policies=(in_use(**spread(**{field: "Exclude"})),))
    (found,) = examine_policies(replace(facts, settings=default_settings("augment")))
    assert (found.severity, found.check) == ("warning", "policies")
    assert "PodSchedulingPolicy/default/one have no effect" in found.problem
    assert (
        examine_policies(
            replace(policed(policies=(in_use(**spread(minDomains=3)),)), settings=default_settings("augment"))
        )
        == []
    )
