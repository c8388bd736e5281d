"""How many pods have no node, by reason and scheduler, for metrics."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from extender.model.bounded import at_once
from extender.model.objects import Pod
from extender.model.rejections import Reason
from extender.verbs.browse.pending import OTHERS, PendingPods, measure_pending, reason_of
from tests.builders import index_of
from tests.builders import pod as built

SAYS = "Unschedulable: 0/9 nodes are available: "
SKEW, ZONE = Reason.SPREAD_SKEW.text, Reason.SPREAD_LABEL_MISSING.text


def pod(name: str, on: str = "", **fields: Any) -> Pod:
    return structs.replace(built(name, on=on), **fields)


def measured(*pods: Pod, assumed: tuple[str, ...] = ()) -> PendingPods:
    return at_once(measure_pending(index_of(*pods).view, assumed))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "not_tried"),
        (f"{SAYS}2 Insufficient cpu, 7 node(s) didn't match pod anti-affinity rules.", "anti_affinity"),
        (f"{SAYS}8 Insufficient cpu, 1 {SKEW}.", "no_room"),
        (f"{SAYS}1 {SKEW}, 8 {ZONE}. preemption: 0/9 nodes are available: 9 Insufficient cpu", "spread_label_missing"),
        (f"{SAYS}9 node(s) had untolerated taint {{a: b}}.", "taint"),
        (f"{SAYS}3 node(s) had volume node affinity conflict, 1 Insufficient memory", "volumes"),
        ("SchedulerError: running Bind plugin: timeout", "scheduler_error"),
        (f"{SAYS}9 node(s) pleased no plugin of ours.", "other"),
        (f"{SAYS}{'9' * 400} Insufficient cpu", "no_room"),
    ],
)
def test_the_reason_is_what_most_nodes_have(said: str, reason: str) -> None:
    assert reason_of(said) == reason


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_of_the_extender_is_read_from_the_text_of_the_scheduler(reason: Reason) -> None:
    assert reason_of(f"{SAYS}9 {reason.text}.") == reason.label


def test_pods_without_a_node_are_counted_by_reason_and_scheduler_with_the_age_of_the_oldest() -> None:
    said = f"{SAYS}9 {SKEW}."
    found = measured(
        pod("bound", on="n1", created="2026-11-20T10:00:00Z"),
        pod("a", rejection=said, created="2026-11-20T12:00:30Z"),
        pod("b", rejection=said, created="2026-11-20T12:00:00Z"),
        pod("c", rejection=said, created="", scheduler="batch"),
        pod("d", gated=True, created="2026-11-20T12:01:00Z"),
        (placed := pod("e", created="2026-11-20T12:01:00Z")),
        assumed=(placed.uid,),
    )
    skew = ("spread_skew", "default-scheduler")
    gated, assumed = ("gated", "default-scheduler"), ("assumed", "default-scheduler")
    none = ("not_tried", OTHERS)
    assert found.counts == {skew: 2, ("spread_skew", "batch"): 1, gated: 1, assumed: 1, none: 0}
    begun = found.oldest[skew]
    assert found.ages(begun + 90) == {skew: 90, gated: 30, assumed: 30, none: 0}
    assert found.ages(begun - 5)[skew] == 0  # the clock of the API server is ahead


def test_schedulers_beyond_the_32_with_most_pods_are_counted_together() -> None:
    many = [pod(f"{name}-{number}", scheduler=f"s{name}") for name in range(32) for number in range(2)]
    few = [pod(f"few-{name}", scheduler=f"t{name}", created="2026-11-20T12:00:00Z") for name in range(9)]
    found = measured(*many, *few)
    assert len(found.counts) == 33
    assert found.counts["not_tried", OTHERS] == 9
    assert set(found.oldest) == {("not_tried", OTHERS)}  # the others do not say when they were created


def test_no_pending_pods_are_reported_as_none() -> None:
    assert measured() == PendingPods()
    assert measured().counts == measured().ages(0.0) == {("not_tried", OTHERS): 0}
