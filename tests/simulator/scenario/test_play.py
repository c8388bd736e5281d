"""Playing steps on a simulated cluster, with an extender of the test's own: what each step does and counts."""

from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import aiohttp
import pytest

from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from extender.simulator.json_objects import JsonObject, is_finished, labels_of, name_of, uid_of
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.play import Player, StepFailed
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.fakes import until
from tests.simulator.fake_extender import FakeExtender, refuse_all
from tests.simulator.plain import HOSTNAME, anti_affinity, term
from tests.simulator.scenario.playing import playing, scenario
from tests.simulator.webhook import configuration, entry, patching, webhook

Playing: TypeAlias = AbstractAsyncContextManager[tuple[Player, SimulatedCluster]]

KEEP_APART = anti_affinity(term(HOSTNAME, app="web"))
SETTLE: JsonObject = {"settle": {"calm": "50ms", "timeout": "30s"}}


def document(*steps: JsonObject, **parts: Any) -> dict[str, Any]:
    """Steps on a small cluster."""
    cluster = {"nodes": [{"count": 4, "zones": 2}], "namespaces": [{"count": 2, "name": "team-{i}"}]}
    templates = {"web": {"labels": {"app": "web"}, "spec": {"affinity": KEEP_APART}}, "db": {}}
    return scenario(*steps, **{"cluster": cluster, "templates": templates, **parts})


def played(*steps: JsonObject, extender: FakeExtender | None = None, seed: int = 1, **parts: Any) -> Playing:
    return playing(document(*steps, **parts), extender, seed)


def _names(simulated: SimulatedCluster) -> list[str]:
    return [stored.key for stored in simulated.pods()]


def _arrive(template: str = "db", count: Any = 1, **more: Any) -> JsonObject:
    return {"arrive": {"template": template, "count": count, **more}}


async def test_pods_arrive_in_namespaces_in_turn_and_never_under_a_name_twice() -> None:
    async with played(_arrive(count=3), _arrive(count=1, namespaces="team-0")) as (_, simulated):
        assert _names(simulated) == ["team-0/db-0", "team-0/db-2", "team-0/db-3", "team-1/db-1"]


async def test_the_seed_draws_amounts_and_mixtures() -> None:
    step = {"arrive": {"mix": {"web": 1, "db": 3}, "count": [5, 50]}}
    seen: list[list[str]] = []
    for seed in (1, 1, 2):
        async with played(step, seed=seed) as (_, simulated):
            seen.append(_names(simulated))
    assert seen[0] == seen[1] != seen[2]
    assert 5 <= len(seen[0]) <= 50


async def test_arrivals_in_the_background_are_waited_for_when_settling() -> None:
    steps = (_arrive(count=5, rate=200, background=True), _arrive("web"), SETTLE)
    async with played(*steps) as (_, simulated):
        assert len(simulated.loop.bound) == 6


async def test_steps_change_namespaces_pods_and_nodes() -> None:
    steps = (
        {"relabelNamespace": {"namespaces": "team-*", "labels": {"env": "prod"}}},
        {"relabelNamespace": {"namespaces": "team-1", "labels": {"env": ""}}},
        _arrive(count=2, namespaces="team-0"),
        SETTLE,
        {"changePods": {"namespaces": "team-0", "labels": {"x": "1"}, "annotations": {"y": "2"}, "count": 1}},
        {"changeNodes": {"action": "cordon", "nodes": "node-0"}},
        {"changeNodes": {"action": "cordon", "nodes": "node-2"}},
        {"changeNodes": {"action": "uncordon", "nodes": "node-2"}},
        {"changeNodes": {"action": "relabel", "nodes": "node-2", "labels": {"disk": "ssd"}}},
        {"changeNodes": {"action": "delete", "nodes": "node-1,node-3"}},
        {"addNodes": {"count": 2, "name": "new-{i}"}},
        {"addNodes": {"count": 2, "name": "node-{i}"}},
    )
    async with played(*steps) as (_, simulated):
        namespaces, nodes = (
            {stored.key: stored.read() for stored in simulated.api.store.table(kind).latest()}
            for kind in (NAMESPACES, NODES)
        )
        touched = [stored.read() for stored in simulated.pods() if "x" in labels_of(stored.read())]
    assert [labels_of(namespaces[name]).get("env") for name in ("team-0", "team-1")] == ["prod", None]
    assert [found["metadata"]["annotations"] for found in touched] == [{"y": "2"}]
    assert (nodes["node-0"]["spec"]["unschedulable"], nodes["node-2"]["spec"]) == (True, {})
    assert labels_of(nodes["node-2"])["disk"] == "ssd"
    assert sorted(nodes) == ["new-0", "new-1", "node-0", "node-1", "node-2", "node-3"]


