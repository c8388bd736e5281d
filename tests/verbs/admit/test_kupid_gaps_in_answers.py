"""What gardener/kupid does not say, row by row: failures, refusals of policies, warnings, and what was applied.

The rows that need a cluster (certificates, readiness, metrics, permissions, enforcement while pods are scheduled) are
tested where they are built.
"""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import INJECTED_ANNOTATION, FailurePolicy, InvalidPolicy, PolicyKey
from extender.settings.policies import Exemptions, Policies
from tests.builders import Json, matching
from tests.policies import REQUIRED, expression, node_term, policy, policy_json, requiring
from tests.verbs.admit.reviewing import Answer, ask, pod, verb, workload

ZONE_A, ZONE_B = (node_term(expression("zone", "In", zone)) for zone in "ab")


def broken(failure_policy: str, selector: Json | None = None, mode: str = "Enforce") -> Any:
    """A policy that fails by itself while it is applied, as no valid one does."""
    made = policy(
        "broken",
        podSelector=selector or {},
        priority=1,
        failurePolicy=failure_policy,
        mode=mode,
        schedulerName="x",
    )
    object.__setattr__(made.directives, "node_selector", 3)
    return made


class TestFailure:
    """kupid: an error inside the handler lets the pod through unmodified, and one bad policy disables all others."""

    def test_the_other_policies_are_applied(self) -> None:
        found = ask(verb(broken("Ignore"), policy("good", nodeName="n")), pod())
        assert found.obj["spec"]["nodeName"] == "n"
        assert "schedulerName" not in found.obj["spec"], "nothing of the broken policy is left half applied"
        assert found.warnings[0].startswith("ClusterPodSchedulingPolicy/broken is not applied: ")
        assert "ClusterPodSchedulingPolicy/broken" in found.response["auditAnnotations"]["errors"]

    def test_failure_policy_fail_refuses_the_pod(self) -> None:
        found = ask(verb(broken("Fail"), policy("good", nodeName="n")), pod())
        assert found.response["allowed"] is False
        assert (found.response["status"]["code"], found.response["status"]["reason"]) == (500, "InternalError")
        assert "ClusterPodSchedulingPolicy/broken" in found.message

    def test_a_policy_that_only_audits_refuses_nothing(self) -> None:
        assert ask(verb(broken("Fail", mode="Audit")), pod()).response["allowed"] is True

    def test_a_policy_that_does_not_select_the_pod_does_not_matter(self) -> None:
        assert ask(verb(broken("Fail", matching(app="db"))), pod()).response["allowed"] is True

    @pytest.mark.parametrize("failure_policy", ["Ignore", "Fail"])
    def test_a_stored_policy_that_is_not_valid_is_named_and_honours_its_failure_policy(
        self, failure_policy: str
    ) -> None:
        bad = InvalidPolicy(
            PolicyKey("placement.extender.dev", "", "bad"), ("spec.nodeName: wrong",), FailurePolicy(failure_policy)
        )
        found = ask(verb(policy("good", nodeName="n"), invalid=[bad]), pod())
        assert found.response["allowed"] is (failure_policy == "Ignore")
        if failure_policy == "Ignore":
            assert found.obj["spec"]["nodeName"] == "n"
            assert found.warnings == ["ClusterPodSchedulingPolicy/bad is not applied: spec.nodeName: wrong"]


def review_policy(body: Json, *others: Any, nodes: Any = None) -> Answer:
    """The answer to a policy that is created."""
    return ask(verb(*others, nodes=nodes), body)


