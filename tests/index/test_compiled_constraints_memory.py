"""Compiled constraints are kept within a number of bytes, and nothing else keeps the groups of a signature that was dropped."""

from __future__ import annotations

import gc

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts import compiled_constraints
from extender.index.counts.groups import Group
from extender.rules.interpod_affinity import own_terms
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from tests.builders import Json, asking, index_of, matching, node, pod, pod_json, settings, spread, term
from tests.contenders import contender_json
from tests.index.counting import compiled_of, drop_all

SETTINGS: Settings = settings(preemption={"mode": "execute"})


def cluster(nodes: int = 20) -> ClusterIndex:
    """Nodes in two zones with a web pod on each."""
    made = index_of(*(node(f"n{number}", zone=f"z{number % 2}") for number in range(nodes)))
    for number in range(nodes):
        made.upsert(pod(f"w{number}", on=f"n{number}", app="web"))
    return made


def small(number: int) -> Json:
    return pod_json(near=[term("zone", app=f"app-{number}")])


def large(number: int, terms: int = 50) -> Json:
    """Each term counts the web pods in a group of its own."""
    odd = [term(selector=matching((f"x{number}-{each}", "DoesNotExist", []), app="web")) for each in range(terms)]
    return pod_json(apart=odd)


def test_large_requests_go_for_others_before_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 1_200_000)
    index, most = cluster(), 0
    for number in range(30):
        compiled_of(index, large(number))
        most = max(most, index.counts.compiler.bytes)
    assert (most <= 1_200_000, 1 < len(index.counts.compiler) < 8) == (True, True)
    assert index.statistics()["term_groups"] == 50 * len(index.counts.compiler)
    assert audit(index) == []


def test_a_request_that_is_too_large_by_itself_is_answered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 50_000)
    index = cluster()
    for number in range(5):
        compiled_of(index, small(number))
    assert len(own_terms(compiled_of(index, large(1))).anti) == 50
    assert len(index.counts.compiler) == 1


@pytest.mark.parametrize(("pods", "are_all_kept"), [(20, False), (200, True)])
def test_with_more_pods_more_is_kept(pods: int, *, are_all_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of 2,000 workloads grow with their pods. What is kept for too few of them is compiled for each request."""
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 50_000)
    monkeypatch.setattr(compiled_constraints, "BYTES_A_POD", 1000)
    index = cluster(pods)
    for number in range(30):
        compiled_of(index, small(number))
    assert (len(index.counts.compiler) == 30) is are_all_kept


def test_columns_of_scopes_are_charged_once_however_many_requests_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = cluster(200)
    for number in range(10):
        compiled_of(index, pod_json(spreads=[spread("zone", app=f"a{number}")]))
    shared = index.counts.compiler.bytes
    for number in range(10):
        wanted = pod_json(spreads=[spread("zone", app=f"a{number}")], node_terms=[{"matchExpressions": []}])
        compiled_of(index, {**wanted, "spec": {**wanted["spec"], "nodeSelector": {"disk": f"d{number}"}}})
    assert index.topology.scope_cells < 2 * 250, "no node is eligible for the others"
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", shared)
    compiled_of(index, small(1))
    assert index.counts.compiler.bytes <= shared


def test_everything_is_given_back_with_the_last_request() -> None:
    index = cluster()
    compiled_of(index, large(1))
    compiled_of(index, pod_json(spreads=[spread("zone", app="web")]))
    drop_all(index)
    assert (index.counts.compiler.bytes, index.topology.scope_cells) == (0, 0)


def test_what_is_cached_of_a_rejection_does_not_keep_a_request_that_was_dropped() -> None:
    """Neither the nodes tried in vain, nor the answer, nor the list of refused pods."""
    index = cluster(2)
    verb = FilterVerb(index.view, SETTINGS)
    unhelpful, memory = verb.unhelpful, verb.rejections
    index.upsert(node("n2", zone="z0"))  # passes, and is not asked about
    index.upsert(pod("low", on="n1", priority=-1))
    for name in ("w0", "w1"):
        index.upsert(pod(name, on=f"n{name[1]}", app="web", priority=1000))
    args = asking(contender_json("asking", priority=100, apart=[term(app="web")]), "n0", "n1")
    verb.decide(args, 0)
    assert len(memory) == 1
    assert unhelpful.without(args.pod, [0, 1], index.view) == []
    groups = {id(group) for group in index.view.compiled(args.pod.signature).filter_groups()}
    drop_all(index)
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is Group and id(each) in groups] == []
    assert unhelpful.without(args.pod, [0, 1], index.view) == [0, 1]
