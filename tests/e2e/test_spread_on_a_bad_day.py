"""The directive `spread` beside a real kube-controller-manager: a zone is lost and returns, a rollout, a scale-down, an operator's exclusion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.model.objects import DELETION_COST
from extender.simulator.json_objects import JsonObject, labels_of, name_of, node_of, uid_of
from tests.e2e import two_replicas as leading
from tests.e2e.client import ApiFailure, path_of, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.policing import Policed, policed, with_policies
from tests.e2e.programs import free_ports
from tests.e2e.spread_deployments import (
    DOMAINS,
    NODES_OF,
    POLICY,
    WEB,
    big,
    bring_back,
    change_policy,
    costs,
    declared,
    deployed,
    domain,
    explained,
    lose,
    need_controllers,
    operator_exclusions,
    placed,
    pods_of,
    scale,
    until_excluded,
    until_placed,
    until_skewed,
)
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

REVISION = "pod-template-hash"


@pytest.fixture
async def running(cluster: Cluster, assets: Path) -> AsyncIterator[Policed]:
    """Three zones, and a Deployment of six pods spread over them with maxSkew 1; its pods are ready once they have a node."""
    need_controllers(assets)
    async with policed(cluster) as found, deployed(found, assets, found.extender.url):
        yield found


async def test_a_deployment_keeps_its_spread_while_a_zone_is_lost_after_a_rollout_and_a_scale_down(
    running: Policed,
) -> None:
    api, board = running.api, running.cluster.board
    refused: set[str] = set()
    board.listeners.append(
        lambda each: refused.add(name_of(each)) if board.message(f"default/{name_of(each)}") else None
    )

    await change_policy(running, after="20s", fullDomains="Keep")

    # A zone is lost: two pods more have room beside the constraint, and the others wait until the zone is excluded.
    await lose(running, "z3")
    await scale(running, 12)
    await until_placed(running, {"z1": 5, "z2": 5, "z3": 2})
    assert len(refused) >= 4, "they waited for the lost zone"
    await until_excluded(running, 1, "unavailable")

    # Why another pod waits: the zone is named.
    await api.create(big("big"))
    await board.rejected(big("big"))
    said = await explained(running, "big")
    assert "z3: no node takes pods since 20" in said, said
    await api.delete("/api/v1/namespaces/default/pods/big", grace=0)

    # It returns: nothing is moved, and the next pods go there.
    before = {uid_of(each): node_of(each) for each in pods_of(running) if node_of(each)}
    await bring_back(running, "z3")
    await until_excluded(running, 0, "unavailable")
    await until_skewed(running, 3, above=1)
    await scale(running, 14)
    await until_placed(running, {"z1": 5, "z2": 5, "z3": 4})
    assert before.items() <= {uid_of(each): node_of(each) for each in pods_of(running)}.items()
    await until_skewed(running, 1, above=0)

    # A rollout counts the pods of its own revision only.
    old = {labels_of(each)[REVISION] for each in pods_of(running)}
    await api.patch(WEB, {"spec": {"template": {"metadata": {"annotations": {"example.com/restarted": "1"}}}}})
    await board.until(
        lambda: len(pods_of(running)) == 14 and not old & {labels_of(each)[REVISION] for each in pods_of(running)},
        within=120,
    )
    await board.until(lambda: placed(running).total() == 14)
    assert sorted(placed(running).values()) == [4, 5, 5]
    for each in pods_of(running):
        (constraint,) = each["spec"]["topologySpreadConstraints"]
        assert constraint["matchLabelKeys"] == [REVISION]

    # A scale-down takes pods of the fullest zones, also where those of another one share a node.
    await board.until(lambda: sum(map(bool, map(costs, pods_of(running)))) == 11)
    await scale(running, 8)
    await board.until(lambda: len(pods_of(running)) == 8)
    assert sorted(placed(running).values()) == [2, 3, 3]

    # Without the policy the costs go, and one that another client has written stays.
    another = next(each for each in pods_of(running) if not costs(each))
    await api.patch(pod_path(another), {"metadata": {"annotations": {DELETION_COST: "7"}}})
    await api.delete(POLICY)
    await board.until(lambda: [costs(each) for each in pods_of(running) if costs(each)] == [{DELETION_COST: "7"}])
    assert await running.extender.metric("extender_deletion_cost_writes_total", result="failed") == 0


async def test_no_pod_waits_for_a_lost_zone_to_be_excluded_where_full_domains_are_no_part_of_the_minimum(
    running: Policed,
) -> None:
    await lose(running, "z3")
    await scale(running, 12)
    await until_placed(running, {"z1": 5, "z2": 5, "z3": 2})  # sooner than after the two minutes of the policy
    assert await running.extender.metric("extender_excluded_topology_domains", reason="unavailable") == 0


@pytest.mark.core("spread directive")
async def test_a_zone_that_an_operator_excludes_takes_no_pod_and_is_not_waited_for(running: Policed) -> None:
    api, board = running.api, running.cluster.board
    zones = declared(*NODES_OF)
    with pytest.raises(ApiFailure, match=r"spec\.domains"):
        await api.request("POST", DOMAINS, {**zones, "spec": {"topologyKey": ZONE, "domains": ["no zone"]}})
    await api.request("POST", DOMAINS, zones, params={"fieldValidation": "Strict"})
    with pytest.raises(ApiFailure, match="may not be changed"):
        await api.patch(f"{DOMAINS}/zones", {"spec": {"topologyKey": "example.com/rack"}})

    said = await domain(running, "exclude", "z2", "--for", "2h", "--reason", "new switches")
    assert said.startswith(f"{ZONE}=z2 is excluded until 20")
    assert said.endswith("(TopologyDomains zones)\n")
    rows = [line.split() for line in (await domain(running, "list")).splitlines()]
    assert [(row[1:4], row[-2:]) for row in rows if row[1] == "z2"] == [(["z2", "yes", "until"], ["new", "switches"])]
    assert [row[1:] for row in rows if row[1] == "z1"] == [["z1", "yes", "no"]]

    await until_excluded(running, 1, "operator")
    await scale(running, 10)
    await until_placed(running, {"z1": 4, "z2": 2, "z3": 4})
    async with asyncio.timeout(PATIENCE):
        while not (reported := (await api.request("GET", POLICY)).get("status", {}).get("excludedDomains")):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.2)
    assert [(each["topologyKey"], each["domain"], each["reason"]) for each in reported] == [(ZONE, "z2", "Operator")]
    assert reported[0]["since"] < reported[0]["until"]
    await api.create(big("big"))
    await board.rejected(big("big"))
    said = await explained(running, "big")
    assert "z2: excluded since 20" in said, said
    assert ": new switches" in said, said
    await api.delete("/api/v1/namespaces/default/pods/big", grace=0)

    assert await domain(running, "include", "z2") == f"{ZONE}=z2 counts again (TopologyDomains zones)\n"
    await until_excluded(running, 0, "operator")
    await scale(running, 12)
    await until_placed(running, {"z1": 4, "z2": 4, "z3": 4})
    kept = await api.request("GET", f"{DOMAINS}/zones")
    assert kept["spec"].get("excluded", []) == []


async def test_an_exclusion_for_a_time_ends_by_itself(running: Policed) -> None:
    await running.api.request("POST", DOMAINS, declared(*NODES_OF))
    await domain(running, "exclude", "z2", "--for", "12s")
    await until_excluded(running, 1, "operator")
    await scale(running, 10)
    await until_placed(running, {"z1": 4, "z2": 2, "z3": 4})
    await until_excluded(running, 0, "operator")
    await scale(running, 12)
    await until_placed(running, {"z1": 4, "z2": 4, "z3": 4})
    rows = [line.split() for line in (await domain(running, "list")).splitlines()]
    assert [row[3] for row in rows if row[1] == "z2"] == ["no"]


async def test_an_excluded_zone_stays_excluded_since_the_same_time_when_the_leader_dies(
    cluster: Cluster, assets: Path
) -> None:
    need_controllers(assets)
    api = cluster.api
    webhooks = [f"{HOST}:{port}" for port in free_ports(2)]
    configurations = [
        {
            **leading.settings(),
            "preemption": {"mode": "off"},
            "policies": {"enabled": True, "webhook": {"bindAddress": each, "url": f"https://{each}"}},
        }
        for each in webhooks
    ]
    async with with_policies(api):
        with leading.two_replicas(cluster, *configurations) as both:
            front = leading.Front(both)
            async with front.listening():
                leader = await front.leader()
                found = Policed(cluster, leader, "")
                await found.until_kept()
                async with deployed(found, assets, front.url):
                    await api.request("POST", DOMAINS, declared(*NODES_OF))
                    await domain(found, "exclude", "z2", "--for", "2h", "--reason", "new switches")
                    await until_excluded(found, 1, "operator")
                    said = await operator_exclusions(found)
                    assert said
                    leader.program.kill()
                    found.extender = await front.leader()
                    assert found.extender is not leader
                    await scale(found, 10)
                    await until_placed(found, {"z1": 4, "z2": 2, "z3": 4})
                    assert await operator_exclusions(found) == said
    await api.delete(leading.LEASE)


async def test_pods_wait_for_zones_that_are_declared_until_they_have_a_node_or_are_excluded(running: Policed) -> None:
    api, board = running.api, running.cluster.board
    await api.request("POST", DOMAINS, declared(*NODES_OF, "z4", "z5"))
    incoming, minimum = big("asking"), 0
    async with asyncio.timeout(PATIENCE):
        while minimum != 5:
            answer = await api.request("POST", path_of(incoming), incoming, params={"dryRun": "All"})
            minimum = answer["spec"]["topologySpreadConstraints"][0].get("minDomains", 1)
    before = {uid_of(each) for each in pods_of(running)}
    await scale(running, 9)

    def waiting() -> list[JsonObject]:
        return [each for each in pods_of(running) if not node_of(each)]

    await board.until(
        lambda: len(waiting()) == 3 and all(board.message(f"default/{name_of(each)}") for each in waiting())
    )
    for each in waiting():
        assert each["spec"]["topologySpreadConstraints"][0]["minDomains"] == 5
    await api.create(node("z4-1", "z4", cpu="16"))
    await board.until(lambda: placed(running)["z4"] == 1)
    await running.cluster.calm()
    assert placed(running) == {"z1": 2, "z2": 2, "z3": 2, "z4": 1}
    await domain(running, "exclude", "z5")
    await board.until(lambda: not waiting())
    assert sorted(placed(running).values()) == [2, 2, 2, 3]
    assert before <= {uid_of(each) for each in pods_of(running)}
