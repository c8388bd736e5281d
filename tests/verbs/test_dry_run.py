"""The dry run for one node: which pods have to go, which are spared, in which order, and what it may cost."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.audit import audit
from extender.index.counts.groups import CountGroup
from extender.index.disruption_budgets import MOST_BUDGETS
from extender.index.nodes.topology import NodePods
from extender.model.objects import DisruptionBudget, Object
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs import dry_run
from extender.verbs.dry_run import DryRun, best_among, is_forbidden, violating_budgets
from extender.verbs.filter import FilterDecision, FilterVerb, UnhelpfulNodeCache
from extender.verbs.kept_nodes import KeptNodes
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.builders import Json, asking, matching, node_json, settings, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.index.counting import Calls
from tests.verbs.dry_runs import (
    IMPORTANT,
    LONELY,
    WEB_EVERYWHERE,
    Asker,
    crowd,
    large,
    lonely,
    preemptor,
    removed,
    search,
    texts,
    told,
    web,
)


def test_the_most_important_pods_are_spared_first() -> None:
    pods = [contender(f"p{number}", on="n1", cpu=1000, priority=number) for number in (1, 3, 2, 4)]
    assert removed(large(), stage(cpu=4000), *pods, room=True) == ["p2", "p1"]


def test_among_equals_the_one_that_runs_longest_is_spared_first() -> None:
    pods = [contender(f"p{minute}", on="n1", cpu=1000, minute=minute) for minute in (30, 10, 20)]
    starting = contender("starting", on="n1", cpu=1000)
    assert removed(large(), stage(cpu=4000), *pods, starting, room=True) == ["p30", "starting"]


def test_pods_that_a_budget_protects_are_spared_before_more_important_ones() -> None:
    guarded = contender("guarded", on="n1", cpu=2000, priority=1, app="db")
    other = contender("other", on="n1", cpu=2000, priority=50)
    assert removed(large(), stage(cpu=4000), guarded, other, room=True) == ["guarded"]
    assert removed(large(), stage(cpu=4000), guarded, other, budget(app="db"), room=True) == ["other"]
    assert removed(large(), stage(cpu=4000), guarded, other, budget(allowed=1, app="db"), room=True) == ["guarded"]


@pytest.mark.parametrize(("allowed", "violations"), [(0, 2), (1, 1), (2, 0)])
def test_violated_budgets_are_counted_victim_by_victim(allowed: int, violations: int) -> None:
    held = cluster(stage(), web("w1"), web("w2"), budget(allowed=allowed, app="web"))
    removal = DryRun(lonely(), held.view).on(held.view.known["n1"])
    assert removal is not None
    assert removal.candidate().pdb_violations == violations


WEB: dict[str, Any] = {"app": "web"}


@pytest.mark.parametrize(
    ("budgets", "pods", "violating", "forbidden"),
    [
        ([budget(allowed=1, **WEB)], [WEB, WEB], ["p1"], True),
        ([budget(allowed=1, **WEB)], [WEB | {"terminating": True}, WEB], ["p1"], False),
        ([budget(allowed=1, disrupted=("p0",), **WEB)], [WEB, WEB], [], False),
        ([budget(selector={})], [WEB], [], True),
        ([budget(selector=matching(("app", "DoesNotExist", [])))], [{}, {"tier": "x"}], ["p1"], True),
        ([budget("a", 5, **WEB), budget("b", 5, **WEB)], [WEB], [], True),
        ([budget("a", 0, **WEB), budget("b", 5, tier="x")], [{"tier": "x"}, WEB], ["p1"], True),
        ([budget(f"b{n}", 5, **WEB) for n in range(MOST_BUDGETS + 1)], [WEB, {"tier": "x"}], ["p0"], True),
    ],
    ids=["used up", "terminating", "let through", "empty selector", "no labels", "two", "others", "too many"],
)
def test_budgets_count_as_in_kube_scheduler_for_victims_and_as_in_the_api_server_for_evictions(
    budgets: list[DisruptionBudget], pods: list[Json], violating: list[str], *, forbidden: bool
) -> None:
    """Both read more or less of: terminating pods, pods without labels, the empty selector, and several budgets of a pod."""
    there = [contender(f"p{number}", on="n1", **fields) for number, fields in enumerate(pods)]
    view = cluster(stage(), *there, *budgets).view
    assert [each.name for each in violating_budgets(there, view)] == violating
    assert is_forbidden(there, view) is forbidden


def test_what_is_read_of_budgets_is_charged_to_the_dry_runs() -> None:
    wide = [budget(f"b{n}", selector=matching((f"key-{n}", "DoesNotExist", []))) for n in range(60)]
    nodes = [stage(f"n{number}") for number in range(30)]
    pods = [web(f"w{number}-{n}", f"n{number}", tier=f"{number}-{n}") for number in range(30) for n in range(40)]
    run = DryRun(lonely(), cluster(*nodes, *pods, *wide).view)
    assert best_among(range(30), run, 0) is not None
    assert run.budget.is_spent()


def test_room_is_judged_only_where_the_scheduler_has_not_judged_it() -> None:
    full = contender("p", on="n1", cpu=4000)
    assert removed(large(), stage(cpu=4000), full) == []
    assert removed(large(), stage(cpu=4000), full, room=True) == ["p"]
    assert removed(large(), stage(cpu=4000, unschedulable=True), full, room=True) is None


def test_the_victims_that_the_scheduler_chose_stay_and_ours_come_in_addition() -> None:
    chosen, blocking = contender("chosen", on="n1", priority=1), web("w1")
    assert removed(lonely(), stage(), chosen, blocking, taken=(chosen,)) == ["chosen", "w1"]


def test_room_for_a_nominated_pod_of_equal_or_higher_priority_is_made_as_well() -> None:
    pods = [contender(f"p{number}", on="n1", cpu=1000, minute=number) for number in range(4)]
    for rival, expected in ((IMPORTANT, ["p0", "p1", "p2", "p3"]), (IMPORTANT - 1, ["p2", "p3"])):
        coming = contender("coming", cpu=2000, priority=rival, nominated="n1")
        taken = tuple(pods[2:])
        assert removed(large(), stage(cpu=4000), *pods, coming, taken=taken) == expected


def test_a_node_is_no_use_where_a_nominated_pod_of_equal_priority_keeps_the_preemptor_out() -> None:
    for rival, expected in ((IMPORTANT, None), (IMPORTANT - 1, ["w1"])):
        coming = contender("coming", priority=rival, nominated="n1", app="web")
        assert removed(lonely(), stage(), web("w1"), coming) == expected


def test_a_nominated_pod_that_stands_there_by_now_is_not_counted_twice() -> None:
    here = contender("here", on="n1", cpu=2000, priority=IMPORTANT, nominated="n1")
    assert removed(large(), stage(cpu=4000), here, room=True) == []


def test_victims_stand_on_other_nodes_of_the_zone_only_where_that_is_allowed() -> None:
    asking = contender("asking", priority=IMPORTANT, apart=[term("zone", app="web")])
    objects = (stage("n1", "z1"), stage("n2", "z1"), stage("n3", "z2"), web("w2", on="n2"), web("w3", on="n3"))
    assert removed(asking, *objects) is None
    assert removed(asking, *objects, across=True) == ["w2"]


# -- The dry runs for one preemptor have a budget: many terms, nodes and pods cost no more than it, and harm nothing -----

SETTINGS: Settings = settings(preemption={"mode": "execute"})


def test_many_terms_cost_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MOST_WORK", 5_000)
    index, changes = crowd(40), Calls(monkeypatch, (CountGroup, "add"))
    costs = []
    for number in (100, 200):
        pod = preemptor(number)
        index.view.compiled(pod.signature)
        changes.taken()
        run, found = search(index, pod)
        assert (run.budget.is_spent(), found) == (True, "")
        costs.append(changes.taken())
    assert max(costs) <= 2 * 5_000 / 5 + 2 * 4 * 200  # each change is undone, and a last node is left half way
    assert audit(index) == []


def test_a_run_that_is_abandoned_on_a_node_leaves_no_trace_and_no_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever step the budget ends: never with the pods that happened to be away by then."""
    index, pod = crowd(1, spared=0), preemptor(3)
    before = index.view.dependency_version(index.view.compiled(pod.signature))
    run = DryRun(pod, index.view)
    for most in range(0, 800, 10):
        monkeypatch.setattr(dry_run, "MOST_WORK", most)
        run = DryRun(pod, index.view)
        removal = run.on(index.view.known["n0"])
        assert run.budget.is_spent() is (removal is None)
        assert removal is None or len(removal.victims) == 3
        assert index.view.dependency_version(index.view.compiled(pod.signature)) == before
    assert not run.budget.is_spent()
    assert audit(index) == []


