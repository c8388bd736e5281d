"""What is kept of nodes for a node affinity is what matching them anew would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.objects import Node
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings

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
    assert "node n1: is admitted, or is not, against policies" in audit(index)
