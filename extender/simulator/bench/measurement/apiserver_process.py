"""The embedded API server of the bench, in a process of its own: holds the cluster and lets events happen.

The service under test lists and watches it just as it would a real one. Runs in a child; `serving` calls it by pipe.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Final

import orjson

from extender.simulator.apiserver import kinds
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.apiserver.store import ADDED, DELETED, MODIFIED, Store, Stored
from extender.simulator.bench.measurement.child_process import Calls
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId, namespace_line
from extender.simulator.bench.workload.scenario import Load
from extender.simulator.bench.workload.traffic import pod_events
from extender.simulator.json_objects import JsonObject

_TICK_SECONDS: Final = 0.02
_ALIVE: Final = 200
_HISTORY: Final = 50_000


def run_plane(pipe: Connection, load: Load) -> None:
    """The child's whole life. Says its address when it is ready."""
    asyncio.run(_run(pipe, SyntheticCluster(load)))


async def _run(pipe: Connection, cluster: SyntheticCluster) -> None:
    plane = Plane(cluster)
    settings = ApiServerSettings(history=_HISTORY, slow_after=_HISTORY)
    asked: dict[str, Callable[..., object]] = {"flood": plane.flood, "relabel": plane.relabel}
    asked |= {"compact": plane.compact, "told": lambda: plane.told}
    async with ApiServer(settings, store=plane.store) as api:
        calls = Calls(pipe, asked, told={"rate": plane.set_rate} | plane.pod_events)
        calls.listen()
        calls.say(api.url)
        happening = asyncio.create_task(plane.let_happen())
        await calls.stopped.wait()
        happening.cancel()


class Plane:
    """The store and what happens in it."""

    def __init__(self, cluster: SyntheticCluster) -> None:
        self.store = Store(history=_HISTORY)
        self._cluster = cluster
        self._rate = 0.0
        self.told = 0  # pod events so far
        self._lives = pod_events(cluster, 50_000_000)
        self._placed: deque[tuple[PodId, str]] = deque()
        self.store.load(_foundation(cluster))
        self.store.table(kinds.PODS).fill(self._existing(), self.store.version + cluster.load.pods)

    def set_rate(self, rate: float) -> None:
        """So many events a second from now on."""
        self._rate = rate

    async def let_happen(self) -> None:
        """Events at the rate that is set, a few at a time."""
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            due = min(due + self._rate * (now - last), self._rate)
            last = now
            self.flood(int(due))
            due -= int(due)

    def flood(self, events: int) -> int:
        """So many events at once; gives how many there have been."""
        for _ in range(events):
            event, pod, node, body = next(self._lives)
            self._record(event, pod, node, body)
        return self.told

    @property
    def pod_events(self) -> dict[str, Callable[..., None]]:
        """What can be told of the pods that are asked about."""
        return {"create": self.create, "place": self.place, "drop": self.drop}

    def create(self, pod: PodId) -> None:
        """What comes before a question: the pod is pending."""
        self._write(ADDED, pod, "", "pending")

    def drop(self, pod: PodId) -> None:
        """Delete a pending pod that was rejected."""
        self._write(DELETED, pod, "", "pending")

    def place(self, pod: PodId, node: str) -> None:
        """What follows an answer: the pod is bound, and the oldest one placed so goes."""
        self._write(MODIFIED, pod, node, "bound")
        self._placed.append((pod, node))
        if len(self._placed) > _ALIVE:
            self._write(DELETED, *self._placed.popleft(), "ending")

    def relabel(self, namespace: str, labels: dict[str, str]) -> None:
        """Give a namespace these labels."""
        line: JsonObject = orjson.loads(namespace_line(namespace, labels))
        self.store.put(kinds.NAMESPACES, line["object"])

    def compact(self) -> None:
        """Record a change and compact it away at once: every watch of pods ends with 410 and lists again."""
        self.flood(1)
        self.store.compact()

    def _write(self, event: str, pod: PodId, node: str, state: str) -> None:
        zone = self._cluster.zone_named(node) if node else ""
        self._record(event, pod, node, self._cluster.writer.write(state, pod, node, zone))

    def _record(self, event: str, pod: PodId, node: str, body: bytes) -> None:
        self.store.table(kinds.PODS).record(event, self._stored(pod, node, body), time.monotonic())
        self.told += 1

    def _existing(self) -> Iterator[Stored]:
        for pod, node in self._cluster.existing():
            yield self._stored(pod, self._cluster.nodes[node], self._cluster.running(pod, node))

    def _stored(self, pod: PodId, node: str, body: bytes) -> Stored:
        self.store.version += 1
        versioned = body.replace(b'"resourceVersion":"1000"', b'"resourceVersion":"%d"' % self.store.version, 1)
        return Stored(f"{pod.namespace}/{pod.name}", self.store.version, versioned, node)


def _foundation(cluster: SyntheticCluster) -> Iterator[JsonObject]:
    """Everything but the pods, as objects."""
    for lines in (cluster.namespace_lines(), cluster.node_lines(), cluster.replica_set_lines()):
        for line in lines:
            yield orjson.loads(line)["object"]
