"""Which objects a policy changes: kinds and their templates, operations, what it selects, and exemptions."""

from __future__ import annotations

from typing import Any

import pytest

from extender.settings.policies import Exemptions, Policies
from tests.builders import Json, matching
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import WORKLOADS, pod, review, reviewed, template_spec, verb, workload

OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": "u", "controller": True}
STATEFUL_SET = OWNER | {"kind": "StatefulSet"}
EXEMPT = {"placement.extender.dev/exempt": "true"}
OF_STATEFUL_SETS: Json = {"matchConditions": {"ownerKinds": ["StatefulSet"]}}
CONDITIONS: Json = {"serviceAccounts": ["default"], "exclude": {"priorityClassNames": ["system-node-critical"]}}
BOTH = {"targets": "Both"}
TEMPLATES = {"targets": "Templates"}
WEB: Json = {"podSelector": matching(app="web")}
DB_TEMPLATE = workload(labels={"app": "web"})
DB_TEMPLATE["spec"]["template"]["metadata"]["labels"] = {"app": "db"}
DELETED = workload(deletionTimestamp="2026-01-01T00:00:00Z")
JOB_SET = {"jobset.x-k8s.io/v1alpha2/JobSet": "/spec/replicatedJobs/*/template/spec/template"}

# Fields of the policy, the object, fields of the request, and whether the policy is injected.
REVIEWS: dict[str, tuple[Json, Json, Json, bool]] = {
    "a pod": ({}, pod(), {}, True),
    "a template, by default": ({}, workload(), {}, False),
    "a pod, with templates only": (TEMPLATES, pod(), {}, False),
    **{f"templates only: {kind}": (TEMPLATES, workload(kind), {}, True) for kind in (*WORKLOADS, "Rollout")},
    "a pod at an update": (BOTH, pod(), {"operation": "UPDATE", "old": pod()}, False),
    "a Job": (BOTH, workload("Job"), {}, True),
    "a Job at an update": (BOTH, workload("Job"), {"operation": "UPDATE", "old": workload("Job")}, False),
    **{f"operation {name}": ({}, pod(), {"operation": name}, False) for name in ("DELETE", "CONNECT", "")},
    "an object that is being deleted": (BOTH, DELETED, {"operation": "UPDATE", "old": DELETED}, False),
    "a subresource": ({}, pod(), {"subResource": "binding"}, False),
    # The Deployment's controller would make one ReplicaSet after the other: none has the template that it wants.
    "the ReplicaSet of a Deployment": (BOTH, workload("ReplicaSet", ownerReferences=[OWNER]), {}, False),
    "a ReplicaSet without an owner": (BOTH, workload("ReplicaSet"), {}, True),
    "a StatefulSet with an owner": (BOTH, workload("StatefulSet", ownerReferences=[OWNER]), {}, True),
    "a pod of the selected owner": (OF_STATEFUL_SETS, pod(ownerReferences=[STATEFUL_SET]), {}, True),
    "an owner that is not the controller": (
        *(OF_STATEFUL_SETS, pod(ownerReferences=[STATEFUL_SET | {"controller": False}])),
        *({}, False),
    ),
    "a template of the selected owner": (BOTH | OF_STATEFUL_SETS, workload("StatefulSet"), {}, True),
    "a template of another owner": (BOTH | OF_STATEFUL_SETS, workload("Deployment"), {}, False),
    "the selected service account": ({"matchConditions": CONDITIONS}, pod(), {}, True),
    "another service account": ({"matchConditions": CONDITIONS}, pod({"serviceAccountName": "robot"}), {}, False),
    "an excluded priority class": (
        *({"matchConditions": CONDITIONS}, pod({"priorityClassName": "system-node-critical"})),
        *({}, False),
    ),
    "a template with the selected labels": (BOTH | WEB, workload(), {}, True),
    "labels of the workload only": (BOTH | WEB, DB_TEMPLATE, {}, False),
    "kube-system": ({}, pod(), {"namespace": "kube-system"}, False),
    "the extender's own namespace": ({}, pod(), {"namespace": "placement"}, False),
    "a mirror pod": ({}, pod(annotations={"kubernetes.io/config.mirror": "hash"}), {}, False),
    "a namespace that is selected": ({"namespaceSelector": matching(team="a")}, pod(), {}, True),
    "a namespace that is not": ({"namespaceSelector": matching(team="a")}, pod(), {"namespace": "bank"}, False),
}


