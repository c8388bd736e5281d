"""What explain offers on a real cluster, carried out: kube-scheduler places the pod where it says."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from extender.cli.service_client import Trust, fetch
from extender.simulator.json_objects import JsonObject, name_of, namespace_of, uid_of
from extender.tasks.rejection_events import REASON
from tests.e2e.board import key_of
from tests.e2e.cluster import Cluster
from tests.e2e.serving import Extender
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, node, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


async def explained(extender: Extender, incoming: JsonObject) -> dict[str, Any]:
    """The explanation of a pod that is pending."""
    path = f"/v1/explain/{namespace_of(incoming)}/{name_of(incoming)}"
    found: dict[str, Any] = orjson.loads(await asyncio.to_thread(fetch, extender.url, Trust(), path, b"", ""))
    assert (found["state"], found["fitting"]) == ("pending", 0)
    return found


def the(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    change: dict[str, Any]
    (change,) = (each for each in found["changes"] if each["kind"] == kind)
    return change


async def test_a_label_on_a_namespace_that_explain_names_lets_the_pod_pass(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=2, per_zone=1)
    await cluster.api.create(namespace("shop", team="shop"), namespace("data"))
    await cluster.api.create(pod("cache", "data", on="z2-1", labels={"app": "cache"}))
    near = pod("near", "shop", affinity=affinity(term(ZONE, namespaces={"matchLabels": {"team": "shop"}}, app="cache")))
    async with cluster.scheduled() as extender:
        await cluster.api.create(near)
        await cluster.board.rejected(near)
        change = the("labelNamespace", await explained(extender, near))
        assert (change["namespace"], change["labels"]) == ("data", {"team": "shop"})
        await cluster.api.patch("/api/v1/namespaces/data", {"metadata": {"labels": change["labels"]}})
        assert await cluster.board.bound(near) == [change["node"]]


async def test_a_pod_that_stays_rejected_has_an_event_with_the_domains_and_the_pods_to_blame(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=2, per_zone=1)
    web: dict[str, Any] = {"labels": {"app": "web"}, "affinity": anti_affinity(term(ZONE, app="web"))}
    await cluster.api.create(*(pod(f"web-{zone}", on=f"z{zone}-1", **web) for zone in (1, 2)))
    alone = pod("web-3", **web)
    async with cluster.scheduled() as extender:
        await cluster.api.create(alone)
        await cluster.board.rejected(alone)
        async with asyncio.timeout(60):
            while not (events := await recorded_events(cluster, alone)):  # noqa: ASYNC110 (it is read over HTTP)
                await asyncio.sleep(0.2)
        assert await extender.metric("extender_rejection_events_total", result="failed") == 0
    (event,) = events
    assert (event["regarding"]["name"], event["type"], event["action"]) == ("web-3", "Warning", "Scheduling")
    assert event["note"].startswith(f"pod anti-affinity by {ZONE} with pods app=web: ")
    for zone in (1, 2):
        assert f"z{zone}: 1 counted, 0 would pass (because of default/web-{zone})" in event["note"]
    print(event["note"])  # noqa: T201 -- shown by -s


async def recorded_events(cluster: Cluster, rejected: JsonObject) -> list[JsonObject]:
    """The events about rejections of this pod. Events of earlier tests, whose pods may have its name, are there for an hour."""
    found, _ = await cluster.api.list("/apis/events.k8s.io/v1/namespaces/default/events")
    uid = uid_of(cluster.board.pods[key_of(rejected)])
    return [each for each in found if each["reason"] == REASON and each["regarding"].get("uid") == uid]


async def test_one_more_node_that_explain_describes_takes_the_pod(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=2, per_zone=1)
    constraint = spread(ZONE, labels={"app": "web"}, minDomains=3)
    pods = [pod(f"web-{number}", labels={"app": "web"}, topologySpreadConstraints=[constraint]) for number in range(3)]
    async with cluster.scheduled() as extender:
        await cluster.api.create(*pods[:2])
        await cluster.board.bound(*pods[:2])
        await cluster.api.create(pods[2])
        await cluster.board.rejected(pods[2])
        change = the("addNode", await explained(extender, pods[2]))
        await cluster.api.create(node(change["node"], labels=change["labels"]))
        assert await cluster.board.bound(pods[2]) == [change["node"]]


async def test_a_node_that_explain_uncordons_frees_of_taints_or_labels_takes_the_pod(cluster: Cluster) -> None:
    reserved = [{"key": "reserved", "value": "yes", "effect": "NoSchedule"}]
    await cluster.api.create(
        node("n1", labels={"pool": "a"}, unschedulable=True),
        node("n2", labels={"pool": "b"}, taints=reserved),
        node("n3"),
    )
    pods = [pod(f"in-{pool}", nodeSelector={"pool": pool}) for pool in "abc"]
    async with cluster.scheduled() as extender:
        await cluster.api.create(*pods)
        for each in pods:
            await cluster.board.rejected(each)
        change = the("uncordonNode", await explained(extender, pods[0]))
        await cluster.api.patch(f"/api/v1/nodes/{change['node']}", {"spec": {"unschedulable": None}})
        assert await cluster.board.bound(pods[0]) == ["n1"]
        change = the("removeTaints", await explained(extender, pods[1]))
        assert (change["node"], change["taints"]) == ("n2", ["reserved=yes:NoSchedule"])
        await cluster.api.patch("/api/v1/nodes/n2", {"spec": {"taints": None}})
        assert await cluster.board.bound(pods[1]) == ["n2"]
        change = the("labelNode", await explained(extender, pods[2]))
        await cluster.api.patch(f"/api/v1/nodes/{change['node']}", {"metadata": {"labels": change["labels"]}})
        assert await cluster.board.bound(pods[2]) == [change["node"]]


async def test_a_pod_that_explain_moves_makes_way(cluster: Cluster) -> None:
    await cluster.api.create(node("n1", labels={"pool": "a"}), node("n2", labels={"pool": "b"}))
    old = pod("old", on="n1", labels={"app": "web"})
    alone = pod("alone", affinity=anti_affinity(term(HOSTNAME, app="web")), nodeSelector={"pool": "a"})
    await cluster.api.create(old)
    async with cluster.scheduled() as extender:
        await cluster.api.create(alone)
        await cluster.board.rejected(alone)
        change = the("movePod", await explained(extender, alone))
        assert (change["pods"], change["from"], change["to"]) == (["default/old"], "n1", "n2")
        await cluster.api.delete("/api/v1/namespaces/default/pods/old")
        await cluster.api.create(pod("old-again", on="n2", labels={"app": "web"}))
        assert await cluster.board.bound(alone) == [change["node"]]