def test_nodes_that_were_not_tried_are_tried_at_the_next_request_for_the_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, pod = crowd(40, spared=30), preemptor(3)
    verb = FilterVerb(index.view, SETTINGS)
    monkeypatch.setattr(dry_run, "MOST_WORK", 2_000)
    args = ExtenderArgs(pod=pod, node_names=sorted(index.view.known, key=index.view.known.__getitem__))
    plans: list[PreemptionPlan | None] = []
    while not any(plans):
        assert len(plans) < 20
        plans.append(verb.decide(args, 0).plan)
    assert len(plans) > 2
    assert plans[-1] is not None
    assert plans[-1].node == "n30"


def test_an_ordinary_preemptor_looks_at_every_node() -> None:
    index = crowd(100, 10, spared=99)
    run, found = search(index, preemptor(2))
    assert (found, len(run.done), run.budget.is_spent()) == ("n99", 100, False)


@pytest.mark.parametrize("number", [1, 50])
def test_pods_elsewhere_in_a_domain_are_looked_for_once_whatever_the_number_of_terms(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    looks, index = Calls(monkeypatch, (NodePods, "pods_on")), crowd(10, 1, spared=0)
    run = DryRun(preemptor(number, "zone"), index.view, across=True)
    looks.taken()
    run.on(index.view.known["n0"])
    assert 0 < looks.taken() <= 12


# -- The filter with preemption around it: which pods get a plan, which wait for one, and which nodes are kept for
#    others


class TestBegin:
    """A pod that only lower-priority pods keep out gets a plan from the filter itself."""

    def test_the_least_important_victims_go_and_the_answer_already_waits_for_them(self) -> None:
        decision = Asker(*WEB_EVERYWHERE).ask()
        assert told(decision.plan) == ("n2", ["w2"])
        assert decision.result == FilterResult((), texts(n2=Reason.PREEMPTING), texts(n1=Reason.ANTI_AFFINITY))

    def test_pods_that_a_budget_protects_go_last(self) -> None:
        guarded = [*WEB_EVERYWHERE[:3], contender("w2", on="n2", app="web", tier="db"), budget(tier="db")]
        assert told(Asker(*guarded).ask().plan) == ("n1", ["w1"])

    def test_only_requested_nodes_are_selected_as_the_scheduler_has_rejected_the_others(self) -> None:
        more = [contender("full", on="n2", cpu=4000, priority=1)]
        assert told(Asker(*WEB_EVERYWHERE, *more).ask("n1").plan) == ("n1", ["w1"])

    def test_no_pod_is_preempted_where_a_node_outside_of_the_sample_passes(self) -> None:
        assert Asker(*WEB_EVERYWHERE, stage("n3")).ask("n1", "n2").plan is None

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(LONELY | {"never_preempts": True}, id="it never preempts"),
            pytest.param(LONELY | {"priority": 3}, id="no pod is less important"),
            pytest.param(LONELY | {"near": [term("host", app="db")]}, id="something else is missing too"),
        ],
    )
    def test_nothing_is_evicted_when_eviction_cannot_or_may_not_help(self, pod: dict[str, Any]) -> None:
        decision = Asker(*WEB_EVERYWHERE).ask(**pod)
        assert (decision.plan, decision.result.failed, set(decision.result.unresolvable)) == (None, {}, {"n1", "n2"})

    @pytest.mark.parametrize("mode", ["advise", "off"])
    def test_only_execute_begins_anything(self, mode: str) -> None:
        assert Asker(*WEB_EVERYWHERE, preemption={"mode": mode}).ask().plan is None

    def test_no_pod_is_preempted_on_hypothetical_nodes(self) -> None:
        asker = Asker(*WEB_EVERYWHERE)
        decision = asker.decide(asking(contender_json("asking", **LONELY), nodes=[node_json("n1"), node_json("n2")]))
        assert decision.plan is None
        assert set(decision.result.unresolvable) == {"n1", "n2"}

    def test_across_nodes_of_a_zone_only_where_the_settings_say_so(self) -> None:
        objects: list[Object] = [stage("n1", "z"), stage("n2", "z"), contender("w2", on="n2", app="web")]
        pod: dict[str, Any] = {"priority": IMPORTANT, "apart": [term("zone", app="web")]}
        assert told(Asker(*objects).ask("n1", **pod).plan) is None
        assert told(Asker(*objects, preemption={"crossNode": True}).ask("n1", **pod).plan) == ("n1", ["w2"])


