"""Measures requests for ordinary pods with and without hostile pods in the same index. Called by `in_process.py`.

A hostile pod has as many constraints as the default limits allow, or far more. Half of them are bound, as if without the
scheduler; for the others there are requests.
"""

from collections.abc import Callable, Iterator
from time import thread_time_ns
from typing import Any, Final

import orjson

from extender.index.cluster import ClusterIndex
from extender.wire.extender_v1 import decode_args, encode_filter
from extender.wire.objects.kinds import PODS
from tests.process_memory import resident_megabytes
from tests.tools.bench.cluster import SyntheticCluster, node_label
from tests.tools.bench.player import Player
from tests.tools.bench.results import Figures, milliseconds
from tests.tools.bench.scenario import Point
from tests.tools.bench.subject import Decisions, apply

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_EACH: Final = 20  # pods of each kind, half of them on a node

Spec = dict[str, Any]


def measure_hostile(
    cluster: SyntheticCluster, index: ClusterIndex, player: Player, decisions: Decisions, point: Point
) -> Figures:
    """The processor time of ordinary answers without and with hostile pods, which are deleted at the end.

    `hostile` is the time of one hostile pod from its watch line to its answer; `hostile.slowdown` the ratio of the 99th
    percentiles of ordinary answers with and without them; `hostile.rss` the memory that they add, in megabytes.
    """
    player.play(decisions, point)  # fills the caches before both measurements
    alone, before, times = player.play(decisions, point), resident_megabytes(), list[int]()
    for body in _pods(
        cluster.nodes
    ):  # created each time: if kept, they would need more memory than the index needs for them
        line = _line("ADDED", body)
        question = orjson.dumps({"Pod": body, "NodeNames": cluster.nodes[: point.names]})
        started = thread_time_ns()
        apply(index, PODS.decode_event(line))
        if not body["spec"].get("nodeName"):
            encode_filter(decisions.filter(decode_args(question)))
        times.append(thread_time_ns() - started)
    added = resident_megabytes() - before
    beside = player.play(decisions, point)
    for body in _pods(cluster.nodes):
        apply(index, PODS.decode_event(_line("DELETED", body)))
    slowdown = beside["cpu.p99"] / alone["cpu.p99"]
    return milliseconds(times, "hostile") | {"hostile.slowdown": slowdown, "hostile.rss": added}


def _line(event: str, body: Spec) -> bytes:
    return orjson.dumps({"type": event, "object": body})


def _pods(nodes: list[str]) -> Iterator[Spec]:
    """Pods of every kind; each has its own template."""
    for kind, make in _KINDS.items():
        for number in range(_OF_EACH):
            name = f"{kind}-{number}"
            spec = make(name) | ({"nodeName": nodes[number % len(nodes)]} if number % 2 else {})
            yield {
                "metadata": {"name": name, "namespace": "hostile", "uid": name, "labels": {"app": name}},
                "spec": spec,
            }


def _term(key: str, **labels: str) -> Spec:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def _near(name: str, count: int) -> Spec:
    terms = [_term("topology.kubernetes.io/zone", **{f"k{number}": name}) for number in range(count)]
    return {"affinity": {"podAffinity": {_REQUIRED: terms}}}


def _apart(name: str, count: int, key: str = "kubernetes.io/hostname") -> Spec:
    terms = [_term(key.format(number), app=f"{name}-{number}") for number in range(count)]
    return {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}}


def _product(name: str, count: int) -> Spec:
    values = {"key": "app", "operator": "In", "values": [f"{name}-{number}" for number in range(count)]}
    names = [f"space-{number}" for number in range(count)]
    term = {"topologyKey": "zone", "namespaces": names, "labelSelector": {"matchExpressions": [values]}}
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}


def _places(name: str, count: int) -> Spec:
    clauses = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"{name}-{n}"]} for n in range(count)]
    chosen = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [clause]} for clause in clauses]}}
    spread = _term("kubernetes.io/hostname", app=name) | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"affinity": {"nodeAffinity": chosen}, "topologySpreadConstraints": [spread]}


