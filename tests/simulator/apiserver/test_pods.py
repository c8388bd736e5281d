"""Pods: binding, deletion with grace, and eviction under a disruption budget."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, NODES
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.json_objects import JsonObject, condition_of
from tests.fakes import PATIENCE, until
from tests.simulator.client import PODS, Client, connect
from tests.simulator.plain import ZONE, namespace, node, pod

DEFAULT = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def slow_kubelet() -> AsyncIterator[Client]:
    """A control plane whose kubelet takes its time, and a bound pod named `a`."""
    async with ApiServer(ApiServerSettings(kubelet_delay=600)) as api, connect(api.url) as client:
        api.operations.create(NAMESPACES, namespace("default"))
        await client.post(DEFAULT, pod("a", on="n1"))
        yield client


def _binding(node_name: str, **metadata: str) -> JsonObject:
    return {"metadata": metadata, "target": {"kind": "Node", "name": node_name}}


async def test_binding_sets_the_node_its_topology_labels_and_the_condition(client: Client, api: ApiServer) -> None:
    api.operations.create(NODES, node("n1", "z1", labels={"topology.kubernetes.io/region": "r1", "other": "x"}))
    await client.post(DEFAULT, pod("a", labels={"app": "web"}))
    await client.patch(f"{DEFAULT}/a/status", {"status": {"nominatedNodeName": "n1"}})
    code, answer = await client.post(f"{DEFAULT}/a/binding", _binding("n1"))
    assert (code, answer["status"]) == (201, "Success")
    _, bound = await client.get(f"{DEFAULT}/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["labels"] == {"app": "web", ZONE: "z1", "topology.kubernetes.io/region": "r1"}
    assert "nominatedNodeName" not in bound["status"]
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_bound_pod_is_not_bound_again(client: Client) -> None:
    await client.post(DEFAULT, pod("a", on="n1"))
    code, body = await client.post(f"{DEFAULT}/a/binding", _binding("n2"))
    assert (code, body["message"]) == (
        409,
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"',
    )


async def test_a_binding_may_name_the_uid_it_was_made_for(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    assert (await client.post(f"{DEFAULT}/a/binding", _binding("n1", uid="of-another")))[0] == 409
    assert (await client.post(f"{DEFAULT}/a/binding", _binding("n1", uid=made["metadata"]["uid"])))[0] == 201


async def test_gated_pods_and_missing_targets_are_not_bound(client: Client) -> None:
    await client.post(DEFAULT, pod("a", schedulingGates=[{"name": "hold"}]))
    assert (await client.post(f"{DEFAULT}/a/binding", _binding("n1")))[0] == 409
    assert (await client.post(f"{DEFAULT}/a/binding", {"metadata": {}}))[0] == 422
    assert (await client.post(f"{DEFAULT}/b/binding", _binding("n1")))[0] == 404


async def test_a_pending_pod_goes_at_once_by_way_of_terminating(client: Client, api: ApiServer) -> None:
    await client.post(DEFAULT, pod("a"))
    stream = await client.watch(PODS, resourceVersion=api.store.version)
    await client.request("DELETE", f"{DEFAULT}/a")
    ending, deleted = await stream.take(2)
    assert (ending["type"], ending["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 0)
    assert (deleted["type"], deleted["object"]["metadata"]["generation"]) == ("DELETED", 2)


async def test_a_bound_pod_terminates_until_the_kubelet_is_done(slow_kubelet: Client) -> None:
    _, ending = await slow_kubelet.request("DELETE", f"{DEFAULT}/a", {"gracePeriodSeconds": 20})
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    _, there = await slow_kubelet.get(f"{DEFAULT}/a")
    assert there["metadata"]["deletionTimestamp"]
    assert (await slow_kubelet.post(f"{DEFAULT}/a/binding", _binding("n1")))[0] == 409
    await slow_kubelet.request("DELETE", f"{DEFAULT}/a", {"gracePeriodSeconds": 0})
    assert (await slow_kubelet.get(f"{DEFAULT}/a"))[0] == 404


async def test_the_kubelet_takes_no_longer_than_it_is_set_to() -> None:
    async with ApiServer(ApiServerSettings(kubelet_delay=0.01)) as api, connect(api.url) as client:
        api.operations.create(NAMESPACES, namespace("default"))
        await client.post(DEFAULT, pod("a", on="n1"))
        stream = await client.watch(PODS, resourceVersion=api.store.version)
        await client.request("DELETE", f"{DEFAULT}/a")
        assert [event["type"] for event in await stream.take(2)] == ["MODIFIED", "DELETED"]


async def test_a_deletion_spares_a_replacement_of_the_same_name(client: Client) -> None:
    _, first = await client.post(DEFAULT, pod("a"))
    await client.request("DELETE", f"{DEFAULT}/a")
    await client.post(DEFAULT, pod("a", on="n1"))
    options = {"preconditions": {"uid": first["metadata"]["uid"]}}
    code, body = await client.request("DELETE", f"{DEFAULT}/a", options)
    assert (code, body["reason"]) == (409, "Conflict")


async def test_the_kubelet_spares_a_new_pod_under_the_name_of_one_that_was_ending() -> None:
    async with ApiServer(ApiServerSettings(kubelet_delay=0.5)) as api, connect(api.url) as client:
        for _ in range(2):
            api.operations.create(NAMESPACES, namespace("default"))
            await client.post(DEFAULT, pod("a", on="n1"))
            if not api.pods._ending:
                await client.request("DELETE", f"{DEFAULT}/a")
                await client.request("DELETE", "/api/v1/namespaces/default")
        await until(lambda: not api.pods._ending)
        assert (await client.get(f"{DEFAULT}/a"))[0] == 200


async def test_an_eviction_waits_for_its_budget(slow_kubelet: Client) -> None:
    budget = {"metadata": {"name": "guard"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    await slow_kubelet.post(BUDGETS, budget)
    for name in ("w1", "w2"):
        await slow_kubelet.post(DEFAULT, pod(name, on="n1", labels={"app": "web"}))
    assert (await slow_kubelet.post(f"{DEFAULT}/w1/eviction", {"metadata": {"name": "w1"}}))[0] == 201
    code, body = await slow_kubelet.post(f"{DEFAULT}/w2/eviction", {"metadata": {"name": "w2"}})
    assert (code, body["reason"]) == (429, "TooManyRequests")
    assert body["details"]["causes"] == [{"reason": "DisruptionBudget"}]
    marked = [
        condition_of((await slow_kubelet.get(f"{DEFAULT}/{name}"))[1], "DisruptionTarget") for name in ("w1", "w2")
    ]
    assert [each and each["reason"] for each in marked] == ["EvictionByEvictionAPI", None]
    assert (await slow_kubelet.post(f"{DEFAULT}/a/eviction", {}))[0] == 201  # no budget guards it


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [({"maxUnavailable": 1}, True), ({"maxUnavailable": "25%"}, True), ({"minAvailable": "100%"}, False)],
    ids=["a number", "a percentage rounded up", "all of them"],
)
async def test_budgets_are_read_as_numbers_and_percentages(client: Client, spec: JsonObject, *, allowed: bool) -> None:
    await client.post(BUDGETS, {"metadata": {"name": "guard"}, "spec": {"selector": {}, **spec}})
    await client.post(DEFAULT, pod("a", on="n1"))
    await client.post(DEFAULT, pod("b", on="n1"))
    code, _ = await client.post(f"{DEFAULT}/a/eviction", {})
    assert code == (201 if allowed else 429)


async def test_ending_pods_are_forgotten_when_the_server_stops() -> None:
    async with ApiServer(ApiServerSettings(kubelet_delay=600)) as api, connect(api.url) as client:
        api.operations.create(NAMESPACES, namespace("default"))
        await client.post(DEFAULT, pod("a", on="n1"))
        await client.request("DELETE", f"{DEFAULT}/a")
        await asyncio.wait_for(api.stop(), PATIENCE)
        assert api.pods._ending == {}
