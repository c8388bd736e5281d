"""A short answer leaves out no node that is better than one that it names, by the score that prioritize would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.verbs.prioritize import prioritize_nodes
from tests.builders import Json, extender_args, settings
from tests.deciding import filter_nodes
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import built
from tests.laws.short_answers import (
    NO_DEFAULTS,
    WHOLE,
    node_points,
    scores_of,
    soft_taints,
    with_node_terms,
    with_one_preference,
)
from tests.strategies import Step, histories, pods

DECISIVE = settings(rules=NO_DEFAULTS, placement="decisive")
EVERY_POD = settings(rules=NO_DEFAULTS, placement="decisive", schedulers="many", answers={"names": "shortlist"})


@meets_its_case
@given(histories(), with_one_preference(), st.integers(1, 2), st.integers(0, 9))
def test_no_node_left_out_of_a_shortlist_is_better_than_one_in_it(
    history: list[Step], pod: Json, most: int, seed: int
) -> None:
    named, left_out = scores_of(history, pod, settings(rules=NO_DEFAULTS, answers={"shortlist": most}), seed)
    case(left_out)
    assert min(named) >= max(left_out)


@meets_its_case
@given(histories(), with_node_terms(), st.integers(0, 9))
def test_the_one_node_of_a_decisive_answer_is_among_the_best(history: list[Step], body: Json, seed: int) -> None:
    """The best by the score of the rules, node affinity and taints, with the weights of the plugins.

    Nodes without soft taints come first: the plugin's weight is half more than that of a rule.
    """
    index, _ = built(history, WHOLE)
    requested = extender_args(body, *sorted(index.view.known))
    whole = filter_nodes(requested, index.view, WHOLE, seed).passed
    taints = {name: soft_taints(index, requested.pod, name) for name in whole}
    eligible = [name for name in whole if not taints[name]] or list(whole)
    case(len(eligible) > 1)
    own = prioritize_nodes(extender_args(body, *eligible), index.view, WHOLE)
    terms = {name: node_points(index, requested.pod, name) for name in eligible}
    most, worst = max(terms.values()) or 1, max(taints[name] for name in eligible) or 1
    points = {
        name: own.get(name, 0) + 2 * (100 * terms[name] // most) - 3 * (100 * taints[name] // worst)
        for name in eligible
    }
    (chosen,) = filter_nodes(requested, index.view, EVERY_POD, seed).passed
    assert chosen in eligible
    assert points[chosen] == max(points.values())


@given(histories(), pods(), st.integers(0, 9))
def test_where_a_decisive_answer_leaves_a_choice_there_is_nothing_to_score(
    history: list[Step], pod: Json, seed: int
) -> None:
    """So the scheduler need not ask: the configuration that we ship has no prioritizeVerb."""
    index, _ = built(history, DECISIVE)
    chosen = filter_nodes(extender_args(pod, *sorted(index.view.known)), index.view, DECISIVE, seed).passed
    assert len(chosen) <= 1 or prioritize_nodes(extender_args(pod, *chosen), index.view, DECISIVE) == {}
