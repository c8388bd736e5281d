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
from extender.wire.policies.node_terms import NODE_TERMS
from tests.builders import Json, matching
from tests.policies import PREFERRED, REQUIRED, expression, node_term, policy, policy_json, requiring
from tests.verbs.admit.reviewing import Answer, ask, pod, review, template_spec, verb, workload

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


NEAR: Json = {"name": "near", "values": ["a"], "quota": {"pods": 3}}
FAR: Json = {"name": "far", "values": ["b"], "quota": {"pods": 6}, "mayGrow": True}


def releasing(**release: Any) -> Json:
    """The fields of a policy that releases groups of four."""
    return {"when": ["Release"], "release": {"topology": ["zone"], "size": {"count": 4}, **release}}


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
        return any(affinity.matches("n", each) for each in self.labels)


class TestValidation:
    """kupid: bad policies may be stored, and the text of the refusal stands in the wrong field."""

    def test_a_bad_policy_is_refused_with_every_field(self) -> None:
        found = review_policy(policy_json("bad", nodeName="Bad Name", mode="Dry", nodeSelector={"a": "b c"}))
        status = found.response["status"]
        assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")
        assert [each["field"] for each in status["details"]["causes"]] == [
            "spec.mode",
            "spec.nodeSelector",
            "spec.nodeName",
        ]
        assert status["details"]["causes"][0]["reason"] == "FieldValueNotSupported"
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

    def test_an_unknown_field_that_would_be_written_into_pods_is_refused_unless_it_is_stored(self) -> None:
        body = policy_json(
            tolerations=[{"key": "a", "effect": "NoSchedule"}, {"operator": "Exists", "valeu": "b"}],
            affinity=requiring({"matchExpression": []}),
        )
        found = review_policy(body)
        assert [(each["field"], each["message"]) for each in found.response["status"]["details"]["causes"]] == [
            (f"spec.{NODE_TERMS}.nodeSelectorTerms[0].matchExpression", "Forbidden: unknown field"),
            ("spec.tolerations[1].valeu", "Forbidden: unknown field"),
        ]
        stored = ask(verb(), body, "UPDATE", old=body, namespace="")
        assert (stored.response["allowed"], [text for text in stored.warnings if "not in effect" in text]) == (True, [])

    def test_so_many_unknown_fields_are_named_only_in_part(self) -> None:
        """A policy may have as many as a request has room for."""
        many = {f"x{number}": 1 for number in range(5_000)}
        found = review_policy(policy_json(tolerations=[{"operator": "Exists", **many}]))
        assert len(found.response["status"]["details"]["causes"]) <= 100
        assert len(review_policy(policy_json(nodeName="n", podSelector=many)).warnings) <= 100

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
            ({"podSelector": {"matchLabel": {}}, "nodeName": "n"}, "spec.podSelector.matchLabel: unknown field"),
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
            (releasing(maxPerDomain=3), "maxPerDomain: is less than the size 4, so no group is ever released"),
            (releasing(domains=[NEAR]), "domains[0].quota.pods: is less than the size 4, so no group gets the domain"),
            (releasing(domains=[FAR], maxPerDomain=5), "domains[0].quota.pods: has no effect, maxPerDomain is lower"),
            (releasing(domains=[FAR]), "domains[0].mayGrow: has no effect without whenNoRoom Release"),
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
        preferred = {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term | crossing}]}}
        assert "CrossNamespacePodAffinity" in review_policy(policy_json(affinity=preferred)).warnings[0]


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


# -- What gardener/kupid leaves out, row by row: kinds, operations, ways to select, and directives ---------------------
# The rows that need a cluster (certificates, readiness, metrics, permissions, enforcement while pods are scheduled) are
# tested where they are built.

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")


