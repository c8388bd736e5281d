"""The dry run for one node: which pods have to go, which are spared, in which order, and what it may cost."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from extender.index.audit import audit
from extender.index.counts.groups import CountGroup
from extender.index.disruption_budgets import MOST_BUDGETS
from extender.index.nodes.topology import NodePods
from extender.model.objects import DisruptionBudget, Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs import dry_run
from extender.verbs.dry_run import DryRun, best_among, is_forbidden, violating_budgets
from extender.verbs.filter import FilterVerb, UnhelpfulNodeCache
from extender.verbs.kept_nodes import KeptNodes
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.builders import Json, extender_args, matching, node_json, settings, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.index.counting import Calls
from tests.verbs.dry_runs import (
    IMPORTANT,
    LONELY,
    WEB_EVERYWHERE,
    FilterScene,
    crowd,
    large,
    lonely,
    node_and_victims,
    preemptor,
    removed,
    search,
    texts,
    web,
)

N1 = stage(cpu=4000)
GUARDED = [
    *(N1, contender("guarded", on="n1", cpu=2000, priority=1, app="db")),
    contender("other", on="n1", cpu=2000, priority=50),
]
QUARTERS = [contender(f"p{number}", on="n1", cpu=1000, minute=number) for number in range(4)]
FULL_POD = contender("p", on="n1", cpu=4000)
CHOSEN = contender("chosen", on="n1", priority=1)
ZONED = [stage("n1", "z1"), stage("n2", "z1"), stage("n3", "z2"), web("w2", on="n2"), web("w3", on="n3")]
ZONE_LONELY = contender("asking", priority=IMPORTANT, apart=[term("zone", app="web")])
ROOM: dict[str, Any] = {"room": True}


def coming(priority: int, **fields: Any) -> Pod:
    """A pod that is nominated to n1."""
    return contender("coming", priority=priority, nominated="n1", **fields)


# The preemptor, the cluster, how the dry run is made, and the victims in their order; None where nothing helps.
VICTIMS: dict[str, tuple[Pod, list[Any], Json, list[str] | None]] = {
    "the most important pods are spared first": (
        large(), [N1, *(contender(f"p{at}", on="n1", cpu=1000, priority=at) for at in (1, 3, 2, 4))], ROOM, ["p2", "p1"],
    ),
    "among equals the pod that runs longest": (
        large(),
        [N1, *(contender(f"p{at}", on="n1", cpu=1000, minute=at) for at in (30, 10, 20)),
         contender("starting", on="n1", cpu=1000)],
        ROOM, ["p30", "starting"],
    ),
    "no budget": (large(), GUARDED, ROOM, ["guarded"]),
    "a protected pod is spared before a more important one": (large(), [*GUARDED, budget(app="db")], ROOM, ["other"]),
    "a budget that allows a disruption": (large(), [*GUARDED, budget(allowed=1, app="db")], ROOM, ["guarded"]),
    "room that the scheduler has judged": (large(), [N1, FULL_POD], {}, []),
    "room that it has not": (large(), [N1, FULL_POD], ROOM, ["p"]),
    "an unschedulable node": (large(), [stage(cpu=4000, unschedulable=True), FULL_POD], ROOM, None),
    "in addition to the victims of the scheduler": (
        lonely(), [stage(), CHOSEN, web("w1")], {"taken": (CHOSEN,)}, ["chosen", "w1"],
    ),
    "room for a nominated pod of equal priority": (
        large(), [N1, *QUARTERS, coming(IMPORTANT, cpu=2000)], {"taken": tuple(QUARTERS[2:])}, ["p0", "p1", "p2", "p3"],
    ),
    "none for one of lower priority": (
        large(), [N1, *QUARTERS, coming(IMPORTANT - 1, cpu=2000)], {"taken": tuple(QUARTERS[2:])}, ["p2", "p3"],
    ),
    "a nominated pod of equal priority keeps it out": (
        lonely(), [stage(), web("w1"), coming(IMPORTANT, app="web")], {}, None,
    ),
    "one of lower priority does not": (lonely(), [stage(), web("w1"), coming(IMPORTANT - 1, app="web")], {}, ["w1"]),
    "a nominated pod that has arrived counts once": (
        large(), [N1, contender("here", on="n1", cpu=2000, priority=IMPORTANT, nominated="n1")], ROOM, [],
    ),
    "victims on other nodes are not allowed": (ZONE_LONELY, ZONED, {}, None),
    "victims on other nodes of the zone": (ZONE_LONELY, ZONED, {"across": True}, ["w2"]),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "objects", "how", "expected"), VICTIMS.values(), ids=VICTIMS)
def test_which_pods_are_removed(pod: Pod, objects: list[Any], how: Json, expected: list[str] | None) -> None:
    assert removed(pod, *objects, **how) == expected


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


MORE = contender("full", on="n2", cpu=4000, priority=1)
PROTECTED = [*WEB_EVERYWHERE[:3], contender("w2", on="n2", app="web", tier="db"), budget(tier="db")]
TERMINATING = contender("w1", on="n1", app="web", priority=5, terminating=True, preempted=True)
HIGHER = contender("higher", on="n1", app="web", priority=IMPORTANT + 1)
NOMINATED = LONELY | {"nominated": "n1"}
ONE_ZONE = [stage("n1", "z"), stage("n2", "z"), contender("w2", on="n2", app="web")]
IN_ZONE = {"priority": IMPORTANT, "apart": [term("zone", app="web")]}
REJECTED = texts(n1=Reason.ANTI_AFFINITY, n2=Reason.ANTI_AFFINITY)
Plan: TypeAlias = tuple[str, list[str]] | None
# The cluster, the settings of preemption, the names that are requested, fields of the pod, the UID of the victim of a
# plan for the pod on n1, and what results: the plan, and the answer where it matters.
DECISIONS: dict[str, tuple[list[Any], Json, tuple[str, ...], Json, str, Plan, FilterResult | None]] = {
    "the least important victims, and the answer already waits for them": (
        WEB_EVERYWHERE, {}, (), LONELY, "",
        ("n2", ["w2"]), FilterResult((), texts(n2=Reason.PREEMPTING), texts(n1=Reason.ANTI_AFFINITY)),
    ),
    "pods that a budget protects go last": (PROTECTED, {}, (), LONELY, "", ("n1", ["w1"]), None),
    # The scheduler has rejected the other nodes.
    "only requested nodes are chosen": ([*WEB_EVERYWHERE, MORE], {}, ("n1",), LONELY, "", ("n1", ["w1"]), None),
    "a node outside of the sample passes": ([*WEB_EVERYWHERE, stage("n3")], {}, ("n1", "n2"), LONELY, "", None, None),
    "it never preempts": (
        WEB_EVERYWHERE, {}, (), LONELY | {"never_preempts": True}, "", None, FilterResult((), {}, REJECTED),
    ),
    "no pod is less important": (
        WEB_EVERYWHERE, {}, (), LONELY | {"priority": 3}, "", None, FilterResult((), {}, REJECTED),
    ),
    "something else is missing too": (
        WEB_EVERYWHERE, {}, (), LONELY | {"near": [term("host", app="db")]}, "",
        None, FilterResult((), {}, texts(n1=Reason.AFFINITY, n2=Reason.AFFINITY)),
    ),
    "mode advise": (WEB_EVERYWHERE, {"mode": "advise"}, (), LONELY, "", None, None),
    "mode off": (WEB_EVERYWHERE, {"mode": "off"}, (), LONELY, "", None, None),
    "not across the nodes of a zone": (ONE_ZONE, {}, ("n1",), IN_ZONE, "", None, None),
    "across them where the settings say so": (ONE_ZONE, {"crossNode": True}, ("n1",), IN_ZONE, "", ("n1", ["w2"]), None),
    # While a plan runs, the pod waits for its node only where it fits nowhere.
    "only on the nominated node preemption helps": (
        WEB_EVERYWHERE, {}, (), LONELY, "uid-w1",
        None, FilterResult((), texts(n1=Reason.PREEMPTING), texts(n2=Reason.ANTI_AFFINITY)),
    ),
    "the nominated node alone is requested": (
        WEB_EVERYWHERE, {}, ("n1",), LONELY, "uid-w1", None, FilterResult((), texts(n1=Reason.PREEMPTING)),
    ),
    "it passes wherever it fits": (
        [*WEB_EVERYWHERE, stage("n3")], {}, (), LONELY, "uid-w1", None, FilterResult(["n3"]),
    ),
    "a victim still terminates on the nominated node": (
        [*WEB_EVERYWHERE[:2], TERMINATING, WEB_EVERYWHERE[3]], {}, (), NOMINATED, "",
        None, FilterResult((), texts(n1=Reason.PREEMPTING), texts(n2=Reason.ANTI_AFFINITY)),
    ),
    "the victims are deleted": (WEB_EVERYWHERE, {}, (), LONELY, "uid-gone", ("n2", ["w2"]), None),
    "another pod took the room": (
        [*WEB_EVERYWHERE[:2], HIGHER, WEB_EVERYWHERE[3]], {}, (), NOMINATED, "", ("n2", ["w2"]), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("objects", "preemption", "names", "pod", "victim", "plan", "result"), DECISIONS.values(), ids=DECISIONS
)
def test_the_filter_plans_a_preemption_or_waits_for_one(
    objects: list[Object],
    preemption: Json,
    names: tuple[str, ...],
    pod: Json,
    victim: str,
    plan: Plan,
    result: FilterResult | None,
) -> None:
    scene = FilterScene(*objects, preemption=preemption)
    if victim:
        scene.index.nominate_in_memory(contender("asking"), "n1", [victim])
    decision = scene.filter(*names, **pod)
    assert node_and_victims(decision.plan) == plan
    assert result in (None, decision.result)


def test_no_pod_is_preempted_on_hypothetical_nodes() -> None:
    nodes = [node_json("n1"), node_json("n2")]
    decision = FilterScene(*WEB_EVERYWHERE).decide(extender_args(contender_json("asking", **LONELY), nodes=nodes))
    assert (decision.plan, set(decision.result.unresolvable)) == (None, {"n1", "n2"})


class TestUnhelpfulNodes:
    """A node that was tried in vain is not tried again for the same kind of pod, until something changes."""

    BLOCKED = (stage("n1"), contender("w1", on="n1", app="web", priority=IMPORTANT))
    LOW = contender("low", on="n1", priority=1)

    @staticmethod
    def left(scene: FilterScene, args: ExtenderArgs) -> list[str]:
        view = scene.index.view
        return [
            view.node_names[node] for node in scene.verb.unhelpful.without(args.pod, sorted(view.known.values()), view)
        ]

    def test_it_is_cached_and_other_requested_names_are_tried(self) -> None:
        scene = FilterScene(
            *self.BLOCKED, stage("n2"), contender("w2", on="n2", app="web", priority=IMPORTANT), self.LOW
        )
        args = extender_args(contender_json("asking", **LONELY), "n1")
        seen = [self.left(scene, args)]
        for request in (args, extender_args(contender_json("another", **LONELY), "n2")):
            scene.decide(request)
            seen.append(self.left(scene, args))
        assert seen == [["n1", "n2"], ["n2"], []]

    def test_a_node_that_helped_is_not_cached(self) -> None:
        scene = FilterScene(*WEB_EVERYWHERE)
        args = extender_args(contender_json("asking", **LONELY), "n1", "n2")
        assert scene.decide(args).plan
        assert self.left(scene, args) == ["n1", "n2"]

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
        scene = FilterScene(*self.BLOCKED, self.LOW)
        args = extender_args(contender_json("asking", **LONELY), "n1")
        scene.decide(args)
        if change == contender("w1", on="n1", app="web", priority=1):
            scene.index.delete(change)  # a pod's priority never changes: this is another pod
        scene.index.upsert(change)
        assert "n1" in self.left(scene, args)

    def test_another_priority_is_another_request(self) -> None:
        scene = FilterScene(*self.BLOCKED, self.LOW)
        scene.filter()
        assert node_and_victims(scene.filter(**LONELY | {"priority": IMPORTANT + 1}).plan) == ("n1", ["w1"])

    def test_the_kinds_that_were_added_first_are_forgotten_first(self) -> None:
        scene = FilterScene(*self.BLOCKED, self.LOW)
        scene.verb.unhelpful = UnhelpfulNodeCache(most_bytes=64 * 1024)
        kinds = [
            extender_args(contender_json("asking", **LONELY | {"tier": f"t{number}"}), "n1") for number in range(60)
        ]
        for each in kinds:
            scene.decide(each)
        assert (self.left(scene, kinds[0]), self.left(scene, kinds[-1])) == (["n1"], [])

    def test_a_pod_of_the_same_signature_with_smaller_requests_is_tried_again(self) -> None:
        coming = contender("coming", cpu=3000, priority=IMPORTANT, nominated="n1")
        scene = FilterScene(stage("n1", cpu=4000), contender("w1", on="n1", app="web"), coming)
        assert scene.filter(**LONELY, cpu=2000).plan is None
        plan = scene.filter(**LONELY, cpu=500).plan
        assert plan is not None
        assert [victim.name for victim in plan.victims] == ["w1"]


# Nominated pods of equal or higher priority count as present on their node, both ways; others do not.

COMING = coming(IMPORTANT, app="web")
COMING_LARGE = coming(IMPORTANT, cpu=3000)
IN_MEMORY = contender("coming", cpu=2000, priority=IMPORTANT, app="web")
# The pods, fields of the incoming one, and the nodes that pass.
KEPT: dict[str, tuple[list[Any], Json, list[str]]] = {
    "equal priority": ([COMING], LONELY, ["n2"]),
    "lower priority": ([coming(IMPORTANT - 1, app="web")], LONELY, ["n1", "n2"]),
    # Kubernetes' TestUpdateNominatedNodeName: the next request may come before the watch shows the loss.
    **{
        text: ([COMING_LARGE, contender("here", on="n1", **{"cpu": 1500} | other)], {"apart": [], "cpu": 2000}, passed)
        for text, other, passed in (
            ("a pod of higher priority has the room", {"priority": IMPORTANT + 1}, ["n1", "n2"]),
            ("its victim is still there", {"priority": IMPORTANT - 1}, ["n2"]),
            ("its room is free", {"priority": IMPORTANT + 1, "cpu": 0}, ["n2"]),
        )
    },
    "anti-affinity of the nominated pod": (
        [coming(IMPORTANT, apart=[term("host", app="api")])],
        {"priority": IMPORTANT, "app": "api"}, ["n2"],
    ),
    "a pod that is needed near counts once it is there": (
        [coming(IMPORTANT, app="db")],
        {"priority": IMPORTANT, "near": [term("host", app="db")]}, [],
    ),
    "its own nomination": (
        [contender("asking", nominated="n1", **LONELY | {"app": "web"})],
        LONELY | {"app": "web", "nominated": "n1"}, ["n1", "n2"],
    ),
    # The scheduler may not know of a nomination in memory, and would give the room to another pod.
    "room without a constraint": ([IN_MEMORY], {"cpu": 3000, "priority": IMPORTANT}, ["n2"]),
    "room for both": ([IN_MEMORY], {"cpu": 2000, "priority": IMPORTANT}, ["n1", "n2"]),
    "in memory, before the API server knows": ([IN_MEMORY], LONELY, ["n2"]),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "fields", "passed"), KEPT.values(), ids=KEPT)
def test_a_node_is_kept(pods: list[Object], fields: Json, passed: list[str]) -> None:
    scene = FilterScene(stage("n1", cpu=4000), stage("n2", cpu=4000), *(pod for pod in pods if pod is not IN_MEMORY))
    if IN_MEMORY in pods:
        scene.index.nominate_in_memory(IN_MEMORY, "n1", ())
    assert list(scene.filter(**fields).result.passed) == passed


def test_a_pod_rejected_on_every_node_gets_the_reasons() -> None:
    assert FilterScene(stage("n1"), COMING).filter().result == FilterResult((), {}, texts(n1=Reason.NOMINATED))


def test_a_node_that_is_gone_is_kept_for_no_nominated_pod() -> None:
    """A nomination may name a node that was deleted, and a request one that is not known yet."""
    nominated = contender("coming", priority=IMPORTANT, nominated="gone")
    kept = KeptNodes(contender("asking"), cluster(stage("n1"), nominated).view, settings())
    assert kept.among({"gone", "n1"}) == set()


def test_a_nomination_to_a_node_that_is_not_requested_costs_no_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler requests a sample: mostly none of its nodes is nominated."""
    made: list[object] = []
    monkeypatch.setattr(DryRun, "__init__", lambda run, *_, **__: made.append(run))
    scene = FilterScene(stage("n1"), stage("n2"), COMING)
    assert list(scene.filter("n2").result.passed) == ["n2"]
    assert not made
