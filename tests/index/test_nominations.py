"""Which pod is to come to which node: nominations of the status, promises of plans, and when either ends."""

from __future__ import annotations

from itertools import pairwise

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from tests.contenders import cluster, contender, names, stage


def to_come(held: ClusterIndex) -> dict[str, list[str]]:
    return {node: names(pods) for node, pods in held.view.nominated.items()}


def waiting(nominated: str = "", **fields: object) -> Pod:
    return contender("a", nominated=nominated, **fields)


def test_a_nominated_pod_is_to_come_until_it_has_a_node() -> None:
    held = cluster(stage(), waiting("n1"))
    seen = [to_come(held)]
    held.upsert(waiting("n1", on="n1"))
    seen.append(to_come(held))
    assert seen == [{"n1": ["a"]}, {}]


def test_a_nomination_moves_and_leaves_nothing_behind() -> None:
    held = cluster(waiting("n1"))
    seen = []
    for node in ("n2", ""):
        held.upsert(waiting(node))
        seen.append(to_come(held))
    held.delete(waiting())
    assert seen == [{"n2": ["a"]}, {}]
    assert held.nominations._node_of == {}


def test_a_pod_that_is_going_or_finished_is_not_to_come() -> None:
    assert to_come(cluster(waiting("n1", terminating=True))) == {}
    assert to_come(cluster(waiting("n1", phase="Failed"))) == {}


def test_a_promise_counts_before_the_status_says_so_and_wins_over_an_older_nomination() -> None:
    held = cluster(waiting("n1"))
    held.upsert(contender("victim", on="n2"))
    held.nominate_in_memory(waiting("n1"), "n2", ["uid-victim"])
    promised = held.view.uncleared_node("uid-a"), to_come(held)
    held.upsert(waiting("n1", labels={"changed": "yes"}))
    assert (promised, to_come(held)) == (("n2", {"n2": ["a"]}), {"n2": ["a"]})


def test_a_withdrawn_promise_leaves_what_the_status_says() -> None:
    held = cluster(waiting("n1"))
    held.nominate_in_memory(waiting(), "n2", ())
    held.release_nomination("uid-a")
    assert to_come(held) == {"n1": ["a"]}


def test_a_plan_is_known_until_it_is_forgotten() -> None:
    held = cluster(waiting())
    held.nominate_in_memory(waiting(), "n2", ())
    held.release_nomination("uid-a")
    seen = [held.view.plan_node("uid-a"), held.view.plan_node("uid-b")]
    held.end_nomination("uid-a")
    assert [*seen, held.view.plan_node("uid-a"), to_come(held)] == ["n2", "", "", {}]


def test_the_promised_node_is_awaited_while_a_victim_is_still_there() -> None:
    held = cluster(contender("v1", on="n2"), contender("v2", on="n2"))
    held.nominate_in_memory(waiting(), "n2", ["uid-v1", "uid-v2"])
    seen = []
    for victim in ("v1", "v2"):
        seen.append(held.view.uncleared_node("uid-a"))
        held.delete(contender(victim))
    assert [*seen, held.view.uncleared_node("uid-a"), held.view.uncleared_node("uid-b")] == ["n2", "n2", "", ""]


def test_the_victims_of_every_promise_of_a_node_are_leaving_it_until_they_are_gone() -> None:
    held = cluster(*(contender(name, on="n2") for name in ("v1", "v2", "stays")))
    held.nominate_in_memory(waiting(), "n2", ["uid-v1"])
    held.nominate_in_memory(contender("b"), "n2", ["uid-v1", "uid-v2"])
    held.nominate_in_memory(contender("c"), "n1", ["uid-stays"])
    seen = [sorted(each.name for each in held.view.leaving("n2"))]
    held.delete(contender("v1"))
    seen.append([each.name for each in held.view.leaving("n2")])
    held.end_nomination("uid-b")
    assert [*seen, held.view.leaving("n2")] == [["v1", "v2"], ["v2"], []]


def test_a_promise_to_a_pod_that_the_watch_has_not_shown_counts_at_once() -> None:
    held = cluster()
    held.nominate_in_memory(waiting(), "n2", ())
    seen = [to_come(held)]
    held.release_nomination("uid-a")
    assert [*seen, to_come(held)] == [{"n2": ["a"]}, {}]


def test_a_promise_to_a_pod_that_has_gone_or_got_a_node_does_not_count() -> None:
    held = cluster(waiting())
    held.nominate_in_memory(waiting(), "n2", ())
    held.upsert(waiting(on="n3"))
    placed = to_come(held)
    held.delete(waiting())
    assert (placed, to_come(held)) == ({}, {})


def test_claims_have_a_new_version_whenever_they_change_and_only_then() -> None:
    held = cluster()
    versions = [held.view.claims_version]
    for step in (waiting(), waiting("n1"), waiting("n1"), waiting("n2"), waiting("n2", on="n2")):
        held.upsert(step)
        versions.append(held.view.claims_version)
    assert [later - earlier for earlier, later in pairwise(versions)] == [0, 1, 0, 1, 1]


def test_pods_are_outranked_while_one_of_lower_priority_stands_somewhere() -> None:
    held = cluster(contender("low", on="n1", priority=5), contender("waiting", priority=1))
    assert [held.view.has_below(priority) for priority in (5, 6)] == [False, True]
    held.delete(contender("low"))
    assert not held.view.has_below(1000)
