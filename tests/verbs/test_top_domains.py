"""Long questions with preferences that attract: found from the fullest domains down, the same as by ranking all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.rules import catalog
from extender.rules.catalog import counts_of_rules
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import InterPodAffinity
from extender.rules.rule import RankedGroup
from extender.settings.configuration import Settings
from extender.verbs import ranking
from extender.verbs.request import RequestedNodes, Search
from extender.wire.objects.kinds import NODES, PODS

HOST = "kubernetes.io/hostname"
NODES_THERE = 40


def _near(weight: int) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"weight": weight, "podAffinityTerm": term}


def _pod(name: str, app: str, weight: int, on: str = "") -> dict[str, Any]:
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_near(weight)]}}
    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "bad"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spec = {"affinity": affinity | anti, **({"nodeName": on} if on else {})}
    return {"metadata": {"name": name, "uid": name, "namespace": "ns", "labels": {"app": app}}, "spec": spec}


def ranked_groups(compiled: CompiledConstraints, index: ClusterIndex) -> Sequence[RankedGroup]:
    return InterPodAffinity().ranked_groups(compiled, index.view, NODES_THERE, Settings().rules)


@settings(max_examples=60, deadline=None)
@given(
    placed=st.lists(
        st.tuples(st.integers(0, NODES_THERE - 1), st.sampled_from(["web", "web", "bad"]), st.sampled_from([1, 5])),
        max_size=60,
    ),
    asked=st.sets(st.integers(0, NODES_THERE - 1), min_size=1),
    most=st.integers(1, 12),
    turn=st.integers(0, 1000),
)
def test_the_ranks_are_those_of_the_best_nodes(
    placed: list[tuple[int, str, int]], asked: set[int], most: int, turn: int
) -> None:
    index = ClusterIndex(Settings().rules, counts_of_rules())
    for number in range(NODES_THERE):
        name = f"n{number}"
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
    for number, (node, app, weight) in enumerate(placed):
        index.upsert(PODS.decode_object(orjson.dumps(_pod(f"p{number}", app, weight, f"n{node}"))))
    pod = PODS.decode_object(orjson.dumps(_pod("asking", "web", 3)))
    compiled = index.view.compiled(pod.signature)
    filters = catalog.prepare_filters(pod, compiled, index.view, IndexFrame())
    groups = ranked_groups(compiled, index)
    names = [f"n{number}" for number in sorted(asked)]
    if not groups:
        return
    assert ranking.has_small_domains(groups)
    search = Search(compiled, filters, RequestedNodes(names, IndexFrame(), index.view), index.view, Settings())
    ranked = ranking.best_by_top_domains(groups, search, most, turn % len(names))

    def rank(node: int) -> float:
        return float(sum(part.weight * part.group.counts.get(part.group.key.of_node[node], 0) for part in groups))

    passing = filters.passing([index.view.known[name] for name in names])
    assert [found for found, _ in ranked] == sorted(map(rank, passing), reverse=True)[:most]
    assert all(rank(node) == found and node in passing for found, node in ranked)
    assert len({node for _, node in ranked}) == len(ranked)
    best = {node for node in passing if rank(node) == max(map(rank, passing))}
    equals = ranking.equals_by_top_domains(groups, search, most, turn % len(names))
    assert len(set(equals)) == len(equals) >= min(most, len(best))
    assert set(equals) <= best


@pytest.mark.parametrize("refusing", range(12))
def test_as_many_nodes_are_found_as_are_wanted_however_many_reject(refusing: int) -> None:
    """Where few attract, the rest is looked up a piece at a time; no piece may be the last too early."""
    index = ClusterIndex(Settings().rules, counts_of_rules())
    names = [f"n{number}" for number in range(NODES_THERE)]
    for name in names:
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
    for name in names[:refusing]:
        index.upsert(PODS.decode_object(orjson.dumps(_pod(f"bad-{name}", "bad", 1, name))))
    index.upsert(PODS.decode_object(orjson.dumps(_pod("web", "web", 1, names[-1]))))
    pod = PODS.decode_object(orjson.dumps(_pod("asking", "web", 3)))
    compiled = index.view.compiled(pod.signature)
    filters, groups = catalog.prepare_filters(pod, compiled, index.view, IndexFrame()), ranked_groups(compiled, index)
    search = Search(compiled, filters, RequestedNodes(names, IndexFrame(), index.view), index.view, Settings())
    for most in (2, 3):
        ranked = ranking.best_by_top_domains(groups, search, most, 0)
        assert [index.view.node_names[node] for _, node in ranked] == [
            names[-1],
            *names[refusing : refusing + most - 1],
        ]


@pytest.mark.parametrize("weight", [1, -1])
def test_only_preferences_that_attract_are_sought_from_the_top(weight: int) -> None:
    index = ClusterIndex(Settings().rules, counts_of_rules())
    index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": "n", "labels": {HOST: "n"}}})))
    kind = "podAffinity" if weight > 0 else "podAntiAffinity"
    spec = {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [_near(1)]}}, "nodeName": "n"}
    raw = {"metadata": {"name": "p", "uid": "p", "namespace": "ns", "labels": {"app": "web"}}, "spec": spec}
    pod = PODS.decode_object(orjson.dumps(raw))
    index.upsert(pod)
    assert ranking.has_small_domains(ranked_groups(index.view.compiled(pod.signature), index)) == (weight > 0)


def test_for_equals_no_domain_is_tried_that_is_worse_than_a_node_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, names = ClusterIndex(Settings().rules, counts_of_rules()), [f"n{number}" for number in range(NODES_THERE)]
    for name in names:
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
        index.upsert(PODS.decode_object(orjson.dumps(_pod(f"web-{name}", "web", 1, name))))
    for name in names[:3]:
        index.upsert(PODS.decode_object(orjson.dumps(_pod(f"more-{name}", "web", 1, name))))
    pod = PODS.decode_object(orjson.dumps(_pod("asking", "web", 3)))
    compiled = index.view.compiled(pod.signature)
    filters = catalog.prepare_filters(pod, compiled, index.view, IndexFrame())
    requested = RequestedNodes(names[1:20], IndexFrame(), index.view)
    search, tried, passing = Search(compiled, filters, requested, index.view, Settings()), list[int](), Search.passing

    def counted(asked: Search, nodes: Sequence[int]) -> Sequence[int]:
        tried.append(len(nodes))
        return passing(asked, nodes)

    monkeypatch.setattr(Search, "passing", counted)
    found = ranking.equals_by_top_domains(ranked_groups(compiled, index), search, 32, 0)
    assert sorted(index.view.node_names[node] for node in found) == ["n1", "n2"]
    assert sum(tried) == 2
