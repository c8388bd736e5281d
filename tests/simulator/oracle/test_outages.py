"""What a lost zone means for the judgement of placements, with and without the directive `spread` of a policy."""

from __future__ import annotations

import pytest

from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.brute_force import ClusterState
from extender.simulator.oracle.directed_spread import EXCLUDED, Outages
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.violations import violations
from tests.simulator.oracle.test_policies import policy, web
from tests.simulator.plain import ZONE, namespace, node, spread

WEB = {"app": "web"}
DIRECTED = [{"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "10s"}]


def lost(name: str, zone: str) -> JsonObject:
    return {**node(name, zone), "spec": {"unschedulable": True}}


def judged(kind_of_spread: list[JsonObject], *nodes: JsonObject, on: str) -> list[str]:
    """The violations where a third pod was placed, long after the zones were lost that are so from the start."""
    there = [web(f"old-{zone}", on=f"n-{zone}", topologySpreadConstraints=[spread(labels=WEB)]) for zone in ("a", "b")]
    store = Store()
    found = policy("ClusterPodSchedulingPolicy", spread=kind_of_spread)
    store.load([*nodes, namespace("default"), *there, found])
    journal = Journal(store)
    journal.decided(1.0, 1.0, "uid-default-new", web("new", topologySpreadConstraints=[spread(labels=WEB)]), on)
    return [each.status.reason for each in violations(journal)]


UNEVEN = "node(s) didn't match pod topology spread constraints"
EXCLUDED_ZONE = "node(s) were in an excluded topology domain"


@pytest.mark.parametrize(
    ("directive", "last", "on", "reasons"),
    [
        pytest.param(DIRECTED, lost("n-c", "c"), "n-a", [], id="a lost zone is no part of the minimum"),
        pytest.param([], lost("n-c", "c"), "n-a", [UNEVEN], id="a lost zone without the directive"),
        pytest.param(DIRECTED, node("n-c", "c"), "n-c", [], id="a zone that takes pods"),
        pytest.param(DIRECTED, node("n-c", "c"), "n-a", [UNEVEN], id="a zone that takes pods is part of the minimum"),
        pytest.param(DIRECTED, lost("n-c", "c"), "n-c", [EXCLUDED_ZONE], id="an excluded zone takes no pod"),
    ],
)
def test_a_placement_is_judged_by_the_zones_that_count(
    directive: list[JsonObject], last: JsonObject, on: str, reasons: list[str]
) -> None:
    assert judged(directive, node("n-a", "a"), node("n-b", "b"), last, on=on) == reasons


@pytest.mark.parametrize(
    ("since", "until", "stalled", "excluded"),
    [
        (99.0, 109.9, 0.0, [set(), set()]),
        (105.0, 106.0, 5.0, [set(), {"c"}]),
        (109.0, 110.5, 0.0, [set(), {"c"}]),
        (110.5, 111.0, 0.0, [{"c"}, {"c"}]),
        (119.9, 120.5, 0.0, [set(), {"c"}]),
        (120.5, 121.0, 0.0, [set(), set()]),
    ],
    ids=["before", "stalled", "about the time", "after it", "as it returns", "returned"],
)
def test_a_zone_is_excluded_from_its_time_until_it_returns(
    since: float, until: float, stalled: float, excluded: list[set[str]]
) -> None:
    state = ClusterState([node("n-a", "a"), node("n-c", "c")])
    outages = Outages([policy(spread=DIRECTED)])
    outages.recount(state, 0.0, 0.0)
    for at, changed in ((100.0, lost("n-c", "c")), (105.0, lost("n-c", "c")), (120.0, node("n-c", "c"))):
        state.set_node(changed)
        outages.recount(state, at, at)
    outages.ask(since, until, until + stalled)
    found = outages.spreads(web("new", topologySpreadConstraints=[spread(labels=WEB)]), state, DIRECTED)
    assert [{"c"} if each.check("n-c") == EXCLUDED else set() for each in found] == excluded
