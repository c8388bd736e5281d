"""Explanations on request: in slices of a bounded length, one at a time, within a budget."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator
from datetime import UTC, datetime

import orjson
import pytest
from msgspec import structs

from extender.index.audit import audit
from extender.model.answers.explanations import HeldGroup, NoAnswerCause, NotExplained
from extender.model.answers.pages import PageOf, PendingQuestion, TopologyQuestion
from extender.model.constraints.labels import ZONE
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.policies import EXEMPT_LABEL, InvalidPolicy, PolicyKey, PolicyObject
from extender.model.preemption import PreemptionPlan
from extender.model.release import RELEASE_GATE, GroupKey, GroupPhase, GroupSize, Level
from extender.settings.configuration import Settings
from extender.tasks import browse_service, sliced_work
from extender.tasks.browse_service import MOST_EXPLANATIONS, MOST_PAGES, ExplainService, overview_of
from extender.tasks.index_upkeep import EVERY_SECONDS, FIGURE_PAUSE_SECONDS, SlicedFigure
from extender.tasks.preemption.manager import PreemptionPhase, PreemptionRecord
from extender.tasks.sliced_work import Places, SlicedWork, Traffic
from extender.wire.objects.kinds import NAMESPACES, NODES
from tests.builders import index_of, node, pod, spread, term
from tests.contenders import contender
from tests.fakes import PATIENCE, FakeClock, until
from tests.gangs import gated, release_policy
from tests.policies import policy
from tests.tasks.explaining import APART, browsed_cluster, browsing, cluster, counted, failing, refusing, service, steps


async def test_a_manifest_is_what_a_what_if_takes_in_place_of_the_object() -> None:
    index = browsed_cluster()
    browser = browsing(index)
    for name in index.view.known:
        number = index.view.known[name]
        body = orjson.dumps(await browser.manifest("Node", name))
        assert NODES.decode_object(body) == index.view.node(number)
    for name, known in index.view.namespaces.items():
        assert NAMESPACES.decode_object(orjson.dumps(await browser.manifest("Namespace", name))) == known
    for kind in ("Node", "Namespace"):
        with pytest.raises(NotExplained, match=f"{kind} none is not known"):
            await browser.manifest(kind, "none")


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
    assert error.value.cause is NoAnswerCause.UNKNOWN
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


async def test_the_loop_is_free_between_slices_and_a_change_in_between_is_reported() -> None:
    """By this clock each look at the time takes 0.6 ms, so that a slice is one step."""
    index, clock = cluster(nodes=600), FakeClock(step=0.0006)
    requested = asyncio.create_task(service(index, clock).explain("default", "asking"))
    await until(lambda: clock.slept)
    index.delete(index.pods["uid-on-n1"])
    found = await requested
    assert found.is_changed
    assert len(clock.slept) >= 5
    assert set(clock.slept) == {0.003}
    assert audit(index) == []


async def test_an_explanation_beyond_its_budget_ends_and_says_why() -> None:
    with pytest.raises(NotExplained, match="more than 1 s") as error:
        await service(cluster(), FakeClock(step=0.6)).explain("default", "asking")
    assert error.value.cause is NoAnswerCause.TOO_EXPENSIVE


async def test_few_explanations_wait_and_one_more_is_refused() -> None:
    explainer = service(cluster(nodes=600), FakeClock(step=0.0006))
    waiting = [asyncio.create_task(explainer.explain("default", "asking")) for _ in range(MOST_EXPLANATIONS)]
    await asyncio.sleep(0)
    with pytest.raises(NotExplained) as error:
        await explainer.explain("default", "asking")
    assert error.value.cause is NoAnswerCause.BUSY
    assert {found.passing for found in await asyncio.gather(*waiting)} == {0}
    assert (await explainer.explain("default", "asking")).passing == 0


async def test_a_client_that_goes_away_gives_its_turn_to_the_next() -> None:
    explainer = service(cluster(nodes=600), FakeClock(step=0.0006))
    first, second = (asyncio.create_task(explainer.explain("default", "asking")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).passing == 0


# -- Work for people is done in slices, counted by what became of it, and gives way to requests of the scheduler -------


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


async def test_a_slice_begins_once_no_request_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(step=0.001)
    traffic, done = Traffic(clock), list[str]()
    work = SlicedWork(clock, traffic)
    traffic.begin()
    traffic.begin()
    with monkeypatch.context() as patched:
        # A slice waits 10 ms of real time for an answer. A busy machine may take longer for the steps below.
        patched.setattr(sliced_work, "_LONGEST_WAIT", PATIENCE)
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


# -- Pages of the cluster: in slices between other work, few at a time, and with what other parts know -----------------

ZONES = TopologyQuestion("topology.kubernetes.io/zone", PageOf())


async def test_figures_count_each_pod_in_its_state() -> None:
    index = browsed_cluster()
    index.assume(index.pods["uid-passed"], ["n0"], 0.0)
    found = await browsing(index).figures()
    assert (found.nodes, found.pods, found.namespaces) == (2, 5, 1)
    assert (found.pending, found.gated, found.assumed, found.preemptions_in_flight) == (1, 1, 1, 0)
    assert {each.key: each.domains for each in found.topology_keys}["topology.kubernetes.io/zone"] == 2


async def test_topology_keys_follow_the_nodes() -> None:
    index = browsed_cluster()
    browser = browsing(index)
    before = (await browser.figures()).topology_keys
    assert (await browser.figures()).topology_keys is before, "computed again although no node has changed"
    index.upsert(node("n2", zone="z2"))
    assert (await browser.figures()).topology_keys[0].domains == 3


async def test_a_pod_without_a_node_has_its_state() -> None:
    index = browsed_cluster()
    index.assume(index.pods["uid-passed"], ["n0"], 0.0)
    index.nominate_in_memory(index.pods["uid-waits"], "n0", {"uid-placed"})
    page = await browsing(index).pending(PendingQuestion())
    assert {row.pod: (row.state, row.nominated_node) for row in page.pods} == {
        "waits": ("preempting", "n0"),
        "passed": ("assumed", ""),
        "held": ("gated", ""),
        "leaving": ("terminating", ""),
    }


async def test_rows_are_no_concern_of_the_garbage_collector() -> None:
    """A page has hundreds, and a collection in between holds up requests of the scheduler."""
    page = await browsing(browsed_cluster()).pending(PendingQuestion())
    assert page.pods
    assert not any(map(gc.is_tracked, page.pods))


async def test_a_pod_that_is_not_known_is_named() -> None:
    with pytest.raises(NotExplained, match="pod default/none is not known") as error:
        await browsing(browsed_cluster()).constraints("default", "none")
    assert error.value.cause is NoAnswerCause.UNKNOWN


async def test_constraints_of_a_pod_on_a_node_are_those_of_a_further_replica() -> None:
    index = browsed_cluster()
    index.upsert(pod("web-0", on="n0", app="web", spreads=[spread("zone", app="web")]))
    page = await browsing(index).constraints("default", "web-0")
    (state,) = page.constraints
    assert (page.pod, page.node, state.minimum, state.limit, page.is_changed) == ("default/web-0", "n0", 0, 0, False)
    assert [(each.domain, each.count, each.passes) for each in state.domains] == [("z0", 1, False), ("z1", 0, True)]


async def test_up_to_200_domains_of_a_constraint_are_shown() -> None:
    index = index_of(*(node(f"n{at}") for at in range(203)))
    index.upsert(pod("web-0", on="n0", app="web", apart=[term("host", app="web")]))
    page = await browsing(index).constraints("default", "web-0")
    own = next(state for state in page.constraints if state.kind == "podAntiAffinity")
    assert (own.domains[0].domain, own.domains[0].pods) == ("n0", ("default/web-0",))
    assert (len(own.domains), own.more_domains) == (200, 3)


async def test_the_loop_is_free_between_slices() -> None:
    """By this clock each look at the time takes 0.6 ms, so that a slice is one step."""
    clock = FakeClock(step=0.0006)
    page = await browsing(browsed_cluster(nodes=2000), clock).topology(ZONES)
    assert [(row.domain, row.nodes) for row in page.domains] == [("z0", 1000), ("z1", 1000)]
    assert len(clock.slept) >= 5
    assert set(clock.slept) == {0.003}


async def test_few_pages_wait_and_one_more_is_refused() -> None:
    browser = browsing(browsed_cluster(nodes=2000), FakeClock(step=0.0006))
    waiting = [asyncio.create_task(browser.topology(ZONES)) for _ in range(MOST_PAGES)]
    await asyncio.sleep(0)
    with pytest.raises(NotExplained) as error:
        await browser.pending(PendingQuestion())
    assert error.value.cause is NoAnswerCause.BUSY
    overview = asyncio.create_task(browser.figures())
    assert {page.lacking for page in await asyncio.gather(*waiting)} == {0}
    assert (await overview).nodes == 2000
    assert (await browser.pending(PendingQuestion())).more == 0


async def test_a_page_beyond_its_budget_ends_and_says_why() -> None:
    with pytest.raises(NotExplained, match="the page would take more than 2 s") as error:
        await browsing(browsed_cluster(nodes=2000), FakeClock(step=1.1)).topology(ZONES)
    assert error.value.cause is NoAnswerCause.TOO_EXPENSIVE


async def test_pages_and_explanations_are_computed_one_after_the_other() -> None:
    index, clock = browsed_cluster(nodes=2000), FakeClock(step=0.0006)
    work = SlicedWork(clock)
    browser, explainer = (
        browsing(index, clock, work=work),
        ExplainService(index.view, Settings(), clock, work=work),
    )
    page = asyncio.create_task(browser.topology(ZONES))
    explanation = asyncio.create_task(explainer.explain("default", "waits"))
    await until(page.done)
    assert not explanation.done()
    assert (await explanation).passing == 2000


async def test_preemptions_show_their_victims_the_longest_first() -> None:
    index, clock = browsed_cluster(), FakeClock()
    victims = [contender(f"victim-{at:02}", on="n0") for at in range(52)]
    for each in (*victims[1:], structs.replace(victims[1], terminating=True)):
        index.upsert(each)
    incoming, other = contender("asking", priority=100), contender("other", namespace="shop")
    records = [
        PreemptionRecord(PreemptionPlan(other, "n1", tuple(victims[2:3])), clock.time - 60, clock.time),
        PreemptionRecord(
            PreemptionPlan(incoming, "n0", tuple(victims), pdb_violations=2),
            clock.time - 90,
            clock.time,
            PreemptionPhase.UNBOUND,
        ),
    ]
    browser = browsing(index, clock, records)
    first, second = (await browser.preemptions(PageOf())).preemptions
    assert (first.pod, first.node, first.state) == ("default/asking", "n0", "preemptor unbound")
    assert first.since == "2026-01-01T00:08:30Z"
    assert [each.state for each in first.victims[:3]] == ["gone", "terminating", "running"]
    assert (len(first.victims), first.more_victims, first.pdb_violations, first.priority) == (50, 2, 2, 100)
    assert (second.pod, second.state) == ("shop/other", "executing")
    assert [each.pod for each in (await browser.preemptions(PageOf("shop"))).preemptions] == ["shop/other"]
    assert (await browser.figures()).preemptions_in_flight == 2


async def test_groups_in_flight_say_how_far_they_are_and_why_they_wait() -> None:
    index = index_of(node("n1", zone="z1"), PolicyObject(release_policy(size=GroupSize(count=2))))
    for each in (gated("a-0", "a"), gated("b-0", "b", on="n1", released="b"), gated("b-1", "b", released="b")):
        index.upsert(each)
    for name in ("c-0", "c-1"):
        index.upsert(gated(name, "c", on="n1", released="c"))
    waiting, released = (await browsing(index).groups(PageOf())).groups
    assert (waiting.key, waiting.state, waiting.text) == ("a", "Collecting", "1 of 2 pods exists")
    assert (waiting.pods, waiting.needed, waiting.gated, waiting.released, waiting.bound) == (1, 2, 1, 0, 0)
    assert (waiting.policy, waiting.since) == ("ClusterPodSchedulingPolicy/gangs", "2026-01-01T00:00:00Z")
    assert (released.key, released.gated, released.released, released.bound) == ("b", 0, 2, 1)
    assert (await browsing(index).figures()).groups_in_flight == 2
    assert (await browsing(index).groups(PageOf("other"))).groups == ()


async def test_a_large_group_is_shown_as_the_leader_describes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse_service, "_MOST_GROUPED", 2)
    index = index_of(node("n1"), PolicyObject(release_policy(size=GroupSize(count=4))))
    for each in (
        *(gated(f"a-{at}", "a") for at in range(2)),
        gated("a-2", "a", on="n1", released="a"),
        gated("a-3", "a", terminating=True),
    ):
        index.upsert(each)
    (row,) = (await browsing(index).groups(PageOf())).groups
    assert (row.pods, row.needed, row.gated, row.released, row.bound) == (3, 4, 2, 1, 1)
    assert row.text == "the leader has written no status of this group yet"
    key = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "a")
    status = PlacementStatus(GroupPhase.DEGRADED, 3, 1, 1, "DomainFull", "z1 holds 2 of 3")
    index.upsert(GroupPlacement(placement_name(key), "u", key, levels=(Level("zone", "z1"),), status=status))
    (row,) = (await browsing(index).groups(PageOf())).groups
    assert (row.state, row.domain, row.reason, row.text) == ("Degraded", "zone=z1", "DomainFull", "z1 holds 2 of 3")


async def test_a_gated_pod_is_explained_in_the_domain_of_its_group_and_with_what_the_group_waits_for() -> None:
    key = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "a")
    text = "1 more than the size waits"
    status = PlacementStatus(GroupPhase.DEGRADED, 2, 1, 1, "DomainFull", text)
    decided = datetime(2026, 1, 1, tzinfo=UTC)
    index = index_of(
        *(node(f"n{at}", zone=f"z{at % 2}", allocatable={"cpu": "4", "pods": "9"}) for at in range(6)),
        PolicyObject(release_policy()),
        GroupPlacement(placement_name(key), "u", key, levels=(Level(ZONE, "z1"),), decided=decided, status=status),
        gated("a-0", "a", on="n1", released="a"),
        gated("a-1", "a"),
        gated("alone", gates=("example.com/other",)),
    )
    browser = ExplainService(
        index.view, Settings(), FakeClock(), group_of=lambda _uid: overview_of(index, index.gated.groups[key])
    )
    await service(index).explain("default", "alone")
    before = index.statistics()
    found = await browser.explain("default", "a-1")
    assert (found.state, found.gates, found.nodes, found.fitting) == ("gated", (RELEASE_GATE,), 6, 3)
    assert set(found.candidates) == {"n1", "n3", "n5"}
    assert found.group == HeldGroup(
        policy=key.policy, group="a", state="Degraded", domain=f"{ZONE}=z1", reason="DomainFull", text=text
    )
    assert index.statistics() == before
    assert audit(index) == []
    alone = await service(index).explain("default", "alone")
    assert (alone.state, alone.gates, alone.group, alone.fitting) == ("gated", ("example.com/other",), None, 6)


async def test_policies_show_whom_they_select_and_what_they_direct() -> None:
    web = policy(
        "web", "default", podSelector={"matchLabels": {"app": "web"}}, nodeSelector={"pool": "fast"}, priority=7
    )
    index = index_of(PolicyObject(web), PolicyObject(policy("all", tolerations=[{"operator": "Exists"}])), node("n1"))
    index.upsert(PolicyObject(InvalidPolicy(PolicyKey("placement.extender.dev", "", "broken"), ("spec.x: unknown",))))
    for each in (
        pod("web-0", on="n1", app="web"),
        pod("web-1", app="web"),
        pod("db", on="n1", app="db"),
        pod("own", on="n1", labels={EXEMPT_LABEL: "true"}, app="web"),
        pod("dns", on="n1", namespace="kube-system", app="web"),
    ):
        index.upsert(each)
    everything, broken, own = (await browsing(index).policies(PageOf())).policies
    assert (own.kind, own.namespace, own.name, own.valid) == ("PodSchedulingPolicy", "default", "web", True)
    assert (own.matched, own.mode, own.moments, own.priority) == (2, "Enforce", ("Admission", "Scheduling"), 7)
    assert (own.directives, own.examples) == (("nodeSelector pool=fast",), ("default/web-0",))
    assert (everything.matched, everything.directives) == (3, ("tolerations: 1",))
    assert (broken.name, broken.valid, broken.problem, broken.matched) == ("broken", False, "spec.x: unknown", 0)
    assert [each.name for each in (await browsing(index).policies(PageOf("default"))).policies] == ["web"]