class TestUnhelpfulNodes:
    """A node that was tried in vain is not tried again for the same kind of pod, until something changes."""

    BLOCKED = (stage("n1"), contender("w1", on="n1", app="web", priority=IMPORTANT))
    LOW = contender("low", on="n1", priority=1)

    @staticmethod
    def left(asker: Asker, args: ExtenderArgs) -> list[str]:
        view = asker.index.view
        return [
            view.node_names[node] for node in asker.verb.unhelpful.without(args.pod, sorted(view.known.values()), view)
        ]

    def test_it_is_cached_while_nothing_changes(self) -> None:
        asker = Asker(*self.BLOCKED, self.LOW)
        args = asking(contender_json("asking", **LONELY), "n1")
        before = self.left(asker, args)
        asker.decide(args)
        assert (before, self.left(asker, args)) == (["n1"], [])

    def test_another_window_of_names_tries_only_what_is_new(self) -> None:
        asker = Asker(*self.BLOCKED, stage("n2"), contender("w2", on="n2", app="web", priority=IMPORTANT), self.LOW)
        args = asking(contender_json("asking", **LONELY), "n1")
        asker.decide(args)
        assert self.left(asker, args) == ["n2"]
        asker.decide(asking(contender_json("another", **LONELY), "n2"))
        assert self.left(asker, args) == []

    def test_a_node_that_helped_is_not_cached(self) -> None:
        asker = Asker(*WEB_EVERYWHERE)
        args = asking(contender_json("asking", **LONELY), "n1", "n2")
        assert asker.decide(args).plan
        assert self.left(asker, args) == ["n1", "n2"]

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(contender("w1", on="n1", app="web", priority=1), id="the pod in the way"),
            pytest.param(contender("coming", nominated="n1"), id="a nomination"),
            pytest.param(budget(app="web"), id="a budget"),
            pytest.param(stage("n2"), id="a node"),
        ],
    )
    def test_it_is_forgotten_when_something_changes(self, change: Object) -> None:
        asker = Asker(*self.BLOCKED, self.LOW)
        args = asking(contender_json("asking", **LONELY), "n1")
        asker.decide(args)
        if change == contender("w1", on="n1", app="web", priority=1):
            asker.index.delete(change)  # a pod's priority never changes: this is another pod
        asker.index.upsert(change)
        assert "n1" in self.left(asker, args)

    def test_another_priority_is_another_request(self) -> None:
        asker = Asker(*self.BLOCKED, self.LOW)
        asker.ask()
        assert told(asker.ask(**LONELY | {"priority": IMPORTANT + 1}).plan) == ("n1", ["w1"])

    def test_the_kinds_that_were_added_first_are_forgotten_first(self) -> None:
        asker = Asker(*self.BLOCKED, self.LOW)
        asker.verb.unhelpful = UnhelpfulNodeCache(most_bytes=64 * 1024)
        kinds = [asking(contender_json("asking", **LONELY | {"tier": f"t{number}"}), "n1") for number in range(60)]
        for each in kinds:
            asker.decide(each)
        assert (self.left(asker, kinds[0]), self.left(asker, kinds[-1])) == (["n1"], [])

    def test_a_pod_of_the_same_signature_with_smaller_requests_is_tried_again(self) -> None:
        coming = contender("coming", cpu=3000, priority=IMPORTANT, nominated="n1")
        asker = Asker(stage("n1", cpu=4000), contender("w1", on="n1", app="web"), coming)
        assert asker.ask(**LONELY, cpu=2000).plan is None
        plan = asker.ask(**LONELY, cpu=500).plan
        assert plan is not None
        assert [victim.name for victim in plan.victims] == ["w1"]


