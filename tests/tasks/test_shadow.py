"""What comes of a decision that offload would have made otherwise than the scheduler, and what explains it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from extender.model.answers.shadow import COMPARED
from extender.tasks.shadow import MOST_DIFFERENCES
from extender.verbs.shadow import shadow_compiled
from tests.builders import Json, extender_args, node, pod, pod_json, spread, term
from tests.tasks.shadow_scene import NAMES, Scene, decoded, playing

APART: Json = {"app": "web", "apart": [term("host", app="web")]}
NEAR: Json = {"app": "web", "near": [term("zone", app="db")]}
EVEN: Json = {"app": "web", "spreads": [spread("zone", app="web")]}
AGREED = {"agreed": 1}
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
SKEW = "node(s) didn't match pod topology spread constraints"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with playing() as found:
        yield found


async def test_a_pod_that_is_bound_where_offload_would_let_it_agrees(scene: Scene) -> None:
    await scene.request("a", APART)
    scene.bind("a", APART, "n1")
    await scene.wait(1.0)
    await scene.request("b", APART, "n2", "n3")
    scene.bind("b", APART, "n2")
    await scene.wait(1.0)
    page = scene.page()
    assert (page.compared, page.differ, page.open, scene.results()) == (2, 0, 0, {"agreed": 2})
    rules = {each.rule: each.agreed for each in page.rules}
    assert rules == {"InterPodAffinity": 2, "PodTopologySpread": 0, "Limits": 0}


async def test_a_pod_that_is_bound_where_offload_rejects_it_differs_with_the_counts(scene: Scene) -> None:
    scene.bind("old-1", EVEN, "n1")
    await scene.wait(5.0)
    await scene.request("a", EVEN)
    scene.bind("a", EVEN, "n1")
    await scene.wait(2.0)
    page = scene.page()
    assert (page.compared, page.differ, scene.results()) == (1, 1, {"differed": 1})
    (found,) = page.differences
    assert (found.source, found.namespace, found.pod, found.node, found.bound_to) == (
        "request",
        "default",
        "a",
        "n1",
        "n1",
    )
    assert (found.confirmed, found.rule, found.reason, found.text) == (True, "PodTopologySpread", "spread_skew", SKEW)
    assert (found.domain, found.count, found.limit, found.minimum, found.max_skew) == ("z1", 1, 0, 0, 1)
    assert found.blamed == ("default/old-1",)
    assert {each.rule: each.differed for each in page.rules}["PodTopologySpread"] == 1


async def test_a_difference_that_only_a_request_shows_is_unproven_and_says_how_many_came(scene: Scene) -> None:
    """A forged request names a node that the plugins reject; the scheduler's own does not."""
    scene.bind("old-1", APART, "n1")
    await scene.wait(5.0)
    await scene.request("a", APART, "n1")
    await scene.request("a", APART, "n2", "n3")
    scene.bind("a", APART, "n2")
    await scene.wait(2.0)
    (found,) = scene.page().differences
    assert scene.results() == {"unproven": 1}
    assert (found.confirmed, found.node, found.bound_to, found.requests) == (False, "n1", "n2", 2)


async def test_a_forged_request_hides_no_difference_that_the_binding_shows(scene: Scene) -> None:
    scene.bind("old-1", APART, "n1")
    await scene.wait(5.0)
    await scene.request("a", APART)
    await scene.request("a", APART, "n2", "n3")
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"differed": 1}


async def test_requests_alone_never_count_as_compared(scene: Scene) -> None:
    for _ in range(50):
        await scene.request("a", APART, then=0.1)
    await scene.wait(70.0)
    assert scene.results() == {"unconfirmed": 1}
    await scene.request("b", APART)
    scene.shadow.delete(pod("b", **APART))
    await scene.wait(1.0)
    assert scene.results() == {"unconfirmed": 2}
    assert scene.page().open == 0


async def test_a_pod_that_the_watch_shows_late_explains_a_difference(scene: Scene) -> None:
    await scene.request("a", NEAR, "n1")
    scene.bind("db", {"app": "db"}, "n1")
    await scene.wait(0.5)
    scene.bind("a", NEAR, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"late": 1}


