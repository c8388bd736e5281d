"""Laws of preemption: a plan works, is as small as it can be, and takes no pod that is as important as the preemptor."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.preemption import PreemptionPlan
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.filter import FilterVerb
from extender.verbs.preempt import decide_preemption
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import asking, preempting, settings, term
from tests.contenders import cluster, contender_json
from tests.laws.cases import case, meets_its_case
from tests.laws.preemption_strategies import (
    APPS,
    CONSTRAINTS,
    NAMES,
    PREEMPTOR,
    carried,
    clusters,
    offers,
    scheduler_victims,
)

CONSTRAINTS_ON_DB = [
    each for each in CONSTRAINTS if each in ({"apart": [term(key, app="db")]} for key in ("host", "zone"))
]


def in_the_way(fields: dict[str, Any]) -> str:
    """The app whose pods keep a pod with these constraints away from the nodes around them."""
    return "db" if fields in CONSTRAINTS_ON_DB else "web"


@st.composite
def refusing(
    draw: st.DrawFn, of_priority: st.SearchStrategy[int], most: int = 8
) -> tuple[dict[str, Any], list[Object]]:
    """Constraints of a preemptor, and a cluster with a pod on each node that is mostly in its way."""
    fields = draw(st.sampled_from([*CONSTRAINTS, *CONSTRAINTS[:5], *CONSTRAINTS[:5]]))
    app = in_the_way(fields)
    blocking = st.tuples(*(st.tuples(st.just(name), st.just(app), of_priority, carried, st.just(False), st.just(0)) for name in NAMES))  # fmt: skip
    return fields, draw(clusters(blocking.map(list), most))


def rivals_of(pod: Pod, held: ClusterIndex, node: str) -> list[Pod]:
    """The pods that are to come to the node and may take the pod's place."""
    nominated = held.view.nominated.get(node, {}).values()
    return [each for each in nominated if each.priority >= pod.priority and each.uid != pod.uid]


def passes_beside(conflicting: dict[str, list[Pod]], held: ClusterIndex, pod: Pod, node: str) -> bool:
    """Whether our rules let the pod pass while these pods stand on their nodes."""
    with held.view.what_if() as tried:
        for name, each in ((name, each) for name, pods in conflicting.items() for each in pods):
            tried.place(each, held.view.known[name])
        compiled = held.view.compiled(pod.signature)
        return catalog.prepare_filters(pod, compiled, held.view, IndexFrame()).reason(held.view.known[node]) is None


def rules_pass(held: ClusterIndex, pod: Pod, node: str, *, room: bool = False) -> bool:
    """Whether our rules let the pod pass, with and without the pods that are to come to the node.

    ``room``: node fit counts too. It always does beside pods to come, as the scheduler may not know of them yet.
    """
    conflicting = rivals_of(pod, held, node)
    fit = catalog.NODE_FIT.on_node(pod, held.view, held.view.known[node], conflicting)
    if (conflicting or room) and not (fit is not None and fit.passes()):
        return False
    return passes_beside({}, held, pod, node) and passes_beside({node: conflicting}, held, pod, node)


def rules_pass_beside_all(held: ClusterIndex, pod: Pod, node: str) -> bool:
    """Whether our rules let the pod pass beside all pods that are to come anywhere.

    A plan may be made so that it holds then as well, and so may be larger than it has to be for the scheduler.
    """
    return passes_beside({name: rivals_of(pod, held, name) for name in NAMES}, held, pod, node)


def after(objects: list[Object], gone: tuple[Pod, ...]) -> ClusterIndex:
    """The same cluster without these pods."""
    uids = {each.uid for each in gone}
    return cluster(*(each for each in objects if not (isinstance(each, Pod) and each.uid in uids)))


def check(
    plan: PreemptionPlan, objects: list[Object], spareable: tuple[Pod, ...] | None = None, *, room: bool = False
) -> None:
    """The laws for one plan; ``spareable`` are the victims that we added ourselves, if not all."""
    pod = plan.preemptor
    assert plan.victims
    assert all(each.priority < pod.priority for each in plan.victims)
    assert list(plan.victims) == sorted(plan.victims, key=lambda each: -each.priority)
    assert all(each.priority < pod.priority and each.nominated_node == plan.node for each in plan.displaced)
    assert rules_pass(after(objects, plan.victims), pod, plan.node, room=room)
    for spared in plan.victims if spareable is None else spareable:
        left = tuple(each for each in plan.victims if each.uid != spared.uid)
        held = after(objects, left)
        needless = rules_pass(held, pod, plan.node, room=room) and rules_pass_beside_all(held, pod, plan.node)
        assert not needless, f"{spared.name} goes for nothing"


