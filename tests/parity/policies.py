"""One policy case: kupid's policies injected into a pod spec, or one of them validated; what differs from kupid's answer.

The form of required node terms is ours, so their answer is the set of nodes that they admit.
"""

from __future__ import annotations

from typing import Any

import orjson

from extender.model.policies import CLUSTER_KIND, KUPID_GROUP, JsonObject
from extender.settings.limits import ConstraintLimits
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.json_edits import SpecFields
from extender.verbs.admit.pod_fields import Bounds
from extender.verbs.admit.term_product import AdmissionBudget
from extender.wire.policies.node_terms import LISTS, canonical, value_at
from extender.wire.policies.policies_v1 import read_policy
from extender.wire.policies.policy_validation import validate
from tests.builders import read_pod

Case = dict[str, Any]

_HEAD = {"apiVersion": f"{KUPID_GROUP}/v1alpha1", "kind": CLUSTER_KIND}


def differences(case: Case) -> list[str]:
    """One line for each part of the answer that is not kupid's; empty when all are."""
    return _injection(case) if case["kind"] == "inject" else _validation(case)


def _validation(case: Case) -> list[str]:
    got = {(error.field, str(error.type)) for error in validate({**_HEAD, **case["policy"]}, ConstraintLimits())}
    want = {(error["field"], error["type"]) for error in case["errors"]}
    return [] if got == want else [f"errors: {sorted(got)}, expected {sorted(want)}"]


def _injection(case: Case) -> list[str]:
    fields = SpecFields(case["pod"], Bounds(), AdmissionBudget())
    injection = Injection(fields, is_pod=True)
    policies = [read_policy({**_HEAD, **policy}) for policy in case["policies"]]
    for policy in policies:
        injection.apply(policy)
    once = orjson.dumps(fields.spec)
    for policy in policies:
        injection.apply(policy)
    lines = [] if orjson.dumps(fields.spec) == once else ["applied again it changes"]
    got, want = fields.spec, case["result"]
    lines += (
        f"{name}: {got.get(name)}, expected {want.get(name)}"
        for name in ("nodeSelector", "nodeName", "schedulerName")
        if (got.get(name) or None) != (want.get(name) or None)
    )
    for path in LISTS:
        ours = {canonical(each) for each in value_at(got, path) or ()}
        theirs = {canonical(each) for each in value_at(want, path) or ()}
        if ours != theirs:
            lines.append(f"{path}: {sorted(ours)}, expected {sorted(theirs)}")
    admitted = _admitted(got, case["nodes"])
    return lines if admitted == case["admits"] else [*lines, f"admits {admitted}, expected {case['admits']}"]


def _admitted(spec: JsonObject, nodes: list[JsonObject]) -> list[str]:
    """The nodes that the node selector and the required node affinity of a pod admit."""
    pod = read_pod({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})
    matches = pod.signature.node_affinity.matches
    return [node["name"] for node in nodes if matches(node["name"], node.get("labels") or {})]