class Nodes:
    """A cluster of nodes with these labels."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.labels = labels

    def are_matched(self, affinity: NodeAffinity) -> bool:
        """Whether one matches."""
        return any(affinity.matches("n", each) for each in self.labels)


class TestValidation:
    """kupid: bad policies may be stored, and the text of the refusal stands in the wrong field."""

    def test_a_bad_policy_is_refused_with_every_field(self) -> None:
        found = review_policy(policy_json("bad", nodeName="Bad Name", mode="Dry", nodeSelector={"a": "b c"}))
        status = found.response["status"]
        assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")
        assert [each["field"] for each in status["details"]["causes"]] == [
            "spec.nodeSelector",
            "spec.nodeName",
            "spec.mode",
        ]
        assert status["details"]["causes"][2]["reason"] == "FieldValueNotSupported"
        assert status["message"].startswith('ClusterPodSchedulingPolicy.placement.extender.dev "bad" is invalid: spec.')

    def test_a_policy_above_the_number_of_its_namespace_or_of_the_cluster_is_refused(self) -> None:
        few = Policies(max_of_cluster=1, max_per_namespace=1)
        full = verb(policy("one"), policy("one", "shop"), settings=few)
        for namespace, limit in (("shop", "policies.maxPerNamespace"), ("", "policies.maxOfCluster")):
            found = ask(full, policy_json("two", namespace), namespace=namespace)
            assert found.response["status"]["code"] == 403
            assert f"{limit}, which is 1" in found.message
        assert ask(full, policy_json("two", "bank"), namespace="bank").response["allowed"]
        assert ask(full, policy_json("one"), "UPDATE", old=policy_json("one"), namespace="").response["allowed"]

    def test_a_good_policy_draws_no_warning(self) -> None:
        found = review_policy(policy_json(nodeSelector={"a": "b"}), nodes=Nodes({"a": "b"}))
        assert found.response == {"uid": "u-1", "allowed": True}

    @pytest.mark.parametrize(
        ("spec", "warning"),
        [
            ({"podSelector": None, "nodeName": "n"}, "spec.podSelector: is absent"),
            ({"namespaceSelector": None, "nodeName": "n"}, "spec.namespaceSelector: is absent"),
            ({}, "the policy directs nothing"),
            ({"nodeName": "n"}, "bypass the scheduler"),
            ({"nodeselector": {"a": "b"}, "schedulerName": "s"}, "spec.nodeselector: unknown field"),
            ({"affinity": requiring(node_term(expression("a", "Gt", "many")))}, "Gt needs an integer"),
            ({"affinity": requiring(node_term(expression("a", "In", "b c")))}, "no label value"),
            ({"affinity": requiring(ZONE_A), "nodeSelector": {"zone": "b"}}, "no node can match the required terms"),
            (
                {
                    "when": ["Admission"],
                    "topologySpreadConstraints": [
                        {"topologyKey": "z", "maxSkew": 1, "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}
                    ],
                },
                "scored by the extender only",
            ),
        ],
    )
    def test_what_is_legal_and_probably_a_mistake_draws_a_warning(self, spec: Json, warning: str) -> None:
        found = review_policy(policy_json(**spec))
        assert found.response["allowed"] is True
        assert [text for text in found.warnings if warning in text] != []

    def test_a_policy_that_contradicts_another_one_draws_a_warning(self) -> None:
        other = policy("other", podSelector=matching(app="web"), affinity=requiring(ZONE_A), priority=3)
        for spec in ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "b"}}):
            (warning,) = review_policy(policy_json(**spec), other).warnings
            assert "contradicts ClusterPodSchedulingPolicy/other" in warning
            assert warning.endswith("ClusterPodSchedulingPolicy/other applies first")
        apart: Json = {"podSelector": matching(app="db"), "affinity": requiring(ZONE_B)}
        assert review_policy(policy_json(**apart), other).warnings == []
        later: Json = {"when": ["Release"], "release": {"topology": ["zone"]}, "affinity": requiring(ZONE_B)}
        (warning,) = review_policy(policy_json(**later), other).warnings
        assert warning == "spec.when: the directives have no effect at release, only `release` has"
        agreeing: Json = {"affinity": requiring(node_term(expression("zone", "In", "a", "b")))}
        assert review_policy(policy_json(**agreeing), other).warnings == []

    @pytest.mark.parametrize(
        ("mine", "its", "field"),
        [
            ({"schedulerName": "a"}, {"schedulerNames": ["b", "c"]}, "spec.schedulerName"),
            ({"schedulerName": "a"}, {"schedulerNames": ["a", "c"]}, ""),
            ({"nodeName": "a", "schedulerName": "x"}, {"nodeName": "b", "schedulerName": "y"}, "spec.nodeName"),
            ({"priorityClassName": "a"}, {"priorityClassName": "b"}, "spec.priorityClassName"),
            ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "c"}}, "spec.nodeSelector[a]"),
            ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"b": "c"}}, ""),
            ({"affinity": requiring(ZONE_A, ZONE_B)}, {"affinity": requiring(ZONE_B)}, ""),
        ],
    )
    def test_only_fields_that_exclude_each_other_contradict(self, mine: Json, its: Json, field: str) -> None:
        texts = [
            each for each in review_policy(policy_json(**mine), policy("its", **its)).warnings if "contradicts" in each
        ]
        assert [each.partition(": contradicts")[0] for each in texts] == ([field] if field else [])

    def test_policies_of_different_namespaces_and_one_and_the_same_policy_do_not_contradict(self) -> None:
        wanted = policy_json("p", "shop", nodeSelector={"a": "b"})
        others = [policy("p", "bank", nodeSelector={"a": "c"}), policy("p", "shop", nodeSelector={"a": "c"})]
        assert review_policy(wanted, *others).warnings == []

    @pytest.mark.parametrize(
        ("selector", "told"), [({"matchLabels": {"team": "a"}}, 1), ({"matchLabels": {"team": "b"}}, 0), ({}, 1)]
    )
    def test_what_policies_direct_for_others_cannot_be_guessed(self, selector: Json, told: int) -> None:
        """The namespace has the label team=a. Its tenant can try any value, with a dry run."""
        of_platform = policy("its", namespaceSelector=selector, nodeSelector={"pool": "secret"})
        found = review_policy(policy_json("mine", "shop", nodeSelector={"pool": "guess"}), of_platform)
        assert len(found.warnings) == told

    def test_at_most_five_contradictions_are_named(self) -> None:
        others = [policy(f"p{number}", nodeSelector={"a": str(number)}) for number in range(9)]
        assert len(review_policy(policy_json(nodeSelector={"a": "x"}), *others).warnings) == 5

    def test_an_invalid_policy_can_lose_its_finalizer(self) -> None:
        old = policy_json("old", nodeName="Bad Name")
        found = ask(verb(), old, "UPDATE", old=old)
        assert found.response["allowed"] is True
        assert found.warnings[0].endswith("the policy is not in effect")
        changed = policy_json("old", nodeName="Other Bad Name")
        assert ask(verb(), changed, "UPDATE", old=old).response["allowed"] is False


class TestSatisfiability:
    """kupid: a policy for a pool that does not exist is accepted without a word."""

    def test_a_policy_that_no_node_matches_now_draws_a_warning(self) -> None:
        wanted = policy_json(nodeSelector={"pool": "gpu"})
        assert "no node matches" in review_policy(wanted, nodes=Nodes({"pool": "cpu"})).warnings[0]
        assert review_policy(wanted, nodes=Nodes({"pool": "gpu"})).warnings == []
        assert review_policy(wanted, nodes=None).warnings == []


class TestQuota:
    """kupid: an injected term over other namespaces is charged to the pod's own quota without a word."""

    @pytest.mark.parametrize("crossing", [{"namespaces": ["bank"]}, {"namespaceSelector": {}}])
    def test_a_term_that_crosses_namespaces_draws_a_warning(self, crossing: Json) -> None:
        term: Json = {"topologyKey": "host", "labelSelector": {}}
        affinity = {"podAntiAffinity": {REQUIRED: [term | crossing]}}
        assert "CrossNamespacePodAffinity" in review_policy(policy_json(affinity=affinity)).warnings[0]
        assert review_policy(policy_json(affinity={"podAntiAffinity": {REQUIRED: [term]}})).warnings == []