@meets_its_case
@given(
    rejection=refusing(st.sampled_from([PREEMPTOR - 2, PREEMPTOR - 1, PREEMPTOR]), most=4),
    app=st.sampled_from(APPS),
    across=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_plan_of_the_filter_works_and_is_minimal(
    *,
    rejection: tuple[dict[str, Any], list[Object]],
    app: str,
    across: bool,
    seed: int,
) -> None:
    fields, objects = rejection
    held = cluster(*objects)
    by = settings(preemption={"crossNode": across})
    args = asking(contender_json("asking", priority=PREEMPTOR, app=app, **fields), *NAMES)
    decision = FilterVerb(held.view, by).decide(args, seed)
    assert audit(held) == []
    case(decision.plan is not None)
    assert decision.plan is not None
    assert not decision.result.passed
    check(decision.plan, objects)


@meets_its_case
@given(clusters(), carried, st.sampled_from(APPS), st.sampled_from([1000, 2000, 3000]), st.data())
def test_a_plan_of_the_preempt_verb_is_minimal_whatever_the_request_holds_and_the_rest_goes_back_as_it_came(
    objects: list[Object], fields: dict[str, Any], app: str, cpu: int, data: st.DataObject
) -> None:
    held = cluster(*objects)
    asking = contender_json("asking", priority=PREEMPTOR, cpu=cpu, app=app, **fields)
    args = preempting(asking, offers(asking, held, data))
    decision = decide_preemption(args, held.view, settings(), 0)
    assert audit(held) == []
    assert all(each in args.candidates for each in decision.candidates)
    assert len(decision.candidates) <= (decision.plan is None)
    case(decision.plan is not None)
    assert decision.plan is not None
    check(decision.plan, objects, room=True)
    assert not any(rules_pass(held, args.pod, node, room=True) for node in NAMES), "no preemption is needed"


@meets_its_case
@given(clusters(), st.sampled_from([3000, 4000]), st.integers(0, 9))
def test_what_a_scheduler_offers_for_room_alone_is_what_the_plan_removes(
    objects: list[Object], cpu: int, seed: int
) -> None:
    held = cluster(*objects)
    asking = contender_json("asking", priority=PREEMPTOR, cpu=cpu, app="in no pod's way")
    theirs = {name: scheduler_victims(asking, held, name) for name in NAMES}
    offered = {name: [each.uid for each in victims] for name, victims in theirs.items() if victims}
    decision = decide_preemption(preempting(asking, offered), held.view, settings(), seed)
    case(decision.plan is not None and decision.plan.node in offered)
    assert decision.plan is not None
    assert decision.plan.victims == theirs[decision.plan.node]


@meets_its_case
@given(refusing(st.sampled_from([PREEMPTOR] * 9 + [PREEMPTOR - 1])), st.sampled_from(APPS))
def test_where_the_filter_makes_no_plan_no_removal_on_one_node_would_help(
    rejection: tuple[dict[str, Any], list[Object]], app: str
) -> None:
    fields, objects = rejection
    held = cluster(*objects)
    args = asking(contender_json("asking", priority=PREEMPTOR, app=app, **fields), *NAMES)
    decision = FilterVerb(held.view, settings()).decide(args, 0)
    case(decision.plan is None and not decision.result.passed)
    for node in NAMES:
        lower = tuple(each for each in held.pods.values() if each.node == node and each.priority < PREEMPTOR)
        assert not lower or not rules_pass(after(objects, lower), args.pod, node)


@meets_its_case
@given(clusters(st.just([]), most=4), carried, st.sampled_from(APPS), st.integers(0, 9))
def test_a_pod_is_nominated_elsewhere_only_where_the_filter_would_let_it_pass(
    objects: list[Object], fields: dict[str, Any], app: str, seed: int
) -> None:
    held = cluster(*objects)
    pod = contender_json("asking", priority=PREEMPTOR - 2, app=app, **fields)
    args = asking(pod, *NAMES)
    node, some_pass = find_node_elsewhere(args.pod, held.view, settings(), seed)
    assert audit(held) == []
    passing = [name for name in NAMES if FilterVerb(held.view, settings()).decide(asking(pod, name), 0).result.passed]
    case(held.view.nominated and len(passing) < len(NAMES))
    assert node in passing if passing else not node
    assert some_pass or not passing
