"""The status of policies: what is written, when, and how much work it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from extender.index.objects.namespaces import Namespaces
from extender.kube.errors import KubeError, NotFound, Unreachable
from extender.kube.writer import PolicyObjects
from extender.model.constraints.labels import ZONE
from extender.model.objects import ExcludedDomain, Namespace, PodSignature, TopologyDomains
from extender.model.policies import Exempt, InvalidPolicy
from extender.model.release import DomainUse
from extender.tasks.policy_status import (
    EXECUTION_EVERY,
    MOST_CONFLICTS,
    PAUSE_SECONDS,
    ROUND_SECONDS,
    SLICE_SECONDS,
    WAIT_SECONDS,
    PolicyStatus,
)
from extender.verbs.admit.pod_fields import Changes
from extender.wire.api_server import ApiServer
from extender.wire.policies.policies_v1 import read_policy
from tests.builders import node
from tests.deploy.policies.examples import policy
from tests.fake_api import never
from tests.fakes import until
from tests.tasks.policy_status_scene import NOON, Scene, node_terms


async def test_matched_pods_are_those_that_the_policy_selects_and_that_are_not_exempt() -> None:
    scene = Scene()
    key = scene.apply()
    scene.run(3, app="db")
    scene.run(2, app="db", tier="a")
    scene.run(5, app="web")
    scene.run(7, "other", app="db")
    scene.run(9, app="db", **{"placement.extender.dev/exempt": "true"})
    await scene.status.round()
    assert scene.status_of(key)["matchedPods"] == 5
    assert scene.status_of(key)["observedGeneration"] == 1
    assert scene.conditions(key) == {"Valid": ("True", "Valid"), "Conflicting": ("False", "NoConflict")}


async def test_what_pods_have_of_the_domains_of_a_policy_is_reported_in_its_order() -> None:
    scene = Scene()
    key = scene.apply()
    spot = DomainUse("spot", ("s1", "s2"), False, {"pods": 4, "cpu": 2500}, {"pods": 3, "cpu": 1500})
    scene.uses[key] = [spot, DomainUse("on-demand", ("o",), True, {"memory": 2**31}, {})]
    await scene.status.round()
    assert scene.status_of(key)["domains"] == [
        {
            "name": "spot",
            "values": ["s1", "s2"],
            "used": {"pods": 3, "resources": {"cpu": "1500m"}},
            "quota": {"pods": 4, "resources": {"cpu": "2500m"}},
        },
        {
            "name": "on-demand",
            "values": ["o"],
            "used": {"pods": 0},
            "quota": {"resources": {"memory": "2Gi"}},
            "mayGrow": True,
        },
    ]
    scene.uses.clear()
    await scene.status.round()
    assert scene.status_of(key)["domains"] == [], "the policy does not name domains any more"


async def test_the_domains_that_a_policy_leaves_out_are_reported_with_their_times_and_without_what_operators_say() -> (
    None
):
    scene = Scene()
    index = scene.index
    directs = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "10s"}
    keys = [scene.apply(mode.lower(), spread=[directs], mode=mode) for mode in ("Enforce", "Audit")]
    for each in list(scene.table):
        index.policies.put(each)
    index.upsert(node("lost", zone="b", unschedulable=True))
    index.upsert(node("there", zone="c"))
    begun, until = NOON.timestamp(), NOON + timedelta(hours=2)
    index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain("a", until.timestamp(), begun, "secret plans"),)))
    index.domains.step(begun)
    index.domains.step(begun + 10)
    await scene.status.round()
    since = {"topologyKey": ZONE, "since": "2026-11-20T12:00:00Z"}
    assert scene.status_of(keys[0])["excludedDomains"] == [
        since | {"domain": "a", "reason": "Operator", "until": "2026-11-20T14:00:00Z"},
        since | {"domain": "b", "reason": "Unavailable"},
    ]
    assert "excludedDomains" not in scene.status_of(keys[1])

    index.upsert(node("lost", zone="b"))
    index.upsert(TopologyDomains("zones", ZONE))
    index.domains.step(begun + 11)
    await scene.status.round()
    assert scene.status_of(keys[0])["excludedDomains"] == []


async def test_nothing_is_counted_before_the_index_is_complete() -> None:
    scene = Scene()
    key = scene.apply()
    scene.is_complete = False
    running = asyncio.create_task(scene.status.run())
    await until(lambda: scene.clock.slept.count(WAIT_SECONDS) >= 3)
    assert scene.api.written == []
    scene.run(3, app="db")
    scene.is_complete = True
    await until(lambda: scene.api.written)
    running.cancel()
    assert scene.status_of(key)["matchedPods"] == 3


async def test_nothing_is_written_where_nothing_has_changed_also_by_a_new_leader() -> None:
    scene = Scene()
    scene.apply()
    await scene.status.round()
    scene.time += timedelta(hours=1)
    await scene.status.round()
    another = PolicyStatus(
        *(
            PolicyObjects(scene.api, "extender", "b"),
            scene.events,
            scene.table,
            lambda: scene.pods,
            Namespaces(),
            Exempt(),
        ),
        *(scene.clock, lambda: scene.time, lambda: True, lambda _: [], scene.index.domains, lambda _: ""),
    )
    await another.round()
    assert scene.api.written == ["one"]
    assert another.results == {"written": 0, "failed": 0}


async def test_what_was_written_is_reported_with_what_was_there_before_and_a_deleted_policy_is_forgotten() -> None:
    scene = Scene()
    key = scene.apply()
    await scene.status.round()
    scene.apply(generation=2, priority="high")
    await scene.status.round()
    await scene.status.round()
    scene.table.put(InvalidPolicy(key, ("text",)))
    await scene.status.round()
    assert scene.events.reasons == [(key, "Applied"), (key, "Invalid")]
    scene.table.remove(key)
    await scene.status.round()
    assert scene.events.forgotten == [key]


async def test_a_policy_that_the_api_server_takes_in_part_says_so_until_the_api_server_is_upgraded() -> None:
    scene = Scene()
    term = {"labelSelector": {}, "topologyKey": "zone", "matchLabelKeys": ["pod-template-hash"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scene.api_server = ApiServer("v1.30.4", 30)
    key, other = scene.apply(affinity=affinity), scene.apply("other", schedulerName="a")
    unaffected = scene.apply("later", affinity=affinity, when=["Scheduling"])
    await scene.status.round()
    assert scene.conditions(key)["Valid"] == ("True", "Incomplete")
    assert scene.conditions(other)["Valid"] == scene.conditions(unaffected)["Valid"] == ("True", "Valid")
    (message,) = [each["message"] for each in scene.status_of(key)["conditions"] if each["type"] == "Valid"]
    assert "the API server is v1.30.4, and before 1.31 it drops matchLabelKeys" in message
    scene.api_server = ApiServer("v1.31.0", 31)
    await scene.status.round()
    assert scene.conditions(key)["Valid"] == ("True", "Valid")
    assert scene.events.reasons == [(key, "Applied"), (key, "Incomplete"), (other, "Applied"), (unaffected, "Applied")]


async def test_what_could_not_be_written_is_not_reported() -> None:
    scene = Scene()
    scene.apply()
    scene.api.fail = lambda _call, _name: Unreachable("no answer")
    await scene.status.round()
    assert scene.events.reasons == []


async def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    scene = Scene()
    key = scene.apply()
    await scene.status.round()
    scene.time += timedelta(hours=1)
    scene.apply(generation=2, priority="high")
    await scene.status.round()
    times = {each["type"]: each["lastTransitionTime"] for each in scene.status_of(key)["conditions"]}
    assert times == {"Valid": "2026-11-20T13:00:00Z", "Conflicting": "2026-11-20T12:00:00Z"}
    assert scene.conditions(key)["Valid"] == ("False", "Invalid")
    (message,) = [each["message"] for each in scene.status_of(key)["conditions"] if each["type"] == "Valid"]
    assert message == 'spec.priority: Invalid value: "high": must be an integer'
    assert scene.status_of(key)["observedGeneration"] == 2


async def test_two_policies_that_direct_the_opposite_name_each_other_until_one_gives_way() -> None:
    scene = Scene()
    one, two = scene.apply("one", schedulerName="a"), scene.apply("two", schedulerName="b")
    await scene.status.round()
    for key, other in ((one, two), (two, one)):
        (conflict,) = scene.status_of(key)["conflicts"]
        assert (conflict["policy"], conflict["field"]) == (str(other), "spec.schedulerName")
        assert scene.conditions(key)["Conflicting"] == ("True", "Conflicts")
    scene.table.remove(two)
    await scene.status.round()
    assert scene.status_of(one)["conflicts"] == []
    assert scene.conditions(one)["Conflicting"] == ("False", "NoConflict")


async def test_a_policy_of_a_tenant_is_compared_with_those_that_select_its_namespace() -> None:
    """The status tells the tenant nothing about what is directed for others."""
    scene = Scene()
    selecting = {"matchLabels": {"team": "b"}}
    its = read_policy(policy("ClusterPodSchedulingPolicy", namespaceSelector=selecting, schedulerName="a"))
    scene.table.put(its)
    scene.store(its.key)
    scene.namespaces.change("default", Namespace("default", {"team": "a"}))
    mine = scene.apply("mine", schedulerName="b")
    await scene.status.round()
    assert scene.status_of(mine)["conflicts"] == []


async def test_node_terms_of_two_policies_are_compared_while_they_are_few() -> None:
    scene = Scene()
    few = [scene.apply(f"few-{value}", affinity=node_terms(value, 2)) for value in "ab"]
    many = [scene.apply(f"many-{value}", affinity=node_terms(value, 20)) for value in "cd"]
    await scene.status.round()
    assert next(each["policy"] for each in scene.status_of(few[0])["conflicts"]) == str(few[1])
    others = {each["policy"] for each in scene.status_of(many[0])["conflicts"]}
    assert str(many[1]) not in others


async def test_conflicts_with_pods_are_bounded_and_forgotten_with_their_generation() -> None:
    scene = Scene()
    key = scene.apply(schedulerName="a")
    scene.conflicts(key, *(f"spec.field{number}" for number in range(MOST_CONFLICTS + 5)))
    await scene.status.round()
    assert len(scene.status_of(key)["conflicts"]) == MOST_CONFLICTS
    assert scene.status_of(key)["conflicts"][-1]["field"] == f"spec.field{MOST_CONFLICTS + 4}"
    scene.apply(generation=2, schedulerName="b")
    await scene.status.round()
    assert scene.status_of(key)["conflicts"] == []


async def test_last_applied_is_written_at_most_once_a_minute() -> None:
    scene = Scene()
    key = scene.apply(schedulerName="a")
    logged: list[str] = []
    for _ in range(13):
        scene.status.record(Changes(scene.known(key), added={"schedulerName": "a"}))
        before = len(scene.api.written)
        await scene.status.round()
        logged += [scene.status_of(key)["lastApplied"]] * (len(scene.api.written) - before)
        scene.time += timedelta(seconds=10)
    assert logged == ["2026-11-20T12:00:00Z", "2026-11-20T12:01:00Z", "2026-11-20T12:02:00Z"]


@pytest.mark.parametrize(
    ("labels", "moment", "logged"),
    [
        pytest.param({"app": "db"}, "later", "2026-11-20T12:00:00Z", id="selected"),
        pytest.param({"app": "web"}, "later", None, id="a record that the tenant has made up"),
        pytest.param({"app": "db"}, "first list", None, id="of the first list"),
        pytest.param({"app": "db", "placement.extender.dev/exempt": "true"}, "later", None, id="exempt"),
    ],
)
async def test_a_pod_that_another_replica_has_injected_is_an_application(
    labels: dict[str, str], moment: str, logged: str | None
) -> None:
    scene = Scene()
    key = scene.apply(schedulerName="a")
    scene.is_complete = moment != "first list"
    scene.status.note_injected(PodSignature("default", labels), [key, key._replace(name="unknown")])
    scene.is_complete = True
    await scene.status.round()
    assert scene.status_of(key).get("lastApplied") == logged


async def test_an_object_that_lacked_nothing_is_no_application() -> None:
    scene = Scene()
    key = scene.apply(schedulerName="a")
    scene.status.record(Changes(scene.known(key)))
    await scene.status.round()
    assert "lastApplied" not in scene.status_of(key)


async def test_the_count_is_cut_into_slices_of_bounded_work() -> None:
    scene = Scene()
    key = scene.apply()
    for number in range(100):
        scene.run(1, app="db", number=str(number))
    scene.clock.step = SLICE_SECONDS / 4  # each look takes so long
    await scene.status.round()
    assert (
        200 / 5 <= scene.clock.slept.count(PAUSE_SECONDS) <= 200 / 4
    )  # a look at each signature, and one at its policy
    assert scene.status_of(key)["matchedPods"] == 100


async def test_a_look_at_many_policies_of_which_nothing_has_changed_is_cut_into_slices_too() -> None:
    scene = Scene()
    for number in range(40):
        scene.apply(f"p{number}")
    await scene.status.round()
    scene.clock.slept.clear()
    scene.clock.step = SLICE_SECONDS / 4
    await scene.status.round()
    assert 40 / 5 <= scene.clock.slept.count(PAUSE_SECONDS) <= 40 / 3


async def test_a_policy_that_changes_during_a_round_is_left_to_the_next_round() -> None:
    scene = Scene()
    _, two = scene.apply("one"), scene.apply("two")
    for number in range(20):
        scene.run(1, app="db", number=str(number))
    scene.clock.step = SLICE_SECONDS
    rounds = asyncio.create_task(scene.status.round())
    while PAUSE_SECONDS not in scene.clock.slept:  # noqa: ASYNC110 (a fake clock has no event)
        await asyncio.sleep(0)
    scene.apply("two", generation=2, podSelector={"matchLabels": {"number": "7"}})
    await rounds
    assert scene.api.written == ["one"]
    await scene.status.round()
    assert scene.status_of(two)["matchedPods"] == 1


@pytest.mark.parametrize("failure", [Unreachable("no answer"), NotFound("404", status=404)])
async def test_after_a_failure_the_status_is_read_again_and_written(failure: KubeError) -> None:
    scene = Scene()
    scene.apply()
    scene.api.fail = lambda call, _: failure if call.startswith("patch ") else None
    await scene.status.round()
    assert scene.api.written == []
    scene.api.fail = never
    await scene.status.round()
    assert scene.api.written == ["one"]


async def test_moves_that_are_stored_in_the_status_stay_and_cost_no_write() -> None:
    scene = Scene()
    key = scene.apply(when=["Execution"], execution={})
    state = {"broken": 4, "planned": 1, "moved": 0, "stuck": 0, "stuckReasons": []}
    scene.status.execution = lambda: {key: dict(state)}
    await scene.status.round()
    moves = {"moves": [{"pod": "web-0"}]}
    await PolicyObjects(scene.api, "extender", "a").patch_policy_status(key, "", {"execution": moves})
    running = asyncio.create_task(scene.status.run())  # a new leader, which reads the status
    await until(lambda: scene.clock.slept.count(ROUND_SECONDS) >= 3)
    running.cancel()
    assert len(scene.api.written) == 2, "the first status, and the moves"
    assert scene.status_of(key)["execution"] == state | moves


async def test_what_is_broken_is_written_once_a_minute_and_moves_are_counted_over_leaders() -> None:
    scene = Scene()
    key = scene.apply(when=["Execution"], execution={})
    state = {"broken": 4, "planned": 1, "moved": 0, "stuck": 0, "stuckReasons": []}
    scene.status.execution = lambda: {key: dict(state)}
    await scene.status.round()
    assert scene.status_of(key)["execution"] == state
    state |= {"broken": 2, "moved": 2}
    await scene.status.round()
    assert scene.status_of(key)["execution"]["broken"] == 4, "a minute is not over"
    scene.clock.jump(EXECUTION_EVERY)
    await scene.status.round()
    assert scene.status_of(key)["execution"] == state

    # A new leader has moved nothing yet.
    state |= {"moved": 0}
    running = asyncio.create_task(scene.status.run())
    await until(lambda: scene.clock.slept.count(ROUND_SECONDS) >= 8)
    assert scene.status_of(key)["execution"]["moved"] == 2
    state |= {"moved": 1}
    await until(lambda: scene.status_of(key)["execution"]["moved"] == 3)
    running.cancel()

    scene.apply(generation=2, when=["Scheduling"])
    scene.status.execution = dict
    await scene.status.round()
    assert "execution" not in scene.status_of(key)
