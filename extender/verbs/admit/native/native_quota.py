"""Limits on affinity across namespaces in the API server's own form, for clusters that want them at admission as well.

ResourceQuotas count such pods from their creation. A ValidatingAdmissionPolicy refuses them wherever no number was allowed,
which otherwise takes a file of the API server (limitedResources), and which a quota of the same scope cannot satisfy by its
name alone. https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import orjson

from extender.model.policies import NAMESPACE_NAME_LABEL, JsonObject
from extender.model.quotas import CROSS_NAMESPACE_SCOPE
from extender.settings.quota import Quota

NAME: Final = "cross-namespace-pod-affinity"
ALLOWED_LABEL: Final = "placement.extender.dev/cross-namespace-affinity"
ALLOWED: Final = "allowed"

_VERSION: Final = "admissionregistration.k8s.io/v1"
_MESSAGE: Final = (
    "pods with affinity across namespaces (namespaces or namespaceSelector in a term) are not allowed here: "
    f"label the namespace {ALLOWED_LABEL}={ALLOWED} and give it a ResourceQuota of scope {CROSS_NAMESPACE_SCOPE}"
)


def native_quotas(
    namespaces: Collection[str], allowed: Mapping[str, int], settings: Quota, *, audits: bool = False
) -> list[JsonObject]:
    """The policy with its binding, and a quota for each namespace that is not exempt: 0 pods where no number is allowed.

    ``namespaces``: those that exist, or none where that is not known; then only those with a number get a quota.
    """
    exempt = settings.exempt_namespaces
    names = sorted({*namespaces, *allowed} - set(exempt))
    quotas = [_quota(name, allowed.get(name, 0)) for name in names]
    free = sorted(name for name, number in allowed.items() if number)
    return [_policy(sorted({*exempt, *free}), settings.exempt_priority_classes), _binding(audits=audits), *quotas]


def _quota(namespace: str, pods: int) -> JsonObject:
    """Its scope is in `scopes`, which cannot change, and not in `scopeSelector`, which can."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"hard": {"pods": str(pods)}, "scopes": [CROSS_NAMESPACE_SCOPE]},
    }


def _policy(free: Collection[str], classes: Collection[str]) -> JsonObject:
    return {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": list(free)},
                        {"key": ALLOWED_LABEL, "operator": "NotIn", "values": [ALLOWED]},
                    ]
                    if free
                    else [{"key": ALLOWED_LABEL, "operator": "NotIn", "values": [ALLOWED]}]
                },
            },
            **_conditions(classes),
            "validations": [{"expression": f"!({_PREDICATE})", "message": _MESSAGE, "reason": "Forbidden"}],
        },
    }


def _conditions(classes: Collection[str]) -> JsonObject:
    """Pods of exempt priority classes are no concern of the policy."""
    if not classes:
        return {}
    listed = orjson.dumps(list(classes)).decode()
    expression = f"!has(object.spec.priorityClassName) || !(object.spec.priorityClassName in {listed})"
    return {"matchConditions": [{"name": "not-exempt", "expression": expression}]}


def _binding(*, audits: bool) -> JsonObject:
    return {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Warn", "Audit"] if audits else ["Deny"]},
    }


def _lists() -> Iterator[str]:
    """Whether a term of one of the four lists is in the scope, as CEL: the predicate of `model/constraints/cross_namespace.py`."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for need, term in (("required", "t"), ("preferred", "t.podAffinityTerm")):
            path = f"object.spec.affinity.{kind}"
            name = f"{path}.{need}DuringSchedulingIgnoredDuringExecution"
            names = f"(has({term}.namespaces) && size({term}.namespaces) > 0)"
            yield f"(has({path}) && has({name}) && {name}.exists(t, {names} || has({term}.namespaceSelector)))"


_PREDICATE: Final = f"has(object.spec.affinity) && ({' || '.join(_lists())})"
