"""The preempt verb: what is answered, what is planned, and how much of that needs a dry run."""

from __future__ import annotations

import pytest

from extender.model.objects import Object
from extender.model.release import GroupKey, Slot
from extender.settings.configuration import Settings, default_settings
from extender.verbs.preempt import PreemptionDecision, decide_preemption
from tests.builders import Json, preempting, settings, spread, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.verbs.preempting import (
    EXECUTE,
    FULL,
    IMPORTANT,
    LARGE,
    URGENT,
    ZONES,
    chosen,
    decide,
    decide_next,
    full,
    nodes_of,
    told,
)

ADVISE, OFF = (settings(preemption={"mode": mode}) for mode in ("advise", "off"))
LONELY = contender_json("asking", priority=IMPORTANT, apart=[term("host", app="web")])
LARGE_LONELY = contender_json("asking", priority=IMPORTANT, cpu=2000, apart=[term("host", app="web")])


class TestExecute:
    """We choose, and the scheduler does nothing."""

    def test_the_answer_is_empty_and_the_plan_is_for_the_node_with_the_least_important_victims(self) -> None:
        decision = decide({"n1": ["a"], "n2": ["b"]}, *FULL)
        assert (decision.candidates, told(decision.plan)) == ((), ("n2", ["b"]))

    def test_the_number_of_violated_budgets_counts_before_priority(self) -> None:
        guarded = [*FULL[:3], contender("b", on="n2", cpu=4000, priority=3, app="db"), budget(app="db")]
        held = cluster(*guarded)
        args = preempting(LARGE, {"n1": ["uid-a"]})
        worse = preempting(LARGE, {"n2": ["uid-b"]}, violations=1)
        args.candidates.extend(worse.candidates)
        plan = decide_preemption(args, held.view, EXECUTE, 0).plan
        assert told(plan) == ("n1", ["a"])

    def test_a_budget_that_the_request_names_and_the_index_no_longer_has_makes_no_node_worse(self) -> None:
        guarded = [*FULL[:3], contender("b", on="n2", cpu=4000, priority=3, app="db"), budget(app="db")]
        decision = decide({"n1": ["a"], "n2": ["b"]}, *guarded, violations=1)
        assert told(decision.plan) == ("n1", ["a"])

    def test_equal_nodes_are_chosen_by_the_seed(self) -> None:
        equal: list[Object] = [
            stage("n1"),
            stage("n2"),
            contender("a", on="n1", cpu=4000),
            contender("b", on="n2", cpu=4000),
        ]
        chosen = [told(decide({"n1": ["a"], "n2": ["b"]}, *equal, seed=seed).plan) for seed in range(2)]
        assert chosen == [("n1", ["a"]), ("n2", ["b"])]

    def test_a_victim_of_the_scheduler_stays_where_one_of_ours_makes_its_removal_needless(self) -> None:
        web = contender("web", on="n1", cpu=2000, app="web", priority=5)
        other = contender("other", on="n1", cpu=2000, priority=3)
        decision = decide({"n1": ["other"]}, stage("n1"), web, other, pod=LARGE_LONELY)
        assert told(decision.plan) == ("n1", ["web"])

    def test_it_goes_where_it_may_be_needed_for_what_the_index_does_not_hold(self) -> None:
        web = contender("web", on="n1", cpu=2000, app="web", priority=5)
        other = contender("other", on="n1", cpu=2000, priority=3)
        needy = LARGE_LONELY | {"spec": LARGE_LONELY["spec"] | {"resourceClaims": [{"name": "gpu"}]}}
        decision = decide({"n1": ["other"]}, stage("n1"), web, other, pod=needy)
        assert told(decision.plan) == ("n1", ["web", "other"])

    def test_a_candidate_that_needs_no_victims_at_all_is_no_plan(self) -> None:
        assert decide({"n1": []}, stage(), pod=LONELY) == PreemptionDecision()

    def test_a_second_request_for_the_same_pod_starts_nothing_while_a_plan_runs(self) -> None:
        assert decide({"n1": ["a"], "n2": ["b"]}, *FULL, promised="n1") == PreemptionDecision()

    @pytest.mark.parametrize(
        ("preempted", "starts"), [pytest.param(True, False, id="our victim"), pytest.param(False, True, id="no victim")]
    )
    def test_nothing_is_started_while_a_victim_is_still_terminating_on_the_nominated_node(
        self, *, preempted: bool, starts: bool
    ) -> None:
        waiting = contender_json("asking", priority=IMPORTANT, cpu=2000, nominated="n1")
        going = contender("going", on="n1", terminating=True, preempted=preempted)
        assert (decide({"n1": ["a"]}, *FULL, going, pod=waiting).plan is not None) is starts

    @pytest.mark.parametrize(("free", "starts"), [(2000, False), (1999, True)])
    def test_nothing_is_started_where_only_the_scheduler_does_not_know_yet_that_the_room_is_there(
        self, free: int, *, starts: bool
    ) -> None:
        left = contender("left", on="n1", cpu=4000 - free)
        offered = {"n1": ["left"], "n2": ["b"]}
        decision = decide(offered, FULL[0], FULL[1], left, FULL[3], promised="n1")  # its victim is gone
        assert (decision.plan is not None) is starts

    def test_a_nomination_by_another_component_keeps_no_pod_from_preempting(self) -> None:
        waiting = contender_json("asking", priority=IMPORTANT, cpu=2000, nominated="n3")
        full = contender("c", on="n3", cpu=4000, priority=IMPORTANT)
        assert told(decide({"n2": ["b"]}, *FULL, stage("n3"), full, pod=waiting).plan) == ("n2", ["b"])

    def test_a_pod_that_never_preempts_preempts_no_other(self) -> None:
        modest = contender_json("asking", priority=IMPORTANT, never_preempts=True)
        assert decide({"n1": ["a"]}, *FULL, pod=modest) == PreemptionDecision()

    def test_a_victim_that_was_deleted_is_not_missed(self) -> None:
        held = cluster(*FULL[:1], *FULL[2:3], ghost := contender("ghost", on="n1"))
        held.delete(ghost)
        args = preempting(LARGE, {"n1": ["uid-a", "uid-ghost"]})
        assert told(decide_preemption(args, held.view, EXECUTE, 0).plan) == ("n1", ["a"])

    def test_a_candidate_whose_victims_were_all_deleted_is_not_answered(self) -> None:
        """The scheduler learns of the deletions by itself, and then tries the pod again."""
        held = cluster(*FULL[:1], ghost := contender("ghost", on="n1", cpu=4000))
        held.delete(ghost)
        args = preempting(LARGE, {"n1": ["uid-ghost"]})
        assert decide_preemption(args, held.view, EXECUTE, 0) == PreemptionDecision()

    def test_a_known_node_is_preferred_even_if_its_victims_are_more_important(self) -> None:
        assert told(decide({"n1": ["a"], "n2": ["b", "ghost"]}, *FULL).plan) == ("n1", ["a"])

    def test_nominations_of_lower_priority_on_the_node_are_to_be_cleared(self) -> None:
        lower, peer = (
            contender(name, nominated="n1", priority=priority)
            for name, priority in (("lower", 50), ("peer", IMPORTANT))
        )
        plan = decide({"n1": ["a"]}, *FULL, lower, peer).plan
        assert plan is not None
        assert [each.name for each in plan.displaced] == ["lower"]


