"""The filter with preemption around it: which pods get a plan, which wait for one, and which nodes are kept for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.dry_run import DryRun
from extender.verbs.filter import FilterDecision, FilterVerb, UnhelpfulNodeCache
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.builders import asking, node_json, settings, term
from tests.contenders import budget, cluster, contender, contender_json, stage

IMPORTANT = 100
LONELY: dict[str, Any] = {"priority": IMPORTANT, "apart": [term("host", app="web")]}
WEB_EVERYWHERE: list[Object] = [
    stage("n1"),
    stage("n2"),
    contender("w1", on="n1", app="web", priority=5),
    contender("w2", on="n2", app="web", priority=3),
]


class Asker:
    """An index with these objects, asked about a pod."""

    def __init__(self, *objects: Object, **sections: Any) -> None:
        self.index: ClusterIndex = cluster(*objects)
        every_name: dict[str, Any] = {"placement": "cooperative"}
        self.settings: Settings = settings(**every_name, **sections)
        self.verb = FilterVerb(self.index.view, self.settings)

    def ask(self, *names: str, **pod: Any) -> FilterDecision:
        """The decision about a pod of these fields, asked for these nodes or all."""
        args = asking(contender_json("asking", **(pod or LONELY)), *(names or self.index.view.known))
        return self.decide(args)

    def decide(self, args: ExtenderArgs) -> FilterDecision:
        """The decision on a question. The reasons are there for every text in it."""
        decision = self.verb.decide(args, 0)
        result = decision.result
        assert {*result.failed.values(), *result.unresolvable.values()} <= {reason.text for reason in result.reasons}
        return decision


def told(plan: PreemptionPlan | None) -> tuple[str, list[str]] | None:
    return None if plan is None else (plan.node, [each.name for each in plan.victims])


def texts(**reasons: Reason) -> Mapping[str, str]:
    return {name: reason.text for name, reason in reasons.items()}


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
