"""Pods under an exported policy, as a real apiserver creates them."""

from __future__ import annotations

from typing import Any

from extender.simulator.json_objects import JsonObject
from tests.simulator.plain import pod

_LABEL = {"native": "1"}
_ZONE = {
    "topologyKey": "zone",
    "labelSelector": {"matchLabels": _LABEL, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
}
SPEC: JsonObject = {
    "podSelector": {"matchLabels": _LABEL},
    "matchConditions": {
        "serviceAccounts": ["default"],
        "exclude": {
            "namespaces": ["lab"],
            "ownerKinds": ["DaemonSet"],
            "priorityClassNames": ["none"],
            "podSelector": {
                "matchLabels": {"skip": "a"},
                "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["c"]}],
            },
        },
    },
    "nodeSelector": {"example.com/pool": "a", "plain": "b"},
    "tolerations": [
        {"key": "example.com/pool", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    ],
    "topologySpreadConstraints": [{"maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", **_ZONE}],
    "schedulerName": "batch",
    "schedulingGates": [{"name": "example.com/gate"}],
}
_DIRECTED = ("nodeSelector", "tolerations", "topologySpreadConstraints", "schedulerName", "schedulingGates", "nodeName")


def _pod(number: int, labels: JsonObject | None = None, **spec: Any) -> JsonObject:
    made = pod(f"native-{number}")
    made["metadata"]["labels"] = _LABEL | (labels or {})
    made["metadata"]["namespace"] = "default"
    made["spec"] |= spec
    return made


def _owned(number: int, kind: str) -> JsonObject:
    made = _pod(number)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


PODS = [
    _pod(1),
    _pod(2, nodeSelector={"plain": "other"}, schedulerName="own"),
    _pod(3, tolerations=SPEC["tolerations"][:1], schedulerName="default-scheduler"),
    _pod(4, topologySpreadConstraints=[{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_ZONE}]),
    _pod(5, schedulingGates=[{"name": "example.com/gate"}, {"name": "example.com/other"}]),
    _pod(6, nodeName="somewhere"),
    _pod(7, {"skip": "a"}),
    _pod(8, {"skip": "a", "b": "c"}),
    _pod(9, {"placement.extender.dev/exempt": "true"}),
    _pod(10, serviceAccountName="robot"),
    _owned(11, "DaemonSet"),
    _owned(12, "StatefulSet"),
]


def directed(obj: JsonObject) -> JsonObject:
    return {name: obj["spec"][name] for name in _DIRECTED if name in obj["spec"]}