class TestLeft:
    """What goes back to the scheduler: it carries the preemption out itself, and nothing is deleted here."""

    @staticmethod
    def left(decision: PreemptionDecision) -> tuple[list[str], list[str], str]:
        """The nodes, the victims and why; there must be no plan."""
        assert (decision.plan, decision.requeue) == (None, False)
        victims = [victim.uid for each in decision.candidates for victim in each.victims]
        return [each.node for each in decision.candidates], victims, decision.left.value if decision.left else ""

    def test_more_victims_than_are_needed(self) -> None:
        halves = [contender(f"p{number}", on="n1", cpu=1000, minute=number) for number in range(4)]
        every = [each.name for each in halves]
        assert told(decide({"n1": ["p2", "p3"]}, stage("n1"), *halves).plan) == ("n1", ["p2", "p3"])
        for offered in (every, ["p1", "p2", "p3"], ["p0", "p1"], ["p1", "p3"]):
            found = self.left(decide({"n1": offered}, stage("n1"), *halves))
            assert found == (["n1"], [f"uid-{each}" for each in offered], "unexplained")

    @pytest.mark.parametrize("allowed", [0, 1, 2])
    @pytest.mark.parametrize("offered", ["p0", "p1", "p2", "p3"])
    def test_also_where_a_budget_protects_some_of_them(self, offered: str, allowed: int) -> None:
        equals = [contender(f"p{number}", on="n1", cpu=1000, app="db") for number in range(4)]
        small = contender_json("asking", priority=IMPORTANT, cpu=1000)
        decision = decide({"n1": [offered]}, stage("n1"), *equals, budget(allowed=allowed, app="db"), pod=small)
        assert told(decision.plan) == ("n1", [offered])

    def test_a_pod_that_a_budget_protects_instead_of_one_that_it_does_not(self) -> None:
        guarded, free = (
            contender("guarded", on="n1", cpu=2000, app="db"),
            contender("free", on="n1", cpu=2000, priority=3),
        )
        there = (stage("n1"), guarded, free, budget(app="db"))
        assert told(decide({"n1": ["free"]}, *there).plan) == ("n1", ["free"])
        assert self.left(decide({"n1": ["guarded"]}, *there)) == (["n1"], ["uid-guarded"], "unexplained")

    def test_victims_that_are_not_needed_for_room(self) -> None:
        """They may be needed for a volume, a device, or a plugin of the scheduler that has no rule here."""
        crowd = contender("crowd", on="n2", cpu=4000, priority=IMPORTANT)
        idle = contender("idle", on="n1", priority=-5)
        found = self.left(decide({"n1": ["idle"]}, *FULL[:3], idle, crowd))
        assert found == (["n1"], ["uid-idle"], "unexplained")

    def test_a_node_that_we_take_for_too_small_even_when_it_is_empty(self) -> None:
        huge = contender_json("asking", priority=IMPORTANT, cpu=9000)
        assert self.left(decide({"n1": ["a"]}, *FULL, pod=huge)) == (["n1"], ["uid-a"], "unexplained")

    def test_a_pod_that_fits_on_a_node_as_it_is(self) -> None:
        for free in ("n1", "n3"):
            there = [*FULL, stage("n3")] if free == "n3" else [FULL[0], FULL[1], FULL[3]]
            idle = contender("idle", on="n1", priority=-5)
            offered = {"n2": ["b"]} if free == "n3" else {"n1": ["idle"], "n2": ["b"]}
            nodes, _, because = self.left(decide(offered, *there, idle))
            assert nodes == ["n2" if free == "n3" else "n1"]
            assert because in ("needless", "unexplained")

    @pytest.mark.parametrize("others", [[], ["b"]], ids=["alone", "with another"])
    def test_a_victim_that_the_watch_shows_on_no_node(self, others: list[str]) -> None:
        """It waits at Permit or runs its PreBind: kube-scheduler cancels it, and deletes nothing."""
        waits = contender("waits", cpu=4000, priority=1)
        rest = [contender(each, on="n1", cpu=1000, priority=1) for each in others]
        held = cluster(stage("n1"), waits, *rest)
        held.assume(waits, ("n1",), 0.0)
        uids = [f"uid-{each}" for each in ("waits", *others)]
        decision = decide_preemption(preempting(LARGE, {"n1": uids}), held.view, EXECUTE, 0)
        assert self.left(decision) == (["n1"], uids, "unbound")

    def test_a_victim_that_the_watch_does_not_show_at_all(self) -> None:
        assert self.left(decide({"n1": ["ghost"]}, stage())) == (["n1"], ["uid-ghost"], "unbound")
        found = self.left(decide({"n1": ["a", "ghost"]}, *FULL[:1], *FULL[2:3]))
        assert found == (["n1"], ["uid-a", "uid-ghost"], "unbound")
        assert told(decide({"n1": ["a", "ghost"], "n2": ["b"]}, *FULL).plan) == ("n2", ["b"])

    def test_an_assumed_pod_is_no_victim_of_our_own_choice(self) -> None:
        waits = contender("waits", app="web", priority=1)
        bound = contender("bound", on="n1", app="web", priority=2)
        held = cluster(stage("n1"), waits, bound)
        held.assume(waits, ("n1",), 0.0)
        args = preempting(LONELY, {"n1": []})
        assert decide_preemption(args, held.view, EXECUTE, 0) == PreemptionDecision()
        held.delete(waits)
        assert told(decide_preemption(args, held.view, EXECUTE, 0).plan) == ("n1", ["bound"])

    def test_of_several_nodes_the_one_that_the_scheduler_would_choose(self) -> None:
        waits = contender("waits", cpu=4000, priority=1)
        held = cluster(*FULL, stage("n3"), waits)
        held.assume(waits, ("n3",), 0.0)
        offered = {"n1": ["uid-a"], "n2": ["uid-b"], "n3": ["uid-waits"]}
        assert self.left(decide_preemption(preempting(LARGE, offered), held.view, EXECUTE, 0))[0] == ["n3"]

    def test_not_where_our_rules_would_still_reject_the_pod(self) -> None:
        blocking = contender("web", on="n1", app="web", priority=IMPORTANT)
        crowd = contender("crowd", on="n2", cpu=4000, priority=IMPORTANT)
        idle = contender("idle", on="n1", priority=-5)
        decision = decide({"n1": ["idle"]}, *FULL[:2], blocking, idle, crowd, pod=LARGE_LONELY)
        assert decision == PreemptionDecision()


