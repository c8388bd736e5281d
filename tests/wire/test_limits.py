"""Limits on what a pod may ask for: which pods are above one, the text about the limit, and what is kept of the pod.

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
from extender.model.objects import PodSignature
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.extender_v1 import MOST_NODES, decode_args, decode_preemption_args
from extender.wire.objects import trim
from extender.wire.objects.kinds import NODES, PODS, Kind, pods_within
from tests.builders import Json, matching, node_json, pod_json, requirement, resizing, spread, term, weighted
from tests.wire.large_pods import (
    LIMITS,
    amounts,
    apart,
    by_uid,
    excess,
    in_full,
    labels,
    node_terms,
    over_keys,
    pod_of,
    pod_with,
    read,
    requesting,
    terms,
    toleration,
    values,
    with_ports,
)

HUGE: Final = msgspec.structs.replace(LIMITS, pod_bytes=2**30)


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
        lambda n: {"tolerations": [toleration(f"k{each}") for each in range(n)]},
        "spec.tolerations: 101 tolerations",
    ),
}


@pytest.mark.parametrize("limit", CASES)
def test_a_pod_at_the_limit_is_within_it_and_one_above_is_reported_with_its_number(limit: str) -> None:
    most, fields_of, text = CASES[limit]
    assert excess(pod_json(**fields_of(most)), HUGE) == ""
    assert excess(pod_json(**fields_of(most + 1)), HUGE) == f"{text}, limits.{limit} is {most}"
    assert read(pod_json(**fields_of(most + 1)), HUGE).signature.excess.limit == limit  # type: ignore[union-attr]  # it exceeds one


def test_every_limit_has_a_case() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(ConstraintLimits)}
    assert names == {*CASES, "podBytes", "hostPorts", "perNamespace"}  # the last one is about many pods: tests/index


def test_a_pod_with_more_host_ports_than_the_limit_is_reported_and_keeps_so_many() -> None:
    assert excess(with_ports(200)) == ""
    assert excess(with_ports(201)) == "spec.containers: 201 host ports, limits.hostPorts is 200"
    assert excess(with_ports(201, apart=terms(101))) == "spec.containers: 201 host ports, limits.hostPorts is 200"
    found = read(with_ports(300))
    assert (len(found.host_ports), found.signature.excess.limit) == (200, "hostPorts")  # type: ignore[union-attr]  # it exceeds one


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


KEPT: dict[str, tuple[Json, Json, int, bool]] = {
    "much else, on a node": ({"apart": terms(2_000), "app": "web", "on": "n1"}, {"app": "web"}, 0, False),
    "much else, without a node": ({"apart": terms(2_000), "app": "web"}, {"app": "web"}, 0, False),
    "labels alone, on a node": ({"labels": labels(10_000), "on": "n1"}, labels(10_000), 0, False),
    "labels alone, without a node": ({"labels": labels(10_000)}, {}, 0, True),
    "a number, not the bytes": ({"apart": terms(101), "app": "web", "on": "n1"}, {"app": "web"}, 101, False),
}


@pytest.mark.parametrize(("fields", "kept", "anti_affinity", "hides_labels"), KEPT.values(), ids=KEPT)
def test_a_pod_above_a_limit_keeps_its_labels_and_terms_above_a_number(
    fields: Json, kept: Json, anti_affinity: int, *, hides_labels: bool
) -> None:
    """Other pods count its labels, and policies select by them."""
    signature = read(pod_json(**fields)).signature
    assert (signature.labels, len(signature.affinity.required_anti)) == (kept, anti_affinity)
    assert signature.excess is not None
    assert signature.excess.hides_labels is hides_labels


def test_replicas_above_a_limit_share_one_shape() -> None:
    large = [read(pod_json(name, on=on, apart=terms(2_000), app="web")).signature for on in ("", "n1") for name in "ab"]
    held = [read(pod_json(name, apart=terms(101))).signature for name in "ab"]
    assert held[0] is held[1]
    assert (large[0] is large[1], large[2] is large[3]) == (True, True)


def test_limits_that_differ_are_not_mixed_up() -> None:
    body = pod_json(apart=terms(50))
    tight = msgspec.structs.replace(LIMITS, affinity_terms=49)
    assert [excess(body), excess(body, tight), excess(body)] == [
        "",
        "spec.affinity: 50 terms of pods, limits.affinityTerms is 49",
        "",
    ]


POD = {"metadata": {"name": "web", "namespace": "team-a", "uid": "u"}}


PARTS = "holds more than 20000 containers and resource requests"
LONG = {"metadata": {"name": "n", "x": "metadata and what else a node holds, which is never as short as a number" * 2}}
AMOUNTS = {f"example.com/{n}": "1" for n in range(10_001)}
RESIZED = resizing(pod_json(on="n", requests={"cpu": "1"}), allocated=dict(list(AMOUNTS.items())[:5000]), actual={})
TOO_MUCH: dict[str, tuple[Json, str]] = {
    "names": ({"NodeNames": ["n"] * (MOST_NODES + 1)}, "NodeNames: holds more than 20000 names"),
    "one name that is as long as all": ({"NodeNames": ["n" * 256 * MOST_NODES]}, "NodeNames: holds more than"),
    "nodes": ({"Nodes": {"items": [LONG] * 5001}}, "Nodes.items: holds more than 5000 nodes"),
    "numbers": ({"Nodes": {"items": [1] * 200_000}}, "has too many values for its length"),
    "candidates": (
        {"NodeNameToMetaVictims": {f"n{n}": None for n in range(MOST_NODES + 1)}},
        "holds more than 20000 nodes",
    ),
    "UIDs of victims": (by_uid([{"UID": "u"}] * 50_001), "holds more than 50000 pods"),
    "values of UIDs": (by_uid([{"UID": "u"}] * 300_000), "too many values"),
    "victims": (in_full([{}] * 5001), "NodeNameToVictims: holds more than 5000 pods"),
    "containers of victims": (in_full([{"spec": {"containers": [{}] * 11}}] * 2000), f"NodeNameToVictims: {PARTS}"),
    "allocated resources of victims": (in_full([RESIZED] * 5), f"NodeNameToVictims: {PARTS}"),
    "containers": (pod_of(containers=[{}] * 20_001), f"Pod.spec: {PARTS}"),
    "init containers": (pod_of(containers=[{}] * 10_001, initContainers=[{}] * 10_001), f"Pod.spec: {PARTS}"),
    "requests": (pod_of(containers=[{"resources": {"requests": AMOUNTS}}] * 2), f"Pod.spec: {PARTS}"),
    "overhead and requests": (pod_of(overhead=AMOUNTS, resources={"requests": AMOUNTS}), f"Pod.spec: {PARTS}"),
}


@pytest.mark.parametrize(("fields", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_request_with_more_is_rejected(fields: Json, problem: str) -> None:
    decode = decode_preemption_args if next(iter(fields)).startswith("NodeNameTo") else decode_args
    with pytest.raises(WireError, match=problem):
        decode(orjson.dumps({"Pod": POD} | fields))


def test_as_many_names_as_the_limit_are_read() -> None:
    names = [f"node-{number:05d}.example.internal" for number in range(MOST_NODES)]
    assert decode_args(orjson.dumps({"Pod": POD, "NodeNames": names})).node_names == names


def test_requests_are_counted_by_number_and_not_by_their_bytes() -> None:
    amounts = {f"example.com/{'x' * 60}-{n}": "1" for n in range(9_000)}
    body = pod_of(containers=[{"resources": {"requests": amounts}}] * 2)
    assert len(decode_args(orjson.dumps(body)).pod.requests) == 9_000


def test_fields_in_another_case_are_looked_for_only_where_they_are_few() -> None:
    """To look for them makes an object of each field, at a microsecond each."""
    few = b",".join(b'"k%d":1' % number for number in range(100))
    many = b",".join(b'"k%d":1' % number for number in range(20_001))
    request = b'{"pod":{"metadata":{"name":"a","namespace":"b","uid":"c"}},"nodenames":["n"],%b}'
    assert decode_args(request % few).node_names == ["n"]
    with pytest.raises(WireError, match="Pod: is missing"):
        decode_args(request % many)


# -- What reading pods leaves in memory once they are deleted: the caches of the wire are bounded in bytes ----------------


RETAINED: dict[str, tuple[int, float, Callable[[int], Json]]] = {
    "terms": (5, 0.25, lambda n: pod_with(affinity=apart([term(app=f"a{n}-{each}") for each in range(4_000)]))),
    "labels": (5, 0.25, lambda n: pod_with(labels={f"k{n}-{each}": "x" * 40 for each in range(16_000)})),
    "tolerations": (5, 0.25, lambda n: pod_with(tolerations=[toleration(f"k{n}-{at}") for at in range(10_000)])),
    "requests": (5, 0.25, lambda n: pod_with(containers=requesting(amounts(n, 16_000)))),
    "small templates": (8_000, 16, lambda n: pod_with(affinity=apart([term(app=f"a{n}")]), labels={"app": f"a{n}"})),
    "a long quantity": (100, 2, lambda n: pod_with(containers=requesting({"cpu": "0" * 50_000 + str(n + 2)}))),
    "amounts of nodes": (200, 3, lambda n: node_json("n", allocatable=amounts(n, 500))),
}


@pytest.mark.parametrize(("count", "megabytes", "body_of"), RETAINED.values(), ids=RETAINED)
def test_objects_that_were_read_leave_no_more_than_the_caches_may_hold(
    count: int, megabytes: float, body_of: Callable[[int], Json]
) -> None:
    kind: Kind[Any] = NODES if "status" in body_of(0) else PODS
    kind.decode_object(orjson.dumps(body_of(-1)))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            kind.decode_object(orjson.dumps(body_of(number)))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def test_a_long_rejection_is_kept_as_its_start_and_still_distinguished_from_another() -> None:
    def rejection(message: str) -> str:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        return PODS.decode_object(orjson.dumps(pod_with() | {"status": {"conditions": [condition]}})).rejection

    texts = [rejection("x" * 100_000 + end) for end in "aba"]
    assert (texts[0] == texts[2], texts[0] == texts[1], len(texts[0]) < 600) == (True, False, True)
    assert rejection("short") == "Unschedulable: short"


def test_a_template_that_left_the_cache_is_the_same_object_while_a_pod_has_it() -> None:
    def read(number: int) -> Json:
        return pod_with(labels={"app": f"kept-{number}", "filler": "x" * 60})

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
    bodies = [orjson.dumps(pod_with(labels={"turn": f"{number}"})) for number in range(200)]
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
        line = orjson.dumps(pod_with(nodeName=f"n{number}", labels={f"k{number}": f"v{number}", "x" * 300: "y"}))
        found = PODS.decode_object(line)
        assert found.node is texts[f"n{number}"]
        assert len(texts) <= 100
    assert all(len(each) <= SharedTexts.LONGEST for each in texts)


def test_equal_names_of_pods_are_one_object() -> None:
    one, other = (PODS.decode_object(orjson.dumps(pod_with(nodeName="n1", labels={"n": f"{n}"}))) for n in range(2))
    assert one.node is other.node