@pytest.mark.parametrize(("spec", "obj", "request_fields", "injected"), REVIEWS.values(), ids=REVIEWS)
def test_a_policy_is_injected(spec: Json, obj: Json, request_fields: Json, *, injected: bool) -> None:
    found = reviewed(
        verb(policy(**spec, nodeName="n"), settings=Policies().exempting("placement")), obj, **request_fields
    )
    assert (found.patch != []) is injected
    assert not injected or template_spec(found.obj)["nodeName"] == "n"


@pytest.mark.parametrize(
    ("label_in", "exempt"), [((), False), (("bank",), False), (("shop",), True), (("*",), True)]
)  # fmt: skip
def test_a_labelled_object_is_exempt_where_the_platform_allows_it(label_in: tuple[str, ...], *, exempt: bool) -> None:
    admit = verb(policy(**BOTH, nodeName="n"), settings=Policies(exemptions=Exemptions(label_in=label_in)))
    for obj in (pod(labels=EXEMPT), workload(labels=EXEMPT)):
        assert (reviewed(admit, obj).patch == []) is exempt


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_workload_without_a_template_is_admitted(kind: str) -> None:
    """The API allows a ReplicationController without one."""
    bare_specs: list[Json] = [{}, {"template": None}, {"jobTemplate": {}}, {"template": {}}]
    for spec in bare_specs:
        bare = workload(kind) | {"spec": spec}
        assert reviewed(verb(policy(**BOTH, nodeName="n")), bare).obj == bare


def test_a_pod_of_an_injected_template_gets_nothing_more() -> None:
    terms = requiring(*(node_term(expression("zone", "In", zone)) for zone in "ab"))
    admit = verb(policy(**BOTH, affinity=terms, tolerations=[{"key": "k"}]))
    template = template_spec(reviewed(admit, workload()).obj)
    assert reviewed(admit, pod(template)).patch == []


def test_a_custom_resource_has_a_configured_path_also_through_a_list() -> None:
    settings = Policies(templates=JOB_SET)
    admit = verb(policy(**TEMPLATES, nodeSelector={"a": "b"}), settings=settings)
    first = reviewed(admit, workload("JobSet")).obj
    assert template_spec(first)["nodeSelector"] == {"a": "b"}
    assert reviewed(admit, first, "UPDATE", old=first).patch == []
    assert reviewed(verb(settings=settings), first, "UPDATE", old=first).obj == workload("JobSet")


def test_templates_of_one_object_are_limited_and_written_at_once() -> None:
    settings = Policies(templates=JOB_SET, max_templates=3)
    jobs = workload("JobSet")["spec"]["replicatedJobs"]
    three, four = (workload("JobSet") | {"spec": {"replicatedJobs": jobs * size}} for size in (3, 4))
    directing = policy(**TEMPLATES, nodeSelector={"a": "b"})
    found = reviewed(verb(directing, settings=settings), three).obj["spec"]["replicatedJobs"]
    assert [job["template"]["spec"]["template"]["spec"]["nodeSelector"] for job in found] == [{"a": "b"}] * 3
    steps = verb(directing, settings=settings).admit_in_steps(review(three))
    assert len(list(steps)) == 2, "others have their turn between templates"
    passed = reviewed(verb(directing, settings=settings), four)
    assert passed.patch == []
    assert "more than 3 pod templates (policies.maxTemplates)" in passed.warnings[0]
    strict = policy(**TEMPLATES, nodeSelector={"a": "b"}, failurePolicy="Fail")
    assert "policies.maxTemplates" in reviewed(verb(strict, settings=settings), four).message


def test_the_pods_of_a_controller_share_one_of_several_schedulers() -> None:
    admit = verb(policy(schedulerNames=["a", "b", "c"]))

    def scheduler(name: str, uid: str) -> Any:
        return reviewed(admit, pod(name=name, ownerReferences=[OWNER | {"uid": uid}])).obj["spec"]["schedulerName"]

    assert len({scheduler(f"p{number}", "same") for number in range(9)}) == 1
    assert {scheduler("p", f"uid-{number}") for number in range(30)} == {"a", "b", "c"}


def test_a_template_keeps_its_scheduler_when_its_object_has_got_a_uid() -> None:
    admit = verb(policy(**BOTH, schedulerNames=[f"s{number}" for number in range(50)]))
    first = reviewed(admit, workload()).obj
    first["metadata"]["uid"] = "now-known"
    assert reviewed(admit, first, "UPDATE", old=first).patch == []