class TestNextStep:
    """A preemptor whose candidates all fall through is not left without a next step."""

    TAKEN = contender("rival", cpu=4000, priority=IMPORTANT, nominated="n1")

    def test_other_nodes_are_tried_when_none_of_the_candidates_helps(self) -> None:
        assert told(decide({"n1": ["a"]}, *FULL, self.TAKEN).plan) == ("n2", ["b"])

    def test_no_other_node_is_tried_for_needs_that_the_index_does_not_hold(self) -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        needy = contender_json("asking", priority=IMPORTANT, cpu=2000, volumes=volumes)
        assert decide({"n1": ["a"]}, *FULL, self.TAKEN, pod=needy) == PreemptionDecision(requeue=True)

    def test_no_other_node_is_tried_where_the_scheduler_has_rules_that_we_do_not_see(self) -> None:
        augment = default_settings("augment")
        assert decide({"n1": ["a"]}, *FULL, self.TAKEN, by=augment) == PreemptionDecision(requeue=True)

    def test_with_all_nodes_tried_there_is_nothing_to_ask_again_for(self) -> None:
        assert decide({"n1": ["a"]}, FULL[0], FULL[2], self.TAKEN) == PreemptionDecision()

    def test_a_tainted_node_is_not_among_the_others(self) -> None:
        tainted = stage("n2", taints=[{"key": "gpu", "effect": "NoSchedule"}])
        assert decide({"n1": ["a"]}, FULL[0], tainted, *FULL[2:], self.TAKEN).plan is None


