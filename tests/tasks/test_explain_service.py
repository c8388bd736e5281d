"""Explanations on request: in slices of a bounded length, one at a time, within a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import Cause, NotExplained
from extender.settings.configuration import Settings
from extender.tasks.browse_service import MOST_EXPLANATIONS, ExplainService
from extender.tasks.index_upkeep import EVERY_SECONDS, FIGURE_PAUSE_SECONDS, SlicedFigure
from extender.tasks.sliced_work import Places, SlicedWork, Traffic
from tests.builders import index_of, node, pod, term
from tests.fakes import FakeClock, until

APART = term("zone", app="web")


def cluster(nodes: int = 2) -> ClusterIndex:
    """Nodes in two zones with a web pod each, and a web pod that must be alone in its zone."""
    index = index_of(*(node(f"n{at}", zone=f"z{at % 2}", allocatable={"cpu": "4", "pods": "9"}) for at in range(nodes)))
    for at in range(nodes):
        index.upsert(pod(f"on-n{at}", on=f"n{at}", app="web"))
    index.upsert(pod("asking", app="web", apart=[APART]))
    return index


def service(index: ClusterIndex, clock: FakeClock | None = None) -> ExplainService:
    nodes = {uid: assumed.nodes for uid, assumed in index.assumed.held.items()}
    return ExplainService(index.view, Settings(), clock or FakeClock(), lambda uid: nodes.get(uid, ()))


async def test_a_pending_pod_is_explained_by_its_name() -> None:
    found = await service(cluster()).explain("default", "asking", "n1")
    assert (found.pod, found.state, found.nodes, found.passing) == ("default/asking", "pending", 2, 0)
    assert [(each.domain, each.count, each.pods) for each in found.constraints[0].domains] == [
        ("z0", 1, ("default/on-n0",)),
        ("z1", 1, ("default/on-n1",)),
    ]
    assert found.node is not None
    assert (found.node.name, found.node.passes) == ("n1", False)
    assert {"addNode", "movePod"} <= {each.kind for each in found.changes}


async def test_a_pod_that_is_placed_leaving_or_assumed_says_so_and_nothing_else() -> None:
    index = cluster()
    index.upsert(pod("leaving", terminating=True))
    index.upsert(pod("passed"))
    index.assume(index.pods["uid-passed"], ["n0"], 0.0)
    states = [(await service(index).explain("default", name)).state for name in ("on-n1", "leaving", "passed")]
    assert states == ["on node n1", "terminating", "passed filter, and is assumed on n0 until it is bound"]


async def test_a_pod_or_a_node_that_is_not_known_is_named() -> None:
    explainer = service(cluster())
    with pytest.raises(NotExplained, match="pod default/none is not known") as error:
        await explainer.explain("default", "none")
    assert error.value.cause is Cause.UNKNOWN
    with pytest.raises(NotExplained, match="node n9 is not known"):
        await explainer.explain("default", "asking", "n9")


async def test_a_pod_that_does_not_exist_is_explained_and_leaves_nothing_in_the_index() -> None:
    index = cluster()
    await service(index).explain("default", "asking")  # compiles what pods that exist need
    before = index.statistics()
    given = pod("new", app="web", apart=[APART, term("host", app="db")])
    found = await service(index).explain_given(given)
    assert (found.state, found.passing) == ("does not exist", 0)
    assert index.statistics() == before
    assert audit(index) == []


async def test_the_loop_is_free_between_slices_and_a_change_in_between_is_told() -> None:
    """By this clock each look at the time takes 0.6 ms, so that a slice is one step."""
    index, clock = cluster(nodes=600), FakeClock(step=0.0006)
    asked = asyncio.create_task(service(index, clock).explain("default", "asking"))
    await until(lambda: clock.slept)
    index.delete(index.pods["uid-on-n1"])
    found = await asked
    assert found.is_changed
    assert len(clock.slept) >= 5
    assert set(clock.slept) == {0.003}
    assert audit(index) == []


async def test_an_explanation_beyond_its_budget_ends_and_says_why() -> None:
    with pytest.raises(NotExplained, match="more than 1 s") as error:
        await service(cluster(), FakeClock(step=0.6)).explain("default", "asking")
    assert error.value.cause is Cause.TOO_EXPENSIVE


async def test_few_explanations_wait_and_one_more_is_refused() -> None:
    explainer = service(cluster(nodes=600), FakeClock(step=0.0006))
    waiting = [asyncio.create_task(explainer.explain("default", "asking")) for _ in range(MOST_EXPLANATIONS)]
    await asyncio.sleep(0)
    with pytest.raises(NotExplained) as error:
        await explainer.explain("default", "asking")
    assert error.value.cause is Cause.BUSY
    assert {found.passing for found in await asyncio.gather(*waiting)} == {0}
    assert (await explainer.explain("default", "asking")).passing == 0


async def test_a_client_that_goes_away_gives_its_turn_to_the_next() -> None:
    explainer = service(cluster(nodes=600), FakeClock(step=0.0006))
    first, second = (asyncio.create_task(explainer.explain("default", "asking")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).passing == 0


# -- Work for people is done in slices, counted by what became of it, and gives way to requests of the scheduler -------

Steps = Generator[None, None, list[str]]


def steps(done: list[str], count: int = 3) -> Steps:
    """Work that notes each of its steps."""
    for _ in range(count):
        done.append("step")
        yield
    return done


def refusing() -> Steps:
    """Work that finds that there is no such pod."""
    yield
    raise NotExplained(Cause.UNKNOWN, "pod a/b is not known")


def failing() -> Steps:
    yield
    raise ZeroDivisionError


def counted(work: SlicedWork) -> dict[tuple[str, str], int]:
    return {key: count for key, count in work.outcomes.items() if count}


async def test_what_becomes_of_work_is_counted_and_so_is_the_time_of_its_slices() -> None:
    work = SlicedWork(FakeClock(step=0.001))
    assert await work.run(steps([]), 1.0, "explanation") == ["step"] * 3
    for kind, each in (("page", refusing()), ("event", failing())):
        with pytest.raises((NotExplained, ZeroDivisionError)):
            await work.run(each, 1.0, "page" if kind == "page" else "event")
    with pytest.raises(NotExplained, match=r"the explanation would take more than 0\.002 s"):
        await work.run(steps([], 9), 0.002, "explanation")
    places = Places(1, "page", work)
    with places, pytest.raises(NotExplained, match="1 other pages are wanted already"), places:
        pass
    assert counted(work) == {
        ("explanation", "done"): 1,
        ("explanation", "too_expensive"): 1,
        ("page", "unknown"): 1,
        ("page", "busy"): 1,
        ("event", "failed"): 1,
    }
    assert 0.005 < work.seconds["explanation"] < 0.02
    assert work.seconds["event"] > 0


async def test_work_whose_client_is_gone_is_counted_as_abandoned() -> None:
    clock = FakeClock(step=0.001)
    work = SlicedWork(clock)
    task = asyncio.create_task(work.run(steps([], 1000), 99.0, "page"))
    await until(lambda: clock.slept)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert counted(work) == {("page", "abandoned"): 1}


async def test_a_slice_begins_once_no_request_is_in_flight() -> None:
    clock = FakeClock(step=0.001)
    traffic, done = Traffic(clock), list[str]()
    work = SlicedWork(clock, traffic)
    traffic.begin()
    traffic.begin()
    task = asyncio.create_task(work.run(steps(done), 1.0, "page"))
    await until(lambda: done)
    for _ in range(50):
        await asyncio.sleep(0)
    assert done == ["step"]
    traffic.end()
    await asyncio.sleep(0)
    assert done == ["step"]
    traffic.end()
    await until(lambda: len(done) == 2)
    assert clock.slept == []
    traffic.begin()
    traffic.end()
    assert await task == ["step"] * 3


async def test_work_goes_on_beside_a_request_that_waits_for_long() -> None:
    clock = FakeClock(step=0.001)
    traffic = Traffic(clock)
    traffic.begin()
    assert await SlicedWork(clock, traffic).run(steps([]), 1.0, "page") == ["step"] * 3
    assert clock.slept == []


async def test_some_time_after_the_last_answer_work_makes_short_pauses_again() -> None:
    clock = FakeClock(step=0.001)
    traffic = Traffic(clock)
    traffic.begin()
    traffic.end()
    clock.time += 0.3
    await SlicedWork(clock, traffic).run(steps([]), 1.0, "page")
    assert set(clock.slept) == {0.003}


# -- A figure that takes long is measured in slices, and a scrape reads what the last round has found ------------------


async def test_a_round_pauses_after_each_slice_and_is_read_when_it_is_complete() -> None:
    clock, seen = FakeClock(), list[int]()

    def measure() -> Generator[None, None, int]:
        for _ in range(4):
            seen.append(figure.value)
            clock.time += 0.005  # each step is a slice
            yield
        return 7

    figure = SlicedFigure(measure, clock, 0)
    running = asyncio.create_task(figure.run())
    await until(lambda: figure.value == 7)
    running.cancel()
    assert seen[:4] == [0, 0, 0, 0]
    assert clock.slept[:4] == [FIGURE_PAUSE_SECONDS] * 4


async def test_rounds_that_take_long_are_rare() -> None:
    clock = FakeClock()
    lasting = [0.001, 2.0]

    def measure() -> Generator[None, None, int]:
        clock.time += lasting[0]
        yield
        return 1

    for number, expected in enumerate((EVERY_SECONDS, 200.0)):
        lasting[0] = (0.001, 2.0)[number]
        clock.slept.clear()
        running = asyncio.create_task(SlicedFigure(measure, clock, 0).run())
        await until(lambda: [each for each in clock.slept if each != FIGURE_PAUSE_SECONDS])
        running.cancel()
        assert round(next(each for each in clock.slept if each != FIGURE_PAUSE_SECONDS), 3) == expected
