"""Directives, pods to inject them into, and the terms that result."""

from __future__ import annotations

import copy
from typing import Any

from extender.model.policies import Policy
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.json_edits import SpecFields
from extender.verbs.admit.pod_fields import Bounds
from extender.verbs.admit.term_product import AdmissionBudget
from tests.builders import PREFERRED, REQUIRED, Json
from tests.policies import expression, node_term

DEFAULTED: Json = {
    "schedulerName": "default-scheduler",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ],
}


def terms_of(spec: Json) -> Any:
    return spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def lacks(found: Any, wanted: Any, path: str = "") -> list[str]:
    """The paths of everything that an object had and has no more; elements of lists must keep their place."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = [f"{path}/{name}" for name in wanted.keys() - found.keys()]
        return missing + [
            lost for name in wanted.keys() & found.keys() for lost in lacks(found[name], wanted[name], f"{path}/{name}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(found) >= len(wanted):
        return [lost for n, each in enumerate(wanted) for lost in lacks(found[n], each, f"{path}/{n}")]
    return [] if found == wanted else [path]


def inject(spec: Json, *policies: Policy) -> Json:
    """The spec with the policies injected once; asserts that the given one is untouched and a second time changes nothing."""
    before = copy.deepcopy(spec)
    fields = SpecFields(spec, Bounds(), AdmissionBudget())
    injection = Injection(fields, is_pod=True)
    for each in policies:
        injection.apply(each)
    once = copy.deepcopy(fields.spec)
    for each in policies:
        assert injection.apply(each).is_empty
    assert fields.spec == once
    assert spec == before
    return once


def node_affinity(prefix: str) -> Json:
    """One preferred and one required term, each with an expression and a field."""
    field = {"key": "metadata.name", "operator": "NotIn", "values": [f"{prefix}-node"]}
    term = node_term(expression(f"{prefix}-key", "In", f"{prefix}-value"), fields=[field])
    return {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": term}], REQUIRED: {"nodeSelectorTerms": [term]}}}


def pod_affinity(kind: str, prefix: str, weight: int) -> Json:
    """One preferred and one required term, with namespaces and a topology key."""
    term = {"topologyKey": f"{prefix}-zone", "namespaces": [prefix], "labelSelector": {"matchLabels": {"app": prefix}}}
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}], REQUIRED: [term]}}


DIRECTIVES: dict[str, Json] = {
    "node affinity": {"affinity": node_affinity("new")},
    "pod affinity": {"affinity": pod_affinity("podAffinity", "new", 100)},
    "pod anti-affinity": {"affinity": pod_affinity("podAntiAffinity", "new", 100)},
    "nodeName": {"nodeName": "new-node"},
    "nodeSelector": {"nodeSelector": {"newKey": "newValue"}},
    "schedulerName": {"schedulerName": "new-scheduler"},
    "tolerations": {"tolerations": [{"key": "newKey", "value": "newValue", "effect": "PreferNoSchedule"}]},
}


def requiring_affinity(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}
