"""What happens to a large cluster at once: pods get another label, zones are lost and return, nodes come and go.

Runs in the process of the simulated API server (`apiserver_process.py`), which `at_scale.py` calls by name.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import orjson

from extender.simulator.apiserver import kinds
from extender.simulator.apiserver.store import MODIFIED, Store, Stored
from extender.simulator.bench.measurement.generated_table import GeneratedTable
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import node_line, node_name
from extender.simulator.json_objects import JsonObject

_TICK_SECONDS: Final = 0.02
_LOST_ZONES: Final = 2
_LABELS: Final = b'"labels":{'
_FURTHER_LABEL: Final = _LABELS + b'"track":"canary",'
_TAINTS: Final = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]


class Disturbances:
    """Each is a call by name, which returns how many events it has caused."""

    def __init__(self, cluster: SyntheticCluster, store: Store, pods: GeneratedTable) -> None:
        self._cluster = cluster
        self._store = store
        self._pods = pods
        self._churn = 0.0
        self._come = self._gone = len(cluster.nodes)

    @property
    def answered(self) -> Mapping[str, Callable[..., int]]:
        """The calls by name."""
        return {
            "relabelPods": self.relabel_pods,
            "taintZones": self.taint_zones,
            "loseZones": self.lose_zones,
            "returnZones": self.return_zones,
            "churn": self.set_churn,
        }

    def relabel_pods(self, count: int, restore: bool) -> int:  # noqa: FBT001 (arguments of a call by pipe)
        """Gives so many existing pods a further label, or takes it away again. A list shows them without it."""
        count = min(count, self._cluster.load.pods)
        for number in range(count):
            pod, node = self._cluster.existing_pod(number)
            body = self._cluster.running(pod, node)
            self._store.version += 1
            body = body.replace(b'"resourceVersion":"1000"', b'"resourceVersion":"%d"' % self._store.version, 1)
            if not restore:
                body = body.replace(_LABELS, _FURTHER_LABEL, 1)
            stored = Stored(pod.name, self._store.version, body, self._cluster.nodes[node])
            self._pods.announce(MODIFIED, stored, time.monotonic())
        return count

    def taint_zones(self) -> int:
        """The nodes of the first two zones cannot be reached: they get the taints of the node controller."""
        return self._put(_with_taints(self._node(number)) for number in self._lost())

    def lose_zones(self) -> int:
        """These nodes are deleted. Their pods stay: deleting them is a stream of events like any other."""
        lost = list(self._lost())
        for number in lost:
            self._store.remove(kinds.NODES, node_name(number))
        return len(lost)

    def return_zones(self) -> int:
        """The same nodes are there again, without taints."""
        return self._put(map(self._node, self._lost()))

    def set_churn(self, rate: float) -> int:
        """From now on so many nodes a second come or go. Returns how many did so far."""
        self._churn = rate
        return self._come + self._gone - 2 * len(self._cluster.nodes)

    async def let_happen(self) -> None:
        """Adds and removes nodes at the rate, in turns."""
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            due = min(due + self._churn * (now - last), self._churn)
            last = now
            for _ in range(int(due)):
                self._come_or_go()
            due -= int(due)

    def _come_or_go(self) -> None:
        if self._come == self._gone:
            self._store.put(kinds.NODES, self._node(self._come))
            self._come += 1
        else:
            self._store.remove(kinds.NODES, node_name(self._gone))
            self._gone += 1

    def _lost(self) -> Iterator[int]:
        zones = self._cluster.part.zones
        return (number for number in range(len(self._cluster.nodes)) if number % zones < min(_LOST_ZONES, zones - 1))

    def _node(self, number: int) -> JsonObject:
        part = self._cluster.part
        found: JsonObject = orjson.loads(node_line(number, part.zones, part.node_labels))["object"]
        return {name: value for name, value in found.items() if name not in {"kind", "apiVersion"}}

    def _put(self, nodes: Iterator[JsonObject]) -> int:
        return len([self._store.put(kinds.NODES, node) for node in nodes])


def _with_taints(node: JsonObject) -> JsonObject:
    return node | {"spec": node["spec"] | {"taints": _TAINTS}}
