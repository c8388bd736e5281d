"""The writes of one preemption: their order, and what each failure at each step leads to."""

from __future__ import annotations

import msgspec
import pytest

from extender.kube.errors import Conflict, Expired, KubeError, NotFound, OverBudget, Rejected, Throttled, Unreachable
from extender.model.preemption import PreemptionPlan
from extender.tasks.preemption.executor import ForbiddenByBudgetError, GaveUpError, PreemptorNotPendingError
from tests.contenders import contender
from tests.tasks.executor_scene import ALL, FIRST, INCOMING, LOWER, PLAN, SECOND, Scene, same

VITAL = [("nominate", "asking"), ("condition", "first"), ("delete", "first")]
PASSING: list[KubeError] = [
    Unreachable("timed out"),
    Throttled("429 slow down", status=429, retry_after=2.0),
    Throttled("503 overloaded", status=503, retry_after=1.0),
    Conflict("409 same pod", status=409),
    Expired("410 too old", status=410),
]


async def test_lower_nominations_go_first_then_the_nomination_then_each_victim_is_marked_and_deleted() -> None:
    assert await Scene().carry_out() == ALL


async def test_the_eviction_api_is_used_where_the_settings_say_so_and_marks_the_pods_itself() -> None:
    """The API server refuses an eviction that a budget forbids: a pod that stays must not be marked."""
    effects = await Scene(evicts=True).carry_out()
    removals = [line for line in effects if line.split()[0] in {"evict", "delete", "condition"}]
    assert removals == ["evict second", "evict first"]


async def test_an_eviction_that_a_budget_forbids_is_not_tried_again_and_no_other_one_is_begun() -> None:
    scene = Scene(evicts=True)
    scene.api.fail("evict", "second", OverBudget("429 budget", status=429, retry_after=10.0))
    with pytest.raises(ForbiddenByBudgetError, match="budget"):
        await scene.carry_out()
    assert scene.retrying.retries == 0
    assert scene.api.effects == ["nominate lower -", "nominate asking n1"]


MARKED = "condition second DisruptionTarget PreemptionByScheduler"
TAKEN_BACK = "condition second DisruptionTarget NotPreempted"


BEGUN = ["nominate lower -", "nominate asking n1"]
GIVEN_UP: dict[str, tuple[str, str, list[KubeError], list[str]]] = {
    "a nomination is refused: no victim is deleted": ("nominate", "asking", [Rejected("422", status=422)], BEGUN[:1]),
    "a deletion is refused: its mark is taken back": (
        "delete",
        "second",
        [Rejected("422", status=422)],
        [*BEGUN, MARKED, TAKEN_BACK],
    ),
    "a deletion may still be carried out: its mark stays": (
        "delete",
        "second",
        [Unreachable("500") for _ in range(100)],
        [*BEGUN, MARKED],
    ),
}


@pytest.mark.parametrize(("verb", "name", "errors", "effects"), GIVEN_UP.values(), ids=GIVEN_UP)
async def test_after_a_write_that_is_given_up_no_other_victim_is_begun(
    verb: str, name: str, errors: list[KubeError], effects: list[str]
) -> None:
    scene = Scene()
    scene.api.fail(verb, name, *errors)
    with pytest.raises(GaveUpError):
        await scene.carry_out()
    assert scene.api.effects == effects
    assert scene.api.names() == ["asking", "first", "lower", "second"]


async def test_the_mark_of_a_pod_that_need_not_go_any_more_is_taken_back() -> None:
    scene = Scene()
    scene.api.meanwhile("condition", "second", lambda: scene.api.put(msgspec.structs.replace(INCOMING, node="n9")))
    with pytest.raises(PreemptorNotPendingError):
        await scene.carry_out()
    assert scene.api.said("condition") == [MARKED, TAKEN_BACK]


async def test_a_mark_that_cannot_be_taken_back_hides_no_failure() -> None:
    scene = Scene()
    scene.api.fail("delete", "second", Rejected("422 may not", status=422))
    refused = Rejected("422", status=422)
    scene.api.meanwhile("delete", "second", lambda: scene.api.fail("condition", "second", refused))
    with pytest.raises(GaveUpError, match="may not"):
        await scene.carry_out()


async def test_done_twice_nothing_is_done_again() -> None:
    scene = Scene(graceful=True)
    await scene.carry_out()
    scene.api.effects.clear()
    assert await scene.carry_out() == ["nominate lower -", "nominate asking n1"]


