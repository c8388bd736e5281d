"""Whatever has come and gone, every table of the index has as many entries as before.

Counted over all containers that can be reached from the index, so a table that is added later is held to the same law.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from extender.index.audit import audit
from extender.index.counts import compiled_constraints
from extender.model.objects import Object, Pod
from tests.builders import index_of, matching, namespace, node, pod, pod_json, term, workload
from tests.index.counting import unlimited
from tests.laws.table_sizes import (
    ROUNDS,
    bytes_of,
    containers,
    entries,
    incoming,
    keyed,
    labelled,
    lost,
    standing,
    wide,
)

MAKERS: list[Callable[[int], Pod]] = [incoming, labelled, keyed, wide, lost]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "all at once"])
def test_pods_that_were_requested_and_deleted_leave_no_entry(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Pod], *, together: bool
) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_IDLE", 0)
    index = standing()
    before, sizes = entries(index), index.statistics()
    here: list[Pod] = []
    for number in range(ROUNDS):
        here.append(made := make(number))
        index.view.compiled(made.signature)
        index.upsert(made)
        index.assume(made, (), 0.0)
        if not together:
            index.delete(here.pop())
    grown = entries(index)
    for each in here:
        index.delete(each)
    assert grown > before + ROUNDS or not together
    assert entries(index) <= before + 32  # node numbers that columns have room for
    assert index.statistics() == sizes
    assert audit(index) == []


def test_tables_that_have_emptied_give_their_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary that only loses entries stays as large as it ever was."""
    monkeypatch.setattr(compiled_constraints, "MOST_IDLE", 0)
    index, here = standing(), list[Pod]()
    before = sum(map(sys.getsizeof, containers(index)))
    for number in range(1_000):
        near = [term(f"example.com/{number}-{each}", app=f"a{number}") for each in range(5)]
        here.append(made := unlimited(pod_json(f"p{number}", on="n1", app=f"a{number}", near=near)))
        index.upsert(made)
        index.view.compiled(made.signature)
    grown = sum(map(sys.getsizeof, containers(index)))
    for made in here:
        index.delete(made)
    assert grown > before + 2**20
    assert sum(map(sys.getsizeof, containers(index))) < before + 2**17


@pytest.mark.parametrize("requested", [False, True])
def test_a_term_over_a_key_that_no_node_carries_costs_what_it_was_parsed_to(*, requested: bool) -> None:
    """A term and its key in a few tuples, and the JSON in a cache: 200 bytes. With a group and its tables it would be 1,400."""

    def make(number: int) -> Pod:
        return unlimited(
            pod_json(f"p{number}", on="n1", app="x", apart=[term(f"example.com/{number}-{n}") for n in range(500)])
        )

    assert bytes_of(make, requested=requested) / (ROUNDS * 500) < 250


def test_objects_of_other_kinds_leave_no_entry() -> None:
    index = standing()
    before = entries(index)
    for number in range(ROUNDS):
        passing: list[Object] = [
            namespace(f"ns{number}", team=f"t{number}"),
            workload("Service", f"svc{number}", {"app": "web"}, namespace=f"ns{number}"),
            workload("ReplicaSet", f"rs{number}", matching(app="web"), namespace=f"ns{number}"),
            node(f"spot-{number}", labels={f"label-{number}": "x"}),
        ]
        for each in passing:
            index.upsert(each)
        for each in passing:
            index.delete(each)
    assert entries(index) <= before + 32


def test_a_few_requests_of_pods_that_have_gone_are_kept_for_the_next_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_IDLE", 3)
    index, kept = standing(), {}
    before = len(index.counts.compiler)
    for number in range(10):
        made = incoming(number)
        index.upsert(made)
        kept[number] = index.view.compiled(made.signature), made
        index.delete(made)
    assert len(index.counts.compiler) == before + 3
    assert [index.view.compiled(made.signature) is compiled for compiled, made in list(kept.values())[-3:]] == [
        True
    ] * 3


def test_constraints_stay_compiled_while_pods_are_bound_with_further_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "IDLE_BYTES", 0)
    monkeypatch.setattr(compiled_constraints, "IDLE_BYTES_A_POD", 50_000)
    index = index_of(
        *(node(f"n{number}") for number in range(300)),
        *(pod(f"w{number}", on=f"n{number}", app="web") for number in range(300)),
    )
    templates = [[term(selector=matching(("app", "In", ["web", f"x{each}"])))] for each in range(200)]
    compiled = []
    for number, template in enumerate(templates):
        index.upsert(made := pod(f"p{number}", apart=template))
        compiled.append((index.view.compiled(made.signature), made))
        index.upsert(pod(f"p{number}", on="n1", labels={"topology.kubernetes.io/zone": "z"}, apart=template))
    assert sum(index.view.compiled(made.signature) is kept for kept, made in compiled) == len(templates)
    for each in list(index.view.pods_on(index.view.known["n1"]).values()):
        index.delete(each)
    monkeypatch.setattr(compiled_constraints, "IDLE_BYTES_A_POD", 1_000)
    index.upsert(last := pod("last", on="n1"))
    index.delete(last)
    assert len(index.counts.compiler) < len(templates) / 10


def test_idle_requests_are_kept_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "IDLE_BYTES", 0)
    monkeypatch.setattr(compiled_constraints, "IDLE_BYTES_A_POD", 0)
    index = standing()
    before = len(index.counts.compiler)
    made = incoming(1)
    index.upsert(made)
    index.view.compiled(made.signature)
    index.delete(made)
    assert len(index.counts.compiler) == before


def test_a_request_whose_pods_are_back_is_idle_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_IDLE", 1)
    index, made = standing(), incoming(1)
    index.upsert(made)
    compiled = index.view.compiled(made.signature)
    index.delete(made)
    index.upsert(made)
    for number in range(2, 6):
        other = incoming(number)
        index.upsert(other)
        index.view.compiled(other.signature)
        index.delete(other)
    assert index.view.compiled(made.signature) is compiled
