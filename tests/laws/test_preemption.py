"""Laws of preemption: a plan works, is as small as it can be, and takes no pod that is as important as the preemptor."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.model.objects import Object
from extender.verbs.filter import FilterVerb
from extender.verbs.preempt import decide_preemption
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import extender_args, preempting, settings
from tests.contenders import cluster, contender_json
from tests.laws.cases import case, meets_its_case
from tests.laws.preemption_strategies import (
    APPS,
    NAMES,
    PREEMPTOR,
    after,
    carried,
    check,
    clusters,
    offers,
    refusing,
    rules_pass,
    scheduler_victims,
)


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
    args = extender_args(contender_json("asking", priority=PREEMPTOR, app=app, **fields), *NAMES)
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
    incoming = contender_json("asking", priority=PREEMPTOR, cpu=cpu, app=app, **fields)
    args = preempting(incoming, offers(incoming, held, data))
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
    incoming = contender_json("asking", priority=PREEMPTOR, cpu=cpu, app="in no pod's way")
    theirs = {name: scheduler_victims(incoming, held, name) for name in NAMES}
    offered = {name: [each.uid for each in victims] for name, victims in theirs.items() if victims}
    decision = decide_preemption(preempting(incoming, offered), held.view, settings(), seed)
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
    args = extender_args(contender_json("asking", priority=PREEMPTOR, app=app, **fields), *NAMES)
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
    args = extender_args(pod, *NAMES)
    node, some_pass = find_node_elsewhere(args.pod, held.view, settings(), seed)
    assert audit(held) == []
    passing = [
        name for name in NAMES if FilterVerb(held.view, settings()).decide(extender_args(pod, name), 0).result.passed
    ]
    case(held.view.nominated and len(passing) < len(NAMES))
    assert node in passing if passing else not node
    assert some_pass or not passing
