"""The admission policy as text: it holds the user that the roles are for, to what the code writes.

tests/e2e/test_admission.py proves on a real apiserver what it lets pass and what it refuses.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from extender.model.release import MOST_TOLERATIONS, TAINTS_OF_KUBERNETES
from extender.tasks.preemption.executor import NOT_PREEMPTED, REASON, TARGET
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.deploy.building import DEPLOY, OVERLAYS, Json, built, of_kind, overlay, overlay_with, rules


def policy_of(documents: list[Json]) -> Json:
    """That of deploy/base, about pods."""
    (policy,) = [each for each in of_kind(documents, "ValidatingAdmissionPolicy") if not is_about_endpoints(each)]
    return policy


def is_about_endpoints(policy: Json) -> bool:
    """Whether it is that of overlays/service."""
    rules_of_policy = policy["spec"]["matchConstraints"]["resourceRules"]
    return [each["resources"] for each in rules_of_policy] == [["endpointslices"]]


def users(documents: list[Json]) -> set[str]:
    """The users that the extender's cluster roles are bound to, as the apiserver names them."""
    found = set()
    for binding in of_kind(documents, "ClusterRoleBinding"):
        if binding["roleRef"]["name"].startswith("placement-extender-"):
            for subject in binding["subjects"]:
                account = f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}"
                found.add(subject["name"] if subject["kind"] == "User" else account)
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_policy_denies_and_holds_exactly_the_user_that_the_roles_are_bound_to(name: str) -> None:
    documents = overlay(name)
    policies, (user,) = of_kind(documents, "ValidatingAdmissionPolicy"), users(documents)
    assert policy_of(documents) in policies
    for policy in policies:
        assert [one["expression"] for one in policy["spec"]["matchConditions"]] == [
            f'request.userInfo.username == "{user}"'
        ]
        assert policy["spec"]["failurePolicy"] == "Fail"
    assert [each["spec"] for each in of_kind(documents, "ValidatingAdmissionPolicyBinding")] == [
        {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies
    ]


@pytest.mark.parametrize("name", ["service", "schedulers"])
def test_the_leader_writes_slices_of_the_two_services_alone(name: str) -> None:
    documents = overlay(name)
    (policy,) = [each for each in of_kind(documents, "ValidatingAdmissionPolicy") if is_about_endpoints(each)]
    (validation,) = policy["spec"]["validations"]
    assert 'in ["placement-extender", "placement-extender-webhook"]' in validation["expression"]
    (component,) = (DEPLOY / "policies").glob("admission.yaml")
    assert 'in ["placement-extender", "placement-extender-webhook"]' in component.read_text("utf-8"), "both are asked"


def test_the_policy_follows_the_namespace_of_an_overlay(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    kustomization = tmp_path / "deploy/overlays/service/kustomization.yaml"
    text = kustomization.read_text("utf-8").replace("namespace: placement-extender", "namespace: elsewhere")
    kustomization.write_text(text, "utf-8")
    documents = built(kustomization.parent)
    assert users(documents) == {"system:serviceaccount:elsewhere:placement-extender"}
    assert 'system:serviceaccount:elsewhere:placement-extender"' in str(policy_of(documents)["spec"]["matchConditions"])


def test_the_policy_names_what_the_code_writes() -> None:
    text = yaml.safe_dump(policy_of(built(DEPLOY / "base"))["spec"]["validations"], width=1000)
    prefixes = set(re.findall(r'key\.startsWith\("([^"]+)"\)', text))
    assert len(prefixes) == 1
    assert REQUEUE_ANNOTATION.startswith(tuple(prefixes))
    assert f'one.type == "{TARGET}" && ' in text
    assert f'one.status == "True" ? one.reason == "{REASON}" : one.reason == "{NOT_PREEMPTED}"' in text


def test_the_policy_bounds_the_tolerations_of_a_release_as_a_scheduling_policy_is_bounded() -> None:
    variables = policy_of(built(DEPLOY / "base"))["spec"]["variables"]
    (bound,) = [each["expression"] for each in variables if each["name"] == "boundTolerations"]
    prefixes = re.findall(r'"([^"]+)"', bound[bound.index("[") : bound.index("]")])
    assert tuple(prefixes) == TAINTS_OF_KUBERNETES
    assert f"variables.oldTolerations.size() + {MOST_TOLERATIONS}\n" in bound.replace(" &&", "\n")


@pytest.mark.parametrize("name", OVERLAYS)
def test_binding_is_granted_by_its_component_alone_in_the_role_and_in_the_policy(name: str) -> None:
    with_it, without = overlay_with("bind", name), overlay(name)
    granted = [set(rules(documents, "ClusterRole")) for documents in (with_it, without)]
    assert granted[0] - granted[1] == {("", "pods/binding", "create")}
    allowed = [re.findall(r'"(\w+ pods[^"]*)"', str(first_rule(documents))) for documents in (with_it, without)]
    assert allowed[0] == [*allowed[1], "CREATE pods/binding"]
    assert len(allowed[1]) == 4
    changed = [each for each in with_it if each not in without]
    assert sorted(each["kind"] for each in changed) == ["ClusterRole", "ValidatingAdmissionPolicy"]


def first_rule(documents: list[Json]) -> str:
    """The expression that lists which writes there are."""
    expression: str = policy_of(documents)["spec"]["validations"][0]["expression"]
    return expression
