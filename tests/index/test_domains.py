"""Nodes and domains by number: where a node stands, and that a domain without nodes is forgotten."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from extender.index.nodes.domains import Inclusion, KeyDomains, Scope
from extender.index.nodes.topology import Topology
from extender.model.constraints.labels import ZONE
from extender.model.constraints.node_affinity import NodeAffinity, node_selector
from extender.model.constraints.taints import Toleration
from tests.builders import node, taint


def placed(topology: Topology, name: str, zone: str) -> int:
    """The number of a node that is put into a zone; none where it is empty."""
    number = topology.number(name)
    topology.put(number, node(name, zone=zone))
    return number


def by_value(key: KeyDomains) -> dict[str, set[int]]:
    """The nodes of each domain."""
    return {key.value(domain): set(nodes) for domain, nodes in key.nodes_in.items()}


def test_the_number_of_a_domain_without_nodes_goes_to_the_next_new_domain() -> None:
    """Otherwise labels that change for ever would make every column of counts longer for ever."""
    topology = Topology()
    key = topology.key(ZONE)
    for turn in range(20):
        placed(topology, "n1", f"z{turn}")
    assert set(key.number_of) == {"z19"}
    assert max(key.number_of.values()) <= 2
    assert key.value(key.number_of["z19"]) == "z19"


def test_what_is_released_at_once_leaves_nothing() -> None:
    topology = Topology()
    topology.acquire_scope(topology.key(ZONE), Inclusion(keys=frozenset([ZONE])))
    placed(topology, "n1", "z1")
    before = Topology()
    topology.release_all()
    assert topology.scope_cells == before.scope_cells
    assert topology.statistics() == before.statistics() | {"nodes": 1}


DISK = "disk"
INCLUSIONS = {
    "zone": Inclusion(keys=frozenset([ZONE])),
    "zone and disk": Inclusion(keys=frozenset([ZONE, DISK])),
    "selector": Inclusion(keys=frozenset([ZONE]), affinity=NodeAffinity(node_selector({DISK: "ssd"}))),
    "taints": Inclusion(keys=frozenset([ZONE]), tolerations=(Toleration("own", "Equal", "yes"),)),
    "system defaulting": Inclusion(missing_as_empty=True),
}


def varied(topology: Topology, every: int) -> None:
    """Nodes of which one in ``every`` has a zone: few of them are a sparse column. One is deleted, and its number is free."""
    for at in range(60):
        labels = {DISK: "ssd"} if at % 3 else {}
        taints = [taint("own", "yes")] if at % 7 == 0 else [taint("other")] if at % 5 == 0 else []
        found = node(f"n{at}", zone=f"z{at % 4}" if at % every == 0 else "", labels=labels, taints=taints)
        topology.put(topology.number(found.name), found)
    topology.put(topology.number("n0"), None)


def as_text(column: KeyDomains | Scope) -> tuple[object, ...]:
    """What a column holds, with the values of domains in place of their numbers, and the form that it has."""
    key = column if isinstance(column, KeyDomains) else column.key
    there = {number: key.value(domain) for number, domain in enumerate(_numbers(column)) if domain}
    if isinstance(column, KeyDomains):
        domains: dict[str, object] = {**by_value(column)}
    else:
        domains = {key.value(domain): nodes for domain, nodes in column.domains.items()}
    return there, domains, column.filled, type(column.of_node), column.cells


def _numbers(column: KeyDomains | Scope) -> list[int]:
    return [column.of_node[number] for number in range(60)]


@pytest.mark.parametrize("every", [1, 3, 30, 100])
@pytest.mark.parametrize("inclusion", INCLUSIONS.values(), ids=INCLUSIONS)
def test_a_column_is_the_same_whether_it_was_made_before_the_nodes_or_after(every: int, inclusion: Inclusion) -> None:
    before, after = Topology(), Topology()
    early_key = before.key(ZONE)
    early = before.acquire_scope(early_key, inclusion)
    varied(before, every)
    varied(after, every)
    late_key = after.key(ZONE)
    late = after.acquire_scope(late_key, inclusion)
    assert as_text(late_key) == as_text(early_key)
    assert as_text(late) == as_text(early)
    for topology in (before, after):
        placed(topology, "n1", "z9")
        topology.put(topology.number("n2"), None)
    assert as_text(late_key)[:3] == as_text(early_key)[:3]
    assert as_text(late)[:3] == as_text(early)[:3]


def test_a_new_column_over_many_nodes_takes_no_call_for_each() -> None:
    """Everything waits for it: with a call for each of 100,000 nodes a tenth of a second."""
    topology = Topology()
    for at in range(200):
        topology.put(topology.number(f"n{at}"), node(f"n{at}", zone=f"z{at}"))
    calls = 0

    def note(_frame: FrameType, what: str, _: object) -> None:
        nonlocal calls
        calls += what == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        topology.acquire_scope(topology.key(ZONE), Inclusion(keys=frozenset([ZONE]), tolerations=()))
    finally:
        sys.setprofile(before)
    assert calls < 100