@pytest.mark.parametrize(("before", "result"), [(1.0, "late"), (4.0, "differed")])
async def test_a_deletion_that_the_scheduler_had_not_seen_yet_explains_a_difference(
    scene: Scene, before: float, result: str
) -> None:
    scene.bind("db", {"app": "db"}, "n1")
    await scene.wait(5.0)
    scene.shadow.delete(pod("db", on="n1", app="db"))
    await scene.wait(before)
    await scene.request("a", NEAR, "n1", then=0.2)
    scene.bind("a", NEAR, "n1")
    await scene.wait(2.0)
    assert scene.results() == {result: 1}


@pytest.mark.parametrize(("before", "result"), [(1.0, "late"), (4.0, "differed")])
async def test_a_pod_of_another_scheduler_that_was_bound_just_before_explains_a_difference(
    scene: Scene, before: float, result: str
) -> None:
    scene.bind("other", APART, "n1")
    await scene.wait(before)
    await scene.request("a", APART, "n1", then=0.2)
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == {result: 1}


@pytest.mark.parametrize(("before", "result"), [(1.0, "late"), (4.0, "differed")])
async def test_each_earlier_state_of_a_pod_that_changed_twice_explains_a_difference(
    scene: Scene, before: float, result: str
) -> None:
    """It was bound, and its deletion began: undoing the last change alone leaves it on the node."""
    scene.bind("other", APART, "n1")
    scene.show(pod("other", on="n1", **APART, terminating=True))
    await scene.wait(before)
    await scene.request("a", APART, "n1", then=0.2)
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == {result: 1}


async def test_a_pod_that_the_same_scheduler_placed_before_explains_nothing(scene: Scene) -> None:
    await scene.request("first", APART, "n1", then=0.1)
    scene.bind("first", APART, "n1")
    await scene.wait(0.2)
    await scene.request("a", APART, "n1", then=0.2)
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"agreed": 1, "differed": 1}


async def test_where_an_assumed_pod_may_be_explains_what_offload_would_reject(scene: Scene) -> None:
    await scene.request("first", APART, "n1", "n2", then=0.1)
    await scene.request("a", APART, then=0.1)
    scene.bind("first", APART, "n1")
    scene.bind("a", APART, "n2")
    await scene.wait(2.0)
    assert scene.results() == {"agreed": 1, "assumed": 1}


async def test_an_assumed_pod_that_is_wanted_nearby_may_be_on_the_node(scene: Scene) -> None:
    await scene.request("db", {"app": "db"}, "n1", "n2", then=0.1)
    await scene.request("a", NEAR, "n1", then=0.1)
    scene.bind("db", {"app": "db"}, "n1")
    scene.bind("a", NEAR, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"unconstrained": 1, "assumed": 1}


async def test_a_pod_that_is_assumed_later_may_explain_a_difference_too(scene: Scene) -> None:
    await scene.request("a", NEAR, "n1", then=0.2)
    await scene.request("db", {"app": "db"}, "n1", "n2", then=0.2)
    scene.bind("a", NEAR, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"unconstrained": 1, "late": 1}


@pytest.mark.parametrize("is_bound", [False, True], ids=["before its binding", "after it"])
async def test_a_pod_that_counts_on_its_node_since_a_later_answer_explains_a_difference(
    scene: Scene,
    is_bound: bool,  # noqa: FBT001 (a parameter)
) -> None:
    """A busy machine judges the first request after the answer about the second, which has one node."""
    await scene.request("a", APART, then=0.0)
    if is_bound:
        scene.bind("a", APART, "n1")
    await scene.request("b", APART, "n2", then=0.1)
    if not is_bound:
        scene.bind("a", APART, "n1")
    scene.bind("b", APART, "n2")
    await scene.wait(2.0)
    assert scene.page().differ == 0, scene.page().differences


async def test_a_pod_that_the_same_scheduler_placed_before_counts_before_its_binding_too(scene: Scene) -> None:
    await scene.request("first", APART, "n1", then=0.1)
    await scene.request("a", APART, "n1", then=0.1)
    scene.bind("first", APART, "n1")
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"agreed": 1, "differed": 1}


async def test_a_pod_that_is_bound_before_it_is_judged_does_not_count_for_itself(scene: Scene) -> None:
    await scene.request("a", APART, then=0.0)
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results() == AGREED


