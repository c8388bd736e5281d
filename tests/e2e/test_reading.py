"""How the extender reads a real kube-apiserver: pages, streamed lists, and what a restart does to its watches."""

from __future__ import annotations

import signal
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.simulator.json_objects import JsonObject
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.judging import disagreements
from tests.e2e.serving import Extender
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WEB = {"app": "web"}
TEAM_A = {"matchLabels": {"team": "a"}}
# Whole answers that nothing but the cluster decides, so that they can be compared with brute force.
PLAIN_ANSWERS: dict[str, Any] = {
    "placement": "cooperative",
    "answers": {"shortlist": 0},
    "assumedPods": {"enabled": False},
    "rejectedPods": {"nominateElsewhere": False, "requeue": False, "events": False},
}
PROBES = [
    pod("apart", labels=WEB, affinity=anti_affinity(term(HOSTNAME, namespaces=TEAM_A, app="web"))),
    pod("near", affinity=affinity(term(ZONE, namespaces=TEAM_A, app="web"))),
    pod("even", "a1", labels=WEB, topologySpreadConstraints=[spread(ZONE, labels=WEB)]),
    pod("repelled", "a1", labels=WEB),
]


def reading(**watch: Any) -> dict[str, Any]:
    """The settings of a test, with settings of the watch."""
    return {**PLAIN_ANSWERS, "kube": {"watch": watch}}


async def populate(cluster: Cluster) -> list[str]:
    """Three zones, two namespaces, pods on some of the nodes, and those to ask about, which no scheduler takes."""
    nodes = await cluster.add_nodes(zones=3, per_zone=4)
    await cluster.api.create(namespace("a1", team="a"), namespace("b1", team="b"))
    await cluster.api.create(*(running(number, nodes[number]) for number in range(5)), *PROBES)
    return nodes


def running(number: int, node: str) -> JsonObject:
    """A pod that stands on a node already; every second one keeps others away."""
    keeps_away = anti_affinity(term(HOSTNAME, app="web")) if number % 2 else {}
    return pod(f"run-{number}", "a1", on=node, labels=WEB, affinity=keeps_away)


async def change(cluster: Cluster, nodes: list[str], start: int) -> None:
    """One of each: pods come and go, a namespace is relabelled, a node goes."""
    await cluster.api.create(*(running(start + number, nodes[(start + number) % len(nodes)]) for number in range(3)))
    await cluster.api.delete(f"/api/v1/namespaces/a1/pods/run-{start - 1}")
    await cluster.api.patch("/api/v1/namespaces/b1", {"metadata": {"labels": {"team": "a" if start % 2 else "b"}}})
    await cluster.api.delete(f"/api/v1/nodes/{nodes[-start]}")


async def apiserver_metric(cluster: Cluster, name: str, **labels: str) -> float:
    """The sum of one of kube-apiserver's own metrics."""
    families = text_string_to_metric_families(await cluster.api.text("/metrics"))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def answers_are_true(cluster: Cluster, extender: Extender) -> None:
    """The extender answers as brute force over the apiserver's objects would, once it follows them.

    It says that it does not for as long as an apiserver that has just started refuses its watches: roles are read last.
    """
    await eventually_ready(extender)
    probes = [await cluster.api.request("GET", pod_path(probe)) for probe in PROBES]
    assert await disagreements(cluster.api, extender, probes) == []
    assert await extender.metric("extender_decode_errors_total") == 0


async def test_a_list_in_pages_is_complete(cluster: Cluster) -> None:
    await populate(cluster)
    lists = {"verb": "LIST", "resource": "nodes", "code": "200"}
    before = await apiserver_metric(cluster, "apiserver_request_total", **lists)
    with cluster.extender(reading(watchList=False, listPageSize=5)) as extender:
        await eventually_ready(extender)
        after = await apiserver_metric(cluster, "apiserver_request_total", **lists)
        await answers_are_true(cluster, extender)
    assert after - before >= 3, "twelve nodes are three pages of five, besides a look at the version"


