"""Limits on what a pod may ask for: which pods are above one, what is told of them, and what is kept of them.

How many values a request may hold, whatever its length in bytes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import msgspec
import orjson
import pytest

from extender.model.bounded import BoundedCache, SharedTexts
from extender.model.objects import Pod, PodSignature
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.extender_v1 import MOST_NODES, decode_args, decode_preemption_args
from extender.wire.objects import trim
from extender.wire.objects.kinds import NODES, PODS, Kind, pods_within
from tests.builders import REQUIRED, Json, matching, node_json, pod_json, requirement, resizing, spread, term, weighted

LIMITS: Final = ConstraintLimits()
HUGE: Final = msgspec.structs.replace(LIMITS, pod_bytes=2**30)


def read(body: Json, limits: ConstraintLimits = LIMITS) -> Pod:
    """The pod as the service reads it under these limits."""
    kind: Kind[Pod] = pods_within(limits)
    return kind.decode_object(orjson.dumps(body))


def told(body: Json, limits: ConstraintLimits = LIMITS) -> str:
    """What is told of the pod, empty where it is within the limits."""
    excess = read(body, limits).signature.excess
    return "" if excess is None else excess.text


def terms(count: int) -> list[Json]:
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
    names = {field.encode_name for field in msgspec.structs.fields(ConstraintLimits)}
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
    line = orjson.dumps(body).replace(b'"spec":{', b'"spec":{"affinity":{"x":[%s1]},' % (b"1," * 40_000))
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


@pytest.mark.parametrize(("fields", "kept"), [({"on": "n1"}, 10_000), ({}, 0)], ids=["on a node", "without a node"])
def test_labels_above_the_bytes_by_themselves_are_kept_of_a_pod_that_counts(fields: Json, kept: int) -> None:
    signature = read(pod_json(labels=labels(10_000), **fields)).signature
    assert len(signature.labels) == kept
    assert signature.excess is not None
    assert signature.excess.hides_labels is not bool(kept)


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


def resized_to(amounts: Json) -> Json:
    return resizing(pod_json("victim", on="n", requests={"cpu": "1"}), allocated=amounts, actual={})


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
        (
            {"NodeNameToVictims": {"n": {"Pods": [resized_to({f"x.io/{n}": "1" for n in range(5000)})] * 5}}},
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


# -- What reading pods leaves in memory once they are gone: the caches of the wire are bounded in bytes ----------------

MEBI = 2**20


def retained(line_of: Callable[[int], bytes], count: int) -> int:
    """Bytes that are held after so many pods were read, one after the other, and dropped."""
    PODS.decode_object(line_of(-1))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            PODS.decode_object(line_of(number))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def megabyte(spec: Json, **meta: Json) -> Json:
    return {"metadata": {"name": "big", "namespace": "ns", **meta}, "spec": spec}


def apart(terms: list[Json]) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def terms_of(number: int) -> Json:
    """4,000 terms, half a megabyte."""
    return megabyte(apart([term(app=f"a{number}-{each}") for each in range(4_000)]))


def labels_of(number: int) -> Json:
    """A megabyte of labels."""
    return megabyte({}, labels={f"k{number}-{each}": "x" * 40 for each in range(16_000)})


def tolerations_of(number: int) -> Json:
    """Half a megabyte of tolerations."""
    each = [{"key": f"k{number}-{at}", "operator": "Exists", "effect": "NoSchedule"} for at in range(6_000)]
    return megabyte({"tolerations": each})


def resources_of(number: int) -> Json:
    """Half a megabyte of requests."""
    requests = {f"example.com/r{number}-{each}": "1" for each in range(16_000)}
    return megabyte({"containers": [{"resources": {"requests": requests}}]})


@pytest.mark.parametrize("body_of", [terms_of, labels_of, tolerations_of, resources_of])
def test_a_pod_of_a_megabyte_leaves_nothing_when_it_is_gone(body_of: Callable[[int], Json]) -> None:
    assert retained(lambda number: orjson.dumps(body_of(number)), 5) < MEBI // 4


def test_a_long_rejection_is_kept_as_its_start_and_still_distinguished_from_another() -> None:
    def rejection(message: str) -> str:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        body = megabyte({}) | {"status": {"conditions": [condition]}}
        return PODS.decode_object(orjson.dumps(body)).rejection

    texts = [rejection("x" * 100_000 + end) for end in "aba"]
    assert (texts[0] == texts[2], texts[0] == texts[1], len(texts[0]) < 600) == (True, False, True)
    assert rejection("short") == "Unschedulable: short"


def test_many_small_templates_leave_no_more_than_the_caches_may_hold() -> None:
    def line_of(number: int) -> bytes:
        return orjson.dumps(megabyte(apart([term(app=f"a{number}")]), labels={"app": f"a{number}"}))

    assert retained(line_of, 8_000) < 16 * MEBI


def test_a_long_quantity_is_not_cached() -> None:
    def line_of(number: int) -> bytes:
        return orjson.dumps(
            megabyte({"containers": [{"resources": {"requests": {"cpu": "0" * 50_000 + str(number + 2)}}}]})
        )

    assert retained(line_of, 100) < 2 * MEBI


def test_many_nodes_with_resources_of_their_own_leave_no_more_than_the_cache_may_hold() -> None:
    tracemalloc.start()
    try:
        for number in range(200):
            offered = {f"example.com/r{number}-{each}": "1" for each in range(500)}
            NODES.decode_object(orjson.dumps(node_json("n", allocatable=offered)))
        assert tracemalloc.get_traced_memory()[0] < 3 * MEBI
    finally:
        tracemalloc.stop()


def test_a_template_that_left_the_cache_is_the_same_object_while_a_pod_has_it() -> None:
    def read(number: int) -> Json:
        return megabyte({}, labels={"app": f"kept-{number}", "filler": "x" * 60})

    held = [PODS.decode_object(orjson.dumps(read(number))) for number in range(8_000)]
    again = [PODS.decode_object(orjson.dumps(read(number))) for number in range(8_000)]
    assert all(one.signature is other.signature for one, other in zip(held, again, strict=True))


def test_templates_in_use_that_do_not_fit_do_not_evict_each_other_at_each_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of 20,000 templates come in turns in a large cluster: each template would be evicted before it is needed again."""

    class Counted(BoundedCache[trim.Template, PodSignature]):
        puts = 0

        def put(self, key: trim.Template, value: PodSignature, size: int) -> None:
            self.puts += 1
            super().put(key, value, size)

    cache = Counted(100_000, 16)
    monkeypatch.setattr(trim, "_SIGNATURES", cache)
    bodies = [orjson.dumps(megabyte({}, labels={"turn": f"{number}"})) for number in range(200)]
    first = [PODS.decode_object(body) for body in bodies]
    assert (cache.puts, len(cache) < 200) == (200, True)
    again = [PODS.decode_object(body) for body in bodies]
    assert cache.puts == 200
    assert all(new.signature is old.signature for new, old in zip(again, first, strict=True))


def test_texts_that_no_object_has_any_more_are_held_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 would keep each of them for good, had it been interned."""
    monkeypatch.setattr(SharedTexts, "MOST", 100)
    texts = SharedTexts()
    monkeypatch.setattr(trim, "shared", texts.__getitem__)
    for number in range(1000):
        line = orjson.dumps(megabyte({"nodeName": f"n{number}"}, labels={f"k{number}": f"v{number}", "x" * 300: "y"}))
        found = PODS.decode_object(line)
        assert found.node is texts[f"n{number}"]
        assert len(texts) <= 100
    assert all(len(each) <= SharedTexts.LONGEST for each in texts)


def test_equal_names_of_pods_are_one_object() -> None:
    one, other = (
        PODS.decode_object(orjson.dumps(megabyte({"nodeName": "n1"}, labels={"n": f"{n}"}))) for n in range(2)
    )
    assert one.node is other.node