class TestWait:
    """While a plan runs, the pod is let through wherever it fits and waits for its node where it fits nowhere."""

    def test_only_the_nominated_node_is_reported_as_one_where_preemption_helps(self) -> None:
        asker = Asker(*WEB_EVERYWHERE)
        asker.index.nominate_in_memory(contender("asking"), "n1", ["uid-w1"])
        assert asker.ask() == FilterDecision(
            FilterResult((), texts(n1=Reason.PREEMPTING), texts(n2=Reason.ANTI_AFFINITY)), None
        )

    def test_asked_for_the_awaited_node_alone_the_answer_is_the_same(self) -> None:
        asker = Asker(*WEB_EVERYWHERE)
        asker.index.nominate_in_memory(contender("asking"), "n1", ["uid-w1"])
        assert asker.ask("n1").result == FilterResult((), texts(n1=Reason.PREEMPTING))

    def test_it_passes_wherever_it_fits(self) -> None:
        asker = Asker(*WEB_EVERYWHERE, stage("n3"))
        asker.index.nominate_in_memory(contender("asking"), "n1", ["uid-w1"])
        assert list(asker.ask().result.passed) == ["n3"]

    def test_after_the_plan_it_waits_while_a_victim_is_terminating_on_the_nominated_node(self) -> None:
        going = contender("w1", on="n1", app="web", priority=5, terminating=True, preempted=True)
        decision = Asker(*WEB_EVERYWHERE[:2], going, WEB_EVERYWHERE[3]).ask(**LONELY | {"nominated": "n1"})
        assert (decision.plan, set(decision.result.failed)) == (None, {"n1"})

    def test_it_waits_no_longer_once_the_victims_are_gone(self) -> None:
        asker = Asker(*WEB_EVERYWHERE)
        asker.index.nominate_in_memory(contender("asking"), "n1", ["uid-gone"])
        assert told(asker.ask().plan) == ("n2", ["w2"])

    def test_a_new_plan_is_made_when_the_awaited_room_went_to_another_pod(self) -> None:
        taken = contender("higher", on="n1", app="web", priority=IMPORTANT + 1)
        decision = Asker(*WEB_EVERYWHERE[:2], taken, WEB_EVERYWHERE[3]).ask(**LONELY | {"nominated": "n1"})
        assert told(decision.plan) == ("n2", ["w2"])


