"""Explanations on request: in slices of a bounded length, one at a time, within a budget."""

from __future__ import annotations

import asyncio

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import Cause, NotExplained
from extender.settings.configuration import Settings
from extender.tasks.browse_service import MOST_EXPLANATIONS, ExplainService
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
