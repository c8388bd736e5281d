"""Limits on what a pod may ask for: which pods are above one, what is told of them, and what is kept of them.

How many values a request may hold, whatever its length in bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson
import pytest

from extender.model.objects import Pod
from extender.settings.limits import Limits
from extender.wire.errors import WireError
from extender.wire.extender_v1 import MOST_NODES, decode_args, decode_preemption_args
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
    assert names == {*CASES, "podBytes", "hostPorts", "perNamespace"}  # the last one is about many pods: tests/index


def with_ports(count: int, **fields: Any) -> Json:
    """A pod with so many host ports, half of them in a sidecar, and a port that is not one of the host."""
    ports = [{"containerPort": 1, "hostPort": 1000 + number} for number in range(count)]
    body = pod_json(**fields)
    body["spec"]["containers"] = [{"name": "main", "ports": [*ports[::2], {"containerPort": 1}]}]
    body["spec"]["initContainers"] = [{"name": "sidecar", "restartPolicy": "Always", "ports": ports[1::2]}]
    return body


def test_a_pod_with_more_host_ports_than_the_limit_is_reported_and_keeps_so_many() -> None:
    assert told(with_ports(200)) == ""
    assert told(with_ports(201)) == "spec.containers: 201 host ports, limits.hostPorts is 200"
    assert told(with_ports(201, apart=terms(101))) == "spec.containers: 201 host ports, limits.hostPorts is 200"
    found = read(with_ports(300))
    assert (len(found.host_ports), found.signature.excess.limit) == (200, "hostPorts")  # type: ignore[union-attr]  # it is told


def test_replicas_share_their_host_ports_and_the_mark_of_having_too_many() -> None:
    few, many = ([read(with_ports(count, name=name)) for name in "ab"] for count in (3, 201))
    assert few[0].host_ports is few[1].host_ports
    assert many[0].signature is many[1].signature
    assert few[0].signature is not many[0].signature
    assert read(with_ports(202)).signature is not many[0].signature


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
def test_labels_of_a_pod_above_the_bytes_are_kept(fields: Json) -> None:
    """Others count them, and policies select by them."""
    signature = read(big(**fields)).signature
    assert (signature.labels, signature.affinity.is_empty) == ({"app": "web"}, True)


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


POD = {"metadata": {"name": "web", "namespace": "team-a", "uid": "u"}}


def asked(**fields: object) -> bytes:
    """A request about a pod."""
    return orjson.dumps({"Pod": POD} | fields)


def test_as_many_names_as_the_limit_are_read() -> None:
    names = [f"node-{number:05d}.example.internal" for number in range(MOST_NODES)]
    assert decode_args(asked(NodeNames=names)).node_names == names


LONG = "metadata and what else a node holds, which is never as short as a number" * 2
TOO_MUCH = {
    "names": (asked(NodeNames=["n"] * (MOST_NODES + 1)), "NodeNames: holds more than 20000 names"),
    "one name that is as long as all": (asked(NodeNames=["n" * 256 * MOST_NODES]), "NodeNames: holds more than"),
    "nodes": (
        asked(Nodes={"items": [{"metadata": {"name": "n", "x": LONG}}] * 5001}),
        "Nodes.items: holds more than 5000 nodes",
    ),
    "numbers": (asked(Nodes={"items": [1] * 200_000}), "has too many values for its length"),
}


@pytest.mark.parametrize(("body", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_is_rejected_by_its_field(body: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_args(body)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"NodeNameToMetaVictims": {f"n{n}": None for n in range(MOST_NODES + 1)}}, "holds more than 20000 nodes"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 50_001}}}, "holds more than 50000 pods"),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}] * 300_000}}}, "too many values"),
        ({"NodeNameToVictims": {"n": {"Pods": [{}] * 5001}}}, "NodeNameToVictims: holds more than 5000 pods"),
        (
            {"NodeNameToVictims": {"n": {"Pods": [{"spec": {"containers": [{}] * 11}}] * 2000}}},
            "NodeNameToVictims: holds more than 20000 containers and resource requests",
        ),
    ],
)
def test_more_candidates_or_victims_are_rejected(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_preemption_args(asked(**fields))


AMOUNTS = {f"example.com/{n}": "1" for n in range(10_001)}


def test_requests_are_counted_by_number_and_not_by_their_bytes() -> None:
    amounts = {f"example.com/{'x' * 60}-{n}": "1" for n in range(9_000)}
    containers = [{"resources": {"requests": amounts}}] * 2
    body = orjson.dumps({"Pod": {"metadata": {"uid": "u"}, "spec": {"containers": containers}}, "NodeNames": []})
    assert len(decode_args(body).pod.requests) == 9_000


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{}] * 20_001},
        {"containers": [{}] * 10_001, "initContainers": [{}] * 10_001},
        {"containers": [{"resources": {"requests": AMOUNTS}}] * 2},
        {"overhead": AMOUNTS, "resources": {"requests": AMOUNTS}},
    ],
    ids=["containers", "containers and init containers", "requests", "overhead and requests of the pod"],
)
def test_a_pod_with_more_containers_or_requests_is_rejected(spec: dict[str, object]) -> None:
    body = orjson.dumps({"Pod": {"metadata": {"uid": "u"}, "spec": spec}, "NodeNames": []})
    with pytest.raises(WireError, match=r"Pod\.spec: holds more than 20000 containers and resource requests"):
        decode_args(body)


def test_fields_in_another_case_are_looked_for_only_where_they_are_few() -> None:
    """To look for them makes an object of each field, at a microsecond each."""
    few = b",".join(b'"k%d":1' % number for number in range(100))
    many = b",".join(b'"k%d":1' % number for number in range(20_001))
    request = b'{"pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}},"nodenames":["n"],%b}'
    assert decode_args(request % few).node_names == ["n"]
    with pytest.raises(WireError, match="Pod: is missing"):
        decode_args(request % many)
