"""Policies that `extender policy export` writes, on a real apiserver: it accepts them, and pods get what the webhook gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy

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
from tests.e2e.native_policies import PODS, SPEC, directed
from tests.fakes import PATIENCE
from tests.policies import policy_json
from tests.verbs.admit.reviewing import verb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


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


@pytest.mark.core("policies by the API server")
@pytest.mark.needs("MutatingAdmissionPolicy v1", api=36)
@pytest.mark.parametrize("conflict_policy", ["KeepPod", "Override"])
@pytest.mark.parametrize(
    ("namespace", "changes"),
    [("", {}), ("default", {}), ("", {"nodeName": "n1"}), ("", {"matchConditions": {"ownerKinds": ["StatefulSet"]}})],
    ids=["cluster", "namespaced", "node name", "owner kind"],
)
async def test_pods_get_the_same_as_by_the_webhook(
    api: Api, conflict_policy: str, namespace: str, changes: JsonObject
) -> None:
    spec = deepcopy(SPEC) | {"conflictPolicy": conflict_policy, **changes}
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
        expected.append(directed(apply_patch(each, read_patch(response), JSON)))
    native = native_policy(policy, document["spec"], Exempt(["kube-system"], ["default"]))
    assert native.left_out == ()
    for each in native.documents:
        await api.request("POST", path_of(each), each, params={"fieldValidation": "Strict"})
    await _until_applied(api, expected=True)
    got = [directed(await _as_created(api, each)) for each in PODS]
    assert got == expected
    changed = sum(one != directed(other) for one, other in zip(got, plain, strict=True))
    assert changed == (1 if "matchConditions" in changes else 8)
    assert INJECTED_ANNOTATION not in str(native.documents)
