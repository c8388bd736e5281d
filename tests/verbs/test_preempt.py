"""The preempt verb: what is answered, what is planned, and how much of that needs a dry run."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.release import GroupKey, Slot
from extender.settings.configuration import default_settings
from extender.verbs.preempt import PreemptionDecision, decide_preemption
from tests.builders import Json, preempting, settings, spread, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.verbs.dry_runs import IMPORTANT, node_and_victims
from tests.verbs.preempting import (
    EXECUTE,
    FULL,
    LARGE,
    URGENT,
    ZONES,
    Offers,
    chosen,
    decide,
    decide_next,
    full,
    nodes_of,
)

ADVISE, OFF = (settings(preemption={"mode": mode}) for mode in ("advise", "off"))
LONELY = contender_json("asking", priority=IMPORTANT, apart=[term("host", app="web")])
LARGE_LONELY = contender_json("asking", priority=IMPORTANT, cpu=2000, apart=[term("host", app="web")])


BOTH = {"n1": ["a"], "n2": ["b"]}
ON_N1 = {"n1": ["a"]}
GUARDED = [*FULL[:3], contender("b", on="n2", cpu=4000, priority=3, app="db"), budget(app="db")]
WEB, OTHER = (
    contender("web", on="n1", cpu=2000, app="web", priority=5),
    contender("other", on="n1", cpu=2000, priority=3),
)
EQUAL = [stage("n1"), stage("n2"), *(contender(name, on=node, cpu=4000) for name, node in (("a", "n1"), ("b", "n2")))]
GHOST = contender("ghost", on="n1", cpu=4000)
BOUND = contender("bound", on="n1", app="web", priority=2)
SMALL_WAITS, WAITS = contender("waits", app="web", priority=1), contender("waits", cpu=4000, priority=1)
HALVES = [stage("n1"), *(contender(f"p{number}", on="n1", cpu=1000, minute=number) for number in range(4))]
QUARTERS = [stage("n1"), *(contender(f"p{number}", on="n1", cpu=1000, app="db") for number in range(4))]
PROTECTED = [
    *(stage("n1"), contender("guarded", on="n1", cpu=2000, app="db"), budget(app="db")),
    contender("free", on="n1", cpu=2000, priority=3),
]
TAKEN = contender("rival", cpu=4000, priority=IMPORTANT, nominated="n1")
TAINTED = stage("n2", taints=[{"key": "gpu", "effect": "NoSchedule"}])
IDLE = contender("idle", on="n1", priority=-5)
CROWD = contender("crowd", on="n2", cpu=4000, priority=IMPORTANT)
BLOCKING = contender("web", on="n1", app="web")
UNREADABLE = {"matchLabels": {"a": "b c"}}
NOTHING, NEXT = PreemptionDecision(), PreemptionDecision(requeue=True)


def incoming(**fields: Any) -> Json:
    """The preemptor of two CPU, unless the fields say otherwise."""
    return contender_json("asking", **{"priority": IMPORTANT, "cpu": 2000} | fields)


# What the scheduler offers, the cluster, more about the request, and the plan: its node and victims.
EXECUTED: dict[str, tuple[Offers, list[Any], Json, tuple[str, list[str]] | PreemptionDecision]] = {
    "the least important victims": (BOTH, FULL, {}, ("n2", ["b"])),
    "a budget that only the request names": (BOTH, GUARDED, {"violations": 1}, ("n1", ["a"])),
    "equal nodes, by seed 0": (BOTH, EQUAL, {"seed": 0}, ("n1", ["a"])),
    "equal nodes, by seed 1": (BOTH, EQUAL, {"seed": 1}, ("n2", ["b"])),
    "one of ours makes the scheduler's needless": (
        {"n1": ["other"]}, [stage(), WEB, OTHER], {"pod": LARGE_LONELY}, ("n1", ["web"]),
    ),
    "it goes where needs are unseen": (
        {"n1": ["other"]}, [stage(), WEB, OTHER],
        {"pod": LARGE_LONELY | {"spec": LARGE_LONELY["spec"] | {"resourceClaims": [{"name": "gpu"}]}}},
        ("n1", ["web", "other"]),
    ),
    "no victims are needed": ({"n1": []}, [stage()], {"pod": LONELY}, NOTHING),
    "a plan runs": (BOTH, FULL, {"planned": "n1"}, NOTHING),
    "our victim still terminates": (
        ON_N1, [*FULL, contender("going", on="n1", terminating=True, preempted=True)],
        {"pod": incoming(nominated="n1")}, NOTHING,
    ),
    "another pod terminates": (
        ON_N1, [*FULL, contender("going", on="n1", terminating=True)], {"pod": incoming(nominated="n1")}, ("n1", ["a"]),
    ),
    # The victim is deleted, and only the scheduler does not know yet that its room is free.
    "the room of the plan is free": (
        {"n1": ["left"], "n2": ["b"]}, [*FULL[:2], contender("left", on="n1", cpu=2000), FULL[3]],
        {"planned": "n1"}, NOTHING,
    ),
    "the room of the plan is too small": (
        {"n1": ["left"], "n2": ["b"]}, [*FULL[:2], contender("left", on="n1", cpu=2001), FULL[3]],
        {"planned": "n1"}, ("n1", ["left"]),
    ),
    "a nomination by another component": (
        {"n2": ["b"]}, [*FULL, stage("n3"), contender("c", on="n3", cpu=4000, priority=IMPORTANT)],
        {"pod": incoming(nominated="n3")}, ("n2", ["b"]),
    ),
    "a pod that never preempts": (ON_N1, FULL, {"pod": incoming(cpu=0, never_preempts=True)}, NOTHING),
    "a victim was deleted": ({"n1": ["a", "ghost"]}, [FULL[0], FULL[2], GHOST], {"deleted": [GHOST]}, ("n1", ["a"])),
    # The scheduler learns of the deletions by itself, and then tries the pod again.
    "all victims were deleted": ({"n1": ["ghost"]}, [FULL[0], GHOST], {"deleted": [GHOST]}, NOTHING),
    "a victim that the watch does not show is worse": ({"n1": ["a"], "n2": ["b", "ghost"]}, FULL, {}, ("n1", ["a"])),
    "another node where the better victim is unknown": ({"n1": ["a", "ghost"], "n2": ["b"]}, FULL, {}, ("n2", ["b"])),
    "exactly the victims that are needed": ({"n1": ["p2", "p3"]}, HALVES, {}, ("n1", ["p2", "p3"])),
    **{
        f"{offered} of four with {allowed} disruptions allowed": (
            {"n1": [offered]}, [*QUARTERS, budget(allowed=allowed, app="db")], {"pod": incoming(cpu=1000)},
            ("n1", [offered]),
        )
        for offered in ("p0", "p1", "p2", "p3") for allowed in (0, 1, 2)
    },
    "the pod that no budget protects": ({"n1": ["free"]}, PROTECTED, {}, ("n1", ["free"])),
    "an assumed pod is no victim of our choice": (
        {"n1": []}, [stage(), SMALL_WAITS, BOUND], {"pod": LONELY, "assumed": {"waits": "n1"}}, NOTHING,
    ),
    "beside an assumed pod that was deleted": (
        {"n1": []}, [stage(), SMALL_WAITS, BOUND],
        {"pod": LONELY, "assumed": {"waits": "n1"}, "deleted": [SMALL_WAITS]}, ("n1", ["bound"]),
    ),
    "rules reject the pod on every node": (
        {"n1": ["idle"]}, [*FULL[:2], contender("web", on="n1", app="web", priority=IMPORTANT), IDLE, CROWD],
        {"pod": LARGE_LONELY}, NOTHING,
    ),
    "other nodes where no candidate helps": (ON_N1, [*FULL, TAKEN], {}, ("n2", ["b"])),
    "no other node for needs that are unseen": (
        ON_N1, [*FULL, TAKEN],
        {"pod": incoming(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])}, NEXT,
    ),
    "no other node where the scheduler has rules that are unseen": (
        ON_N1, [*FULL, TAKEN], {"by": default_settings("augment")}, NEXT,
    ),
    "all nodes tried": (ON_N1, [FULL[0], FULL[2], TAKEN], {}, NOTHING),
    "the other node is tainted": (ON_N1, [FULL[0], TAINTED, *FULL[2:], TAKEN], {}, NOTHING),
    "unreadable constraints": (ON_N1, FULL, {"pod": incoming(apart=[term("host", selector=UNREADABLE)])}, NOTHING),
}  # fmt: skip


@pytest.mark.parametrize(("offers", "objects", "how", "expected"), EXECUTED.values(), ids=EXECUTED)
def test_what_is_executed(
    offers: Offers, objects: list[Any], how: Json, expected: tuple[str, list[str]] | PreemptionDecision
) -> None:
    """The answer to the scheduler is empty: it does nothing."""
    decision = decide(offers, *objects, **how)
    assert (node_and_victims(decision.plan) if decision.plan else decision) == expected
    assert decision.candidates == ()


# What goes back to the scheduler, which then carries the preemption out itself: nodes, victims, and why.
LEFT: dict[str, tuple[Offers, list[Any], Json, tuple[list[str], list[str], str]]] = {
    **{
        f"more victims than are needed: {offered}": (
            {"n1": offered}, HALVES, {}, (["n1"], [f"uid-{name}" for name in offered], "unexplained"),
        )
        for offered in (["p0", "p1", "p2", "p3"], ["p1", "p2", "p3"], ["p0", "p1"], ["p1", "p3"])
    },
    "a protected pod in place of one that is not": (
        {"n1": ["guarded"]}, PROTECTED, {}, (["n1"], ["uid-guarded"], "unexplained"),
    ),
    # They may be needed for a volume, a device, or a plugin of the scheduler that has no rule here.
    "not needed for room": ({"n1": ["idle"]}, [*FULL[:3], IDLE, CROWD], {}, (["n1"], ["uid-idle"], "unexplained")),
    "a node that seems too small": (ON_N1, FULL, {"pod": incoming(cpu=9000)}, (["n1"], ["uid-a"], "unexplained")),
    "it fits there as it is": (
        {"n1": ["idle"], "n2": ["b"]}, [*FULL[:2], FULL[3], IDLE], {}, (["n1"], ["uid-idle"], "needless"),
    ),
    "it fits on a node that was not offered": (
        {"n2": ["b"]}, [*FULL, stage("n3"), IDLE], {}, (["n2"], ["uid-b"], "needless"),
    ),
    # It waits at Permit or runs its PreBind: kube-scheduler cancels it, and deletes nothing.
    "a victim that the watch shows on no node": (
        {"n1": ["waits"]}, [stage(), WAITS], {"assumed": {"waits": "n1"}}, (["n1"], ["uid-waits"], "unbound"),
    ),
    "with another": (
        {"n1": ["waits", "b"]}, [stage(), WAITS, contender("b", on="n1", cpu=1000, priority=1)],
        {"assumed": {"waits": "n1"}}, (["n1"], ["uid-waits", "uid-b"], "unbound"),
    ),
    "a victim that the watch does not show": ({"n1": ["ghost"]}, [stage()], {}, (["n1"], ["uid-ghost"], "unbound")),
    "beside one that it shows": (
        {"n1": ["a", "ghost"]}, [FULL[0], FULL[2]], {}, (["n1"], ["uid-a", "uid-ghost"], "unbound"),
    ),
    "the node that the scheduler would choose": (
        BOTH | {"n3": ["waits"]}, [*FULL, stage("n3"), WAITS], {"assumed": {"waits": "n3"}},
        (["n3"], ["uid-waits"], "unbound"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("offers", "objects", "how", "expected"), LEFT.values(), ids=LEFT)
def test_what_is_left_to_the_scheduler(
    offers: Offers, objects: list[Any], how: Json, expected: tuple[list[str], list[str], str]
) -> None:
    decision = decide(offers, *objects, **how)
    assert (decision.plan, decision.requeue) == (None, False)
    victims = [victim.uid for candidate in decision.candidates for victim in candidate.victims]
    because = decision.left.value if decision.left else ""
    assert ([candidate.node for candidate in decision.candidates], victims, because) == expected


def test_the_number_of_violated_budgets_counts_before_priority() -> None:
    args = preempting(LARGE, {"n1": ["uid-a"]})
    args.candidates.extend(preempting(LARGE, {"n2": ["uid-b"]}, violations=1).candidates)
    assert node_and_victims(decide_preemption(args, cluster(*GUARDED).view, EXECUTE, 0).plan) == ("n1", ["a"])


def test_nominations_of_lower_priority_on_the_node_are_to_be_cleared() -> None:
    lower, peer = (contender(name, nominated="n1", priority=at) for name, at in (("lower", 50), ("peer", IMPORTANT)))
    plan = decide(ON_N1, *FULL, lower, peer).plan
    assert plan is not None
    assert [pod.name for pod in plan.displaced] == ["lower"]


@pytest.mark.parametrize(
    ("offers", "objects", "how", "expected"),
    [
        (BOTH, FULL, {"pod": LARGE, "violations": 2}, [("n1", ["uid-a"], 2), ("n2", ["uid-b"], 2)]),
        (BOTH, [*FULL, BLOCKING], {}, [("n2", ["uid-b"], 0)]),
        ({"new": [], "other": ["a"], "n2": ["b"]}, FULL, {}, [("n2", ["uid-b"], 0)]),
        ({"n1": [], "n2": []}, [stage("n1"), stage("n2"), BLOCKING], {}, [("n1", ["uid-web"], 0)]),
        (ON_N1, FULL, {"pod": incoming(apart=[term("host", selector=UNREADABLE)])}, []),
        ({"n1": ["a"], "n2": []}, FULL, {"pod": LARGE, "by": OFF}, [("n1", ["uid-a"], 0)]),
    ],
    ids=["all help", "rules still reject", "unknown nodes", "without victims", "unreadable", "off: empty ones are left out"],
)  # fmt: skip
def test_candidates_that_help_are_advised_as_they_came(
    offers: Offers, objects: list[Any], how: Json, expected: list[tuple[str, list[str], int]]
) -> None:
    """The scheduler acts on what is left of its candidates. None is answered without victims."""
    advised: Json = {"by": ADVISE, "pod": LONELY}
    decision = decide(offers, *objects, **(advised | how))
    answered = [(found.node, [v.uid for v in found.victims], found.pdb_violations) for found in decision.candidates]
    assert (answered, decision.plan) == (expected, None)


# -- The choice among offered nodes: how much of it needs a dry run ------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "more", "expected"),
    [
        (LARGE, {}, {("n0", 1)}),
        (LARGE, {"name": "p1", "on": "n1", "cpu": 4000, "priority": 1}, {("n0", 1), ("n1", 1)}),
        (LONELY, {}, {("n0", 1)}),
        (LONELY, {"name": "w", "on": "n0", "priority": 4}, {("n1", 2)}),
        (LONELY, {"name": "w", "on": "n0", "priority": IMPORTANT}, {("n1", 2)}),
    ],
    ids=["the best offer", "equal offers", "constraints", "a worse victim is in the way", "no victim can be"],
)
def test_offers_are_tried_until_one_is_as_good_as_it_seemed(
    pod: Json, more: Json, expected: set[tuple[str, int]]
) -> None:
    """The node that is chosen, and the number of dry runs that it takes."""
    objects = [contender(app="web", **more)] if more else []
    assert {chosen(pod, *objects, seed=seed) for seed in range(5)} == expected


@pytest.mark.parametrize("mode", ["offload", "augment"])
@pytest.mark.parametrize("does", ["execute", "advise"])
def test_room_that_victims_leave_for_a_group_is_planned_for_no_other_preemptor_of_its_priority(
    mode: str, does: str
) -> None:
    """The group has its slot while its victim, which is less important than that of the other node, still runs."""
    member = contender("member", cpu=4000, priority=IMPORTANT, gates=("placement.extender.dev/group",))
    victims = [contender("a", on="n1", cpu=4000, priority=1), contender("b", on="n2", cpu=4000, priority=2)]
    held = cluster(stage("n1"), stage("n2"), *victims, member)
    held.reserved.reserve(GroupKey("default", "policy", "job"), [Slot("uid-member", "n1")], until=60.0)
    by = settings(mode=mode, preemption={"mode": does})
    decision = decide_preemption(preempting(LARGE, {"n1": ["uid-a"], "n2": ["uid-b"]}), held.view, by, 0)
    planned = [decision.plan.node] if decision.plan else [each.node for each in decision.candidates]
    assert planned == ["n2"]
    alone = decide_preemption(preempting(LARGE, {"n1": ["uid-a"]}), held.view, by, 0)
    assert alone.candidates == (() if does == "execute" else [])
    assert alone.plan is None or alone.plan.node == "n2"


# -- Preemption beside pods that are nominated to other nodes: they count there, and only those that go first ------------

SPREAD: Json = {"spreads": [spread("zone", 1, app="urgent")]}
APART: Json = {"apart": [term("zone", app="urgent")]}


@pytest.mark.parametrize(
    ("nominated", "constraints", "expected"),
    [
        (SPREAD, SPREAD, {"n-b", "n-c"}),
        (APART, APART, {"n-b", "n-c"}),
        (APART, {}, {"n-b", "n-c"}),
        (SPREAD | {"priority": 999}, SPREAD, {"n-a", "n-b", "n-c"}),
    ],
    ids=["spread", "anti-affinity", "anti-affinity of the nominated pod", "a nominated pod of lower priority"],
)
def test_a_zone_to_which_a_pod_is_nominated_is_not_chosen(
    nominated: Json, constraints: Json, expected: set[str]
) -> None:
    assert nodes_of(full(URGENT | nominated | {"nominated": "n-a"}), **constraints) == expected


def test_where_no_zone_is_left_nothing_is_removed_and_the_scheduler_is_to_ask_again() -> None:
    index = full(*(URGENT | APART | {"nominated": f"n-{zone}"} for zone in ZONES))
    assert decide_next(index, 0, **APART) == PreemptionDecision(requeue=True)


def test_a_node_that_passes_only_if_a_nominated_pod_comes_is_not_chosen() -> None:
    """With one pod in a and two on their way to b and c the skew allows a second one in a; without them it does not."""
    index = full(*(URGENT | SPREAD | {"nominated": f"n-{zone}"} for zone in "bc"))
    index.upsert(contender("there", on="n-a", priority=1000, app="urgent"))
    assert "n-a" not in nodes_of(index, **SPREAD)
