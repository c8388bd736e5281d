"""Which pods the quota scope CrossNamespacePodAffinity concerns, and what a term reaches.

The predicate itself is compared with Kubernetes in tests/parity; here is what those cases cannot show.
"""

from __future__ import annotations

import orjson
import pytest

from extender.model.constraints.terms import may_reach_out, reached, terms_of
from extender.model.objects import Pod
from extender.model.units import ByteSize
from extender.settings.limits import ConstraintLimits
from extender.verbs.effective_pod import effective_pod
from extender.wire.objects.kinds import Kind, pods_within
from tests.builders import REQUIRED, Json, matching, pod, pod_json, term, weighted
from tests.policies import policy
from tests.verbs.policed import FilterScene

LABELLED = term(selector=matching(namespaces="x", namespaceSelector="y"))
NAMESPACES = {"own": {"team": "a"}, "b": {"team": "b"}, "c": {"team": "b"}}


def test_naming_the_own_namespace_is_distinguished_from_naming_none() -> None:
    """Both terms select the same pods and share their counts."""
    plain, named = (
        pod(namespace="own", apart=[term(app="web", namespaces=names)]).signature for names in (None, ["own"])
    )
    assert plain.affinity.required_anti == named.affinity.required_anti
    assert (plain.affinity.cross_namespace, named.affinity.cross_namespace) == (False, True)


def test_a_term_that_cannot_be_parsed_is_in_the_scope_too() -> None:
    broken = term(selector=matching(("app", "In", [])), namespaces=["other"])
    affinity = pod(apart=[broken]).signature.affinity
    assert affinity.errors
    assert affinity.cross_namespace


@pytest.mark.parametrize(
    ("wanted", "is_cross"),
    [
        (term(app="web"), False),
        (term(app="web", namespaces=[]), False),
        (LABELLED, False),
        (term(app="web", namespaces=["own"]), True),
        (term(app="web", namespace_selector={}), True),
    ],
    ids=["neither", "an empty list", "labels of these names", "a list", "an empty selector"],
)
@pytest.mark.parametrize("on", ["", "node"])
def test_a_pod_too_large_to_be_parsed_does_not_leave_the_scope(wanted: Json, on: str, *, is_cross: bool) -> None:
    kind: Kind[Pod] = pods_within(ConstraintLimits(pod_bytes=ByteSize(1)))
    found = kind.decode_object(orjson.dumps(pod_json(on=on, apart=[wanted])))
    assert found.signature.excess is not None
    assert found.signature.affinity.cross_namespace is is_cross


@pytest.mark.parametrize(
    ("fields", "may", "now"),
    [
        ({}, False, set()),
        ({"namespaces": ["own"]}, False, set()),
        ({"namespaces": ["own", "gone"]}, True, {"gone"}),
        ({"namespace_selector": {}}, True, {"b", "c"}),
        ({"namespace_selector": matching(team="a")}, True, set()),
        ({"namespaces": ["b"], "namespace_selector": matching(team="b")}, True, {"b", "c"}),
    ],
    ids=["nothing", "own", "one that does not exist", "all", "only the own one now", "both"],
)
def test_what_a_term_reaches_is_not_what_the_scope_asks(fields: Json, now: set[str], *, may: bool) -> None:
    made = pod(namespace="own", prefers=[weighted(1, term(app="web", **fields))])
    (found,) = terms_of(made.signature.affinity)
    assert may_reach_out(found, "own") is may
    assert reached(found, "own", NAMESPACES) == now


def test_a_term_that_a_policy_adds_puts_the_effective_pod_into_the_scope() -> None:
    apart = [term("zone", app="web", namespace_selector={})]
    scene = FilterScene(policy("apart", affinity={"podAntiAffinity": {REQUIRED: apart}}))
    plain = pod("asking")
    assert not plain.signature.affinity.cross_namespace
    assert effective_pod(plain, scene.index.view, scene.settings).signature.affinity.cross_namespace


def test_a_term_that_the_pod_has_already_is_the_pods_own() -> None:
    """The policy names the namespace that the pod's term covers without naming it: they are one term, and the pod's stays."""
    apart = [term("zone", app="web", namespaces=["default"])]
    scene = FilterScene(policy("apart", affinity={"podAntiAffinity": {REQUIRED: apart}}))
    carrying = pod("asking", apart=[term("zone", app="web")])
    assert not effective_pod(carrying, scene.index.view, scene.settings).signature.affinity.cross_namespace
