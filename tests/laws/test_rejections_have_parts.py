"""Law: a rejected node has parts that a recount by hand confirms, and the text in the answer is rendered from them."""

from __future__ import annotations

from typing import Final

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.model.rejections import Code
from extender.rules.frames import IndexFrame, RequestFrame
from extender.rules.rule import MOST_BLAMED
from extender.simulator.json_objects import name_of
from extender.wire.objects.kinds import NODES, PODS
from tests.builders import Json, extender_args, node_json, pod_json, spread, taint
from tests.deciding import filter_nodes
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, built, fresh, prepared
from tests.laws.recounted_rejections import Recount, state_of
from tests.strategies import Step, histories, pods


@meets_its_case
@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_the_parts_of_a_rejection_are_those_of_a_recount(history: list[Step], incoming_pods: list[Json]) -> None:
    index, cluster = built(history, SYSTEM_DEFAULTS)
    state, parts = state_of(cluster), 0
    numbers = dict(sorted(index.view.known.items()))
    for pod in incoming_pods:
        filters = prepared(index.view, pod, IndexFrame())
        if filters.failed is not None:
            continue
        recount = Recount(pod, state)
        for name, number in numbers.items():
            found = filters.verdict(number)
            assert (None if found is None else found.reason) is filters.reason(number)
            recount.check(found, name)
            parts += found is not None
    case(parts)


PLACED: Final = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "n3", "n4"]), st.sampled_from(["web", "web", "db"])), min_size=6, max_size=14
)
CONSTRAINTS: Final = st.lists(
    st.builds(
        spread,
        st.sampled_from(["zone", "zone", "host"]),
        st.sampled_from([1, 1, 2]),
        min_domains=st.sampled_from([None, None, 3]),
        taints_policy=st.sampled_from([None, "Honor"]),
        app=st.just("web"),
    ),
    min_size=1,
    max_size=2,
)


@meets_its_case
@given(PLACED, CONSTRAINTS, st.sets(st.sampled_from(["n1", "n2", "n3", "n4"]), max_size=2))
def test_the_parts_of_skew_are_those_of_a_recount_where_every_domain_has_pods(
    placed: list[tuple[str, str]], constraints: list[Json], tainted: set[str]
) -> None:
    """Unlike in most histories the minimum is above zero, and some pods are on nodes that do not count."""
    cluster = Cluster()
    for number in range(1, 5):
        name = f"n{number}"
        body = node_json(name, zone=f"z{number // 2}", taints=[taint("dedicated", "yes")] if name in tainted else [])
        cluster.objects["nodes", name] = body
    for number, (on, app) in enumerate(placed):
        cluster.objects["pods", f"p{number}"] = pod_json(f"p{number}", on=on, app=app)
    index, pod, state = fresh(cluster, SYSTEM_DEFAULTS), pod_json(app="web", spreads=constraints), state_of(cluster)
    filters, recount, minima = prepared(index.view, pod, IndexFrame()), Recount(pod, state), set()
    for name, number in index.view.known.items():
        found = filters.verdict(number)
        recount.check(found, name)
        minima.add(0 if found is None else found.minimum)
    case(minima - {0})


@meets_its_case
@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_the_text_in_the_answer_is_the_text_of_the_parts(history: list[Step], incoming_pods: list[Json]) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    names, rejected = sorted(index.view.known), 0
    for pod in incoming_pods:
        filters = prepared(index.view, pod, IndexFrame())
        result = filter_nodes(extender_args(pod, *names), index.view, SYSTEM_DEFAULTS, seed=1)
        found = {name: filters.verdict(index.view.known[name]) for name in names}
        if result.passed:
            assert [name for name, each in found.items() if each is None] == sorted(result.passed)
            continue
        texts = {name: each.text for name, each in found.items() if each is not None}
        if result.error:
            assert set(texts.values()) <= {result.error}
            assert filters.failed is not None
            assert filters.failed.status.code is Code.ERROR
        else:
            assert texts == dict(result.unresolvable)
            assert {each.reason for each in found.values() if each is not None} == result.reasons
            rejected += bool(texts)
    case(rejected)


@given(histories(), pods())
def test_nodes_of_the_request_itself_get_the_same_parts(history: list[Step], pod: Json) -> None:
    index, cluster = built(history)
    bodies = sorted(cluster.of("nodes"), key=name_of)
    nodes = [NODES.decode_object(orjson.dumps(body)) for body in bodies]
    known = prepared(index.view, pod, IndexFrame())
    brought = prepared(index.view, pod, RequestFrame(nodes))
    for position, body in enumerate(bodies):
        number = index.view.known[name_of(body)]
        assert brought.verdict(position) == known.verdict(number)


@meets_its_case
@given(histories(), st.lists(pods(), min_size=2, max_size=4), st.lists(pods(), min_size=2, max_size=4))
def test_undetermined_pods_count_in_the_parts_and_are_not_blamed(
    history: list[Step], assumed: list[Json], incoming_pods: list[Json]
) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    names, uncertain = sorted(index.view.known), 0
    if len(names) < 2:  # then they are on it
        case(is_there=False)
    for number, pod in enumerate(assumed):
        body = orjson.dumps(pod | {"metadata": pod["metadata"] | {"uid": f"u{number}", "name": f"assumed-{number}"}})
        index.assume(PODS.decode_object(body), names, now=0.0)
    for pod in incoming_pods:
        filters = prepared(index.view, pod, IndexFrame().worst_case(index.view))
        for node in index.view.known.values():
            found = filters.verdict(node)
            assert (None if found is None else found.reason) is filters.reason(node)
            if found is not None and found.limit is not None:
                assert found.count > found.limit
                assert len(found.blamed) <= found.count
                assert not any("assumed-" in each for each in found.blamed)
                uncertain += len(found.blamed) < min(found.count, MOST_BLAMED)
    case(uncertain)
