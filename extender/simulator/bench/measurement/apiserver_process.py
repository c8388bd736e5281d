"""The simulated API server of the bench, in a child process: has the cluster and creates events.

The measured service lists and watches it like a real one. `over_http.py` and `http_player.py` call it by pipe.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Final

import orjson

from extender.settings.configuration import DEFAULT_NAMESPACE
from extender.simulator.apiserver import kinds
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.apiserver.store import ADDED, DELETED, MODIFIED, Store, Stored
from extender.simulator.bench.measurement.child_process import Calls
from extender.simulator.bench.measurement.disturbances import Disturbances
from extender.simulator.bench.measurement.generated_table import GeneratedTable
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId, namespace_line
from extender.simulator.bench.workload.scenario import Load
from extender.simulator.bench.workload.traffic import pod_events
from extender.simulator.json_objects import JsonObject

_TICK_SECONDS: Final = 0.02
_ALIVE: Final = 200
_HISTORY: Final = 50_000


def run_api_server(pipe: Connection, load: Load) -> None:
    """The target of the child process. Sends its address when it is ready."""
    asyncio.run(_run(pipe, SyntheticCluster(load)))


async def _run(pipe: Connection, cluster: SyntheticCluster) -> None:
    api_server = BenchApiServer(cluster)
    settings = ApiServerSettings(history=_HISTORY, slow_after=_HISTORY)
    answered: dict[str, Callable[..., object]] = {"flood": api_server.flood, "relabel": api_server.relabel}
    answered |= {"compact": api_server.compact, "events": lambda: api_server.events}
    disturbances = Disturbances(cluster, api_server.store, api_server.pods)
    answered |= disturbances.answered
    async with ApiServer(settings, store=api_server.store) as api:
        calls = Calls(pipe, answered, unanswered={"rate": api_server.set_rate} | api_server.pod_events)
        calls.listen()
        calls.send(api.url)
        happening = [asyncio.create_task(each) for each in (api_server.let_happen(), disturbances.let_happen())]
        await calls.stopped.wait()
        for each in happening:
            each.cancel()


class BenchApiServer:
    """The store, and the events of its pods."""

    def __init__(self, cluster: SyntheticCluster) -> None:
        self.store = Store(history=_HISTORY)
        self._cluster = cluster
        self._rate = 0.0
        self.events = 0  # pod events so far
        self._lives = pod_events(cluster, 50_000_000)
        self._placed: deque[tuple[PodId, str]] = deque()
        self.pods = GeneratedTable(kinds.PODS, _HISTORY, cluster.load.pods, self._existing)
        self.store.tables[kinds.PODS] = self.pods
        self.store.load(_foundation(cluster))

    def set_rate(self, rate: float) -> None:
        """Sets the rate of events per second."""
        self._rate = rate

    async def let_happen(self) -> None:
        """Creates events at the rate, a few at a time."""
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            # At most a second's worth of events is caught up after a pause.
            due = min(due + self._rate * (now - last), self._rate)
            last = now
            self.flood(int(due))
            due -= int(due)

    def flood(self, events: int) -> int:
        """Creates so many events at once. Returns the number of all events so far."""
        for _ in range(events):
            event, pod, node, body = next(self._lives)
            self._record(event, pod, node, body)
        return self.events

    @property
    def pod_events(self) -> dict[str, Callable[..., None]]:
        """The calls for the incoming pods."""
        return {"create": self.create, "place": self.place, "drop": self.drop}

    def create(self, pod: PodId) -> None:
        """Creates a pending pod, before the request for it."""
        self._write(ADDED, pod, "", "pending")

    def drop(self, pod: PodId) -> None:
        """Deletes a pending pod that was rejected."""
        self._write(DELETED, pod, "", "pending")

    def place(self, pod: PodId, node: str) -> None:
        """Binds a pod after the answer for it, and deletes the oldest pod that was bound so."""
        self._write(MODIFIED, pod, node, "bound")
        self._placed.append((pod, node))
        if len(self._placed) > _ALIVE:
            self._write(DELETED, *self._placed.popleft(), "terminating")

    def relabel(self, namespace: str, labels: dict[str, str]) -> None:
        """Sets the labels of a namespace."""
        line: JsonObject = orjson.loads(namespace_line(namespace, labels))
        self.store.put(kinds.NAMESPACES, line["object"])

    def compact(self) -> None:
        """Creates a change and drops the history: every watch of pods ends with 410, and pods are listed again."""
        self.flood(1)
        self.store.compact()

    def _write(self, event: str, pod: PodId, node: str, state: str) -> None:
        zone = self._cluster.zone_named(node) if node else ""
        self._record(event, pod, node, self._cluster.writer.write(state, pod, node, zone))

    def _record(self, event: str, pod: PodId, node: str, body: bytes) -> None:
        self.pods.record(event, self._stored(pod, node, body), time.monotonic())
        self.events += 1

    def _existing(self, number: int, key: str) -> Stored:
        pod, node = self._cluster.existing_pod(number)
        return Stored(key, 1, self._cluster.running(pod, node), self._cluster.nodes[node])

    def _stored(self, pod: PodId, node: str, body: bytes) -> Stored:
        self.store.version += 1
        versioned = body.replace(b'"resourceVersion":"1000"', b'"resourceVersion":"%d"' % self.store.version, 1)
        return Stored(f"{pod.namespace}/{pod.name}", self.store.version, versioned, node)


def _foundation(cluster: SyntheticCluster) -> Iterator[JsonObject]:
    """All objects except pods, and the namespace of the Lease, where no pod is."""
    yield orjson.loads(namespace_line(DEFAULT_NAMESPACE, {}))["object"]
    for lines in (cluster.namespace_lines(), cluster.node_lines(), cluster.replica_set_lines()):
        for line in lines:
            yield orjson.loads(line)["object"]
