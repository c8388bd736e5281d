"""The scenarios of kupid's own injector tests, restated: what each directive does with nothing, a conflict, or something else.

kupid's tests give a mutated spec beside the original one. Here there is one spec, as the API server sends it.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from extender.model.policies import Policy
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.pod_fields import Bounds
from extender.verbs.admit.term_product import Budget
from tests.builders import Json
from tests.policies import PREFERRED, REQUIRED, expression, kupid_policy, node_term

CONTAINERS: Json = {"containers": [{"name": "c", "image": "i"}]}


def inject(spec: Json, *policies: Policy) -> Json:
    """The spec with the policies injected once; asserts that the given one is untouched and a second time changes nothing."""
    before = copy.deepcopy(spec)
    injection = Injection(spec, Bounds(), Budget(), is_pod=True)
    for each in policies:
        injection.apply(each)
    once = copy.deepcopy(injection.spec)
    for each in policies:
        assert injection.apply(each).is_empty
    assert injection.spec == once
    assert spec == before
    return once


def node_affinity(prefix: str) -> Json:
    """One preferred and one required term, each with an expression and a field."""
    field = {"key": "metadata.name", "operator": "NotIn", "values": [f"{prefix}-node"]}
    term = node_term(expression(f"{prefix}-key", "In", f"{prefix}-value"), fields=[field])
    return {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": term}], REQUIRED: {"nodeSelectorTerms": [term]}}}


def pod_affinity(kind: str, prefix: str, weight: int) -> Json:
    """One preferred and one required term, with namespaces and a topology key."""
    term = {"topologyKey": f"{prefix}-zone", "namespaces": [prefix], "labelSelector": {"matchLabels": {"app": prefix}}}
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}], REQUIRED: [term]}}


DIRECTIVES: dict[str, Json] = {
    "node affinity": {"affinity": node_affinity("new")},
    "pod affinity": {"affinity": pod_affinity("podAffinity", "new", 100)},
    "pod anti-affinity": {"affinity": pod_affinity("podAntiAffinity", "new", 100)},
    "nodeName": {"nodeName": "new-node"},
    "nodeSelector": {"nodeSelector": {"newKey": "newValue"}},
    "schedulerName": {"schedulerName": "new-scheduler"},
    "tolerations": {"tolerations": [{"key": "newKey", "value": "newValue", "effect": "PreferNoSchedule"}]},
}
EXISTING: dict[str, Json] = {
    **DIRECTIVES,
    "nodeName": {"nodeName": "old-node"},
    "schedulerName": {"schedulerName": "old-scheduler"},
}
OTHER: dict[str, tuple[Json, Json]] = {
    "pod affinity": (
        {"affinity": pod_affinity("podAffinity", "old", 10)},
        {"affinity": {"podAffinity": {
            name: [*pod_affinity("podAffinity", "old", 10)["podAffinity"][name],
                   *pod_affinity("podAffinity", "new", 100)["podAffinity"][name]]
            for name in (PREFERRED, REQUIRED)
        }}},
    ),
    "pod anti-affinity": (
        {"affinity": pod_affinity("podAntiAffinity", "old", 10)},
        {"affinity": {"podAntiAffinity": {
            name: [*pod_affinity("podAntiAffinity", "old", 10)["podAntiAffinity"][name],
                   *pod_affinity("podAntiAffinity", "new", 100)["podAntiAffinity"][name]]
            for name in (PREFERRED, REQUIRED)
        }}},
    ),
    "nodeSelector": (
        {"nodeSelector": {"oldKey": "oldValue"}},
        {"nodeSelector": {"oldKey": "oldValue", "newKey": "newValue"}},
    ),
    "tolerations": (
        {"tolerations": [{"key": "oldKey"}]},
        {"tolerations": [{"key": "oldKey"}, *DIRECTIVES["tolerations"]["tolerations"]]},
    ),
}  # fmt: skip
directives = pytest.mark.parametrize("name", DIRECTIVES)


@directives
@pytest.mark.parametrize("empty", [{}, {"affinity": {}, "nodeSelector": {}, "tolerations": [], "schedulerName": ""}])
def test_1_to_3_a_policy_without_the_value_changes_nothing(name: str, empty: Json) -> None:
    others = {other: value for each, spec in DIRECTIVES.items() if each != name for other, value in spec.items()}
    without = {field: value for field, value in others.items() if field not in DIRECTIVES[name]}
    result = inject(CONTAINERS | empty, kupid_policy(**without))
    for field in DIRECTIVES[name]:
        assert result.get(field) == empty.get(field)
    assert inject(CONTAINERS | empty, kupid_policy()) == CONTAINERS | empty


@directives
def test_4_to_7_without_the_policy_s_value_an_existing_one_stays(name: str) -> None:
    assert inject(CONTAINERS | EXISTING[name], kupid_policy()) == CONTAINERS | EXISTING[name]


@directives
def test_8_an_existing_value_wins_over_that_of_the_policy(name: str) -> None:
    assert inject(CONTAINERS | EXISTING[name], kupid_policy(**DIRECTIVES[name])) == CONTAINERS | EXISTING[name]


@directives
def test_9_an_empty_spec_gets_exactly_the_policy_s_value_and_twice_is_as_once(name: str) -> None:
    assert inject(CONTAINERS, kupid_policy(**DIRECTIVES[name])) == CONTAINERS | DIRECTIVES[name]


@pytest.mark.parametrize("name", OTHER)
def test_10_other_values_stay_in_front_of_the_policy_s(name: str) -> None:
    existing, expected = OTHER[name]
    assert inject(CONTAINERS | existing, kupid_policy(**DIRECTIVES[name])) == CONTAINERS | expected


def test_10_node_affinity_joins_the_required_terms_and_appends_the_preferred_ones() -> None:
    old, new = node_affinity("old")["nodeAffinity"], node_affinity("new")["nodeAffinity"]
    found = inject(CONTAINERS | {"affinity": node_affinity("old")}, kupid_policy(affinity=node_affinity("new")))
    affinity = found["affinity"]["nodeAffinity"]
    assert affinity[PREFERRED] == [*old[PREFERRED], *new[PREFERRED]]
    (mine,), (theirs,) = (each[REQUIRED]["nodeSelectorTerms"] for each in (old, new))
    assert affinity[REQUIRED]["nodeSelectorTerms"] == [
        {name: [*mine[name], *theirs[name]] for name in ("matchExpressions", "matchFields")}
    ]


def terms_of(spec: Json) -> Any:
    return spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def requiring(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


A, B, C, D, E = (expression(key, "Exists") for key in "abcde")
F: Json = {"key": "metadata.name", "operator": "In", "values": ["f"]}


@pytest.mark.parametrize("without", [{}, requiring(), {"affinity": {"nodeAffinity": {}}}])
def test_the_product_of_terms_of_a_pod_with_none_is_that_of_the_policy(without: Json) -> None:
    policy = kupid_policy(**requiring(node_term(D), node_term(E, fields=[F])))
    assert terms_of(inject(CONTAINERS | without, policy)) == [node_term(D), node_term(E, fields=[F])]


def test_the_product_of_terms_with_a_policy_without_any_is_that_of_the_pod() -> None:
    pod = CONTAINERS | requiring(node_term(A, B), node_term(C))
    assert inject(pod, kupid_policy(affinity={"nodeAffinity": {}})) == pod
    assert inject(CONTAINERS | requiring(), kupid_policy()) == CONTAINERS | requiring()


def test_the_product_of_terms_has_a_term_for_each_pair_with_the_pod_s_requirements_in_front() -> None:
    """The pairs are kupid's; the order within a term is the pod's first, so that a gated pod may be narrowed likewise."""
    pod = CONTAINERS | requiring(node_term(A, B), node_term(C))
    policy = kupid_policy(**requiring(node_term(D), node_term(E, fields=[F])))
    assert terms_of(inject(pod, policy)) == [
        node_term(A, B, D),
        node_term(A, B, E, fields=[F]),
        node_term(C, D),
        node_term(C, E, fields=[F]),
    ]
