"""What gardener/kupid leaves out, row by row: kinds, operations, ways to select, and directives.

The rows that need a cluster (certificates, readiness, metrics, permissions, enforcement while pods are scheduled) are
tested where they are built.
"""

from __future__ import annotations

from typing import Any

import pytest

from extender.settings.policies import Policies
from tests.builders import Json, matching
from tests.policies import REQUIRED, policy
from tests.verbs.admit.reviewing import ask, pod, template_spec, verb, workload

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