async def test_the_terms_of_a_deleted_pod_hold_in_the_states_in_which_it_was_there(scene: Scene) -> None:
    """In one earlier state the pod was wanted nearby, and in all of them another one kept it away."""
    loud: Json = {"app": "loud", "apart": [term("host", app="web")]}
    scene.bind("db", {"app": "db"}, "n1")
    scene.bind("loud", loud, "n1")
    await scene.wait(5.0)
    scene.shadow.delete(pod("db", on="n1", app="db"))
    await scene.wait(0.3)
    scene.shadow.delete(pod("loud", on="n1", **loud))
    await scene.wait(0.3)
    await scene.request("a", NEAR, "n1", then=0.2)
    scene.bind("a", NEAR, "n1")
    await scene.wait(2.0)
    assert scene.results() == {"differed": 1}


async def test_a_relabelled_node_explains_a_difference(scene: Scene) -> None:
    scene.bind("db", {"app": "db"}, "n2")
    await scene.wait(5.0)
    await scene.request("a", NEAR, "n1", then=0.2)
    scene.bind("a", NEAR, "n1")
    scene.show(node("n1", zone="z9"))
    await scene.wait(2.0)
    assert scene.results() == {"late": 1}


async def test_pods_without_constraints_are_distinguished_and_those_above_a_limit_differ(scene: Scene) -> None:
    await scene.request("plain", {})
    scene.bind("plain", {}, "n1")
    many: Json = {"app": "web", "apart": [term(f"example.com/{number}", app="web") for number in range(17)]}
    await scene.request("large", many)
    scene.bind("large", many, "n2")
    await scene.wait(2.0)
    assert scene.results() == {"unconstrained": 1, "differed": 1}
    assert [(each.rule, each.node) for each in scene.page().differences] == [("Limits", "n2")]


async def test_judging_a_pod_that_counts_on_its_node_ends_no_cached_result(scene: Scene) -> None:
    view = scene.index.view
    await scene.request("a", APART, "n1", then=0.0)
    compiled = shadow_compiled(pod("b", **APART), view)
    before = view.dependency_version(compiled), view.placement_version
    await scene.wait(1.0)
    assert (scene.page().open, view.assumed_node("uid-a")) == (1, "n1")
    assert (view.dependency_version(compiled), view.placement_version) == before


async def test_what_comes_faster_than_it_can_be_judged_is_skipped(scene: Scene) -> None:
    for number in range(20):
        scene.show(pod(f"web-{number}", **APART))
    for number in range(20):
        await scene.filter(extender_args(pod_json(f"web-{number}", **APART), *NAMES))
    await scene.wait(0.5)
    assert scene.results()["skipped"] >= 4
    for number in range(20):
        scene.bind(f"web-{number}", APART, "n1")
    await scene.wait(5.0)
    assert sum(scene.results().values()) == 20


async def test_a_pod_of_which_a_request_was_skipped_does_not_count_as_compared(scene: Scene) -> None:
    """Other requests, that may be forged, hide the scheduler's own."""
    scene.show(pod("a", **APART))
    await scene.filter(extender_args(pod_json("a", **APART), *NAMES))
    for number in range(16):
        scene.show(pod(f"plain-{number}"))
        await scene.filter(extender_args(pod_json(f"plain-{number}"), *NAMES))
    await scene.filter(extender_args(pod_json("a", **APART), "n2"))
    await scene.wait(0.5)
    scene.bind("a", APART, "n1")
    await scene.wait(2.0)
    assert scene.results()["unconfirmed"] == 1
    assert scene.page().compared == 0


async def test_a_condition_that_counts_as_our_rules_do_agrees(scene: Scene) -> None:
    scene.bind("old-1", APART, "n1")
    scene.show(node("n3", zone="z3", taints=[{"key": "k", "effect": "NoSchedule"}]))
    scene.bind("old-2", APART, "n2")
    await scene.wait(5.0)
    scene.reject("a", APART, "1 node(s) had untolerated taint(s)", f"2 {ANTI_AFFINITY}")
    await scene.wait(1.0)
    assert scene.results() == AGREED