class TestSelfProtection:
    """kupid: kube-system is exempt by a label that only Gardener sets."""

    def test_kube_system_and_the_extender_s_own_namespace_are_exempt(self) -> None:
        admit = verb(policy(nodeName="n"), settings=Policies().exempting("placement"))
        for namespace in ("kube-system", "placement"):
            assert ask(admit, pod(), namespace=namespace).patch == []
        assert ask(admit, pod(), namespace="shop").patch != []

    @pytest.mark.parametrize(
        ("label_in", "is_exempt"), [((), False), (("bank",), False), (("shop",), True), (("*",), True)]
    )
    def test_a_labelled_object_is_exempt_where_the_platform_allows_it(
        self, label_in: tuple[str, ...], *, is_exempt: bool
    ) -> None:
        admit = verb(policy(targets="Both", nodeName="n"), settings=Policies(exemptions=Exemptions(label_in=label_in)))
        for obj in (
            pod(labels={"placement.extender.dev/exempt": "true"}),
            workload(labels={"placement.extender.dev/exempt": "true"}),
        ):
            assert (ask(admit, obj).patch == []) is is_exempt

    def test_mirror_pods_are_left(self) -> None:
        mirror = pod(annotations={"kubernetes.io/config.mirror": "hash"})
        assert ask(verb(policy(nodeName="n")), mirror).patch == []


class TestFeedback:
    """kupid: no answer tells which policies were applied, and there is no dry run."""

    def test_the_audit_log_says_what_was_applied(self) -> None:
        found = ask(verb(policy(generation=4, nodeSelector={"a": "b"}, tolerations=[{"key": "k"}])), pod())
        assert found.response["auditAnnotations"] == {
            "applied": "ClusterPodSchedulingPolicy/policy@4: tolerations, nodeSelector"
        }

    def test_mode_audit_records_and_changes_nothing(self) -> None:
        audited = policy("a", mode="Audit", conflictPolicy="Reject", nodeName="n", nodeSelector={"zone": "a"})
        found = ask(verb(audited, policy("b", schedulerName="s")), pod({"nodeSelector": {"zone": "b"}}))
        assert found.obj["spec"]["nodeSelector"] == {"zone": "b"}
        assert "nodeName" not in found.obj["spec"]
        assert found.obj["spec"]["schedulerName"] == "s"
        assert found.warnings == []
        notes = found.response["auditAnnotations"]
        assert notes["audited"] == "ClusterPodSchedulingPolicy/a@1: nodeName"
        assert "nodeSelector[zone]" in notes["conflicts"]
        assert "ClusterPodSchedulingPolicy/a" not in found.obj["metadata"]["annotations"][INJECTED_ANNOTATION]

    def test_a_dry_run_gets_the_same_answer_and_is_told_apart(self) -> None:
        admit = verb(policy(nodeName="n"))
        dry, real = ask(admit, pod(), dryRun=True), ask(admit, pod())
        assert dry.patch == real.patch
