"""Limits on what a pod may ask for: which pods are above one, what is told of them, and what is kept of them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson
import pytest

from extender.model.objects import Pod
from extender.settings.limits import Limits
from extender.wire.objects.kinds import Kind, pods_within
from tests.builders import Json, matching, pod_json, requirement, spread, term, weighted

LIMITS: Final = Limits()
HUGE: Final = msgspec.structs.replace(LIMITS, pod_bytes=2**30)


def read(body: Json, limits: Limits = LIMITS) -> Pod:
    """The pod as the service reads it under these limits."""
    kind: Kind[Pod] = pods_within(limits)
    return kind.decode_object(orjson.dumps(body))


def told(body: Json, limits: Limits = LIMITS) -> str:
    """What is told of the pod, empty where it is within the limits."""
    excess = read(body, limits).signature.excess
    return "" if excess is None else excess.text


def terms(count: int) -> list[Json]:
    """So many terms over one key."""
    return [term(app=f"a{number}") for number in range(count)]


def over_keys(count: int) -> Json:
    """Terms and constraints over so many keys in all."""
    return {"apart": [term(f"k{n}", app="a") for n in range(count // 2)]} | {
        "spreads": [spread(f"k{n}", app="a") for n in range(count // 2, count)]
    }


def values(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


def node_terms(count: int, clauses: int = 1) -> list[Json]:
    """So many terms of node affinity with so many requirements each."""
    each = [requirement(f"k{number}", "Exists", []) for number in range(clauses)]
    return [{"matchExpressions": [*each[1:], requirement("zone", "In", [f"z{number}"])]} for number in range(count)]


def labels(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


CASES: Final[dict[str, tuple[int, Any, str]]] = {
    "affinityTerms": (
        100,
        lambda n: {
            "near": terms(1),
            "apart": terms(n - 3),
            "prefers": [weighted(1, each) for each in terms(1)],
            "avoids": [weighted(1, each) for each in terms(1)],
        },
        "spec.affinity: 101 terms of pods",
    ),
    "topologySpreadConstraints": (
        32,
        lambda n: {"spreads": [spread(hard=bool(each % 2), app=f"a{each}") for each in range(n)]},
        "spec.topologySpreadConstraints: 33 constraints",
    ),
    "topologyKeys": (16, over_keys, "spec.affinity and constraints: 17 topology keys"),
    "namespaces": (
        500,
        lambda n: {"apart": [term(app="a", namespaces=values(n - 1)), term(app="a", namespaces=["other"])]},
        "spec.affinity: 501 namespaces",
    ),
    "labelRequirements": (
        500,
        lambda n: {
            "apart": [term(selector=matching(**labels(n - 2)), namespace_selector=matching(team="a"))],
            "spreads": [spread(app="a")],
        },
        "spec.affinity and constraints: 501 requirements of label selectors",
    ),
    "nodeSelectorTerms": (100, lambda n: {"node_terms": node_terms(n)}, "spec.affinity.nodeAffinity: 101 terms"),
    "nodeRequirements": (
        200,
        lambda n: {"node_selector": labels(n - 100), "node_terms": node_terms(50, 2)},
        "spec.nodeSelector and nodeAffinity: 201 requirements",
    ),
    "selectorValues": (
        2000,
        lambda n: {
            "node_terms": [{"matchExpressions": [requirement("host", "In", values(n - 1))]}],
            "apart": [term(app="a")],
        },
        "spec: 2001 values in selectors",
    ),
    "tolerations": (
        100,
        lambda n: {"tolerations": [{"key": f"k{each}", "operator": "Exists"} for each in range(n)]},
        "spec.tolerations: 101 tolerations",
    ),
}


@pytest.mark.parametrize("limit", CASES)
def test_a_pod_at_the_limit_is_within_it_and_one_above_is_reported_with_its_number(limit: str) -> None:
    most, fields_of, text = CASES[limit]
    assert told(pod_json(**fields_of(most)), HUGE) == ""
    assert told(pod_json(**fields_of(most + 1)), HUGE) == f"{text}, limits.{limit} is {most}"
    assert read(pod_json(**fields_of(most + 1)), HUGE).signature.excess.limit == limit  # type: ignore[union-attr]  # it is told


def test_every_limit_has_a_case() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(Limits)}
    assert names == {*CASES, "podBytes", "perNamespace"}  # the last one is about many pods: tests/index


def test_a_pod_above_the_bytes_is_marked_and_not_parsed() -> None:
    """Its constraints are no JSON at all here, which nothing notices."""
    body = pod_json(app="web")
    line = orjson.dumps(body).replace(b'"spec":{}', b'"spec":{"affinity":{"x":[%s1]}}' % (b"1," * 40_000))
    found = pods_within(LIMITS).decode_object(line)
    size = len(b'{"x":[1]}') + 80_000 + len(b'{"app":"web"}')
    assert found.signature.excess is not None
    assert found.signature.excess.text == f"labels and constraints: {size} bytes, limits.podBytes is 64Ki"


def big(**fields: Any) -> Json:
    """A pod above the limit of bytes."""
    return pod_json(apart=terms(2_000), app="web", **fields)


@pytest.mark.parametrize("fields", [{"on": "n1"}, {}], ids=["on a node", "without a node"])
def test_labels_of_a_pod_above_the_bytes_are_kept_where_they_count(fields: Json) -> None:
    signature = read(big(**fields)).signature
    assert (signature.labels, signature.affinity.is_empty) == ({"app": "web"} if fields else {}, True)


def test_labels_of_a_nominated_pod_above_the_bytes_are_kept() -> None:
    body = big()
    body["status"] = {"nominatedNodeName": "n1"}
    assert read(body).signature.labels == {"app": "web"}


def test_a_pod_above_a_number_keeps_what_it_asks_for() -> None:
    signature = read(pod_json(on="n1", apart=terms(101), app="web")).signature
    assert (len(signature.affinity.required_anti), signature.labels) == (101, {"app": "web"})


def test_replicas_above_a_limit_share_one_shape() -> None:
    shapes = [read(big(on=on, name=name)).signature for on in ("", "n1") for name in ("a", "b")]
    held = [read(pod_json(apart=terms(101), name=name)).signature for name in ("a", "b")]
    assert held[0] is held[1]
    assert (shapes[0] is shapes[1], shapes[2] is shapes[3]) == (True, True)


def test_limits_that_differ_are_not_mixed_up() -> None:
    body = pod_json(apart=terms(50))
    tight = msgspec.structs.replace(LIMITS, affinity_terms=49)
    assert [told(body), told(body, tight), told(body)] == [
        "",
        "spec.affinity: 50 terms of pods, limits.affinityTerms is 49",
        "",
    ]
