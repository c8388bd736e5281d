"""The policies are applied to an existing pod as to a pod under review, and without JSON in between."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.policies import Policy, PolicyObject
from extender.verbs.effective_pod import effective_pod
from extender.wire.objects import constraints
from tests.builders import PREFERRED, REQUIRED, Json, index_of, read_pod, settings
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import pod, reviewed, verb

ENABLED = settings(policies={"enabled": True})
WEB: Json = {"matchLabels": {"app": "web"}}
SPREAD: Json = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
NEAR: Json = {"topologyKey": ZONE, "labelSelector": WEB}
OWN: Json = {
    "affinity": requiring(node_term(expression("disk", "Exists")), node_term(expression("disk", "DoesNotExist")))
}
UNKNOWN: Json = {"nextYear": 1}

DIRECTED: dict[str, Json] = {
    "requirements of every operator": requiring(
        node_term(expression("n", "Gt", "4"), expression("n", "Lt", "9"), expression("zone", "NotIn", "b", "a", "b")),
        node_term(expression("pool", "In", "x"), fields=[expression("metadata.name", "In", "n1")]),
    ),
    "a bound that is no number, so that its term matches no node": requiring(
        node_term(expression("n", "Gt", "many")), node_term(expression("pool", "Exists"))
    ),
    "unknown fields": requiring(
        node_term(expression("pool", "Exists") | UNKNOWN) | {"matchSomething": [1]},
        node_term(expression("n", "Exists")),
    ),
    "preferred nodes": {
        "nodeAffinity": {PREFERRED: [{"weight": 3, "preference": node_term(expression("disk", "In", "ssd"))}]}
    },
    "terms about other pods": {
        "podAffinity": {REQUIRED: [NEAR, NEAR | {"namespaces": ["b", "a"]}, NEAR | {"namespaceSelector": {}}]},
        "podAntiAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": NEAR | {"topologyKey": HOSTNAME}}]},
    },
}


def effective(own: Json, *policies: Policy) -> Any:
    return effective_pod(read_pod(own), index_of(*map(PolicyObject, policies)).view, ENABLED).signature


@pytest.mark.parametrize("own", [{}, OWN], ids=["an empty pod", "a pod with terms"])
@pytest.mark.parametrize("affinity", DIRECTED.values(), ids=DIRECTED)
def test_an_existing_pod_gets_the_constraints_of_the_injected_pod(affinity: Json, own: Json) -> None:
    directing = policy(affinity=affinity, topologySpreadConstraints=[SPREAD])
    made = effective(pod(own), directing)
    injected = read_pod(reviewed(verb(directing), pod(copy.deepcopy(own))).obj).signature
    assert (made.node_affinity, made.affinity, made.spread) == (
        injected.node_affinity,
        injected.affinity,
        injected.spread,
    )
    assert made.enforced.preferred == injected.preferred_nodes


def test_no_json_is_written_or_read_to_make_an_effective_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    directing = [policy(f"p{at}", affinity=affinity) for at, affinity in enumerate(DIRECTED.values())]
    soft = SPREAD | {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
    directing.append(policy("spread", topologySpreadConstraints=[SPREAD, soft], nodeSelector={"a": "b"}))
    own, view = read_pod(pod(OWN)), index_of(*map(PolicyObject, directing)).view

    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError("JSON")

    monkeypatch.setattr(orjson, "dumps", fails)
    monkeypatch.setattr(constraints, "decode", fails)
    made = effective_pod(own, view, ENABLED).signature
    assert made.enforced is not None
    assert made.enforced.refused_for is None
    assert len(made.enforced.policies) == len(directing)
    assert [wish.min_domains for wish in made.spread.soft] == [2]