_KINDS: Final[dict[str, Callable[[str], Spec]]] = {
    "near": lambda name: _near(name, 90),
    "near-far-above": lambda name: _near(name, 1000),
    "apart": lambda name: _apart(name, 90),
    "apart-far-above": lambda name: _apart(name, 5000),
    "keys-above": lambda name: _apart(name, 90, "key-{}"),
    "product": lambda name: _product(name, 450),
    "product-above": lambda name: _product(name, 1800),
    "places": lambda name: _places(name, 90),
    "places-far-above": lambda name: _places(name, 10_000),
}


_PODS: Final = 500
_KEYS: Final = 200
_TERMS: Final = 5


def measure_tenants(cluster: SyntheticCluster, player: Player, decisions: Decisions, point: Point) -> Figures:
    """The processor time of ordinary answers without and with each tenant, whose pods are deleted at the end.

    For the names `tenant` and `reaching`: `.slowdown` is the ratio of the 99th percentiles, `.added` how many milliseconds the
    tenant adds there, `.waiting` the share of its pods that wait for the budget, `.first` the time of their answers.
    """
    found = Figures()
    for name, make in (("tenant", _keeping_apart), ("reaching", _reaching)):
        player.play(decisions, point)  # fills the caches before both measurements
        alone = player.play(decisions, point)["cpu.p99"]
        times, waiting = _place(cluster, player, decisions, point, make)
        beside = player.play(decisions, point)["cpu.p99"]
        for number in range(_PODS):
            apply(player.index, PODS.decode_event(_line("DELETED", _tenant_pod(number, make))))
        figures = {"slowdown": beside / alone, "added": beside - alone, "waiting": waiting / _PODS}
        found |= {f"{name}.{key}": value for key, value in figures.items()} | milliseconds(times, f"{name}.first")
    return found


def _place(
    cluster: SyntheticCluster, player: Player, decisions: Decisions, point: Point, make: Callable[[int], Spec]
) -> tuple[list[int], int]:
    """Creates the pods of a tenant and binds those that pass. Returns the times of answers, and how many did not pass."""
    names, times, waiting = cluster.nodes[: point.names], list[int](), 0
    for number in range(_PODS):
        body = _tenant_pod(number, make)
        apply(player.index, PODS.decode_event(_line("ADDED", body)))
        request = orjson.dumps({"Pod": body, "NodeNames": names})
        started = thread_time_ns()
        result = decisions.filter(decode_args(request))
        encode_filter(result)
        times.append(thread_time_ns() - started)
        if result.passed:
            body["spec"]["nodeName"] = result.passed[0]
            apply(player.index, PODS.decode_event(_line("MODIFIED", body)))
        else:
            waiting += 1
    return times, waiting


def _tenant_pod(number: int, make: Callable[[int], Spec]) -> Spec:
    name = f"tenant-{number}"
    meta = {"name": name, "namespace": "tenant", "uid": name, "labels": {"app": name}}
    return {"metadata": meta, "spec": {"affinity": {"podAntiAffinity": make(number)}}}


def _keys_of(number: int) -> list[str]:
    return [node_label((_TERMS * number + each) % _KEYS) for each in range(_TERMS)]


def _keeping_apart(number: int) -> Spec:
    selector = {"matchLabels": {"app": f"tenant-{number}"}}
    terms = [{"topologyKey": key, "labelSelector": selector} for key in _keys_of(number)]
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _reaching(number: int) -> Spec:
    clause = {"key": "app", "operator": "NotIn", "values": [f"tenant-{number}"]}
    term = {"labelSelector": {"matchExpressions": [clause]}, "namespaceSelector": {}}
    terms = [{"weight": 1, "podAffinityTerm": term | {"topologyKey": key}} for key in _keys_of(number)]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}
