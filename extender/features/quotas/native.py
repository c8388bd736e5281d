"""Limits on affinity across namespaces as objects of the API server, which `extender quota generate` writes.

1. A limit becomes a ResourceQuota, which counts pods with affinity across namespaces from their creation.
2. A ValidatingAdmissionPolicy refuses such pods in each namespace without an allowed number, because a quota limits only its own
   namespace. A quota alone does not lift the refusal. The alternative is a configuration file of the API server
   (limitedResources). https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import orjson

from extender.features.quotas.charges import CROSS_NAMESPACE_SCOPE
from extender.features.quotas.settings import Quota
from extender.model.policies import NAMESPACE_NAME_LABEL, JsonObject

_GROUP_VERSION: Final = "admissionregistration.k8s.io/v1"

QUOTA_NAME: Final = "cross-namespace-pod-affinity"
ALLOWED_LABEL: Final = "placement.extender.dev/cross-namespace-affinity"
ALLOWED: Final = "allowed"

_MESSAGE: Final = (
    "pods with affinity across namespaces (namespaces or namespaceSelector in a term) are not allowed here: "
    f"label the namespace {ALLOWED_LABEL}={ALLOWED} and give it a ResourceQuota of scope {CROSS_NAMESPACE_SCOPE}"
)


def native_quotas(
    namespaces: Collection[str], allowed: Mapping[str, int], settings: Quota, *, audits: bool = False
) -> list[JsonObject]:
    """The policy with its binding, and a quota for each namespace that is not exempt: of 0 pods where no number is allowed.

    ``namespaces``: the existing ones. Where they are not known only namespaces with a number get a quota.
    """
    exempt = settings.exempt_namespaces
    names = sorted({*namespaces, *allowed} - set(exempt))
    quotas = [_quota(name, allowed.get(name, 0)) for name in names]
    free = sorted(name for name, number in allowed.items() if number)
    return [
        _quota_policy(sorted({*exempt, *free}), settings.exempt_priority_classes),
        _quota_binding(audits=audits),
        *quotas,
    ]


def _quota(namespace: str, pods: int) -> JsonObject:
    """The quota. Its scope is in `scopes`, because that field is immutable and `scopeSelector` is not."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA_NAME, "namespace": namespace},
        "spec": {"hard": {"pods": str(pods)}, "scopes": [CROSS_NAMESPACE_SCOPE]},
    }


def _quota_policy(free: Collection[str], classes: Collection[str]) -> JsonObject:
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": QUOTA_NAME},
        "spec": {
            # A limit that is skipped on an error is no limit.
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
            **_quota_conditions(classes),
            "validations": [{"expression": f"!({_PREDICATE})", "message": _MESSAGE, "reason": "Forbidden"}],
        },
    }


def _quota_conditions(classes: Collection[str]) -> JsonObject:
    """Match conditions: the policy skips pods of exempt priority classes."""
    if not classes:
        return {}
    listed = orjson.dumps(list(classes)).decode()
    expression = f"!has(object.spec.priorityClassName) || !(object.spec.priorityClassName in {listed})"
    return {"matchConditions": [{"name": "not-exempt", "expression": expression}]}


def _quota_binding(*, audits: bool) -> JsonObject:
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": QUOTA_NAME},
        "spec": {"policyName": QUOTA_NAME, "validationActions": ["Warn", "Audit"] if audits else ["Deny"]},
    }


def _quota_lists() -> Iterator[str]:
    """CEL: a term of one of the four lists is in the scope. The same predicate as in `model/constraints/terms.py`."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for need, term in (("required", "t"), ("preferred", "t.podAffinityTerm")):
            path = f"object.spec.affinity.{kind}"
            name = f"{path}.{need}DuringSchedulingIgnoredDuringExecution"
            names = f"(has({term}.namespaces) && size({term}.namespaces) > 0)"
            yield f"(has({path}) && has({name}) && {name}.exists(t, {names} || has({term}.namespaceSelector)))"


_PREDICATE: Final = f"has(object.spec.affinity) && ({' || '.join(_quota_lists())})"