@pytest.mark.parametrize("counts", [(f"1 {ANTI_AFFINITY}", "2 Insufficient cpu"), (f"3 {ANTI_AFFINITY}",)])
async def test_a_condition_that_counts_otherwise_differs_once_nothing_changes_for_long(
    scene: Scene, counts: tuple[str, ...]
) -> None:
    """Two nodes have such a pod: the scheduler says one, or three."""
    scene.bind("old-1", APART, "n1")
    scene.bind("old-2", APART, "n2")
    await scene.wait(5.0)
    scene.reject("a", APART, *counts)
    await scene.wait(10.0)
    assert (scene.results(), scene.page().open) == ({}, 1)
    await scene.wait(10.0)
    (found,) = scene.page().differences
    assert scene.results() == {"differed": 1}
    assert (found.source, found.confirmed, found.rule) == ("condition", True, "InterPodAffinity")
    assert (found.nodes, found.least, found.most) == (int(counts[0][0]), 2, 2)


@pytest.mark.parametrize("counts", [(f"2 {ANTI_AFFINITY}", "1 Insufficient cpu"), ("3 Insufficient cpu",)])
async def test_where_an_assumed_pod_may_be_both_counts_are_right(scene: Scene, counts: tuple[str, ...]) -> None:
    await scene.request("first", APART, "n1", "n2", then=0.1)
    scene.reject("a", APART, *counts)
    await scene.wait(0.5)
    assert scene.results() == AGREED


async def test_rejections_of_plugins_that_we_do_not_know_may_be_of_any_node(scene: Scene) -> None:
    scene.bind("old-1", APART, "n1")
    await scene.wait(5.0)
    scene.reject("a", APART, "3 node(s) didn't find available persistent volumes to bind")
    await scene.wait(1.0)
    assert scene.results() == AGREED


async def test_a_condition_that_a_later_event_explains_is_late(scene: Scene) -> None:
    scene.reject("a", APART, f"1 {ANTI_AFFINITY}", "2 Insufficient cpu")
    await scene.wait(2.0)
    scene.bind("old-1", APART, "n1")
    await scene.wait(1.0)
    assert scene.results() == {"late": 1}


async def test_a_condition_that_the_scheduler_takes_back_shows_nothing(scene: Scene) -> None:
    scene.reject("a", APART, f"1 {ANTI_AFFINITY}", "2 Insufficient cpu")
    await scene.wait(2.0)
    scene.bind("a", APART, "n1")
    await scene.wait(1.0)
    assert scene.results() == {"unconfirmed": 1}


async def test_a_nominated_pod_may_be_why_a_node_is_rejected(scene: Scene) -> None:
    scene.show(pod("other", **APART))
    nominated = pod_json("other", **APART) | {"status": {"nominatedNodeName": "n1"}}
    scene.show(decoded(nominated))
    await scene.wait(5.0)
    scene.reject("a", APART, f"1 {ANTI_AFFINITY}", "2 Insufficient cpu")
    await scene.wait(20.0)
    assert scene.results() == AGREED


async def test_differences_are_bounded_and_the_latest_comes_first(scene: Scene) -> None:
    scene.bind("old-1", APART, "n1")
    await scene.wait(5.0)
    for number in range(MOST_DIFFERENCES + 5):
        await scene.request(f"web-{number}", APART, "n1", then=0.05)
        scene.bind(f"web-{number}", APART, "n1")
        await scene.wait(0.05)
    await scene.wait(3.0)
    page = scene.shadow.page(1000)
    assert (page.differ, len(page.differences)) == (MOST_DIFFERENCES + 5, MOST_DIFFERENCES)
    assert page.differences[0].pod == f"web-{MOST_DIFFERENCES + 4}"
    assert [each.pod for each in scene.shadow.page(2).differences] == [each.pod for each in page.differences[:2]]


async def test_nothing_is_noted_while_another_replica_leads() -> None:
    scene = Scene()
    scene.show(node_object := node("n1"))
    await scene.request("a", APART, node_object.name, then=0.0)
    scene.reject("b", APART, f"1 {ANTI_AFFINITY}", nodes=1)
    assert (scene.page().open, scene.results()) == (0, {})


def test_every_compared_result_is_a_column_of_the_page() -> None:
    rules = Scene().page().rules
    assert all(getattr(each, result) == 0 for each in rules for result in COMPARED)
