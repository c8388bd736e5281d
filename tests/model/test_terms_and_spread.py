"""Which namespaces a term covers, and the arithmetic of skew."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.constraints.spread import DomainRules, SpreadDirective, round_half_away, topology_weight
from extender.model.constraints.terms import AffinityTerm
from tests.builders import Json, matching, pod, term, weighted

TEAM_A, TEAM_B = {"team": "a"}, {"team": "b"}


@pytest.mark.parametrize(
    ("directive", "texts"),
    [
        (SpreadDirective("zone"), []),
        (
            SpreadDirective("zone", completes_keys=True, min_domains=3, deletion_cost=True),
            ["matchLabelKeys IfMissing", "minDomains 3", "deletionCost Fullest"],
        ),
        (DomainRules(), []),
        (
            DomainRules(declared=True, excludes_after=90.0, excludes_full=True),
            ["minDomains Declared", "unavailableDomains Exclude after 1m30s", "fullDomains Exclude"],
        ),
    ],
)
def test_a_directive_names_its_fields_in_the_words_of_a_policy(
    directive: SpreadDirective | DomainRules, texts: list[str]
) -> None:
    assert list(directive.texts()) == texts


def term_of(**fields: Json | list[str] | None) -> AffinityTerm:
    """The required term of a pod in namespace `own` with these namespaces and this selector."""
    names, chosen = fields.get("namespaces"), fields.get("namespace_selector")
    wanted = term(
        "zone",
        app="web",
        namespaces=names if isinstance(names, list) else None,
        namespace_selector=chosen if isinstance(chosen, dict) else None,
    )
    (made,) = pod("a", namespace="own", near=[wanted]).signature.affinity.required
    return made


@pytest.mark.parametrize(
    ("fields", "empty"),
    [
        ({}, True),
        ({"near": [term("zone", app="web")]}, False),
        ({"apart": [term("zone", app="web")]}, False),
        ({"prefers": [weighted(1, term("zone", app="web"))]}, False),
        ({"avoids": [weighted(1, term("zone", app="web"))]}, False),
        ({"near": [term("zone", selector=matching(("app", "In", [])))]}, False),
    ],
    ids=["nothing", "required", "anti", "preferred", "preferred anti", "unreadable"],
)
def test_affinity_is_empty_where_a_pod_has_no_term_of_any_kind(fields: dict[str, Any], *, empty: bool) -> None:
    assert pod("a", **fields).signature.affinity.is_empty is empty


@pytest.mark.parametrize(
    ("made", "covered"),
    [
        pytest.param(term_of(), {"own"}, id="neither names nor a selector: its own"),
        pytest.param(term_of(namespaces=[]), {"own"}, id="an empty list is no list"),
        pytest.param(term_of(namespaces=["other"]), {"other"}, id="names replace its own"),
        pytest.param(term_of(namespace_selector=matching(team="a")), {"a"}, id="so does a selector"),
        pytest.param(
            term_of(namespaces=["other"], namespace_selector=matching(team="a")), {"other", "a"}, id="a union of both"
        ),
        pytest.param(term_of(namespace_selector={}), {"own", "other", "a", "b", "ghost"}, id="{} is every namespace"),
        pytest.param(
            term_of(namespace_selector=matching(("team", "NotIn", ["a"]))),
            {"own", "other", "b", "ghost"},
            id="a namespace without an object has no labels",
        ),
        pytest.param(term_of(namespace_selector=matching(team="none")), set(), id="a selector that selects nothing"),
    ],
)
def test_a_term_of_an_existing_pod_covers(made: AffinityTerm, covered: set[str]) -> None:
    labels = {"own": {}, "other": {}, "a": TEAM_A, "b": TEAM_B, "ghost": None}
    assert {name for name, found in labels.items() if made.covers(name, found)} == covered


def test_a_term_selects_by_namespace_and_labels_together() -> None:
    made = term_of(namespaces=["other"])
    pods = [("other", {"app": "web"}), ("other", {"app": "db"}), ("own", {"app": "web"})]
    assert [made.selects(namespace, labels, None) for namespace, labels in pods] == [True, False, False]


def test_scores_round_halves_away_from_zero_and_more_domains_weigh_more() -> None:
    assert [round_half_away(number) for number in (0.0, 0.49, 0.5, 1.5, 2.5, 2.51)] == [0, 0, 1, 2, 3, 3]
    assert topology_weight(0) == pytest.approx(0.6931, abs=1e-4)
    assert topology_weight(3) > topology_weight(2)
