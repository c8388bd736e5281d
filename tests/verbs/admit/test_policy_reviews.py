"""Reviews of policies: bad ones are rejected by field, and warnings where a legal one is probably a mistake."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.constraints.node_affinity import NodeAffinity
from extender.settings.policies import Policies
from extender.wire.policies.node_terms import NODE_TERMS
from tests.builders import PREFERRED, REQUIRED, Json, matching
from tests.policies import expression, node_term, policy, policy_json, requiring
from tests.verbs.admit.reviewing import Answer, reviewed, verb

ZONE_A, ZONE_B = (node_term(expression("zone", "In", zone)) for zone in "ab")
NEAR: Json = {"name": "near", "values": ["a"], "quota": {"pods": 3}}
FAR: Json = {"name": "far", "values": ["b"], "quota": {"pods": 6}, "mayGrow": True}
CROSSING = "CrossNamespacePodAffinity"
ANY_TERM: Json = {"topologyKey": "host", "labelSelector": {}}


def releasing(**release: Any) -> Json:
    """The fields of a policy that releases groups of four."""
    return {"when": ["Release"], "release": {"topology": ["zone"], "size": {"count": 4}, **release}}


def anti_affine(**fields: Any) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [ANY_TERM | fields]}}}


def affine(**fields: Any) -> Json:
    return {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": ANY_TERM | fields}]}}}


def review_policy(body: Json, *others: Any, nodes: Any = None) -> Answer:
    """The answer to a policy that is created."""
    return reviewed(verb(*others, nodes=nodes), body)


class Nodes:
    """A cluster of nodes with these labels."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.labels = labels

    def are_matched(self, affinity: NodeAffinity) -> bool:
        return any(affinity.matches("n", labels) for labels in self.labels)


def test_a_bad_policy_is_rejected_with_every_field() -> None:
    found = review_policy(policy_json("bad", nodeName="Bad Name", mode="Dry", nodeSelector={"a": "b c"}))
    status = found.response["status"]
    assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")
    causes = status["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.mode", "spec.nodeSelector", "spec.nodeName"]
    assert causes[0]["reason"] == "FieldValueNotSupported"
    assert status["message"].startswith('ClusterPodSchedulingPolicy.placement.extender.dev "bad" is invalid: spec.')


def test_a_policy_above_the_number_of_its_namespace_or_of_the_cluster_is_rejected() -> None:
    few = Policies(max_of_cluster=1, max_per_namespace=1)
    full = verb(policy("one"), policy("one", "shop"), settings=few)
    for namespace, limit in (("shop", "policies.maxPerNamespace"), ("", "policies.maxOfCluster")):
        found = reviewed(full, policy_json("two", namespace), namespace=namespace)
        assert found.response["status"]["code"] == 403
        assert f"{limit}, which is 1" in found.message
    assert reviewed(full, policy_json("two", "bank"), namespace="bank").response["allowed"]
    assert reviewed(full, policy_json("one"), "UPDATE", old=policy_json("one"), namespace="").response["allowed"]


def test_an_unknown_field_that_would_be_written_into_pods_is_rejected_unless_it_is_stored() -> None:
    body = policy_json(
        tolerations=[{"key": "a", "effect": "NoSchedule"}, {"operator": "Exists", "valeu": "b"}],
        affinity=requiring({"matchExpression": []}),
    )
    found = review_policy(body)
    assert [(cause["field"], cause["message"]) for cause in found.response["status"]["details"]["causes"]] == [
        (f"spec.{NODE_TERMS}.nodeSelectorTerms[0].matchExpression", "Forbidden: unknown field"),
        ("spec.tolerations[1].valeu", "Forbidden: unknown field"),
    ]
    stored = reviewed(verb(), body, "UPDATE", old=body, namespace="")
    assert (stored.response["allowed"], [text for text in stored.warnings if "not in effect" in text]) == (True, [])