class TestNominated:
    """Pods to come of equal or higher priority count as present on their node, both ways; lower ones do not."""

    @pytest.mark.parametrize(("priority", "passed"), [(IMPORTANT, ["n2"]), (IMPORTANT - 1, ["n1", "n2"])])
    def test_a_node_is_kept_for_a_pod_that_is_at_least_as_important(self, priority: int, passed: list[str]) -> None:
        coming = contender("coming", app="web", priority=priority, nominated="n1")
        assert list(Asker(stage("n1"), stage("n2"), coming).ask().result.passed) == passed

    @pytest.mark.parametrize(
        ("other", "passed"),
        [
            pytest.param({"priority": IMPORTANT + 1}, ["n1"], id="a pod of higher priority has the room"),
            pytest.param({"priority": IMPORTANT - 1}, [], id="its victim is still there"),
            pytest.param({"priority": IMPORTANT + 1, "cpu": 0}, [], id="its room is free"),
        ],
    )
    def test_a_node_is_not_kept_for_a_pod_that_has_lost_its_room_there(
        self, other: dict[str, int], passed: list[str]
    ) -> None:
        """Kubernetes' TestUpdateNominatedNodeName: the scheduler asks about the next pod before the watch shows the loss."""
        coming = contender("coming", cpu=3000, priority=IMPORTANT, nominated="n1")
        here = contender("here", on="n1", **{"cpu": 1500} | other)
        asker = Asker(stage("n1", cpu=4000), coming, here)
        assert list(asker.ask(apart=[], cpu=2000).result.passed) == passed

    def test_a_node_that_is_gone_is_kept_for_no_nominated_pod(self) -> None:
        """A nomination may name a node that was deleted, and a request one that is not known yet."""
        coming = contender("coming", priority=IMPORTANT, nominated="gone")
        kept = KeptNodes(contender("asking"), cluster(stage("n1"), coming).view, settings())
        assert kept.among({"gone", "n1"}) == set()

    def test_a_nomination_to_a_node_that_is_not_requested_costs_no_dry_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The scheduler requests a sample: mostly none of its nodes is nominated."""
        made: list[object] = []
        monkeypatch.setattr(DryRun, "__init__", lambda run, *_, **__: made.append(run))
        coming = contender("coming", app="web", priority=IMPORTANT, nominated="n1")
        asker = Asker(stage("n1"), stage("n2"), coming)
        assert list(asker.ask("n2").result.passed) == ["n2"]
        assert not made

    def test_the_nominated_pods_own_anti_affinity_counts(self) -> None:
        coming = contender("coming", priority=IMPORTANT, nominated="n1", apart=[term("host", app="api")])
        asker = Asker(stage("n1"), stage("n2"), coming)
        assert list(asker.ask(priority=IMPORTANT, app="api").result.passed) == ["n2"]

    def test_a_pod_that_would_be_needed_near_counts_only_once_it_is_there(self) -> None:
        coming = contender("coming", app="db", priority=IMPORTANT, nominated="n1")
        asker = Asker(stage("n1"), coming)
        assert list(asker.ask(priority=IMPORTANT, near=[term("host", app="db")]).result.passed) == []

    def test_its_own_nomination_does_not_keep_a_pod_out(self) -> None:
        own = contender("asking", app="web", nominated="n1", **LONELY)
        assert list(Asker(stage("n1"), own).ask(**LONELY | {"app": "web", "nominated": "n1"}).result.passed) == ["n1"]

    def test_a_pod_rejected_on_every_node_gets_the_reasons(self) -> None:
        coming = contender("coming", app="web", priority=IMPORTANT, nominated="n1")
        assert Asker(stage("n1"), coming).ask().result == FilterResult((), {}, texts(n1=Reason.NOMINATED))

    @pytest.mark.parametrize(("cpu", "passed"), [(3000, ["n2"]), (2000, ["n1", "n2"])])
    def test_its_room_is_kept_also_where_no_constraint_is(self, cpu: int, passed: list[str]) -> None:
        """The scheduler may not know of the nomination, and would give the room to this pod."""
        asker = Asker(stage("n1", cpu=4000), stage("n2", cpu=4000))
        asker.index.nominate_in_memory(contender("coming", cpu=2000, priority=IMPORTANT), "n1", ())
        assert list(asker.ask(cpu=cpu, priority=IMPORTANT).result.passed) == passed

    def test_a_promise_keeps_the_place_before_the_apiserver_knows_of_it(self) -> None:
        asker = Asker(stage("n1"), stage("n2"))
        asker.index.nominate_in_memory(contender("coming", app="web", priority=IMPORTANT), "n1", ())
        assert list(asker.ask().result.passed) == ["n2"]
