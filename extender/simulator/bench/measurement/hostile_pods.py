"""Measures requests for ordinary pods with and without hostile pods in the same index. Called by `in_process.py`.

A hostile pod has as many constraints as the default limits allow, or far more. Half of them are bound, as if without the
scheduler; for the others there are requests.
"""

from collections.abc import Callable, Iterator
from time import thread_time_ns
from typing import Any, Final

import orjson

from extender.index.cluster import ClusterIndex
from extender.simulator.bench.measurement.in_process_player import Player
from extender.simulator.bench.measurement.subject import Decisions, apply
from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.scenario import Point
from extender.simulator.process_usage import resident_megabytes
from extender.wire.extender_v1 import decode_args, encode_filter
from extender.wire.objects.kinds import PODS

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_EACH: Final = 20  # pods of each kind, half of them on a node
_NAMESPACE: Final = "hostile"

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
                "metadata": {"name": name, "namespace": _NAMESPACE, "uid": name, "labels": {"app": name}},
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
