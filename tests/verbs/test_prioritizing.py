"""The prioritize verb: both scales, and the empty answer that costs the scheduler least."""

from __future__ import annotations

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import (
    Json,
    asking,
    index_of,
    matching,
    node,
    node_json,
    pod,
    pod_json,
    settings,
    spread,
    term,
    weighted,
)

EXTENDER, IN_TREE = settings(), settings(answers={"scoreScale": "inTree"})
NEAR_WEB = pod_json(prefers=[weighted(10, term("zone", app="web"))])


def web_in(*zones: str) -> list[Object]:
    """Three nodes in three zones, and a web pod in each of these zones."""
    nodes = [node(zone, zone=zone) for zone in ("z1", "z2", "z3")]
    return [*nodes, *(pod(f"web-{number}", on=zone, app="web") for number, zone in enumerate(zones))]


def scores(index: ClusterIndex, asked: Json, *, in_tree: bool = False) -> dict[str, int]:
    args = asking(asked, *sorted(index.view.known))
    return dict(prioritize_nodes(args, index.view, IN_TREE if in_tree else EXTENDER))


def test_in_tree_points_keep_every_difference() -> None:
    index = index_of(*web_in("z1", "z1", "z1", "z2"))
    assert scores(index, NEAR_WEB, in_tree=True) == {"z1": 200, "z2": 66, "z3": 0}


def test_both_rules_add_up_in_tree_and_share_the_ten_points() -> None:
    index = index_of(*web_in("z1", "z1", "z2"))
    asked = pod_json(prefers=[weighted(10, term("zone", app="web"))], spreads=[spread(hard=False, app="web")])
    # Raw spread scores are 2 and 1 pods times ln(3 + 2), rounded: 3, 2 and 0.
    assert scores(index, asked, in_tree=True) == {"z1": 200 + 0, "z2": 100 + 66, "z3": 0 + 200}
    assert scores(index, asked) == {"z1": 5, "z2": 4, "z3": 5}


def test_differences_that_ten_steps_cannot_show_are_an_empty_answer() -> None:
    index = index_of(*web_in("z1", "z1", "z1", "z2"))
    asked = pod_json(prefers=[weighted(10, term("zone", app="web"))], spreads=[spread(hard=False, app="web")])
    assert len(set(scores(index, asked, in_tree=True).values())) > 1
    assert scores(index, asked) == {}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod_json(), id="no preference"),
        pytest.param(NEAR_WEB, id="no preferred pod is there"),
        pytest.param(pod_json(spreads=[spread(hard=False, app="web")]), id="equally spread"),
        pytest.param(pod_json(near=[term("zone", app="web")]), id="required terms do not score"),
    ],
)
def test_equal_nodes_are_not_scored_at_all(asked: Json) -> None:
    assert scores(index_of(*web_in()), asked) == {}
    assert scores(index_of(*web_in("z1", "z2", "z3")), asked, in_tree=True) == {}


def test_names_that_are_not_known_get_no_score() -> None:
    index = index_of(*web_in("z1"))
    args = asking(NEAR_WEB, "z1", "ghost", "z2")
    assert prioritize_nodes(args, index.view, EXTENDER) == {"z1": 10, "z2": 0}


@pytest.mark.parametrize("weight", [0, 100])
def test_a_hard_weight_of_nought_switches_that_off(weight: int) -> None:
    chosen = settings(rules={"interPodAffinity": {"hardPodAffinityWeight": weight}})
    host = pod("host", on="z2", near=[term("zone", app="guest")])
    index = index_of(*web_in(), host, rules=chosen.rules)
    found = prioritize_nodes(asking(pod_json(app="guest"), "z1", "z2"), index.view, chosen)
    assert found == ({} if not weight else {"z1": 0, "z2": 10})


def test_existing_pods_preferences_can_be_ignored_for_pods_without_their_own() -> None:
    chosen = settings(rules={"interPodAffinity": {"ignorePreferredTermsOfExistingPods": True}})
    host = pod("host", on="z2", prefers=[weighted(10, term("zone", app="guest"))])
    index = index_of(*web_in("z1"), host, rules=chosen.rules)
    plain = pod_json(app="guest")
    picky = pod_json(app="guest", prefers=[weighted(1, term("zone", app="web"))])
    assert prioritize_nodes(asking(plain, "z1", "z2"), index.view, chosen) == {}
    assert prioritize_nodes(asking(picky, "z1", "z2"), index.view, chosen) == {"z1": 0, "z2": 10}


def test_nodes_of_the_request_are_scored_by_their_own_labels() -> None:
    index = index_of(*web_in("z1"))
    nodes = [node_json("new-1", zone="z1"), node_json("new-2", zone="z9"), node_json("new-3")]
    found = prioritize_nodes(asking(NEAR_WEB, nodes=nodes), index.view, EXTENDER)
    assert found == {"new-1": 10, "new-2": 0, "new-3": 0}


def test_a_pod_whose_terms_cannot_be_read_gets_no_scores() -> None:
    broken = term("zone", selector=matching(("app", "In", [])))
    assert scores(index_of(*web_in("z1")), pod_json(prefers=[weighted(10, broken)])) == {}