class TestKinds:
    """kupid: batch/v1 CronJobs and custom resources are unknown."""

    @pytest.mark.parametrize("kind", [*WORKLOADS, "Rollout"])
    def test_every_kind_with_a_template_is_injected(self, kind: str) -> None:
        found = ask(verb(policy(targets="Templates", nodeSelector={"a": "b"})), workload(kind))
        assert template_spec(found.obj)["nodeSelector"] == {"a": "b"}

    def test_a_custom_resource_has_a_configured_path_also_through_a_list(self) -> None:
        settings = Policies(
            templates={"jobset.x-k8s.io/v1alpha2/JobSet": "/spec/replicatedJobs/*/template/spec/template"}
        )
        admit = verb(policy(targets="Templates", nodeSelector={"a": "b"}), settings=settings)
        first = ask(admit, workload("JobSet")).obj
        assert template_spec(first)["nodeSelector"] == {"a": "b"}
        assert ask(admit, first, "UPDATE", old=first).patch == []
        gone = ask(verb(settings=settings), first, "UPDATE", old=first)
        assert gone.obj == workload("JobSet")

    def test_templates_of_one_object_are_limited_and_written_at_once(self) -> None:
        kind, path = "jobset.x-k8s.io/v1alpha2/JobSet", "/spec/replicatedJobs/*/template/spec/template"
        settings = Policies(templates={kind: path}, max_templates=3)
        jobs = workload("JobSet")["spec"]["replicatedJobs"]
        three = workload("JobSet") | {"spec": {"replicatedJobs": jobs * 3}}
        four = workload("JobSet") | {"spec": {"replicatedJobs": jobs * 4}}
        directing = policy(targets="Templates", nodeSelector={"a": "b"})
        found = ask(verb(directing, settings=settings), three).obj["spec"]["replicatedJobs"]
        assert [each["template"]["spec"]["template"]["spec"]["nodeSelector"] for each in found] == [{"a": "b"}] * 3
        steps = verb(directing, settings=settings).admit_in_steps(review(three))
        assert len(list(steps)) == 2, "others have their turn between templates"
        passed = ask(verb(directing, settings=settings), four)
        assert passed.patch == []
        assert "more than 3 pod templates (policies.maxTemplates)" in passed.warnings[0]
        strict = policy(targets="Templates", nodeSelector={"a": "b"}, failurePolicy="Fail")
        assert "policies.maxTemplates" in ask(verb(strict, settings=settings), four).message

    @pytest.mark.parametrize("kind", WORKLOADS)
    def test_a_workload_without_a_template_is_admitted(self, kind: str) -> None:
        """Kupid's process panics at a ReplicationController without one, which the API allows."""
        bare_specs: list[Json] = [{}, {"template": None}, {"jobTemplate": {}}, {"template": {}}]
        for spec in bare_specs:
            bare = workload(kind) | {"spec": spec}
            assert ask(verb(policy(targets="Both", nodeName="n")), bare).obj == bare

    def test_the_copies_of_a_deployment_s_template_are_left_to_it(self) -> None:
        """Its controller would make one ReplicaSet after the other, as none has the template that it wants."""
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": "u", "controller": True}
        owned = workload("ReplicaSet", ownerReferences=[owner])
        admit = verb(policy(targets="Both", nodeName="n"))
        assert ask(admit, owned).patch == []
        assert ask(admit, workload("ReplicaSet")).patch != []
        assert ask(admit, workload("StatefulSet", ownerReferences=[owner])).patch != []


class TestOperations:
    """kupid: changes of immutable fields are proposed, and the API server then refuses the user's request."""

    @pytest.mark.parametrize("obj", [pod(), workload("Job")], ids=["pod", "job"])
    def test_what_cannot_be_changed_is_left_at_an_update(self, obj: Json) -> None:
        admit = verb(policy(targets="Both", nodeName="n"))
        assert ask(admit, obj).patch != []
        assert ask(admit, obj, "UPDATE", old=obj).patch == []

    @pytest.mark.parametrize("operation", ["DELETE", "CONNECT", ""])
    def test_nothing_is_injected_at_another_operation(self, operation: str) -> None:
        assert ask(verb(policy(nodeName="n")), pod(), operation).patch == []

    def test_an_object_that_is_being_deleted_is_left(self) -> None:
        going = workload(deletionTimestamp="2026-01-01T00:00:00Z")
        assert ask(verb(policy(targets="Both", nodeName="n")), going, "UPDATE", old=going).patch == []

    def test_a_subresource_is_left(self) -> None:
        assert ask(verb(policy(nodeName="n")), pod(), subResource="binding").patch == []


