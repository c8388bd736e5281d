"""Laws of explain: its verdict is filter's for every pod and node, each change that it offers helps, and it changes nothing."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.simulator.json_objects import name_of
from extender.verbs.filter import FilterVerb
from tests.builders import Json, extender_args, read_pod, settings
from tests.deciding import filter_nodes
from tests.explaining import explained, fits
from tests.laws.cases import case, meets_its_case
from tests.laws.explain_strategies import check_helps, crowded, named, requesting_pods, roomy_clusters
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.strategies import NODE_NAMES, one_of


@meets_its_case
@given(roomy_clusters(), st.lists(requesting_pods(), min_size=2, max_size=4))
def test_the_verdict_is_that_of_filter_for_every_pod_and_node(
    clustered: tuple[ClusterIndex, Cluster], bodies: list[Json]
) -> None:
    index, _ = clustered
    names, rejected = sorted(index.view.known), 0
    for body in bodies:
        passed = set(filter_nodes(extender_args(body, *names), index.view, SYSTEM_DEFAULTS, seed=1).passed)
        for name in names:
            found = explained(index, read_pod(body), SYSTEM_DEFAULTS, name)
            assert found.node is not None
            assert (found.node.passes, found.passing) == (name in passed, len(passed))
            assert found.node.fits == fits(index, read_pod(body), name)
            assert (name in passed and found.node.fits) == (not found.node.obstacles)
            assert not found.is_changed
        rejected += len(names) - len(passed)
    case(rejected)


_PREEMPTING: Final = settings(preemption={"mode": "execute"})


@meets_its_case
@given(
    roomy_clusters(),
    requesting_pods(),
    st.lists(st.tuples(requesting_pods(), st.sets(one_of(NODE_NAMES), min_size=1)), min_size=1, max_size=3),
    st.lists(st.tuples(requesting_pods(), one_of(NODE_NAMES)), max_size=2),
)
def test_the_verdict_is_that_of_filter_beside_assumed_and_nominated_pods(
    clustered: tuple[ClusterIndex, Cluster],
    body: Json,
    assumed: list[tuple[Json, set[str]]],
    nominated: list[tuple[Json, str]],
) -> None:
    index, _ = clustered
    for number, (each, nodes) in enumerate(assumed):
        index.assume(read_pod(named(each, f"assumed-{number}")), sorted(nodes), now=0.0)
    for number, (each, node) in enumerate(nominated):
        index.upsert(read_pod(named(each, f"nominated-{number}") | {"status": {"nominatedNodeName": node}}))
    names, uncertain = sorted(index.view.known), 0
    passed = FilterVerb(index.view, _PREEMPTING).decide(extender_args(body, *names), 0).result.passed
    found = explained(index, read_pod(body), _PREEMPTING)
    assert found.passing == len(passed)
    for name in names:
        state = explained(index, read_pod(body), _PREEMPTING, name).node
        assert state is not None
        assert state.passes == (name in passed)
        uncertain += any(each.reason == "nominated" for each in state.obstacles)
    case(uncertain or index.view.is_undetermined(index.view.compiled(read_pod(body).signature)))


@meets_its_case
@given(roomy_clusters(), st.lists(requesting_pods(), min_size=2, max_size=4))
def test_every_change_that_is_offered_lets_the_pod_pass_and_fit_once_it_is_applied_to_a_copy(
    clustered: tuple[ClusterIndex, Cluster], bodies: list[Json]
) -> None:
    index, cluster = clustered
    tried = 0
    for body in bodies:
        for change in explained(index, read_pod(body), SYSTEM_DEFAULTS).changes:
            check_helps(change, cluster, body)
            tried += 1
    case(tried)


@meets_its_case
@given(crowded())
def test_moving_one_pod_lets_the_other_pass_and_the_moved_pod_may_stay_where_it_goes(
    found: tuple[Cluster, Json],
) -> None:
    cluster, body = found
    moves = 0
    for change in explained(fresh(cluster, SYSTEM_DEFAULTS), read_pod(body), SYSTEM_DEFAULTS).changes:
        check_helps(change, cluster, body)
        if change.kind == "movePod":
            moved = next(each for each in cluster.of("pods") if f"default/{name_of(each)}" in change.pods)
            without = Cluster({key: each for key, each in cluster.objects.items() if each is not moved})
            again = {**moved, "spec": {name: value for name, value in moved["spec"].items() if name != "nodeName"}}
            index = fresh(without, SYSTEM_DEFAULTS)
            assert filter_nodes(extender_args(again, change.to), index.view, SYSTEM_DEFAULTS, seed=1).passed == [
                change.to
            ]
            assert fits(index, read_pod(again), change.to)
            moves += 1
    case(moves)


@given(roomy_clusters(), st.lists(requesting_pods(), min_size=2, max_size=4))
def test_an_explanation_leaves_every_count_as_it_was(
    clustered: tuple[ClusterIndex, Cluster], bodies: list[Json]
) -> None:
    index, _ = clustered
    for body in bodies:
        pod = read_pod(body)
        before = index.view.dependency_version(index.view.compiled(pod.signature))
        explained(index, pod, SYSTEM_DEFAULTS)
        assert index.view.dependency_version(index.view.compiled(pod.signature)) == before
    assert audit(index) == []
