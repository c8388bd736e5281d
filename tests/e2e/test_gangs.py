"""Groups of gated pods with a real apiserver and scheduler: each lands whole in one zone, also when the leader is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final

import pytest

from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from extender.simulator.json_objects import JsonObject, labels_of, name_of, node_of, uid_of
from tests.autoscaling import node_to_add
from tests.builders import REQUIRED
from tests.deploy.building import DEPLOY, load_all
from tests.deploy.policies.examples import policy
from tests.e2e import controllers
from tests.e2e.client import NAMESPACES, NODES, PODS, path_of, pod_path
from tests.e2e.cluster import Cluster, in_namespace
from tests.e2e.control_plane import scheduler_document
from tests.e2e.overlays import kubectl
from tests.e2e.pod_groups import (
    LABEL,
    MACHINE,
    NOT_NOW,
    PLACEMENTS,
    SIZE,
    domains_of,
    gang,
    gangs_of,
    is_visible,
    is_whole,
    machine,
    machines_of,
    refused,
    releasing,
    two_extenders,
    without_placements,
    zones,
)
from tests.e2e.policing import MUTATING, SECRET, VALIDATING, established, policed, reader_documents, without_policies
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, node, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

GANGS: Final = 20


@pytest.fixture
async def released(cluster: Cluster) -> AsyncIterator[Cluster]:
    """A cluster whose gangs land in one zone, by the permissions of deploy/policies."""
    async with AsyncExitStack() as stack:
        await established(cluster.api)
        stack.push_async_callback(without_policies, cluster.api)
        stack.push_async_callback(without_placements, cluster.api)
        for made in (MUTATING, VALIDATING, SECRET):  # by the leader, which would be asked after the test
            stack.push_async_callback(cluster.api.delete, made)
        documents = [*reader_documents(), *map(in_namespace, load_all(DEPLOY / "policies" / "role.yaml"))]
        for document in documents:
            await cluster.api.request("POST", path_of(document), document)
            stack.push_async_callback(cluster.api.delete, f"{path_of(document)}/{name_of(document)}")
        yield cluster


async def test_twenty_gangs_land_whole_while_the_leader_is_killed(released: Cluster) -> None:
    rng, api, board = Random(7), released.api, released.board
    await released.add_nodes(zones=4, per_zone=6, cpu="4")
    await releasing(api)
    before = await refused(api)
    pods = [each for number in range(GANGS) for each in gang(f"gang-{number}", rng.randint(2, 10))]
    others = [pod(f"other-{number}", cpu="500m") for number in range(20)]
    rng.shuffle(pods)
    async with two_extenders(released) as front:
        leader = await front.leader()
        creating = asyncio.create_task(api.create(*others, *pods))
        await board.until(lambda: len(board.bound_at) >= 40)
        leader.program.kill()
        await creating
        await front.leader()
        await board.until(lambda: all(map(is_whole, gangs_of(released).values())), within=90)
        waiting = [name for name, each in gangs_of(released).items() if not node_of(each[0])]
        assert waiting, "there is no room for all of them"
        await api.create(*(node(f"z5-{number}", "z5", cpu="4") for number in range(30)))
        await board.bound(*pods, *others, within=120)
        at = await zones(api)
        found = {name: {at[node_of(each)] for each in gang} for name, gang in gangs_of(released).items()}
        assert {name: where for name, where in found.items() if len(where) > 1} == {}
        decided = {each["spec"]["group"]: each for each in (await api.list(PLACEMENTS))[0]}
        assert {name: {each["spec"]["topology"][0]["value"]} for name, each in decided.items()} == found
        async with asyncio.timeout(PATIENCE):
            while any(each["status"].get("phase") != "Bound" for each in (await api.list(PLACEMENTS))[0]):  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.1)
    assert await refused(api) == before, "every patch was accepted"
    assert await released.faults() == []


@pytest.mark.core("gated groups")
async def test_a_gang_that_no_zone_holds_stays_whole_at_its_gate_and_says_why(released: Cluster) -> None:
    await released.add_nodes(zones=1, per_zone=3)
    await releasing(released.api)
    pods = gang("x", 2, nodeSelector={ZONE: "elsewhere"})
    before = await refused(released.api)
    async with two_extenders(released):
        await released.api.create(*pods)
        async with asyncio.timeout(PATIENCE):
            while not (await released.api.list(PLACEMENTS))[0]:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.1)
            while "status" not in (await released.api.list(PLACEMENTS))[0][0]:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
        (found,) = (await released.api.list(PLACEMENTS))[0]
        assert found["status"]["phase"] == "Deciding"
        assert found["status"]["message"].startswith(f"{ZONE}=z1 holds 0 of 2 (3 nodes: ")
    assert await refused(released.api) == before
    for each in pods:
        gated = await released.api.request("GET", pod_path(each))
        assert gated["spec"]["schedulingGates"] == [{"name": RELEASE_GATE}]


async def test_a_replaced_pod_follows_its_gang_and_a_gang_whose_zone_is_lost_moves_as_a_whole(
    released: Cluster,
) -> None:
    api, board = released.api, released.board
    await released.add_nodes(zones=2, per_zone=3, cpu="4")
    await releasing(api)
    pods = gang("a", 6)
    async with two_extenders(released):
        await api.create(*pods)
        first = {(await zones(api))[node] for node in await board.bound(*pods)}
        await api.delete(pod_path(pods[0]), grace=0)
        (instead,) = gang("a", 1)
        instead["metadata"] |= {"name": "a-instead", "annotations": {SIZE: "6"}}
        await api.create(instead)
        assert {(await zones(api))[node] for node in await board.bound(instead)} == first
        lost = [name for name, zone in (await zones(api)).items() if {zone} == first]
        for name in lost:
            await api.delete(f"{NODES}/{name}")
        for each in (*pods[1:], instead):
            await api.delete(pod_path(each), grace=0)
        again = gang("a", 6)
        for each in again:
            each["metadata"]["name"] += "-again"
        await api.create(*again)
        moved = {(await zones(api))[node] for node in await board.bound(*again)}
        assert (len(moved), moved & first) == (1, set())
        (placement,) = (await api.list(PLACEMENTS))[0]
        assert {placement["spec"]["topology"][0]["value"]} == moved


async def test_controllers_and_kubectl_leave_released_pods_as_they_are(cluster: Cluster, assets: Path) -> None:
    """What config/explanation/other-controllers.md says of them; KEP-3838 lets a pod differ from its template."""
    if not controllers.is_there(assets):
        pytest.skip(
            f"{controllers.PROGRAM} is not in {assets}: NOTHING IS KNOWN of released pods beside their controllers"
        )
    api, board = cluster.api, cluster.board
    await cluster.add_nodes(zones=2, per_zone=3)
    domains = [{"name": "both", "values": ["z1", "z2"]}]
    block = {"topology": [ZONE], "group": {"label": LABEL}, "size": {"label": SIZE}, "domains": domains}
    selector = {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}
    spec = {"podSelector": selector, "namespaceSelector": {}, "when": ["Release"], "release": block}
    release = policy("ClusterPodSchedulingPolicy", "gangs", **spec)
    web = controllers.deployment("web", 3, pod("web", labels={LABEL: "web", SIZE: "3"}))
    alone = pod("alone", labels={LABEL: "alone", SIZE: "1"})
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}]
    required = {REQUIRED: {"nodeSelectorTerms": terms}}
    choosy = pod("choosy", labels={LABEL: "choosy", SIZE: "1"}, affinity={"nodeAffinity": required})
    async with AsyncExitStack() as stack:
        stack.push_async_callback(without_placements, api)  # once the service has ended, which would decide again
        found = await stack.enter_async_context(policed(cluster))
        await stack.enter_async_context(controllers.controlled(cluster, assets))
        await found.apply(release)
        stack.callback(cluster.plane.scheduler.stop)
        await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", found.extender.url))
        await kubectl(cluster, "apply", documents=[web, alone, choosy])
        await board.until(lambda: len(board.bound_at) == 5)
        first = {uid_of(each) for each in board.pods.values()}
        for each in board.pods.values():
            (clause, *_) = each["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
            assert {"key": ZONE, "operator": "In", "values": ["z1", "z2"]} in clause["matchExpressions"]
        removed = next(each for each in board.pods.values() if labels_of(each)[LABEL] == "web")
        await api.delete(pod_path(removed), grace=0)
        await board.until(lambda: len(board.bound_at) == 6)
        assert len(first & {uid_of(each) for each in board.pods.values()}) == 4, (
            "the controllers replaced that one alone"
        )
        said = await kubectl(cluster, "apply", "--dry-run=server", documents=[web, alone])
        assert said.splitlines() == [
            f"{name} unchanged (server dry run)" for name in ("deployment.apps/web", "pod/alone")
        ]
        template = (await api.request("GET", path_of(web) + "/web"))["spec"]["template"]["spec"]
        assert {"affinity", "nodeSelector", "schedulingGates"} & template.keys() == set()
        with pytest.raises(AssertionError, match="pod updates may not change fields"):
            await kubectl(cluster, "apply", "--dry-run=server", documents=[choosy])


ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
BOUND_TO_ALL: Final[JsonObject] = {
    "metadata": {"name": "not-now"},
    "spec": {"policyName": "not-now", "validationActions": ["Deny"]},
}


@pytest.fixture
async def forbidding(released: Cluster) -> AsyncIterator[Cluster]:
    """The same, and an admission plugin that answers 422 to every update of the pod x-1."""
    kinds = (("validatingadmissionpolicies", NOT_NOW), ("validatingadmissionpolicybindings", BOUND_TO_ALL))
    for kind, body in kinds:
        await released.api.request("POST", f"{ADMISSION}/{kind}", body)
    yield released
    for kind, _ in kinds:
        await released.api.delete(f"{ADMISSION}/{kind}/not-now")


async def test_a_release_that_is_answered_with_422_is_reported_and_not_repeated(forbidding: Cluster) -> None:
    api = forbidding.api
    await forbidding.add_nodes(zones=1, per_zone=3)
    await releasing(api)
    pods = gang("x", 2)
    await api.create(*pods)
    label = {"metadata": {"labels": {"tried": "yes"}}}
    merge = {"content_type": "application/merge-patch+json", "params": {"dryRun": "All"}}
    async with asyncio.timeout(PATIENCE):
        while (await api.request("PATCH", pod_path(pods[1]), label, allow=[422], **merge))["kind"] != "Status":  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.1)
    before = await refused(api)
    async with two_extenders(forbidding):
        await forbidding.board.bound(pods[0])
        async with asyncio.timeout(PATIENCE):
            while (await api.list(PLACEMENTS))[0][0].get("status", {}).get("phase") != "Degraded":  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
        (found,) = (await api.list(PLACEMENTS))[0]
        assert found["status"]["conditions"][0]["reason"] == "Refused"
        assert "not now" in found["status"]["message"]
    assert await refused(api) - before == 1


# -- sets of domains, quotas, and nodes that an autoscaler adds ----------------------------------------------------------

SPOT: Final[JsonObject] = {"name": "spot", "values": ["m-spot", "n-spot"]}
ON_DEMAND: Final[JsonObject] = {"name": "on-demand", "values": ["m"]}


async def test_a_gang_goes_to_spot_until_its_quota_is_used_up_then_on_demand_and_to_spot_again_when_pods_are_gone(
    released: Cluster,
) -> None:
    """KEP-3838, "Alternatives": a dynamic quota manager; its stories of several machine types."""
    api, board = released.api, released.board
    kinds = {"spot-0": "m-spot", "spot-1": "n-spot", "spot-2": "m-spot", "demand-0": "m", "demand-1": "m"}
    machines = [machine(name, kind) for name, kind in kinds.items()]
    for each in machines[:3]:
        each["spec"] = {**each.get("spec", {}), "taints": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]}
    await api.create(*machines)
    tolerations = [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]
    spot = {**SPOT, "quota": {"pods": 4, "resources": {"cpu": "4500m"}}, "tolerations": tolerations}
    await releasing(api, topology=[MACHINE], strategy="InOrder", domains=[spot, ON_DEMAND])
    before = await refused(api)
    async with two_extenders(released):
        for name in ("a", "b"):
            await api.create(*gang(name, 2))
            await board.bound(*gang(name, 2))
            assert machines_of(released, name, kinds) <= {"m-spot", "n-spot"}
        await api.create(*gang("c", 2))
        await board.bound(*gang("c", 2))
        assert machines_of(released, "c", kinds) == {"m"}, "there is room on spot, and no quota left"
        async with asyncio.timeout(PATIENCE):
            while [each["used"].get("pods") for each in await domains_of(api)] != [4, 2]:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.1)
        assert (await domains_of(api))[0]["used"] == {"pods": 4, "resources": {"cpu": "4"}}
        assert [each["name"] for each in await domains_of(api)] == ["spot", "on-demand"]
        for each in gang("b", 2):  # what is written into released pods frees no quota
            await api.patch(pod_path(each), {"metadata": {"annotations": {RELEASED_ANNOTATION: None}}})
        for each in gang("a", 2):
            await api.delete(pod_path(each), grace=0)
        await api.create(*gang("d", 2))
        await board.bound(*gang("d", 2))
        assert machines_of(released, "d", kinds) <= {"m-spot", "n-spot"}
        assert (await domains_of(api))[0]["used"]["pods"] == 4
    assert await refused(api) == before
    assert await released.faults() == []


async def test_an_autoscaler_adds_nodes_for_a_gang_that_no_domain_has_room_for_where_the_policy_lets_it(
    released: Cluster,
) -> None:
    """KEP-3838, "User Stories": pods become visible once they are released, narrowed as decided. A script plays the autoscaler."""
    api, board = released.api, released.board
    await api.create(machine("spot-0", "m-spot"))
    grows = {"noRoom": [{"action": "GrowingDomain"}], "domains": [SPOT, {**ON_DEMAND, "mayGrow": True}]}
    await releasing(api, topology=[MACHINE], strategy="InOrder", **grows)
    added: list[str] = []
    async with two_extenders(released):
        await api.create(*gang("a", 4))
        await board.until(
            lambda: len(gangs_of(released).get("a", ())) == 4 and all(map(is_visible, gangs_of(released)["a"]))
        )
        while True:
            await released.calm()
            pods, nodes, namespaces = [(await api.list(path))[0] for path in (PODS, NODES, NAMESPACES)]
            templates = [machine(f"added-{len(added)}-{kind}", kind) for kind in ("m-spot", "m")]
            wanted = node_to_add(pods, nodes, namespaces, templates)
            if wanted is None:
                break
            added.append(labels_of(wanted)[MACHINE])
            await api.create(wanted)
        await board.bound(*gang("a", 4))
    assert added == ["m", "m"]
    assert await released.faults() == []
