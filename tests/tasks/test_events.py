"""Events: what they say, how many there are, and that they give way to more urgent writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from extender.kube.effects import ObjectEvent, PodRef, PolicyRef
from extender.kube.errors import Unreachable
from extender.model.answers.explanations import ConstraintState, Explanation, TermReach
from extender.model.objects import Pod, PodSignature
from extender.model.policies import GROUP, PolicyKey
from extender.tasks import rejection_events
from extender.tasks.events import EventLimit, missed_admission
from extender.tasks.policy_status import condition_events
from extender.tasks.rejection_events import (
    AT_ONCE,
    LOOK_AGAIN_SECONDS,
    MOST_QUEUED,
    REFILL_SECONDS,
    REPEATED_AFTER_SECONDS,
    SETTLED_SECONDS,
)
from tests.builders import pod
from tests.fakes import until
from tests.tasks.event_scene import APART, NOON, Json, Scene, Stage, event, status

ONE = PolicyKey(GROUP, "default", "one")
ZONAL = PolicyKey(GROUP, "default", "zonal")
LIMIT = EventLimit(at_once=20, refill=2.0, repeated_after=600.0)
NOTHING = {"written": 0, "failed": 0, "suppressed": 0}


async def test_events_are_reported_in_order_and_a_rejected_one_is_lost() -> None:
    stage = Stage(refuses="b")
    async with stage.running():
        for name in "abc":
            stage.recorder.record(event(name))
        await stage.recorder.flush()
    assert (stage.names, stage.lost) == (["a", "c"], 1)


async def test_an_event_waits_until_more_urgent_writes_have_been_done_for_a_while() -> None:
    stage = Stage()
    async with stage.running():
        async with stage.rate_limiter.acquire():
            stage.recorder.record(event("a"))
            await until(lambda: stage.clock.slept)
            assert stage.names == []
        left = stage.clock.time
        await stage.recorder.flush()
    assert stage.names == ["a"]
    assert 0.1 <= stage.clock.time - left <= 0.2


async def test_a_burst_without_an_end_does_not_silence_them() -> None:
    stage = Stage()
    async with stage.running(), stage.rate_limiter.acquire():
        begun = stage.clock.time
        stage.recorder.record(event("a"))
        await stage.recorder.flush()
    assert stage.names == ["a"]
    assert 0.25 <= stage.clock.time - begun <= 0.35
    assert len([pause for pause in stage.clock.slept if pause > 0.01]) == 3, (
        "as rarely as a pause of 0.1 s can be found"
    )


async def test_what_does_not_fit_is_lost_and_so_is_what_waits_at_the_end() -> None:
    stage = Stage(most_waiting=2, at_once=1)
    for name in "abc":
        stage.recorder.record(event(name))
    assert stage.lost == 1
    stage.is_held = True
    async with stage.running():
        await until(lambda: stage.names)
    await stage.recorder.flush()
    assert (stage.names, stage.lost) == (["a"], 3), "the one under way, too"


async def test_an_event_is_not_behind_those_of_another_namespace_and_not_lost_for_them() -> None:
    stage = Stage(most_waiting=5, at_once=1)
    for number in range(20):
        stage.recorder.record(event(f"noise-{number}", namespace="noise"))
    stage.recorder.record(event("honest", namespace="shop"))
    async with stage.running():
        await stage.recorder.flush()
    assert (stage.names, stage.lost) == (["noise-0", "honest", "noise-1", "noise-2", "noise-3"], 16)


async def test_a_few_that_wait_are_written_side_by_side_and_no_more() -> None:
    stage = Stage(at_once=3)
    for name in "abcd":
        stage.recorder.record(event(name))
    stage.is_held = True
    async with stage.running():
        await until(lambda: len(stage.names) == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stage.names == ["a", "b", "c"]


async def test_a_limit_bounds_events_keeps_half_of_them_for_warnings_and_fills_again() -> None:
    stage = Stage(limit=LIMIT)
    async with stage.running():
        for kind in ("Normal", "Warning"):
            for number in range(100):
                stage.recorder.record(event(f"p{number}", kind))
        await stage.recorder.flush()
        assert len(stage.names) == LIMIT.at_once
        assert stage.names[LIMIT.at_once // 2] == "p0", "the first warning"
        stage.clock.time += 3 * LIMIT.refill
        for number in range(100):
            stage.recorder.record(event(f"q{number}"))
        await stage.recorder.flush()
    assert stage.names[LIMIT.at_once :] == ["q0", "q1", "q2"]
    assert stage.recorder.results == {"written": 23, "failed": 0, "suppressed": 277}


async def test_a_namespace_that_uses_up_the_limit_leaves_events_to_others() -> None:
    """Of 3,000 pods of a tenant that admission missed each has an event, and so has the one pod of another tenant."""
    stage = Stage(limit=LIMIT)
    async with stage.running():
        for number in range(3000):
            stage.recorder.record(event(f"noise-{number}", namespace="noise"))
        for namespace in ("shop", "bank"):
            for number in range(100):
                stage.recorder.record(event(f"{namespace}-{number}", namespace=namespace))
        await stage.recorder.flush()
    written = Counter(name.partition("-")[0] for name in stage.names)
    assert written == {"noise": 20, "shop": 10, "bank": 5}


@pytest.mark.parametrize(("repeated", "text"), [(1, "once"), (4, "4 times")])
async def test_a_reason_that_an_object_has_again_and_again_is_reported_once_with_the_number(
    repeated: int, text: str
) -> None:
    stage = Stage(limit=LIMIT)
    async with stage.running():
        for _ in range(1 + repeated):
            stage.recorder.record(event("a"), about="a")
        stage.recorder.record(event("a", reason="Other"), about="a")
        stage.recorder.record(event("b"), about="b")
        stage.clock.time += LIMIT.repeated_after
        stage.recorder.record(event("a"), about="a")
        stage.recorder.forget("b")
        stage.recorder.record(event("b"), about="b")
        await stage.recorder.flush()
    assert stage.notes == ["text", "text", "text", f"text (and {text} before)", "text"]
    assert stage.recorder.results["suppressed"] == repeated


async def test_a_deleted_object_of_the_same_name_is_reported_again_at_once() -> None:
    stage = Stage(limit=LIMIT)
    async with stage.running():
        stage.recorder.record(event("a"), about="a")
        stage.recorder.forget("a")
        stage.recorder.record(event("a"), about="a")
        await stage.recorder.flush()
    assert stage.names == ["a", "a"]


async def test_with_a_limit_a_replica_that_does_not_lead_records_nothing() -> None:
    stage = Stage(limit=LIMIT)
    stage.recorder.record(event("before"))
    async with stage.running():
        stage.recorder.record(event("led"))
        await stage.recorder.flush()
    stage.recorder.record(event("after"))
    assert (stage.names, stage.recorder.results) == (["led"], {**NOTHING, "written": 1})


async def test_an_api_server_that_does_not_answer_holds_up_no_more_than_the_queue() -> None:
    stage = Stage(limit=LIMIT, at_once=1)
    stage.is_held = True
    async with stage.running():
        for number in range(3 * LIMIT.at_once):
            stage.recorder.record(event(f"p{number}"))
            stage.clock.time += LIMIT.refill
            await asyncio.sleep(0)
    assert stage.recorder.results["failed"] == 1 + 2 * LIMIT.at_once, "the one under way, too"


# -- what events say ----------------------------------------------------------------------------------------------------


APPLIED = ("Normal", "Applied", "the policy is valid; it selects 3 pods")
APPLIED_TO_ONE = ("Normal", "Applied", "the policy is valid; it selects 1 pod")
INVALID = ("Warning", "Invalid", "the policy is not applied: text")
CONFLICT = ("Warning", "Conflict", "other: spec.field0: differs")
RESOLVED = ("Normal", "ConflictResolved", "no conflict is known any more")


@pytest.mark.parametrize(
    ("before", "after", "recorded"),
    [
        pytest.param({}, status(), [APPLIED], id="a new policy"),
        pytest.param({}, status(pods=1), [APPLIED_TO_ONE], id="a new policy that selects one pod"),
        pytest.param({}, status(valid=False), [INVALID], id="a new policy that is invalid"),
        pytest.param({}, status(conflicts=1), [APPLIED, CONFLICT], id="a new policy with a conflict"),
        pytest.param(status(), status(), [], id="nothing changed"),
        pytest.param(status(), status(valid=False), [INVALID], id="became invalid"),
        pytest.param(status(valid=False), status(), [APPLIED], id="became valid"),
        pytest.param(status(valid=False), status(valid=False, message="b"), [], id="invalid for another reason"),
        pytest.param(status(), status(conflicts=1), [CONFLICT], id="a conflict appeared"),
        pytest.param(
            status(),
            status(conflicts=4),
            [("Warning", "Conflict", f"{CONFLICT[2]}; status.conflicts has 4")],
            id="several conflicts",
        ),
        pytest.param(status(conflicts=1), status(conflicts=2), [], id="one conflict more"),
        pytest.param(status(conflicts=1), status(), [RESOLVED], id="the conflict is resolved"),
    ],
)
def test_an_event_reports_a_condition_that_has_changed(
    before: Json, after: Json, recorded: list[tuple[str, str, str]]
) -> None:
    found: list[ObjectEvent] = list(condition_events(ONE, "uid-1", before, after, NOON))
    assert [(each.type, each.reason, each.note) for each in found] == recorded
    assert {(each.about, each.at) for each in found} <= {(PolicyRef(ONE, "uid-1"), NOON)}


REACHED = "or the webhook was not reached"
INJECTED = "or another policy, was injected"
NOTES = {
    "one": (1, "", f"directs: the pod is older than the policy, {REACHED}. It is held to it"),
    "several": (2, "", f"direct: the pod is older than the policies, {REACHED}. It is held to them"),
    "one, injected": (1, "{}", f"directs: an earlier version of it, {INJECTED}. It is held to it"),
    "several, injected": (2, "{}", f"direct: an earlier version of them, {INJECTED}. It is held to them"),
}


@pytest.mark.parametrize(("count", "injected", "text"), NOTES.values(), ids=NOTES)
def test_the_event_of_a_missed_admission_names_the_policies(count: int, injected: str, text: str) -> None:
    policies = [ZONAL, PolicyKey(GROUP, "", "other")][:count]
    found = missed_admission(Pod("u", "two", PodSignature("default", {}, injected=injected)), policies, NOON)
    names = ", ".join(map(str, policies))
    assert found.note == f"the pod lacks what {names} {text} while it is scheduled"
    assert (found.about, found.type, found.reason) == (
        PodRef("default", "two", "u"),
        "Warning",
        "PolicyMissedAdmission",
    )


def test_a_long_list_of_policies_is_cut() -> None:
    found = missed_admission(pod("one"), [PolicyKey(GROUP, "", f"p{number}") for number in range(200)], NOON)
    assert "ClusterPodSchedulingPolicy/p4 and 195 more direct" in found.note


# -- Events on rejected pods: what they say, whom they are about, and how many there are -------------------------------

NOTE = (
    "pod anti-affinity by kubernetes.io/hostname with pods app=web: n1: 1 counted, 0 would pass (because of default/on)"
)


async def test_an_event_says_what_rejects_the_pod() -> None:
    scene = Scene()
    async with scene.leading():
        rejected = scene.clock.time
        scene.reject("asking")
        await until(lambda: scene.api.events)
    assert scene.api.events == [
        ObjectEvent(PodRef("default", "asking", "uid-asking"), "Warning", "PlacementRejected", "Scheduling", NOTE, NOON)
    ]
    assert scene.clock.time >= rejected + SETTLED_SECONDS
    assert scene.recorded == {"written": 1}


async def test_the_same_text_is_not_repeated_for_the_same_pod_until_it_may_have_expired() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        for _ in range(5):
            scene.reject("asking")
        assert scene.total == 1, "it is not looked at again so soon"
        scene.clock.time += LOOK_AGAIN_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
        assert scene.recorded == {"written": 1, "repeated": 1}
        scene.clock.time += REPEATED_AFTER_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 3)
    assert [each.note for each in scene.api.events] == [
        NOTE,
        f"{NOTE} (rejected 7 times since the last such event)",
    ]


async def test_a_pod_that_was_rejected_once_more_is_reported_so() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        scene.clock.time += REPEATED_AFTER_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
    assert scene.api.events[-1].note == f"{NOTE} (rejected once since the last such event)"


async def test_another_text_is_reported_when_the_pod_is_looked_at_again() -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total == 1)
        scene.index.upsert(pod("more", on="n1", app="web"))
        scene.clock.time += LOOK_AGAIN_SECONDS
        scene.reject("asking")
        await until(lambda: scene.total == 2)
    assert "2 counted, 0 would pass (because of default/more, default/on)" in scene.api.events[1].note
    assert scene.recorded == {"written": 2}


@pytest.mark.parametrize("change", ["bound", "deleted", "nominated", "assumed", "passes"])
async def test_a_pod_that_is_not_rejected_any_more_has_no_event(change: str) -> None:
    scene = Scene()
    async with scene.leading():
        scene.reject("asking")
        match change:
            case "bound":
                scene.index.upsert(pod("asking", on="n1", **APART))
            case "deleted":
                scene.index.delete(scene.index.pods["uid-asking"])
            case "nominated":
                scene.index.nominate_in_memory(scene.index.pods["uid-asking"], "n1", ["uid-on"])
            case "assumed":
                scene.index.assume(scene.index.pods["uid-asking"], ["n1"], 0.0)
            case _:
                scene.index.delete(scene.index.pods["uid-on"])
        await until(lambda: scene.total)
    assert (scene.api.events, scene.recorded) == ([], {"outdated": 1})


async def test_a_pod_that_is_bound_while_it_is_explained_has_no_event() -> None:
    scene = Scene()
    explain = scene.events._explain

    async def slowly(uid: str) -> Any:
        found = await explain(uid)
        scene.index.upsert(pod("asking", on="n1", **APART))
        return found

    scene.events._explain = slowly
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total)
    assert (scene.api.events, scene.recorded) == ([], {"outdated": 1})


@pytest.mark.parametrize("change", ["bound", "deleted", "deleted while the event is written"])
async def test_of_a_pod_that_is_bound_or_deleted_no_note_is_kept(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    def end() -> None:
        known = scene.index.pods["uid-asking"]
        scene.index.upsert(pod("asking", on="n1", **APART)) if change == "bound" else scene.index.delete(known)

    async def written(_event: ObjectEvent) -> None:
        end()

    if change == "deleted while the event is written":
        monkeypatch.setattr(scene.api, "create_event", written)
    async with scene.leading():
        scene.reject("asking")
        await until(lambda: scene.total)
        if change != "deleted while the event is written":
            scene.index.upsert(pod("asking", **APART, priority=1))
            assert set(scene.events._last) == {"uid-asking"}
            end()
    assert scene.recorded == {"written": 1}
    assert (len(scene.events._last), len(scene.index.pod_changes)) == (0, 0)


async def test_the_notes_of_the_last_pods_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection_events, "_MOST_KEPT", 2)
    scene = Scene()
    async with scene.leading():
        for name in ("first", "second", "first", "third", "first"):
            done = scene.total
            scene.reject(name)
            await until(lambda done=done: scene.total > done)  # type: ignore[misc]
            scene.clock.time += REPEATED_AFTER_SECONDS
    assert list(scene.events._last) == ["uid-third", "uid-first"]
    assert set(scene.index.pod_changes.by_uid) == {"uid-third", "uid-first"}


async def test_a_replica_that_does_not_lead_records_nothing() -> None:
    scene = Scene()
    scene.reject("before")
    async with scene.leading():
        scene.reject("led")
        await until(lambda: scene.total)
    scene.reject("after")
    assert [each.about.reference()["name"] for each in scene.api.events] == ["led"]
    assert scene.recorded == {"written": 1}


async def test_of_many_pods_some_have_an_event_at_once_and_one_more_as_time_goes_on() -> None:
    scene = Scene()
    async with scene.leading():
        for number in range(MOST_QUEUED + 10):
            scene.reject(f"p{number}")
        assert scene.recorded == {"suppressed": 10}, "the queue is bounded"
        begun = scene.clock.time + SETTLED_SECONDS
        await until(lambda: scene.recorded.get("written", 0) >= AT_ONCE)
        assert scene.clock.time <= begun + 3 * REFILL_SECONDS
        await until(lambda: scene.total == MOST_QUEUED + 10)
        assert scene.clock.time - begun >= (MOST_QUEUED - AT_ONCE - 1) * REFILL_SECONDS
    assert scene.recorded == {"written": MOST_QUEUED, "suppressed": 10}


async def test_an_event_of_a_pod_is_not_behind_those_of_another_namespace() -> None:
    scene = Scene()
    async with scene.leading():
        for number in range(3 * MOST_QUEUED):
            scene.reject(f"p{number}")
        begun = scene.clock.time
        scene.index.upsert(pod("there", on="n1", app="web", namespace="shop"))
        scene.reject("honest", namespace="shop")
        await until(lambda: any(each.about.namespace == "shop" for each in scene.api.events))
        assert scene.clock.time - begun < SETTLED_SECONDS + 10 * REFILL_SECONDS


async def test_a_failure_is_counted_and_the_next_rejection_of_the_pod_is_reported() -> None:
    scene = Scene()
    async with scene.leading():
        scene.api.failures = [Unreachable("down")]
        scene.reject("asking")
        await until(lambda: scene.recorded == {"failed": 1})
        scene.reject("asking")
        await until(lambda: scene.api.events)
    assert [each.note for each in scene.api.events] == [NOTE]


async def test_a_rule_whose_state_cannot_be_reported_leaves_the_events_of_other_pods(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken: Any = None  # for the domains

    def break_one(found: Explanation) -> Explanation:
        state = ConstraintState("Own", "own", "rack", "", TermReach(""), domains=broken)
        return msgspec.structs.replace(found, constraints=(state,)) if found.pod == "default/one" else found

    scene = Scene(break_one)
    async with scene.leading():
        scene.reject("one")
        scene.reject("asking")
        await until(lambda: scene.total == 2)
    assert [each.about for each in scene.api.events] == [PodRef("default", "asking", "uid-asking")]
    assert scene.recorded == {"failed": 1, "written": 1}
    assert "a rejection could not be explained" in caplog.text