async def test_pods_are_deleted_by_selector_and_number() -> None:
    steps = (_arrive("web", 3), SETTLE, {"deletePods": {"selector": {"app": "web"}, "count": 2}}, SETTLE)
    async with played(*steps) as (_, simulated):
        assert len(_names(simulated)) == 1


async def test_pods_that_have_lost_their_nodes_are_replaced() -> None:
    """One was bound to a deleted node. The affinity of the other matches deleted nodes only, so it would wait for ever."""
    templates = {"web": {"spec": {"nodeSelector": {"disk": "ssd"}}}, "db": {}}
    steps = (
        {"changeNodes": {"action": "relabel", "nodes": "node-3", "labels": {"disk": "ssd"}}},
        _arrive("web", 1),
        SETTLE,
        {"changeNodes": {"action": "cordon", "nodes": "node-3"}},
        _arrive("web", 1),
        _arrive("db", 1),
        SETTLE,
        {"changeNodes": {"action": "delete", "nodes": "node-3"}},
        {"replacePods": {"lost": True}},
        SETTLE,
    )
    async with played(*steps, templates=templates) as (_, simulated):
        running = [stored.node for stored in simulated.pods() if not is_finished(stored.read())]
    assert len(running) == 3
    assert all(running)
    assert "node-3" not in running


async def test_the_report_counts_what_was_placed_and_what_waits() -> None:
    async with played(_arrive(count=3), SETTLE) as (player, _):
        report = await player.finish()
    assert (report.last_line, report.is_good) == ("placed 3, pending 0, violations 0", True)
    assert (report.decisions, report.calls, report.nodes_used) == (3, 6, 3)
    async with played(_arrive(), SETTLE, extender=FakeExtender(refuse_all)) as (player, _):
        report = await player.finish()
    assert report.last_line == "placed 0, pending 1, violations 0"
    assert report.waiting == (("team-0/db-0", "0/4 nodes are available: 4 refused by us."),)


async def test_a_pod_that_is_neither_placed_nor_pending_or_both_is_an_error_of_the_judge() -> None:
    async with played(_arrive(count=2), SETTLE) as (player, simulated):
        for uid in list(simulated.loop.bound):
            del simulated.loop.bound[uid]
        report = await player.finish()
    assert report.failures == ("2 pods are neither placed nor pending, such as team-0/db-0",)
    assert not report.is_good
    async with played(_arrive(), SETTLE, extender=FakeExtender(refuse_all)) as (player, simulated):
        simulated.loop.bound[uid_of(simulated.pending()[0])] = "node-0"
        report = await player.finish()
    assert report.failures == ("1 pods are both placed and pending, such as team-0/db-0",)


async def test_a_deleted_pod_is_not_missed() -> None:
    refusing = FakeExtender(refuse_all)
    steps = (_arrive("web", 2), SETTLE, {"deletePods": {"selector": {"app": "web"}}}, SETTLE)
    async with played(*steps, extender=refusing) as (player, _):
        assert (await player.finish()).is_good


async def test_what_an_extender_gets_wrong_is_counted() -> None:
    crowding = FakeExtender(
        lambda requested: {"NodeNames": [name for name in requested["NodeNames"] if name == "node-0"]}
    )
    async with played(_arrive("web", 3, namespaces="team-0"), extender=crowding) as (player, _):
        report = await player.finish()
    assert (report.last_line, report.is_good) == ("placed 3, pending 0, violations 2", False)
    first = report.document()["violations"][0]
    assert first == {
        "decision": 2,
        "pod": "team-0/web-1",
        "node": "node-0",
        "reason": "node(s) didn't match pod anti-affinity rules",
    }


async def test_a_disappointed_expectation_fails_the_run() -> None:
    expect = {"expect": {"placed": [2, 5], "pending": 0}}
    async with played(_arrive(), SETTLE, expect) as (player, _):
        report = await player.finish()
    assert report.failures == ("steps[2].expect.placed: expected (2, 5), got 1",)
    assert not report.is_good