class TestAdvise:
    """The scheduler acts on what we leave of its candidates."""

    def test_candidates_that_help_are_answered_as_they_came(self) -> None:
        decision = decide({"n1": ["a"], "n2": ["b"]}, *FULL, by=ADVISE, violations=2)
        answered = {each.node: ([v.uid for v in each.victims], each.pdb_violations) for each in decision.candidates}
        assert answered == {"n1": (["uid-a"], 2), "n2": (["uid-b"], 2)}
        assert decision.plan is None

    def test_candidates_on_which_our_rules_still_reject_are_dropped(self) -> None:
        blocking = contender("web", on="n1", app="web")
        decision = decide({"n1": ["a"], "n2": ["b"]}, *FULL, blocking, pod=LONELY, by=ADVISE)
        assert [each.node for each in decision.candidates] == ["n2"]

    def test_a_candidate_that_the_index_does_not_know_is_left_out(self) -> None:
        decision = decide({"new": [], "other": ["a"], "n2": ["b"]}, *FULL, pod=LONELY, by=ADVISE)
        assert [each.node for each in decision.candidates] == ["n2"]

    def test_a_candidate_that_came_without_victims_is_never_answered_without(self) -> None:
        blocking = contender("web", on="n1", app="web")
        decision = decide({"n1": [], "n2": []}, stage("n1"), stage("n2"), blocking, pod=LONELY, by=ADVISE)
        assert [(each.node, [v.uid for v in each.victims]) for each in decision.candidates] == [("n1", ["uid-web"])]


