"""Policies that fail, and what an answer says of the policies that were applied."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.policies import INJECTED_ANNOTATION, FailurePolicy, InvalidPolicy, PolicyKey
from tests.builders import Json, matching
from tests.policies import policy
from tests.verbs.admit.reviewing import pod, reviewed, verb


def broken(failure_policy: str, selector: Json | None = None, mode: str = "Enforce") -> Any:
    """A policy that fails by itself while it is applied, as no valid one does."""
    fields: Json = {"podSelector": selector or {}, "failurePolicy": failure_policy, "mode": mode}
    made = policy("broken", priority=1, schedulerName="x", **fields)
    object.__setattr__(made.directives, "node_selector", 3)
    return made


def test_the_other_policies_are_applied() -> None:
    found = reviewed(verb(broken("Ignore"), policy("good", nodeName="n")), pod())
    assert found.obj["spec"]["nodeName"] == "n"
    assert "schedulerName" not in found.obj["spec"], "nothing of the broken policy is half applied"
    assert found.warnings[0].startswith("ClusterPodSchedulingPolicy/broken is not applied: ")
    assert "ClusterPodSchedulingPolicy/broken" in found.response["auditAnnotations"]["errors"]


def test_failure_policy_fail_rejects_the_pod() -> None:
    found = reviewed(verb(broken("Fail"), policy("good", nodeName="n")), pod())
    assert found.response["allowed"] is False
    assert (found.response["status"]["code"], found.response["status"]["reason"]) == (500, "InternalError")
    assert "ClusterPodSchedulingPolicy/broken" in found.message
    for harmless in (broken("Fail", mode="Audit"), broken("Fail", matching(app="db"))):
        assert reviewed(verb(harmless), pod()).response["allowed"] is True, "it only audits, or does not select the pod"


@pytest.mark.parametrize("failure_policy", ["Ignore", "Fail"])
def test_a_stored_policy_that_is_not_valid_is_named_and_honours_its_failure_policy(failure_policy: str) -> None:
    key = PolicyKey("placement.extender.dev", "", "bad")
    bad = InvalidPolicy(key, ("spec.nodeName: wrong",), FailurePolicy(failure_policy))
    found = reviewed(verb(policy("good", nodeName="n"), invalid=[bad]), pod())
    assert found.response["allowed"] is (failure_policy == "Ignore")
    if failure_policy == "Ignore":
        assert found.obj["spec"]["nodeName"] == "n"
        assert found.warnings == ["ClusterPodSchedulingPolicy/bad is not applied: spec.nodeName: wrong"]


def test_the_audit_log_has_what_was_applied() -> None:
    admit = verb(policy(generation=4, nodeSelector={"a": "b"}, tolerations=[{"key": "k"}]))
    found, dry = reviewed(admit, pod()), reviewed(admit, pod(), dryRun=True)
    applied = {"applied": "ClusterPodSchedulingPolicy/policy@4: tolerations, nodeSelector"}
    assert found.response["auditAnnotations"] == applied
    assert dry.patch == found.patch


def test_mode_audit_records_and_changes_nothing() -> None:
    audited = policy("a", mode="Audit", conflictPolicy="Reject", nodeName="n", nodeSelector={"zone": "a"})
    found = reviewed(verb(audited, policy("b", schedulerName="s")), pod({"nodeSelector": {"zone": "b"}}))
    assert found.obj["spec"] == pod({"nodeSelector": {"zone": "b"}, "schedulerName": "s"})["spec"]
    assert found.warnings == []
    notes = found.response["auditAnnotations"]
    assert notes["audited"] == "ClusterPodSchedulingPolicy/a@1: nodeName"
    assert "nodeSelector[zone]" in notes["conflicts"]
    assert "ClusterPodSchedulingPolicy/a" not in found.obj["metadata"]["annotations"][INJECTED_ANNOTATION]
