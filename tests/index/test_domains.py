"""Nodes and domains by number: where a node stands, and that a domain without nodes is forgotten."""

from __future__ import annotations

from extender.index.nodes.domains import Inclusion, KeyDomains
from extender.index.nodes.topology import Topology
from extender.model.constraints.labels import ZONE
from tests.builders import node


def placed(topology: Topology, name: str, zone: str) -> int:
    """The number of a node that is put into a zone; none where it is empty."""
    number = topology.number(name)
    topology.put(number, node(name, zone=zone))
    return number


def by_value(key: KeyDomains) -> dict[str, set[int]]:
    """The nodes of each domain."""
    return {key.value(domain): set(nodes) for domain, nodes in key.nodes_in.items()}


def test_a_node_that_moves_stands_in_its_new_domain_alone() -> None:
    topology = Topology()
    key = topology.key(ZONE)
    first, second = placed(topology, "n1", "z1"), placed(topology, "n2", "z1")
    assert (by_value(key), key.lacking) == ({"z1": {first, second}}, 0)
    placed(topology, "n1", "z2")
    assert (by_value(key), key.lacking) == ({"z1": {second}, "z2": {first}}, 0)
    placed(topology, "n1", "")
    assert (by_value(key), key.lacking) == ({"z1": {second}}, 1)
    topology.put(second, None)
    assert (by_value(key), key.lacking) == ({}, 1)


def test_the_number_of_a_domain_without_nodes_goes_to_the_next_new_domain() -> None:
    """Otherwise labels that change for ever would make every column of counts longer for ever."""
    topology = Topology()
    key = topology.key(ZONE)
    for turn in range(20):
        placed(topology, "n1", f"z{turn}")
    assert set(key.number_of) == {"z19"}
    assert max(key.number_of.values()) <= 2
    assert key.value(key.number_of["z19"]) == "z19"


def test_a_scope_counts_the_nodes_of_each_eligible_domain() -> None:
    topology = Topology()
    scope = topology.acquire_scope(topology.key(ZONE), Inclusion(keys=frozenset([ZONE])))
    for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2"), ("n4", "")):
        placed(topology, name, zone)

    def eligible() -> dict[str, int]:
        return {scope.key.value(domain): nodes for domain, nodes in scope.domains.items()}

    assert eligible() == {"z1": 2, "z2": 1}
    placed(topology, "n2", "z2")
    assert eligible() == {"z1": 1, "z2": 2}
    placed(topology, "n1", "")
    assert eligible() == {"z2": 2}


def test_what_is_released_at_once_leaves_nothing() -> None:
    topology = Topology()
    topology.acquire_scope(topology.key(ZONE), Inclusion(keys=frozenset([ZONE])))
    placed(topology, "n1", "z1")
    before = Topology()
    topology.release_all()
    assert topology.scope_cells == before.scope_cells
    assert topology.statistics() == before.statistics() | {"nodes": 1}