def test_switched_off_the_candidates_pass_as_they_came_unless_they_are_empty() -> None:
    decision = decide({"n1": ["a"], "n2": []}, *FULL, by=OFF)
    assert [each.node for each in decision.candidates] == ["n1"]


@pytest.mark.parametrize("by", [EXECUTE, ADVISE], ids=["execute", "advise"])
def test_a_pod_whose_constraints_cannot_be_read_is_not_preempted_for(by: Settings) -> None:
    broken = contender_json("asking", priority=IMPORTANT, apart=[term("host", selector={"matchLabels": {"a": "b c"}})])
    assert decide({"n1": ["a"]}, *FULL, pod=broken, by=by) in (PreemptionDecision(), PreemptionDecision([]))


# -- The choice among offered nodes: how much of it needs a dry run ------------------------------------------------------


def test_the_victims_of_one_offer_are_computed_and_of_no_worse_one() -> None:
    assert chosen(LARGE) == ("n0", 1)


def test_an_offer_that_is_explained_ends_the_search_among_equals() -> None:
    equal = contender("p1", on="n1", cpu=4000, app="web", priority=1)
    assert {chosen(LARGE, equal, seed=seed) for seed in range(5)} == {("n0", 1), ("n1", 1)}


def test_with_constraints_the_seemingly_best_ones_are_tried_until_one_is_as_good_as_it_seemed() -> None:
    assert chosen(LONELY) == ("n0", 1)
    in_the_way = contender("w", on="n0", app="web", priority=4)
    assert chosen(LONELY, in_the_way) == ("n1", 2)
    for_good = contender("w", on="n0", app="web", priority=IMPORTANT)
    assert chosen(LONELY, for_good) == ("n1", 2)


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


@pytest.mark.parametrize("constraints", [SPREAD, APART], ids=["spread", "anti-affinity"])
def test_a_zone_that_is_promised_to_another_pod_is_not_chosen(constraints: Json) -> None:
    index = full(URGENT | constraints | {"nominated": "n-a"})
    assert nodes_of(index, **constraints) == {"n-b", "n-c"}


def test_nominated_pods_that_keep_the_pod_out_count_although_it_asks_for_nothing_itself() -> None:
    assert nodes_of(full(URGENT | APART | {"nominated": "n-a"})) == {"n-b", "n-c"}


def test_a_pod_of_lower_priority_keeps_its_zone_from_no_other() -> None:
    index = full(URGENT | SPREAD | {"nominated": "n-a", "priority": 999})
    assert nodes_of(index, **SPREAD) == {"n-a", "n-b", "n-c"}


def test_where_no_zone_is_left_nothing_is_removed_and_the_scheduler_is_to_ask_again() -> None:
    index = full(*(URGENT | APART | {"nominated": f"n-{zone}"} for zone in ZONES))
    assert decide_next(index, 0, **APART) == PreemptionDecision(requeue=True)


def test_a_node_that_passes_only_if_a_nominated_pod_comes_is_not_chosen() -> None:
    """With one pod in a and two on their way to b and c the skew allows a second one in a; without them it does not."""
    index = full(*(URGENT | SPREAD | {"nominated": f"n-{zone}"} for zone in "bc"))
    index.upsert(contender("there", on="n-a", priority=1000, app="urgent"))
    assert "n-a" not in nodes_of(index, **SPREAD)
