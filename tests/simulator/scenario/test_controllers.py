"""Controllers of a scenario: pods that are deleted are replaced, and those deleted for others are counted as victims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.json_objects import JsonObject, name_of, set_condition
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player
from tests.fakes import until
from tests.simulator.scenario.playing import playing, scenario


async def play(
    controller: str, *steps: JsonObject, marked: bool = False, **server: Any
) -> tuple[list[JsonObject], Player]:
    """The pods after these steps on a node with one running pod, which may be marked as a victim."""
    template = {"labels": {"app": "web"}, "controller": controller, "spec": {"priority": 7}}
    cluster = {"nodes": [{}], "namespaces": [{"name": "shop"}], "running": [{"template": "web", "count": 1}]}
    async with playing(scenario(cluster=cluster, templates={"web": template}, apiServer=server)) as (player, simulated):
        if marked:
            mark = {"type": "DisruptionTarget", "status": "True"}
            simulated.api.operations.change(PODS, "shop/web-old-0", lambda pod: set_condition(pod, mark))
        await player.run(parse_scenario(scenario(*steps)).steps)
        expected = 2 if controller == "ReplicaSet" and simulated.api.pods.is_ending else int(bool(controller))
        await until(lambda: len(simulated.pods()) == expected)
        pods = [stored.read() for stored in simulated.pods()]
        await player.finish()
        return pods, player


DELETE: JsonObject = {"deletePods": {}}
SETTLE: JsonObject = {"settle": {"calm": "10ms"}}


async def test_a_replica_set_replaces_a_pod_while_it_still_ends() -> None:
    pods, _ = await play("ReplicaSet", DELETE, kubeletDelay="500ms")
    ended, fresh = sorted(pods, key=lambda pod: "deletionTimestamp" not in pod["metadata"])
    assert name_of(ended) == "web-old-0" != name_of(fresh)
    assert (fresh["spec"]["priority"], fresh["metadata"]["labels"]["app"]) == (7, "web")  # it may be bound already
    assert fresh["metadata"]["ownerReferences"] == ended["metadata"]["ownerReferences"]


async def test_a_stateful_set_replaces_a_pod_under_its_name_once_it_is_gone() -> None:
    pods, _ = await play("StatefulSet", DELETE, SETTLE, kubeletDelay="20ms")
    assert [name_of(pod) for pod in pods] == ["web-old-0"]
    assert "deletionTimestamp" not in pods[0]["metadata"]


async def test_a_pod_without_a_controller_is_not_replaced() -> None:
    pods, _ = await play("", DELETE, SETTLE)
    assert pods == []


@pytest.mark.parametrize("marked", [True, False])
async def test_victims_are_pods_that_are_deleted_with_the_condition(*, marked: bool) -> None:
    _, player = await play("", DELETE, SETTLE, {"expect": {"victims": 1}}, marked=marked)
    assert player.failures == ([] if marked else ["steps[2].expect.victims: expected 1, got 0"])


async def test_settling_lasts_until_no_deleted_pod_is_about_to_end() -> None:
    pods, _ = await play("", DELETE, SETTLE, kubeletDelay="50ms", maxKubeletDelay="200ms")
    assert pods == []


COST = "controller.kubernetes.io/pod-deletion-cost"


async def scaled(*steps: JsonObject) -> tuple[dict[str, str], Player]:
    """The costs of the pods that are left of two ReplicaSets with four pods each, all of one set on one node."""
    web = {"labels": {"app": "web-{v}"}, "variants": 2, "controller": "ReplicaSet", "annotations": {COST: "-{i}"}}
    running = [{"template": "web", "count": 8}]
    cluster = {"nodes": [{"count": 2, "zones": 2}], "namespaces": [{"name": "shop"}], "running": running}
    async with playing(scenario(*steps, cluster=cluster, templates={"web": web})) as (player, simulated):
        await player.finish()
        return {
            name_of(pod): pod["metadata"]["annotations"][COST] for pod in (each.read() for each in simulated.pods())
        }, player


@pytest.mark.parametrize(("by", "left"), [(1, range(6)), (3, range(2)), (None, ())])
async def test_each_replica_set_that_gets_smaller_loses_the_pods_of_lowest_cost(
    by: int | None, left: Iterable[int]
) -> None:
    costs, _ = await scaled({"scaleDown": {} if by is None else {"by": by}}, SETTLE)
    assert sorted(costs.values()) == sorted(f"-{number}" for number in left)


async def test_skew_is_that_of_the_worst_workload_of_the_namespaces() -> None:
    _, player = await scaled({"expect": {"skew": {"shop": 4, "*": [5, 9]}}})
    assert player.failures == ["steps[0].expect.skew.*: expected (5, 9), got 4"]