@pytest.mark.parametrize(("verb", "name"), VITAL)
@pytest.mark.parametrize("error", PASSING, ids=lambda error: str(error).replace(" ", "-"))
async def test_a_passing_failure_at_any_step_is_overcome(verb: str, name: str, error: KubeError) -> None:
    scene = Scene()
    scene.api.fail(verb, name, error, error)
    assert await scene.carry_out() == ALL
    assert scene.retrying.retries == 2


@pytest.mark.parametrize(("verb", "name"), VITAL)
async def test_the_apiservers_word_on_when_to_come_back_is_kept(verb: str, name: str) -> None:
    scene = Scene()
    scene.api.fail(verb, name, Throttled("429", status=429, retry_after=7.0))
    await scene.carry_out()
    assert scene.waits == [7.0]


async def test_between_retries_the_waits_grow_and_are_spread() -> None:
    scene = Scene()
    scene.api.fail("delete", "first", *(Unreachable("500") for _ in range(4)))
    await scene.carry_out()
    assert len(scene.waits) == 4
    assert all(whole / 2 <= wait <= whole for wait, whole in zip(scene.waits, (0.1, 0.2, 0.4, 0.8), strict=True))


@pytest.mark.parametrize(("verb", "name"), VITAL)
async def test_a_failure_that_lasts_is_given_up_at_the_deadline(verb: str, name: str) -> None:
    scene = Scene()
    scene.api.fail(verb, name, *(Unreachable("500") for _ in range(100)))
    begun = scene.clock.time
    with pytest.raises(GaveUpError, match="500"):
        await scene.carry_out()
    assert 20 < scene.clock.time - begun <= 30
    assert "first" in scene.api.names()


@pytest.mark.parametrize(("verb", "name"), VITAL)
async def test_what_the_apiserver_rejects_for_good_is_not_tried_again(verb: str, name: str) -> None:
    scene = Scene()
    scene.api.fail(verb, name, Rejected("422 may not", status=422))
    with pytest.raises(GaveUpError, match="may not"):
        await scene.carry_out()
    assert scene.retrying.retries == 0


@pytest.mark.parametrize(("verb", "name"), VITAL)
async def test_what_an_api_server_forbids_before_it_has_read_the_roles_is_tried_again(verb: str, name: str) -> None:
    scene = Scene()
    scene.api.fail(verb, name, *(Rejected("403 no role", status=403) for _ in range(3)))
    assert await scene.carry_out() == ALL
    assert scene.retrying.retries == 3


@pytest.mark.parametrize(("verb", "name"), VITAL)
async def test_what_is_forbidden_for_longer_is_given_up_after_a_few_seconds(verb: str, name: str) -> None:
    scene = Scene()
    scene.api.fail(verb, name, *(Rejected("403 no role", status=403) for _ in range(100)))
    begun = scene.clock.time
    with pytest.raises(GaveUpError, match="no role"):
        await scene.carry_out()
    assert 2 < scene.clock.time - begun <= 11  # the mark is taken back for as long again


NO_NOMINATION = Rejected("422 may not be set on pods that are already bound", status=422)


async def test_a_preemptor_that_is_bound_before_its_nomination_is_written_needs_no_victims() -> None:
    scene = Scene()
    bound = msgspec.structs.replace(INCOMING, node="n1")
    scene.api.fail("nominate", "asking", NO_NOMINATION)
    scene.api.meanwhile("nominate", "asking", lambda: scene.api.pods.update({("default", "asking"): bound}))
    with pytest.raises(PreemptorNotPendingError):
        await scene.carry_out()
    assert scene.api.names() == ["asking", "first", "lower", "second"]


async def test_a_nomination_that_is_refused_is_a_failure_where_the_preemptor_cannot_be_read() -> None:
    scene = Scene()
    scene.api.fail("nominate", "asking", NO_NOMINATION)
    scene.api.fail("read", "asking", Unreachable("500"))
    with pytest.raises(GaveUpError, match="may not"):
        await scene.carry_out()


@pytest.mark.parametrize("error", [Unreachable("500"), Rejected("422", status=422)], ids=["lasting", "rejected"])
async def test_a_lower_nomination_that_cannot_be_cleared_stops_no_preemption(error: KubeError) -> None:
    scene = Scene()
    scene.api.fail("nominate", "lower", error)
    effects = await scene.carry_out()
    assert same([line for line in effects if "lower" not in line]) == same(ALL[1:])


