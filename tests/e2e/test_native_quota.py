"""What `extender quota generate` writes, on a real apiserver: pods with affinity across namespaces need an allowance."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.features.quotas.native import ALLOWED, ALLOWED_LABEL, QUOTA_NAME, native_quotas
from extender.features.quotas.settings import Quota
from extender.simulator.json_objects import JsonObject, name_of
from tests.builders import pod_json, term, weighted
from tests.e2e.client import Api, ApiFailure, path_of
from tests.e2e.cluster import Cluster
from tests.fakes import PATIENCE
from tests.parity.runner import cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_FREE, _LABELLED, _HELD = "quota-free", "quota-labelled", "quota-held"
_CASES = Path(__file__).resolve().parents[1] / "parity" / "cases" / "quota.ndjson.gz"
_EXISTS = 409  # the control plane is that of all tests
_ALL = term("zone", app="web", namespace_selector={})


def _pod(namespace: str, body: JsonObject) -> JsonObject:
    spec = body["spec"] | {"containers": [{"name": "main", "image": "x"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked", "namespace": namespace, "labels": body["metadata"].get("labels") or {}},
        "spec": spec,
    }


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """A client of an apiserver with three namespaces, to which the objects are applied."""
    api = cluster.api
    for name, labels in ((_FREE, {}), (_LABELLED, {ALLOWED_LABEL: ALLOWED}), (_HELD, {})):
        await api.request(
            "POST",
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            allow=[_EXISTS],
        )
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        await api.request("POST", path_of(account), account, allow=[_EXISTS])
    for each in native_quotas([], {_FREE: 5}, Quota()):
        await api.request("POST", path_of(each), each, params={"fieldValidation": "Strict"}, allow=[_EXISTS])
    yield api
    for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
        path = path_of({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {}})
        for found in (await api.list(path))[0]:
            if name_of(found) == QUOTA_NAME:
                await api.delete(f"{path}/{QUOTA_NAME}")


async def _refusal(api: Api, pod: JsonObject) -> str:
    """The message of a refusal; empty where the pod would be created."""
    try:
        await api.request("POST", path_of(pod), pod, params={"dryRun": "All"})
    except ApiFailure as error:
        return str(error)
    return ""


async def _until_applied(api: Api) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await _refusal(api, _pod(_HELD, pod_json(apart=[_ALL]))):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


@pytest.mark.core("quotas by the API server")
@pytest.mark.needs("ValidatingAdmissionPolicy v1", api=30)
async def test_a_pod_with_a_term_across_namespaces_needs_an_allowance_and_others_pass(api: Api) -> None:
    await _until_applied(api)
    bodies = {
        "required affinity": pod_json(near=[_ALL]),
        "required anti-affinity": pod_json(apart=[term("zone", app="web", namespaces=["default"])]),
        "preferred affinity": pod_json(prefers=[weighted(1, _ALL)]),
        "preferred anti-affinity": pod_json(avoids=[weighted(1, term("zone", app="web", namespaces=[_HELD]))]),
    }
    for name, body in bodies.items():
        assert "are not allowed here" in await _refusal(api, _pod(_HELD, body)), name
        assert await _refusal(api, _pod(_LABELLED, body)) == "", name
        assert "are not allowed here" not in await _refusal(api, _pod(_FREE, body)), name
    for body in (
        pod_json(),
        pod_json(apart=[term("zone", app="web")]),
        pod_json(near=[term("zone", app="web", namespaces=[])]),
    ):
        assert await _refusal(api, _pod(_HELD, body)) == ""


async def test_the_expression_agrees_with_the_quota_evaluator(api: Api) -> None:
    await _until_applied(api)
    differing, judged = [], Counter[bool]()
    for case in cases(_CASES):
        refusal = await _refusal(api, _pod(_HELD, case["pod"]))
        if refusal and "are not allowed here" not in refusal:
            continue  # the API server accepts no such pod at all
        judged[bool(refusal)] += 1
        if bool(refusal) is not case["crossNamespace"]:
            differing.append(case["id"])
    assert differing == []
    assert min(judged[True], judged[False]) >= 50, judged
