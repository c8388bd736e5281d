"""Findings about scheduling policies: their kinds in the API server, the way to the webhook, and the policies themselves.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding, PolicyFacts, PolicyInUse
from extender.model.policies import KUPID_GROUP, FailurePolicy, InvalidPolicy, Policy

_MOST_NAMED: Final = 10  # of one sort; the others are counted
_CRDS: Final = "apply deploy/policies"


def examine_policies(facts: Facts) -> list[Finding]:
    """Every finding about them. O(policies)."""
    found = facts.policies
    return [*_kinds(found), *_webhook(found), *_policies(found)] if found is not None else []


def _kinds(facts: PolicyFacts) -> Iterator[Finding]:
    for resource in facts.not_served:
        remedy = f"{_CRDS}: none of these policies is in effect; the service sees the CRD within half a minute"
        if resource.endswith(KUPID_GROUP):
            remedy = "apply the CRDs of kupid, or set policies.kupid: false"
        yield Finding("error", "crds", f"the API server does not serve {resource}", remedy)
    for kind, fields in facts.dropped.items():
        problem = f"the CRD of {kind} is older than the service: the API server drops {', '.join(fields)}"
        yield Finding("warning", "crds", problem, f"{_CRDS} of the version that runs")


def _webhook(facts: PolicyFacts) -> Iterator[Finding]:
    for name in facts.no_configuration:
        remedy = (
            "apply deploy/policies: the leader creates a configuration if role.yaml lets it and the caBundle is its own"
        )
        yield Finding("error", "webhook", f"{name} does not exist: the API server calls no webhook", remedy)
    for name in facts.untrusted:
        problem = f"the caBundle of {name} is not that of the serving certificate: every call of the webhook fails"
        remedy = "the leader writes it (see its log); with certificates cert-manager, check the CA injector"
        yield Finding("error", "webhook", problem, remedy)
    for name, ready in facts.services.items():
        if ready is None:
            remedy = "apply deploy/policies/service.yaml, or set policies.webhook.service and serviceNamespace"
            yield Finding("error", "webhook", f"the Service {name} of the webhook does not exist", remedy)
        elif ready == 0:
            remedy = "check that replicas run with POD_NAME, POD_UID and POD_IP, and /readyz of the webhook's port"
            yield Finding("error", "webhook", f"the Service {name} of the webhook has no ready endpoint", remedy)


def _policies(facts: PolicyFacts) -> Iterator[Finding]:
    invalid = [_invalid(each.policy) for each in facts.policies if isinstance(each.policy, InvalidPolicy)]
    yield from _bounded(sorted(invalid, key=_severity_first), "policies are invalid")
    matchless = [each for each in facts.policies if isinstance(each.policy, Policy)]
    yield from _bounded(
        [_matchless(each.policy) for each in matchless if _selects_nothing(each)], "policies match no pod"
    )


def _severity_first(finding: Finding) -> bool:
    return finding.severity != "error"


def _bounded(findings: list[Finding], what: str) -> Iterator[Finding]:
    yield from findings[:_MOST_NAMED]
    if len(findings) > _MOST_NAMED:
        last = findings[_MOST_NAMED]
        problem = f"{len(findings) - _MOST_NAMED} more {what}"
        yield Finding(last.severity, last.check, problem, "see `kubectl get podpol,cpodpol -A`")


def _invalid(policy: InvalidPolicy) -> Finding:
    rejects = policy.failure_policy is FailurePolicy.FAIL
    effect = "pods that it may select are rejected" if rejects else "it is not applied"
    remedy = "correct the field; `kubectl apply` of the policy shows every error while the webhook is reachable"
    problem = f"{policy.key} is invalid, so {effect}: {policy.errors[0]}"
    return Finding("error" if rejects else "warning", "policies", problem, remedy)


def _selects_nothing(found: PolicyInUse) -> bool:
    return found.matched == 0 or _absent_selector(found.policy) != ""


def _absent_selector(policy: Policy | InvalidPolicy) -> str:
    scope = policy.scope
    if scope is None:
        return ""
    if scope.pod_selector.nothing:
        return "podSelector"
    return "namespaceSelector" if scope.namespace_selector.nothing else ""


def _matchless(policy: Policy | InvalidPolicy) -> Finding:
    absent = _absent_selector(policy)
    if absent:
        problem, remedy = f"{policy.key} can match no pod: {absent} is absent", f"set it; {absent}: {{}} selects all"
        return Finding("warning", "policies", problem, remedy)
    remedy = "nothing to do if its pods are still to come; else compare its selectors with the labels of the pods"
    return Finding("info", "policies", f"{policy.key} matches no pod of the cluster", remedy)