async def test_a_lower_nominated_pod_that_is_gone_needs_no_clearing() -> None:
    assert await Scene(INCOMING, FIRST, SECOND).carry_out() == ALL[1:]


async def test_an_event_that_is_lost_is_no_failure() -> None:
    scene = Scene()
    scene.api.fail("event", "first", Unreachable("500"))
    scene.api.fail("event", "second", Rejected("422", status=422))
    assert await scene.carry_out() == ALL[:6]
    assert scene.recorder.results["failed"] == 2


@pytest.mark.parametrize("verb", ["condition", "delete"])
async def test_a_victim_that_is_gone_already_is_done(verb: str) -> None:
    scene = Scene()
    scene.api.meanwhile(verb, "first", lambda: scene.api.remove("first"))
    await scene.carry_out()
    assert scene.api.names() == ["asking", "lower"]


@pytest.mark.parametrize("verb", ["condition", "delete", "evict"])
async def test_the_replacement_of_a_victim_with_the_same_name_is_never_touched(verb: str) -> None:
    """A StatefulSet gives the new pod the old one's name."""
    replacement = msgspec.structs.replace(FIRST, uid="uid-replacement")
    scene = Scene(evicts=verb == "evict")

    def replace() -> None:
        scene.api.remove("first")
        scene.api.put(replacement)

    scene.api.meanwhile(verb, "first", replace)
    await scene.carry_out()
    assert scene.api.pods["default", "first"] == replacement
    assert scene.retrying.retries == 0


async def test_a_conflict_that_cannot_be_looked_into_is_tried_again() -> None:
    scene = Scene()
    scene.api.fail("delete", "first", Conflict("409", status=409))
    scene.api.fail("read", "first", Unreachable("500"))
    assert await scene.carry_out() == ALL


async def test_a_victim_that_is_going_already_gets_no_call() -> None:
    scene = Scene(INCOMING, LOWER, msgspec.structs.replace(FIRST, terminating=True), SECOND)
    assert await scene.carry_out() == [line for line in ALL if "first" not in line]


@pytest.mark.parametrize(
    "error", [NotFound("404", status=404), Conflict("409 another", status=409)], ids=["deleted", "replaced"]
)
async def test_without_a_preemptor_no_pod_has_to_go(error: KubeError) -> None:
    scene = Scene()
    scene.api.meanwhile("nominate", "asking", lambda: scene.api.remove("asking"))
    scene.api.fail("nominate", "asking", error)
    with pytest.raises(PreemptorNotPendingError):
        await scene.carry_out()
    assert scene.api.names() == ["first", "lower", "second"]


@pytest.mark.parametrize("how", ["bound", "deleted", "terminating"])
async def test_once_the_preemptor_needs_no_room_any_more_the_rest_of_the_victims_stay(how: str) -> None:
    scene = Scene()

    def happens() -> None:
        if how == "deleted":
            scene.api.remove("asking")
        else:
            fields = {"node": "n9"} if how == "bound" else {"terminating": True}
            scene.api.put(msgspec.structs.replace(INCOMING, **fields))

    scene.api.meanwhile("delete", "second", happens)
    with pytest.raises(PreemptorNotPendingError):
        await scene.carry_out()
    assert [line for line in scene.api.effects if "first" in line] == []


async def test_release_takes_the_nomination_back_and_wakes_the_pod() -> None:
    scene = Scene()
    await scene.evicting.release(PLAN)
    assert scene.api.effects == ["nominate asking -", "annotate asking placement.extender.dev/requeued"]


async def test_a_pod_that_is_bound_by_now_is_not_released() -> None:
    scene = Scene(msgspec.structs.replace(INCOMING, node="n1"))
    await scene.evicting.release(PLAN)
    assert scene.api.effects == []


async def test_no_more_writes_are_under_way_at_once_than_the_pace_allows() -> None:
    victims = tuple(contender(f"v{number}", on="n1") for number in range(12))
    scene = Scene(INCOMING, *victims, at_once=3, victims_at_once=9)
    most = 0
    running = 0
    delete = scene.api.delete

    async def counted(pod: object, grace_seconds: int | None = None) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        for _ in range(20):  # longer than the rate lets others begin
            await scene.clock.sleep(0)
        await delete(pod, grace_seconds)  # type: ignore[arg-type]  # as the test gives it
        running -= 1

    scene.api.delete = counted  # type: ignore[method-assign]  # replaced for the test
    await scene.carry_out(PreemptionPlan(INCOMING, "n1", victims))
    assert (most, scene.api.names()) == (3, ["asking"])
