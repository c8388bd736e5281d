"""What a topology key costs: as much as the nodes that carry it, and nothing where no node does."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.nodes.columns import NodeColumn, SparseColumn
from extender.index.nodes.domains import DomainScope, Inclusion, KeyDomains
from extender.index.nodes.topology import Topology
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.constraints.node_affinity import NodeAffinity, node_selector
from extender.model.constraints.taints import Toleration
from extender.model.objects import Node
from extender.rules.catalog import counts_of_rules
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.settings.configuration import Settings
from tests.builders import Json, index_of, node, pod, pod_json, spread, taint, term, weighted
from tests.index.counting import Calls, apart, compiled_of

NODES = 200


def column(size: int = NODES) -> NodeColumn:
    """An empty column over so many node numbers."""
    return NodeColumn([0] * size)


def test_a_column_is_what_was_put_in_it_whatever_form_it_takes() -> None:
    rng, made, plain = random.Random(1), column(), [0] * NODES
    for wanted in (3, 150, 40, 8, 4, 0, 1, 0):
        while (filled := sum(map(bool, plain))) != wanted:
            at = rng.choice([n for n in range(NODES) if bool(plain[n]) is (filled > wanted)])
            assert made.fill(at, 0 if plain[at] else 7) == plain[at]
            plain[at] = 0 if plain[at] else 7
            assert [made.of_node[n] for n in range(NODES)] == plain
            assert made.filled == sum(map(bool, plain))


@pytest.mark.parametrize(("filled", "cells"), [(0, 0), (1, 1), (12, 12), (13, NODES), (NODES, NODES)])
def test_a_column_costs_what_its_nodes_cost_up_to_a_list(filled: int, cells: int) -> None:
    made = column()
    for number in range(filled):
        made.fill(number, 1)
    assert made.cells == cells
    for number in range(filled):
        made.fill(number, 0)
    assert (made.cells, made.filled) == (0, 0)


def test_a_column_near_the_bound_does_not_change_its_form_at_each_step() -> None:
    made, forms = column(), set()
    for number in range(13):
        made.fill(number, 1)
    for _ in range(10):
        made.fill(12, 0)
        forms.add(type(made.of_node))
        made.fill(12, 1)
        forms.add(type(made.of_node))
    assert forms == {list}
    for number in range(7, 13):
        made.fill(number, 0)
    made.fill(6, 0)
    assert isinstance(made.of_node, SparseColumn)


def cluster(nodes: int = NODES) -> ClusterIndex:
    """Nodes in three zones, one of them with a label of its own."""
    made = index_of(*(node(f"n{number}", zone=f"z{number % 3}") for number in range(nodes)))
    if nodes > 7:
        made.upsert(node("n7", zone="z1", disk="ssd"))
    return made


def cells(index: ClusterIndex) -> dict[str, int]:
    """What the columns of the keys in use take up."""
    return {key.key: key.cells for key in index.topology.keys.values()}


def odd(key: str, app: str) -> Json:
    """A term over a key that a pod has made up."""
    return term(f"example.com/{key}", app=app)


def test_keys_that_no_node_carries_have_no_column_and_keys_of_few_nodes_have_a_small_one() -> None:
    index = cluster()
    index.upsert(pod("owner", on="n7", apart=[odd("a", app="web"), term("disk", app="web")]))
    compiled_of(index, pod_json(near=[odd("b", app="web")], spreads=[spread("example.com/c", app="web")]))
    assert cells(index) == {"example.com/b": 0, "example.com/c": 0, "disk": 1}
    assert index.topology.scope_cells == 0
    assert audit(index) == []


def test_a_change_of_a_node_touches_the_columns_of_its_labels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    index = cluster(20)
    for number in range(30):
        spreads = [spread(f"example.com/{number}", app="web")]
        compiled_of(index, pod_json(apart=[odd(f"k{number}", app="web")], spreads=spreads, app=f"a{number}"))
    fills = Calls(monkeypatch, (NodeColumn, "fill"))
    index.upsert(node("n1", zone="z1", disk="hdd"))
    assert fills.taken() <= 3
    index.upsert(node("n1", zone="z1", disk="hdd", unschedulable=True))
    assert fills.taken() == 0


def test_terms_over_keys_that_no_node_carries_cost_other_pods_nothing() -> None:
    """Neither those that pods carry nor those that are asked: no compiled constraints have them, and they count no signature."""
    index = cluster(5)
    for number in range(20):
        index.upsert(pod(f"owner-{number}", on="n1", apart=[odd(f"k{number}", app="web")]))
        compiled_of(index, pod_json(near=[odd(f"n{number}", app="web")], spreads=[spread(f"s{number}", app="web")]))
    index.upsert(web := pod("web", on="n2", app="web"))
    counts_of_signature = index.counts.signatures.find(web.signature, terminating=False)
    assert counts_of_signature is not None
    assert (counts_of_signature.groups, terms_of_others(compiled_of(index, pod_json(app="web"))).anti) == ({}, ())
    assert audit(index) == []


def racked() -> ClusterIndex:
    """Two web pods on two nodes, one of which keeps web pods out of its rack, on nodes that have none; asked about."""
    made = cluster(5)
    made.upsert(pod("web", on="n1", app="web"))
    made.upsert(pod("repelling", on="n2", app="web", apart=[odd("rack", app="web")]))
    rack = odd("rack", app="web")
    compiled_of(made, pod_json(app="web", near=[rack], spreads=[spread("example.com/rack", app="web")]))
    return made


def test_terms_that_cannot_reject_have_no_group_before() -> None:
    index = racked()
    incoming = pod_json(app="x", apart=[odd("rack", app="web")], prefers=[weighted(7, odd("rack", app="web"))])
    groups = index.statistics()["term_groups"]
    before = compiled_of(index, incoming)
    assert (own_terms(before).anti, own_terms(before).preferences, index.statistics()["term_groups"]) == (
        (),
        (),
        groups,
    )
    index.upsert(node("n3", zone="z1", labels={"example.com/shelf": "s1"}))
    assert compiled_of(index, incoming) is before
    index.upsert(node("n1", zone="z1", labels={"example.com/rack": "r1"}))
    after = compiled_of(index, incoming)
    assert (apart(index, incoming), [each.weight for each in own_terms(after).preferences]) == ([{"r1": 1}], [7])
    assert after.serial != before.serial
    index.upsert(node("n2", zone="z1", labels={"example.com/rack": "r2"}))
    assert (apart(index, incoming), audit(index)) == ([{"r1": 1, "r2": 1}], [])


def test_the_terms_over_it_are_offered_once_and_taken_back_once() -> None:
    index = racked()
    versions = [index.counts.terms.inverse_version]
    for labels in ({"example.com/rack": "r1"}, {"example.com/rack": "r2"}, {}):
        index.upsert(node("n1", zone="z1", labels=labels))
        versions.append(index.counts.terms.inverse_version)
    assert [later - first for first, later in pairwise(versions)] == [
        2,
        0,
        2,
    ]  # that of the pod, and that of its constraints
    assert [index.counts.terms.is_offered(each) for each in index.counts.terms.owned()] == [False, False]


def test_columns_get_shorter_with_the_last_node_numbers() -> None:
    index = cluster(5)
    compiled_of(index, pod_json(near=[term("zone", app="web")]))
    before = (len(index.topology.names), cells(index)["topology.kubernetes.io/zone"])
    for number in range(500):
        index.upsert(node(f"spot-{number}", zone="z9"))
        index.upsert(pod(f"lost-{number}", on=f"ghost-{number}", app="web"))
    assert len(index.topology.names) == 1005
    for number in range(500):
        index.delete(node(f"spot-{number}", zone="z9"))
        index.delete(pod(f"lost-{number}", on=f"ghost-{number}", app="web"))
    assert len(index.topology.names) == before[0]
    assert cells(index)["topology.kubernetes.io/zone"] <= before[1] + 16
    index.upsert(node("new", zone="z1"))
    assert audit(index) == []


# -- Nodes and domains by number: where a node stands, and that a domain without nodes is forgotten --------------------


def placed(topology: Topology, name: str, zone: str) -> int:
    """The number of a node that is put into a zone; none where it is empty."""
    number = topology.number(name)
    topology.put(number, node(name, zone=zone))
    return number


def by_value(key: KeyDomains) -> dict[str, set[int]]:
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


@pytest.mark.parametrize("odd", [{}, {"hostname": False}, {"labels": {HOSTNAME: "other"}}])
def test_the_domains_of_hostnames_are_right_from_their_first_use_and_follow_later_changes(odd: Json) -> None:
    """Where all nodes are named by their hostnames they are copied: one step for 100,000 nodes would take 60 ms."""
    early, late = Topology(), Topology()
    early.key(HOSTNAME)
    for topology in (early, late):
        for at in range(5):
            topology.put(topology.number(f"n{at}"), node(f"n{at}", **(odd if at == 3 else {})))
        topology.put(topology.number("n1"), None)
    assert by_value(late.key(HOSTNAME)) == by_value(early.key(HOSTNAME))
    for topology in (early, late):
        topology.put(topology.number("n2"), node("n2", labels={HOSTNAME: "n0"}))
        topology.put(topology.number("n5"), node("n5"))
        topology.put(topology.number("n4"), None)
    hosts = [topology.key(HOSTNAME) for topology in (early, late)]
    assert by_value(hosts[0]) == by_value(hosts[1])
    values = [[key.value(key.of_node[at]) for at in range(6)] for key in hosts]
    assert values[0] == values[1]
    assert hosts[0].lacking == hosts[1].lacking
    assert by_value(late.itself) == {f"n{at}": {late.number(f"n{at}")} for at in (0, 2, 3, 5)}


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


def as_text(column: KeyDomains | DomainScope) -> tuple[object, ...]:
    """What a column holds, with the values of domains in place of their numbers, and the form that it has."""
    key = column if isinstance(column, KeyDomains) else column.key
    there = {number: key.value(domain) for number, domain in enumerate(_numbers(column)) if domain}
    if isinstance(column, KeyDomains):
        domains: dict[str, object] = {**by_value(column)}
    else:
        domains = {key.value(domain): nodes for domain, nodes in column.domains.items()}
    return there, domains, column.filled, type(column.of_node), column.cells


def _numbers(column: KeyDomains | DomainScope) -> list[int]:
    return [column.of_node[number] for number in range(60)]


@pytest.mark.parametrize("every", [1, 3, 30, 100])
@pytest.mark.parametrize("inclusion", INCLUSIONS.values(), ids=INCLUSIONS)
def test_a_column_is_the_same_whether_it_was_made_before_the_nodes_or_after(every: int, inclusion: Inclusion) -> None:
    before, after = Topology(), Topology()
    early_key = before.key(ZONE)
    early = before.acquire_scope(early_key, inclusion)
    varied(before, every)
    varied(after, every)
    for other in inclusion.keys - {ZONE}:
        after.acquire_scope(after.key(other), inclusion)  # which has the same nodes
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


# -- What is kept of nodes for a node affinity is what matching them anew would find -----------------------------------

AFFINITY = NodeAffinity((("zone", "a"),))
NAMES = st.sampled_from([f"n{number}" for number in range(5)])
STEPS = st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", None])) | st.none(), max_size=30)


@given(STEPS)
def test_a_verdict_follows_every_change_of_its_node(steps: list[tuple[str, str | None] | None]) -> None:
    """A step sets the zone of a node, deletes it (no zone), or asks about all nodes (None)."""
    index = ClusterIndex(Settings().rules, counts_of_rules())
    matches = index.topology.acquire_matches(AFFINITY)
    zones: dict[str, str] = {}
    for step in [*steps, None]:
        if step is None:
            numbers = list(index.view.known.values())
            verdicts = matches.among(numbers)
            admitted = {index.view.node_names[number] for number in numbers if verdicts[number]}
            assert admitted == {name for name, zone in zones.items() if zone == "a"}
            continue
        name, zone = step
        if zone is None:
            index.delete(Node(name))
            zones.pop(name, None)
        else:
            index.upsert(Node(name, {"zone": zone}))
            zones[name] = zone
    assert audit(index) == []


def test_the_audit_names_a_node_whose_verdict_is_not_true() -> None:
    index = ClusterIndex(Settings().rules, counts_of_rules())
    index.upsert(Node("n1", {"zone": "a"}))
    matches = index.topology.acquire_matches(AFFINITY)
    number = index.view.known["n1"]
    matches.among([number])
    assert audit(index) == []
    index.topology.nodes[number] = Node("n1", {"zone": "b"})  # past the way in which nodes change
    assert "node n1: has a wrong verdict of policies" in audit(index)
