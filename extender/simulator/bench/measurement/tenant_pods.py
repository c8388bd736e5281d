"""Measures requests for ordinary pods beside one tenant with many different constraints. Called by `in_process.py`.

Each of the tenant's 500 pods is within the limits of one pod and has a selector of its own, over 5 of 200 label keys that the
nodes have. A pod that passes is bound, as without the budget of a namespace all of them are. Two tenants, one after the other:
one whose terms stay in their namespace, and one whose preferred terms select the pods of all namespaces.
"""

from collections.abc import Callable
from time import thread_time_ns
from typing import Any, Final

import orjson

from extender.simulator.bench.measurement.in_process_player import Player
from extender.simulator.bench.measurement.subject import Decisions, apply
from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import node_label
from extender.simulator.bench.workload.scenario import Point
from extender.wire.extender_v1 import decode_args, encode_filter
from extender.wire.objects.kinds import PODS

_PODS: Final = 500
_KEYS: Final = 200
_TERMS: Final = 5
_NAMESPACE: Final = "tenant"

Spec = dict[str, Any]


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
            apply(player.index, PODS.decode_event(_line("DELETED", _pod(number, make))))
        figures = {"slowdown": beside / alone, "added": beside - alone, "waiting": waiting / _PODS}
        found |= {f"{name}.{key}": value for key, value in figures.items()} | milliseconds(times, f"{name}.first")
    return found


def _place(
    cluster: SyntheticCluster, player: Player, decisions: Decisions, point: Point, make: Callable[[int], Spec]
) -> tuple[list[int], int]:
    """Creates the pods of a tenant and binds those that pass. Returns the times of answers, and how many did not pass."""
    names, times, waiting = cluster.nodes[: point.names], list[int](), 0
    for number in range(_PODS):
        body = _pod(number, make)
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


def _line(event: str, body: Spec) -> bytes:
    return orjson.dumps({"type": event, "object": body})


def _pod(number: int, make: Callable[[int], Spec]) -> Spec:
    name = f"tenant-{number}"
    meta = {"name": name, "namespace": _NAMESPACE, "uid": name, "labels": {"app": name}}
    return {"metadata": meta, "spec": {"affinity": {"podAntiAffinity": make(number)}}}


def _keys(number: int) -> list[str]:
    return [node_label((_TERMS * number + each) % _KEYS) for each in range(_TERMS)]


def _keeping_apart(number: int) -> Spec:
    selector = {"matchLabels": {"app": f"tenant-{number}"}}
    terms = [{"topologyKey": key, "labelSelector": selector} for key in _keys(number)]
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _reaching(number: int) -> Spec:
    clause = {"key": "app", "operator": "NotIn", "values": [f"tenant-{number}"]}
    term = {"labelSelector": {"matchExpressions": [clause]}, "namespaceSelector": {}}
    terms = [{"weight": 1, "podAffinityTerm": term | {"topologyKey": key}} for key in _keys(number)]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}
