"""Policies that `extender policy export` writes, on a real apiserver: it accepts them, and pods get what the webhook gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest

from extender.model.policies import INJECTED_ANNOTATION, Exempt
from extender.settings.policies import Exemptions, Policies
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.simulator.json_objects import JsonObject, name_of
from extender.verbs.admit.native import native_policy
from extender.verbs.admit.reviews import read_patch, review_of
from extender.wire.policies.policies_v1 import read_policy
from tests.e2e.client import Api, path_of
from tests.e2e.cluster import Cluster
from tests.fakes import PATIENCE
from tests.policies import policy_json
from tests.simulator.plain import pod
from tests.verbs.admit.reviewing import verb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_LABEL = {"native": "1"}
_ZONE = {
    "topologyKey": "zone",
    "labelSelector": {"matchLabels": _LABEL, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
}
_SPEC: JsonObject = {
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
    _pod(3, tolerations=_SPEC["tolerations"][:1], schedulerName="default-scheduler"),
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


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """A client of an apiserver; the policies that a test creates are removed."""
    yield cluster.api
    for kind in ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"):
        path = path_of({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {}})
        for each in (await cluster.api.list(path))[0]:
            await cluster.api.delete(f"{path}/{name_of(each)}")
    await _until_applied(cluster.api, expected=False)


async def _as_created(api: Api, obj: JsonObject) -> JsonObject:
    return await api.request("POST", path_of(obj), obj, params={"dryRun": "All"})


async def _until_applied(api: Api, *, expected: bool) -> None:
    """Return once the apiserver applies the policy, or no longer does: it reads policies by a watch of its own."""
    async with asyncio.timeout(PATIENCE):
        while ("nodeSelector" in (await _as_created(api, PODS[-1]))["spec"]) is not expected:  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


def _directed(obj: JsonObject) -> JsonObject:
    return {name: obj["spec"][name] for name in _DIRECTED if name in obj["spec"]}


@pytest.mark.parametrize("conflict_policy", ["KeepPod", "Override"])
@pytest.mark.parametrize(
    ("namespace", "changes"),
    [("", {}), ("default", {}), ("", {"nodeName": "n1"}), ("", {"matchConditions": {"ownerKinds": ["StatefulSet"]}})],
    ids=["cluster", "namespaced", "node name", "owner kind"],
)
async def test_pods_get_the_same_as_by_the_webhook(
    api: Api, conflict_policy: str, namespace: str, changes: JsonObject
) -> None:
    spec = deepcopy(_SPEC) | {"conflictPolicy": conflict_policy, **changes}
    if conflict_policy == "Override":
        del spec["topologySpreadConstraints"]  # is left out then
    if changes.get("nodeName"):
        del spec["schedulingGates"]  # are refused beside it
    document = policy_json("all", namespace, **spec)
    policy = read_policy(document)
    plain = [await _as_created(api, each) for each in PODS]
    expected = []
    admit = verb(policy, settings=Policies(exemptions=Exemptions(label_in=("default",))))
    for each in plain:
        response = admit.decide(review_of(each, "default"))["response"]
        expected.append(_directed(apply_patch(each, read_patch(response), JSON)))
    native = native_policy(policy, document["spec"], Exempt(["kube-system"], ["default"]))
    assert native.left_out == ()
    for each in native.documents:
        await api.request("POST", path_of(each), each, params={"fieldValidation": "Strict"})
    await _until_applied(api, expected=True)
    got = [_directed(await _as_created(api, each)) for each in PODS]
    assert got == expected
    changed = sum(one != _directed(other) for one, other in zip(got, plain, strict=True))
    assert changed == (1 if "matchConditions" in changes else 8)
    assert INJECTED_ANNOTATION not in str(native.documents)