async def test_a_streamed_list_is_complete(cluster: Cluster) -> None:
    await populate(cluster)
    streamed = ("apiserver_watch_list_duration_seconds_count", {"resource": "pods"})
    before = await apiserver_metric(cluster, streamed[0], **streamed[1])
    with cluster.extender(reading(watchList=True)) as extender:
        await eventually_ready(extender)
        after = await apiserver_metric(cluster, streamed[0], **streamed[1])
        await answers_are_true(cluster, extender)
        assert await extender.metric("extender_watch_restarts_total", reason="no_watch_list") == 0
    assert after - before == 1


@pytest.mark.parametrize("watch_list", [True, False], ids=["streamed", "paged"])
async def test_changes_before_and_after_a_restart_of_the_apiserver_are_all_counted(
    cluster: Cluster, *, watch_list: bool
) -> None:
    nodes = await populate(cluster)
    with cluster.extender(reading(watchList=watch_list)) as extender:
        await eventually_ready(extender)
        await change(cluster, nodes, start=5)
        await cluster.restart_apiserver()
        await change(cluster, nodes, start=8)
        await answers_are_true(cluster, extender)
        assert await extender.metric("extender_watch_restarts_total", resource="pods") > 0
        assert await extender.metric("extender_task_restarts_total") == 0


@pytest.mark.parametrize("watch_list", [True, False], ids=["streamed", "paged"])
async def test_changes_that_the_apiserver_has_forgotten_are_found_by_a_new_list(
    cluster: Cluster, *, watch_list: bool
) -> None:
    nodes = await populate(cluster)
    with cluster.extender(reading(watchList=watch_list)) as extender:
        await eventually_ready(extender)
        extender.program.send(signal.SIGSTOP)
        await change(cluster, nodes, start=5)
        cluster.plane.compact()
        await cluster.restart_apiserver()
        await change(cluster, nodes, start=8)
        extender.program.send(signal.SIGCONT)
        await answers_are_true(cluster, extender)
        assert await extender.metric("extender_watch_restarts_total", resource="pods", reason="expired") > 0
        assert await extender.metric("extender_relists_total", resource="pods") > 0
        assert await extender.metric("extender_task_restarts_total") == 0


def hiding(number: int, node: str) -> JsonObject:
    """A running pod that any tenant may create, nested more deeply than a JSON decoder follows where nothing is read.

    As deep as the JSON library of these tests can read; the apiserver takes ten times as much.
    """
    made = running(number, node)
    nested = b'{"f:a":' * 1_010 + b"{}" + b"}" * 1_010
    entry = {"manager": "tenant", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    made["metadata"]["managedFields"] = [entry | {"fieldsV1": orjson.Fragment(nested)}]
    return made


@pytest.mark.parametrize("watch_list", [True, False], ids=["streamed", "paged"])
async def test_no_pod_hides_behind_deep_nesting_and_none_stops_the_reading(
    cluster: Cluster, *, watch_list: bool
) -> None:
    nodes = await populate(cluster)
    await cluster.api.create(hiding(10, nodes[5]))
    assert '{"f:a":' * 1_010 in await cluster.api.text("/api/v1/namespaces/a1/pods/run-10"), (
        "it is stored as it was sent"
    )
    with cluster.extender(reading(watchList=watch_list, listPageSize=5)) as extender:
        await eventually_ready(extender)
        await answers_are_true(cluster, extender)
        await cluster.api.create(hiding(12, nodes[6]), hiding(13, nodes[7]))
        await change(cluster, nodes, start=5)
        await cluster.api.delete("/api/v1/namespaces/a1/pods/run-12", grace=0)
        await answers_are_true(cluster, extender)
        assert await extender.metric("extender_unreadable_objects") == 0
        assert await extender.metric("extender_task_restarts_total") == 0
        assert await extender.metric("extender_watch_restarts_total", reason="undecodable") == 0


async def test_pods_are_placed_rightly_although_the_apiserver_restarts_between_them(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=3, per_zone=4)
    apart = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{number}", labels=WEB, affinity=apart) for number in range(12)]
    async with cluster.scheduled():
        await cluster.api.create(*pods[:6])
        await cluster.restart_apiserver()
        await cluster.api.create(*pods[6:])
        nodes = await cluster.board.bound(*pods)
    assert len(set(nodes)) == 12
    assert await cluster.faults() == []
