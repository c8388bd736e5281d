"""Everything counted anew from the objects: nothing is lost by it, and nothing is counted twice."""

from __future__ import annotations

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.rules.interpod_affinity import own_terms
from tests.builders import index_of, node, pod, pod_json, spread, term
from tests.index.counting import compiled_of, near, spread_over

NEAR_WEB = pod_json(near=[term("zone", app="web")])
ANEW = ["the index had to be rebuilt once"]  # and nothing else
SPREAD_WEB = pod_json(app="web", spreads=[spread("zone", app="web")])


def zoned() -> ClusterIndex:
    """A pod on a node, one on a node that does not exist, and one on none; one assumed on a node, one on either of two."""
    index = index_of(
        node("n1", zone="z1"),
        node("n2", zone="z2"),
        pod("there", on="n1", app="web", apart=[term("zone", app="db")], requests={"cpu": "1"}),
        pod("ghostly", on="ghost", app="web"),
        pod("waiting", app="idle"),
    )
    index.assume(pod("sure", app="web"), ("n2",), now=0.0)
    index.assume(pod("open", app="web"), ("n1", "n2"), now=0.0)
    return index


def seen(index: ClusterIndex) -> object:
    """Counts, sizes, what is undetermined and what is requested."""
    counts = near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)
    undetermined = index.view.is_undetermined(compiled_of(index, NEAR_WEB))
    requested = {name: dict(index.view.requested(number)) for name, number in index.view.known.items()}
    on_nodes = {name: sorted(index.view.pods_on(number)) for name, number in index.view.known.items()}
    sizes = {name: size for name, size in index.statistics().items() if name != "drifts"}
    return counts, undetermined, requested, on_nodes, sizes


def test_it_looks_the_same_afterwards() -> None:
    index = zoned()
    before = seen(index)
    index.rebuild()
    assert seen(index) == before
    assert (index.drifts, audit(index)) == (1, ANEW)


def test_assumptions_end_afterwards_as_they_would_have_before() -> None:
    index = zoned()
    index.rebuild()
    index.upsert(pod("sure", on="n2", app="web"))
    index.upsert(pod("open", on="n1", app="web"))
    assert near(index, NEAR_WEB) == [{"z1": 2, "z2": 1}]
    assert not index.view.is_undetermined(compiled_of(index, NEAR_WEB))
    assert [group.undetermined for group in own_terms(compiled_of(index, NEAR_WEB)).affinity] == [0]
    assert audit(index) == ANEW


def test_a_change_of_a_node_that_a_drift_interrupts_is_applied_all_the_same() -> None:
    index = zoned()
    (group,) = own_terms(compiled_of(index, NEAR_WEB)).affinity
    group.add(index.view.known["n2"], -1)  # type: ignore[attr-defined]  # a fault of ours
    assert index.upsert(node("n2", zone="z3"))
    assert near(index, NEAR_WEB) == [{"z1": 1, "z3": 1}]
    assert audit(index) == ANEW
