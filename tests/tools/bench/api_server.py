"""The simulated API server of the bench, in a child process: has the cluster and creates events.

The measured service lists and watches it like a real one. `over_http.py` and `http_player.py` call it by pipe.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Final, overload

import orjson

from extender.settings.configuration import DEFAULT_NAMESPACE
from extender.simulator.apiserver import kinds
from extender.simulator.apiserver.kinds import ServedKind
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.apiserver.store import ADDED, DELETED, MODIFIED, ServedChange, Store, Stored, Table
from extender.simulator.json_objects import JsonObject
from tests.tools.bench.child_process import Calls
from tests.tools.bench.cluster import PodId, SyntheticCluster, namespace_line, node_line, node_name, pod_events
from tests.tools.bench.scenario import Load

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
        return {"create": self.create, "place": self.place, "drop": self.drop}

    def create(self, pod: PodId) -> None:
        """Creates a pending pod, before the request for it."""
        self.write(ADDED, pod, "", "pending")

    def drop(self, pod: PodId) -> None:
        """Deletes a pending pod that was rejected."""
        self.write(DELETED, pod, "", "pending")

    def place(self, pod: PodId, node: str) -> None:
        """Binds a pod after the answer for it, and deletes the oldest pod that was bound so."""
        self.write(MODIFIED, pod, node, "bound")
        self._placed.append((pod, node))
        if len(self._placed) > _ALIVE:
            self.write(DELETED, *self._placed.popleft(), "terminating")

    def relabel(self, namespace: str, labels: dict[str, str]) -> None:
        line: JsonObject = orjson.loads(namespace_line(namespace, labels))
        self.store.put(kinds.NAMESPACES, line["object"])

    def compact(self) -> None:
        """Creates a change and drops the history: every watch of pods ends with 410, and pods are listed again."""
        self.flood(1)
        self.store.compact()

    def write(self, event: str, pod: PodId, node: str, state: str) -> None:
        """Any event of a pod."""
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
        self._come = self._deleted = len(cluster.nodes)

    @property
    def answered(self) -> Mapping[str, Callable[..., int]]:
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
        return self._come + self._deleted - 2 * len(self._cluster.nodes)

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
        if self._come == self._deleted:
            self._store.put(kinds.NODES, self._node(self._come))
            self._come += 1
        else:
            self._store.remove(kinds.NODES, node_name(self._deleted))
            self._deleted += 1

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


Generate = Callable[[int, str], Stored]
"""The row of a number, with this key."""


class GeneratedTable(Table):
    """Rows 0 to `count` - 1 are generated. Their keys, which no request can name, come before all others.

    They never change, so each version of the table has them. An event of one is sent with `announce`, and the next list
    shows the object as it was before.
    """

    def __init__(self, kind: ServedKind, capacity: int, count: int, generate: Generate) -> None:
        super().__init__(kind, capacity)
        self._count = count
        self._generate = generate

    def announce(self, event: str, stored: Stored, at: float) -> None:
        """Sends an event of a generated object to the watches."""
        self._append(ServedChange(event, stored, None, self._prefix, at))

    def latest(self) -> Sequence[Stored]:
        """All objects now, ordered by key."""
        return _Rows(self._count, self._generate, super().latest())

    def at(self, version: int) -> Sequence[Stored] | None:
        """All objects at that version; None if it is before the history."""
        rows = super().at(version)
        return rows if rows is None or isinstance(rows, _Rows) else _Rows(self._count, self._generate, rows)


class _Rows(Sequence[Stored]):
    """Generated rows, then held ones. O(1) memory beyond the held ones; a slice generates its rows."""

    def __init__(self, count: int, generate: Generate, held: Sequence[Stored]) -> None:
        self._count = count
        self._generate = generate
        self._held = held

    def __len__(self) -> int:
        return self._count + len(self._held)

    @overload
    def __getitem__(self, place: int) -> Stored: ...

    @overload
    def __getitem__(self, place: slice) -> list[Stored]: ...

    def __getitem__(self, place: int | slice) -> Stored | list[Stored]:
        if isinstance(place, slice):
            return [self._row(number) for number in range(*place.indices(len(self)))]
        return self._row(range(len(self))[place])

    def __iter__(self) -> Iterator[Stored]:
        return map(self._row, range(len(self)))

    def _row(self, number: int) -> Stored:
        if number >= self._count:
            return self._held[number - self._count]
        return self._generate(number, f" {number:09d}")