class TestSelection:
    """kupid: labels are all that a policy can select by."""

    def test_by_the_kind_of_the_owner_of_a_pod_or_of_the_template(self) -> None:
        admit = verb(policy(targets="Both", nodeName="n", matchConditions={"ownerKinds": ["StatefulSet"]}))
        owner = {"kind": "StatefulSet", "name": "w", "uid": "u", "controller": True}
        assert ask(admit, pod(ownerReferences=[owner])).patch != []
        assert ask(admit, pod(ownerReferences=[owner | {"controller": False}])).patch == []
        assert ask(admit, workload("StatefulSet")).patch != []
        assert ask(admit, workload("Deployment")).patch == []

    def test_by_service_account_and_priority_class_and_what_is_excluded(self) -> None:
        conditions: Json = {"serviceAccounts": ["default"], "exclude": {"priorityClassNames": ["system-node-critical"]}}
        admit = verb(policy(nodeName="n", matchConditions=conditions))
        assert ask(admit, pod()).patch != []
        assert ask(admit, pod({"serviceAccountName": "robot"})).patch == []
        assert ask(admit, pod({"priorityClassName": "system-node-critical"})).patch == []

    def test_the_labels_of_a_workload_are_those_of_its_template(self) -> None:
        admit = verb(policy(targets="Both", podSelector=matching(app="web"), nodeName="n"))
        assert ask(admit, workload()).patch != []
        other = workload(labels={"app": "web"})
        other["spec"]["template"]["metadata"]["labels"] = {"app": "db"}
        assert ask(admit, other).patch == []


class TestDirectives:
    """kupid: no spread, gates, priority class, or choice of schedulers."""

    def test_all_of_them_are_injected(self) -> None:
        spread = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "labelSelector": {}}
        near = {
            "podAntiAffinity": {
                REQUIRED: [
                    {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {}, "matchLabelKeys": ["v"]}
                ]
            }
        }
        directed: Json = {
            "topologySpreadConstraints": [spread],
            "schedulingGates": [{"name": "example.com/wait"}],
            "priorityClassName": "high",
            "affinity": near,
        }
        found = ask(verb(policy(**directed)), pod()).obj["spec"]
        assert {name: found[name] for name in directed} == directed

    def test_min_domains_of_a_soft_constraint_never_reaches_a_pod(self) -> None:
        """The API server would refuse the pod; the extender scores such a constraint."""
        soft = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "minDomains": 3}
        assert ask(verb(policy(topologySpreadConstraints=[soft])), pod()).patch == []

    def test_the_pods_of_a_controller_share_one_of_several_schedulers(self) -> None:
        admit = verb(policy(schedulerNames=["a", "b", "c"]))

        def scheduler(name: str, uid: str) -> Any:
            owner = {"kind": "ReplicaSet", "name": "r", "uid": uid, "controller": True}
            return ask(admit, pod(name=name, ownerReferences=[owner])).obj["spec"]["schedulerName"]

        assert len({scheduler(f"p{number}", "same") for number in range(9)}) == 1
        assert {scheduler("p", f"uid-{number}") for number in range(30)} == {"a", "b", "c"}

    def test_a_pod_that_has_one_of_the_schedulers_keeps_it(self) -> None:
        for name in "abc":
            found = ask(verb(policy(schedulerNames=["a", "b", "c"])), pod({"schedulerName": name}))
            assert (found.patch, found.warnings) == ([], [])

    def test_a_template_keeps_its_scheduler_when_its_object_has_got_a_uid(self) -> None:
        admit = verb(policy(targets="Both", schedulerNames=[f"s{number}" for number in range(50)]))
        first = ask(admit, workload()).obj
        first["metadata"]["uid"] = "now-known"
        assert ask(admit, first, "UPDATE", old=first).patch == []
