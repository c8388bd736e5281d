"""Tolerations that a domain of a policy brings with it: which nodes a group may be placed on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.release import BroughtToleration, Domain, Level, Strategy
from tests.builders import Json, term
from tests.contenders import cluster
from tests.verbs.release_choice import decide, domain, gang, host, on_nodes

SPOT_TAINT: Json = {"key": "spot", "value": "", "effect": "NoSchedule"}
SPOT = (BroughtToleration("spot", "Exists", "", "NoSchedule"),)
ON_DEMAND = Domain("on-demand", ("c",))


@pytest.mark.parametrize(
    "fields", [{}, {"labels": {"app": "x"}, "apart": [term(HOSTNAME, app="x")]}], ids=["plain", "apart"]
)
def test_a_group_goes_to_tainted_nodes_of_a_domain_that_brings_the_toleration(fields: Json) -> None:
    """And to those of no other domain, whatever brings it elsewhere."""
    spot = Domain("spot", ("a",), tolerations=SPOT)
    nodes = [host(f"a{at}", "a", 2, taints=[SPOT_TAINT]) for at in range(3)]
    index = cluster(*nodes, *(host(f"c{at}", "c", 2) for at in range(3)), host("c9", "c", 9, taints=[SPOT_TAINT]))
    order: Json = {"strategy": Strategy.IN_ORDER}
    pods = gang(3, **fields)
    found = decide(index, pods, domains=(spot, ON_DEMAND), **order)
    assert found.levels == (Level(ZONE, "a", tolerations=SPOT),)
    assert all(node.startswith("a") for node in on_nodes(found))
    without = replace(spot, tolerations=())
    assert domain(decide(index, pods, domains=(without, ON_DEMAND), **order)) == "c"
    assert "c9" not in on_nodes(decide(index, pods, domains=(without, ON_DEMAND), **order))
    again = decide(index, pods, levels=found.levels, domains=(without, ON_DEMAND), **order)
    assert len(again.slots) == 3, "what is decided holds, also after the policy has changed"
