"""The dry run for one node: which pods have to go, which are spared, in which order, and what it may cost."""

from __future__ import annotations

from typing import Any

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import Group
from extender.index.disruption_budgets import MOST_BUDGETS
from extender.index.nodes.topology import NodePods
from extender.model.objects import DisruptionBudget, Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.verbs import dry_run
from extender.verbs.dry_run import DryRun, best_among, is_forbidden, violating_budgets
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs
from tests.builders import Json, matching, settings, term
from tests.contenders import budget, cluster, contender, contender_json, stage
from tests.index.counting import unlimited
from tests.index.test_compile_costs import Calls

IMPORTANT = 100


def removed(
    asking: Pod,
    *objects: Object,
    node: str = "n1",
    taken: tuple[Pod, ...] = (),
    room: bool = False,
    across: bool = False,
) -> list[str] | None:
    """The names of the victims in the order of the answer; None where nothing helps."""
    held = cluster(*objects)
    removal = DryRun(asking, held.view, across=across).on(held.view.known[node], taken, checks_fit=room)
    assert audit(held) == [], "a dry run leaves no trace"
    return None if removal is None else [each.name for each in removal.victims]


def web(name: str, on: str = "n1", **fields: object) -> Pod:
    return contender(name, on=on, app="web", **fields)


def lonely(name: str = "asking", **fields: object) -> Pod:
    return contender(name, priority=IMPORTANT, apart=[term("host", app="web")], **fields)


def large(cpu: int = 2000, **fields: object) -> Pod:
    return contender("asking", cpu=cpu, priority=IMPORTANT, **fields)


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


def terms(number: int, key: str = "host") -> list[Json]:
    """So many different terms about web pods."""
    return [term(key, selector=matching((f"x{each}", "DoesNotExist", []), app="web")) for each in range(number)]


def preemptor(number: int = 30, key: str = "host") -> Pod:
    return unlimited(contender_json("asking", priority=100, apart=terms(number, key)))


def crowd(nodes: int, pods: int = 3, *, spared: int = -1) -> ClusterIndex:
    """On each node web pods that may go and one that may not, except on the node ``spared``."""
    made = cluster(*(stage(f"n{number}", "z1") for number in range(nodes)))
    for number in range(nodes):
        for each in range(pods):
            made.upsert(contender(f"w{number}-{each}", on=f"n{number}", app="web"))
        if number != spared:
            made.upsert(contender(f"high-{number}", on=f"n{number}", priority=1000, app="web"))
    return made


def search(index: ClusterIndex, pod: Pod) -> tuple[DryRun, str]:
    """The run over all nodes, and the node that it found."""
    run = DryRun(pod, index.view)
    removal = best_among(sorted(index.view.known.values()), run, 0)
    return run, "" if removal is None else removal.node


def test_many_terms_cost_no_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MOST_WORK", 5_000)
    index, changes = crowd(40), Calls(monkeypatch, (Group, "add"))
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