@pytest.mark.parametrize("listed", [{}, {"team-0/db-0": "refused by us"}, {"team-*/*": "Insufficient cpu"}])
async def test_a_pod_that_is_pending_for_another_reason_than_expected_fails_the_run(listed: dict[str, str]) -> None:
    steps = (_arrive(count=2), SETTLE, {"expect": {"waiting": listed}})
    async with played(*steps, extender=FakeExtender(refuse_all)) as (player, _):
        report = await player.finish()
    pod, more = ("team-1/db-1", "") if "team-0/db-0" in listed else ("team-0/db-0", ", and 1 more")
    said = f"{pod}: 0/4 nodes are available: 4 refused by us.{more}"
    assert report.failures == (f"steps[2].expect.waiting: expected only what is listed, got {said}",)


async def test_reasons_that_are_expected_are_those_of_the_scheduler_and_of_gates() -> None:
    gated = {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}
    listed = {"*/db-*": "refused by us", "*/held-*": "held at the gate example.com/gate"}
    steps = (_arrive(count=2), _arrive("held"), SETTLE, {"expect": {"pending": 3, "waiting": listed}})
    async with played(*steps, extender=FakeExtender(refuse_all), templates={"db": {}, "held": gated}) as (player, _):
        report = await player.finish()
    assert report.failures == ()
    assert report.waiting[2] == ("team-1/db-1", "0/4 nodes are available: 4 refused by us.")


async def test_a_queue_that_does_not_come_to_rest_fails_the_run() -> None:
    unhelpful = {"settle": {"timeout": "200ms"}}
    async with played(_arrive(), unhelpful, extender=FakeExtender(lambda _: 500)) as (player, _):
        assert player.failures == ["steps[1].settle: not idle after 200ms"]
        assert (await player.finish()).failures == ("steps[1].settle: not idle after 200ms",), (
            "it is not waited for again"
        )


async def test_a_step_that_fits_nothing_is_reported_with_its_path() -> None:
    with pytest.raises(StepFailed, match=r'steps\[0\]\.arrive: no namespace matches "nowhere"'):
        async with played(_arrive(namespaces="nowhere")):
            pass


async def test_binds_are_delayed_by_the_scenarios_range() -> None:
    async with played(_arrive(), scheduler={"bindDelay": ["300ms", "300ms"]}) as (_, simulated):
        stored = simulated.api.store.find(PODS, "team-0/db-0")
        assert (name_of(stored.read()), stored.node) == ("db-0", "")
        assert simulated.loop.settings.bind_delay == (0.3, 0.3)


async def test_faults_are_at_work_until_a_step_changes_them() -> None:
    strict = {"fail": {"verbs": ["write"]}}
    steps = ({"faults": [strict]}, _arrive(), {"expect": {"placed": 0}})
    backoff = {"podInitialBackoff": "20ms", "podMaxBackoff": "20ms"}
    async with played(*steps, faults=[{"cutLine": {}}], scheduler=backoff) as (player, simulated):
        await until(lambda: simulated.fault_injector.injected["fail"] > 1)
        assert simulated.loop.bound == {}
        await player.run(parse_scenario(document({"faults": []}, SETTLE)).steps)
        assert (player.failures, len(simulated.loop.bound)) == ([], 1)
    async with played(faults=[strict]) as (_, simulated):
        assert (await _post(simulated)) == 500


async def _post(simulated: SimulatedCluster) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{simulated.api.url}/api/v1/nodes", json={}) as response,
    ):
        return response.status


async def test_pods_that_arrive_pass_the_registered_webhooks_but_for_those_that_are_down() -> None:
    down = {"faults": [{"webhookDown": {"times": 2}}]}
    async with (
        webhook(patching({"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}})) as found,
        played(down, SETTLE, forever=[_arrive(count=5)]) as (player, simulated),
    ):
        requested = configuration("one", entry(found, failurePolicy="Ignore"))
        simulated.api.operations.create(MUTATING_WEBHOOKS, requested)
        await player.run(simulated.play.forever)
        annotated = [bool(each.read()["metadata"].get("annotations")) for each in simulated.pods()]
        assert (annotated.count(True), simulated.api.admission.failed_open) == (3, 2)
        assert simulated.fault_injector.injected["webhookDown"] == 2
