"""Pages of the cluster: in slices between other work, few at a time, and with what other parts know."""

from __future__ import annotations

import asyncio

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.explanations import Cause, NotExplained
from extender.model.pages import PageOf, TopologyQuestion
from extender.settings.configuration import Settings
from extender.tasks.browse_service import MOST_WAITING, BrowseService
from extender.tasks.explain_service import ExplainService
from extender.tasks.sliced_work import SlicedWork
from tests.builders import index_of, namespace, node, pod, spread, term
from tests.fakes import FakeClock, until

ZONES = TopologyQuestion("topology.kubernetes.io/zone", PageOf())


def cluster(nodes: int = 2) -> ClusterIndex:
    return index_of(
        namespace("default"),
        *(node(f"n{at}", zone=f"z{at % 2}") for at in range(nodes)),
        pod("placed", on="n0"),
        pod("waits"),
        pod("passed"),
        pod("held", gates=["example.com/quota"]),
        pod("leaving", terminating=True),
    )


def service(index: ClusterIndex, clock: FakeClock | None = None) -> BrowseService:
    return BrowseService(index, Settings(), SlicedWork(clock or FakeClock()), lambda: 3)


async def test_figures_count_each_pod_in_its_state() -> None:
    index = cluster()
    index.assume(index.pods["uid-passed"], ["n0"], 0.0)
    found = await service(index).figures()
    assert (found.nodes, found.pods, found.namespaces) == (2, 5, 1)
    assert (found.pending, found.gated, found.assumed, found.preemptions_in_flight) == (1, 1, 1, 3)
    assert {each.key: each.domains for each in found.topology_keys}["topology.kubernetes.io/zone"] == 2


async def test_topology_keys_follow_the_nodes() -> None:
    index = cluster()
    browser = service(index)
    before = (await browser.figures()).topology_keys
    assert (await browser.figures()).topology_keys is before, "computed again although no node has changed"
    index.upsert(node("n2", zone="z2"))
    assert (await browser.figures()).topology_keys[0].domains == 3


async def test_a_pod_without_a_node_has_its_state() -> None:
    index = cluster()
    index.assume(index.pods["uid-passed"], ["n0"], 0.0)
    index.nominate_in_memory(index.pods["uid-waits"], "n0", {"uid-placed"})
    page = await service(index).pending(PageOf())
    assert {row.pod: (row.state, row.nominated_node) for row in page.pods} == {
        "waits": ("preempting", "n0"),
        "passed": ("assumed", ""),
        "held": ("gated", ""),
        "leaving": ("terminating", ""),
    }


async def test_a_pod_that_is_not_known_is_named() -> None:
    with pytest.raises(NotExplained, match="pod default/none is not known") as error:
        await service(cluster()).constraints("default", "none")
    assert error.value.cause is Cause.UNKNOWN


async def test_constraints_of_a_pod_on_a_node_are_those_of_a_further_replica() -> None:
    index = cluster()
    index.upsert(pod("web-0", on="n0", app="web", spreads=[spread("zone", app="web")]))
    page = await service(index).constraints("default", "web-0")
    (state,) = page.constraints
    assert (page.pod, page.node, state.minimum, state.limit, page.is_changed) == ("default/web-0", "n0", 0, 0, False)
    assert [(each.domain, each.count, each.passes) for each in state.domains] == [("z0", 1, False), ("z1", 0, True)]


async def test_up_to_200_domains_of_a_constraint_are_shown() -> None:
    index = index_of(*(node(f"n{at}") for at in range(203)))
    index.upsert(pod("web-0", on="n0", app="web", apart=[term("host", app="web")]))
    page = await service(index).constraints("default", "web-0")
    own = next(state for state in page.constraints if state.kind == "podAntiAffinity")
    assert (own.domains[0].domain, own.domains[0].pods) == ("n0", ("default/web-0",))
    assert (len(own.domains), own.more_domains) == (200, 3)


async def test_the_loop_is_free_between_slices() -> None:
    """By this clock each look at the time takes 0.6 ms, so that a slice is one step."""
    clock = FakeClock(step=0.0006)
    page = await service(cluster(nodes=2000), clock).topology(ZONES)
    assert [(row.domain, row.nodes) for row in page.domains] == [("z0", 1000), ("z1", 1000)]
    assert len(clock.slept) >= 5
    assert set(clock.slept) == {0.005}


async def test_few_pages_wait_and_one_more_is_refused() -> None:
    browser = service(cluster(nodes=2000), FakeClock(step=0.0006))
    waiting = [asyncio.create_task(browser.topology(ZONES)) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(NotExplained) as error:
        await browser.pending(PageOf())
    assert error.value.cause is Cause.BUSY
    assert {page.lacking for page in await asyncio.gather(*waiting)} == {0}
    assert (await browser.pending(PageOf())).more == 0


async def test_a_page_beyond_its_budget_ends_and_says_why() -> None:
    with pytest.raises(NotExplained, match="the page would take more than 2 s") as error:
        await service(cluster(nodes=2000), FakeClock(step=1.1)).topology(ZONES)
    assert error.value.cause is Cause.TOO_EXPENSIVE


async def test_pages_and_explanations_are_computed_one_after_the_other() -> None:
    index, clock = cluster(nodes=2000), FakeClock(step=0.0006)
    work = SlicedWork(clock)
    browser, explainer = (
        BrowseService(index, Settings(), work),
        ExplainService(index.view, Settings(), clock, work=work),
    )
    page = asyncio.create_task(browser.topology(ZONES))
    explanation = asyncio.create_task(explainer.explain("default", "waits"))
    await until(page.done)
    assert not explanation.done()
    assert (await explanation).passing == 2000
