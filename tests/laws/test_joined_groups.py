"""Joined groups decide and score as the groups do one by one: the laws of filter and scores, with every group joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.rules import interpod_affinity as joined_groups
from extender.rules.interpod_affinity import terms_of_others
from tests.builders import Json, index_of, node, pod, settings, term, weighted
from tests.laws import short_answers as of_answers
from tests.laws import test_filter_agrees_with_brute_force as of_filter
from tests.laws import test_scores_agree_with_brute_force as of_scores
from tests.strategies import Step, histories, pods


@pytest.fixture(
    scope="module", params=[0, 1, 100], ids=["none is small", "some are small", "all are small"], autouse=True
)
def _all_joined(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined_groups, "MANY", 0)
        patch.setattr(joined_groups, "SMALL", request.param)
        yield


def law(test: Any) -> Callable[..., None]:
    """A law without its examples."""
    body: Callable[..., None] = test.hypothesis.inner_test
    return body


@given(histories(), pods())
def test_affinity_scores_are_sums_over_all_pods_and_terms(history: list[Step], requested: Json) -> None:
    law(of_scores.test_affinity_scores_are_sums_over_all_pods_and_terms)(history, requested)


@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_codes_and_reasons_are_those_of_the_brute_force_model(history: list[Step], requested: list[Json]) -> None:
    law(of_filter.test_codes_and_reasons_are_those_of_the_brute_force_model)(history, requested)


@given(histories(), of_answers.with_one_preference(), st.integers(1, 2), st.integers(0, 9))
def test_no_node_left_out_of_a_shortlist_is_better_than_one_in_it(
    history: list[Step], requested: Json, most: int, seed: int
) -> None:
    named, left_out = of_answers.scores_of(
        history, requested, settings(rules=of_answers.NO_DEFAULTS, answers={"shortlist": most}), seed
    )
    assert not left_out or min(named) >= max(left_out)


def test_terms_over_one_key_are_one_group_with_the_sum_of_their_points() -> None:
    soft = [
        pod(
            f"p{number}",
            on=f"n{number % 2}",
            avoids=[weighted(3, term("zone", app="web", namespaces=[f"x{number}", "default"]))],
        )
        for number in range(6)
    ]
    index = index_of(node("n0", zone="z0"), node("n1", zone="z1"), node("n2", zone="z2"), *soft)
    compiled = index.view.compiled(pod("asking", app="web").signature)
    joined = joined_groups.join_weighted(terms_of_others(compiled).preferences)
    if joined_groups.SMALL:
        ((weight, group),) = [(part.weight, part.group) for part in joined]
        values = {group.key.value(domain): weight * count for domain, count in group.counts.items()}
        assert (values, weight * group.smallest()) == ({"z0": -9, "z1": -9}, 0)
    else:
        assert len(joined) == 6
