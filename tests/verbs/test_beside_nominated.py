"""Preemption beside pods that are nominated to other nodes: they count there, and only those that go first."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.preemption import PreemptionPlan
from extender.rules.topology_spread import spread_groups
from extender.verbs.preempt import PreemptionDecision, decide_preemption
from tests.builders import Json, preempting, settings, spread, term
from tests.contenders import cluster, contender, contender_json, stage

EXECUTE = settings(preemption={"mode": "execute"})
URGENT: Json = {"priority": 1000, "cpu": 4000, "app": "urgent"}
SPREAD: Json = {"spreads": [spread("zone", 1, app="urgent")]}
APART: Json = {"apart": [term("zone", app="urgent")]}
ZONES = ("a", "b", "c")


def full(*nominated: Json) -> ClusterIndex:
    """A node in each of three zones, each full with one lesser pod, and pods that are nominated."""
    nodes = [stage(f"n-{zone}", zone) for zone in ZONES]
    lesser = [contender(f"low-{zone}", on=f"n-{zone}", cpu=4000) for zone in ZONES]
    return cluster(*nodes, *lesser, *(contender(f"first-{at}", **each) for at, each in enumerate(nominated)))


def decide(index: ClusterIndex, seed: int, **constraints: Any) -> PreemptionDecision:
    """What becomes of one more urgent pod to which the scheduler offers every node."""
    index.upsert(contender("next", **URGENT, **constraints))
    offers = {f"n-{zone}": [f"uid-low-{zone}"] for zone in ZONES}
    return decide_preemption(
        preempting(contender_json("next", **URGENT, **constraints), offers), index.view, EXECUTE, seed
    )


def nodes_of(index: ClusterIndex, **constraints: Any) -> set[str]:
    """The nodes that are chosen, whatever the seed."""
    plans: list[PreemptionPlan | None] = [decide(index, seed, **constraints).plan for seed in range(12)]
    return {each.node for each in plans if each is not None}


@pytest.mark.parametrize("constraints", [SPREAD, APART], ids=["spread", "anti-affinity"])
def test_a_zone_that_is_promised_to_another_pod_is_not_chosen(constraints: Json) -> None:
    index = full(URGENT | constraints | {"nominated": "n-a"})
    assert nodes_of(index, **constraints) == {"n-b", "n-c"}


@pytest.mark.parametrize("constraints", [SPREAD, APART], ids=["spread", "anti-affinity"])
def test_nor_is_another_node_of_that_zone(constraints: Json) -> None:
    """On its own node a nominated pod counts in tree as well; elsewhere in the zone only here."""
    index = full(URGENT | constraints | {"nominated": "n-beside"})
    index.upsert(stage("n-beside", "a"))
    index.upsert(contender("low-beside", on="n-beside", cpu=4000))
    assert nodes_of(index, **constraints) == {"n-b", "n-c"}


def test_nominated_pods_that_keep_the_pod_out_count_although_it_asks_for_nothing_itself() -> None:
    assert nodes_of(full(URGENT | APART | {"nominated": "n-a"})) == {"n-b", "n-c"}


def test_a_pod_of_lower_priority_keeps_its_zone_from_no_other() -> None:
    index = full(URGENT | SPREAD | {"nominated": "n-a", "priority": 999})
    assert nodes_of(index, **SPREAD) == {"n-a", "n-b", "n-c"}


def test_where_no_zone_is_left_nothing_is_removed_and_the_scheduler_is_to_ask_again() -> None:
    index = full(*(URGENT | APART | {"nominated": f"n-{zone}"} for zone in ZONES))
    assert decide(index, 0, **APART) == PreemptionDecision(requeue=True)


def test_a_node_that_passes_only_if_a_nominated_pod_comes_is_not_chosen() -> None:
    """With one pod in a and two on their way to b and c the skew allows a second one in a; without them it does not."""
    index = full(*(URGENT | SPREAD | {"nominated": f"n-{zone}"} for zone in "bc"))
    index.upsert(contender("there", on="n-a", priority=1000, app="urgent"))
    assert "n-a" not in nodes_of(index, **SPREAD)


def test_the_counts_are_as_they_were() -> None:
    index = full(URGENT | SPREAD | {"nominated": "n-a"})
    first = decide(index, 3, **SPREAD)
    assert decide(index, 3, **SPREAD) == first
    compiled = index.view.compiled(index.pods["uid-next"].signature)
    assert [dict(ask.group.counts) for ask in spread_groups(compiled).hard] == [{}]
