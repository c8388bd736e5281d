"""A what-if counts as if the change were real, and leaves no trace."""

from __future__ import annotations

from contextlib import suppress

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.model.objects import Pod
from extender.rules.catalog import prepare_filters
from extender.rules.frames import IndexFrame
from tests.builders import term
from tests.contenders import cluster, contender, stage

ASKING = contender("asking", app="web", apart=[term("host", app="web")])


def passing(held: ClusterIndex, compiled: CompiledConstraints | None = None) -> list[str]:
    filters = prepare_filters(ASKING, compiled or held.view.compiled(ASKING.signature), held.view, IndexFrame())
    return [held.view.node_names[node] for node in filters.passing(sorted(held.view.known.values()))]


def web(name: str, on: str = "", **fields: object) -> Pod:
    return contender(name, on=on, app="web", **fields)


def test_pods_that_are_taken_and_put_back_change_the_answer_one_by_one() -> None:
    first, second = web("w1", on="n1"), web("w2", on="n2")
    held = cluster(stage("n1"), stage("n2"), first, second)
    compiled = held.view.compiled(ASKING.signature)
    with held.view.what_if() as tried:
        seen = [passing(held, compiled)]
        for step in (tried.take, tried.put_back):
            for each in (first, second):
                step(each)
                seen.append(passing(held, compiled))
    assert seen == [[], ["n1"], ["n1", "n2"], ["n2"], []]


def test_a_pod_is_taken_once_however_often_it_is_said() -> None:
    there = web("w1", on="n1")
    held = cluster(stage("n1"), there)
    passing(held)
    with held.view.what_if() as tried:
        tried.take(there)
        tried.take(there)
        tried.put_back(there)
        tried.put_back(there)
        inside = passing(held)
    assert (inside, audit(held)) == ([], [])


def test_a_pod_that_is_made_to_stand_counts_with_its_own_terms_too() -> None:
    held = cluster(stage("n1"), stage("n2"))
    coming = contender("coming", apart=[term("host", app="web")])
    with held.view.what_if() as tried:
        tried.place(coming, held.view.known["n1"])
        inside = passing(held)
        tried.remove_placed()
        after = passing(held)
    assert (inside, after) == (["n2"], ["n1", "n2"])


def test_afterwards_everything_is_as_it_was() -> None:
    there = web("w1", on="n1")
    held = cluster(stage("n1"), stage("n2"), there)
    compiled = held.view.compiled(ASKING.signature)
    before = held.view.dependency_version(compiled), held.statistics()
    with held.view.what_if() as tried:
        tried.take(there)
        tried.place(web("coming"), held.view.known["n2"])
    assert (held.view.dependency_version(compiled), held.statistics()) == before
    assert audit(held) == []
    assert held.view.compiled(ASKING.signature) is compiled


def test_a_failure_inside_leaves_no_trace_either() -> None:
    there = web("w1", on="n1")
    held = cluster(stage("n1"), there)
    passing(held)

    def fail() -> None:
        raise LookupError

    with suppress(LookupError), held.view.what_if() as tried:
        tried.take(there)
        fail()
    assert audit(held) == []


def test_only_pods_that_a_request_counts_are_counted_for_it() -> None:
    there, other = web("w1", on="n1"), contender("other", on="n1", app="db")
    held = cluster(stage("n1"), there, other)
    compiled = held.view.compiled(ASKING.signature)
    assert [held.view.is_counted(each, frozenset(compiled.filter_groups())) for each in (there, other)] == [True, False]