def test_so_many_unknown_fields_are_named_only_in_part() -> None:
    """A policy may have as many as a request has room for."""
    many = {f"x{number}": 1 for number in range(5_000)}
    found = review_policy(policy_json(tolerations=[{"operator": "Exists", **many}]))
    assert len(found.response["status"]["details"]["causes"]) <= 100
    assert len(review_policy(policy_json(nodeName="n", podSelector=many)).warnings) <= 100


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"podSelector": None, "nodeName": "n"}, "spec.podSelector: is absent"),
        ({"namespaceSelector": None, "nodeName": "n"}, "spec.namespaceSelector: is absent"),
        ({}, "the policy directs nothing"),
        ({"nodeName": "n"}, "bypass the scheduler"),
        ({"nodeselector": {"a": "b"}, "schedulerName": "s"}, "spec.nodeselector: unknown field"),
        ({"podSelector": {"matchLabel": {}}, "nodeName": "n"}, "spec.podSelector.matchLabel: unknown field"),
        ({"affinity": requiring(node_term(expression("a", "Gt", "many")))}, "Gt needs an integer"),
        ({"affinity": requiring(node_term(expression("a", "In", "b c")))}, "no label value"),
        ({"affinity": requiring(ZONE_A), "nodeSelector": {"zone": "b"}}, "no node can match the required terms"),
        ({"when": ["Admission"],
          "topologySpreadConstraints": [
              {"topologyKey": "z", "maxSkew": 1, "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}]},
         "scored by the extender only"),
        (releasing(maxPerDomain=3), "maxPerDomain: is less than the size 4, so no group is ever released"),
        (releasing(domains=[NEAR]), "domains[0].quota.pods: is less than the size 4, so no group gets the domain"),
        (releasing(domains=[FAR], maxPerDomain=5), "domains[0].quota.pods: has no effect, maxPerDomain is lower"),
        (releasing(domains=[FAR]), "domains[0].mayGrow: has no effect without the action GrowingDomain in noRoom"),
        # The quota of the pod's own namespace is charged.
        (anti_affine(namespaces=["bank"]), CROSSING),
        (anti_affine(namespaceSelector={}), CROSSING),
        (affine(namespaces=["bank"]), CROSSING),
        (affine(namespaceSelector={}), CROSSING),
        ({"nodeSelector": {"pool": "gpu"}}, "no node matches"),
    ],
)  # fmt: skip
def test_what_is_legal_and_probably_a_mistake_draws_a_warning(spec: Json, warning: str) -> None:
    found = review_policy(policy_json(**spec), nodes=Nodes({"pool": "cpu"}))
    assert found.response["allowed"] is True
    assert [text for text in found.warnings if warning in text] != []


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({"nodeSelector": {"a": "b"}}, Nodes({"a": "b"})),
        ({"nodeSelector": {"pool": "gpu"}}, Nodes({"pool": "gpu"})),
        ({"nodeSelector": {"pool": "gpu"}}, None),
        (anti_affine(), None),
    ],
)
def test_a_good_policy_draws_no_warning(spec: Json, nodes: Any) -> None:
    assert review_policy(policy_json(**spec), nodes=nodes).response == {"uid": "u-1", "allowed": True}


def test_a_policy_that_contradicts_another_one_draws_a_warning() -> None:
    other = policy("other", podSelector=matching(app="web"), affinity=requiring(ZONE_A), priority=3)
    for spec in ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "b"}}):
        (warning,) = review_policy(policy_json(**spec), other).warnings
        assert "contradicts ClusterPodSchedulingPolicy/other" in warning
        assert warning.endswith("ClusterPodSchedulingPolicy/other applies first")
    later: Json = {"when": ["Release"], "release": {"topology": ["zone"]}, "affinity": requiring(ZONE_B)}
    (warning,) = review_policy(policy_json(**later), other).warnings
    assert warning == "spec.when: the directives have no effect at release, only `release` has"
    many = [policy(f"p{number}", nodeSelector={"a": str(number)}) for number in range(9)]
    assert len(review_policy(policy_json(nodeSelector={"a": "x"}), *many).warnings) == 5, "at most five are named"


A_B, A_C = {"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "c"}}


@pytest.mark.parametrize(
    ("mine", "its", "field"),
    [
        ({"schedulerName": "a"}, {"schedulerNames": ["b", "c"]}, "spec.schedulerName"),
        ({"schedulerName": "a"}, {"schedulerNames": ["a", "c"]}, ""),
        ({"nodeName": "a", "schedulerName": "x"}, {"nodeName": "b", "schedulerName": "y"}, "spec.nodeName"),
        ({"priorityClassName": "a"}, {"priorityClassName": "b"}, "spec.priorityClassName"),
        (A_B, A_C, "spec.nodeSelector[a]"),
        (A_B, {"nodeSelector": {"b": "c"}}, ""),
        ({"affinity": requiring(ZONE_A, ZONE_B)}, {"affinity": requiring(ZONE_B)}, ""),
        ({"affinity": requiring(node_term(expression("zone", "In", "a", "b")))}, {"affinity": requiring(ZONE_A)}, ""),
        (
            {"podSelector": matching(app="db"), "affinity": requiring(ZONE_B)},
            {"podSelector": matching(app="web"), "affinity": requiring(ZONE_A)},
            "",
        ),
        # Of two namespaces, and a former version of the same policy.
        ({"namespace": "shop", **A_B}, {"namespace": "bank", **A_C}, ""),
        ({"namespace": "shop", **A_B}, {"name": "mine", "namespace": "shop", **A_C}, ""),
        # A tenant could guess what policies direct for others: the namespace shop has the label team=a.
        ({"namespace": "shop", **A_B}, {"namespaceSelector": matching(team="a"), **A_C}, "spec.nodeSelector[a]"),
        ({"namespace": "shop", **A_B}, {"namespaceSelector": matching(team="b"), **A_C}, ""),
        ({"namespace": "shop", **A_B}, {"namespaceSelector": {}, **A_C}, "spec.nodeSelector[a]"),
    ],
)
def test_only_fields_that_exclude_each_other_contradict(mine: Json, its: Json, field: str) -> None:
    found = review_policy(policy_json(**{"name": "mine", **mine}), policy(**{"name": "its", **its}))
    texts = [text for text in found.warnings if "bypass the scheduler" not in text]
    assert [text.partition(": contradicts")[0] for text in texts] == ([field] if field else [])


def test_an_invalid_policy_can_lose_its_finalizer() -> None:
    old = policy_json("old", nodeName="Bad Name")
    found = reviewed(verb(), old, "UPDATE", old=old)
    assert found.response["allowed"] is True
    assert found.warnings[0].endswith("the policy is not in effect")
    changed = policy_json("old", nodeName="Other Bad Name")
    assert reviewed(verb(), changed, "UPDATE", old=old).response["allowed"] is False
