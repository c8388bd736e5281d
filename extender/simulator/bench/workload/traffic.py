"""Creates requests as kube-scheduler sends them, and the watch events of pods from creation to deletion.

The scheduler searches for a number of nodes and starts where the last search ended, so the window of names rotates. Some
nodes do not pass its own filters, so the window also shifts, and no two are equal.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from random import Random
from typing import Final, NamedTuple

from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId, watch_line

_MOST_SKIPPED = 4


class RequestMaker:
    """Creates the bodies of one point. Names are encoded once, so that a body is a join."""

    def __init__(self, cluster: SyntheticCluster, names: int, seed: int) -> None:
        self._cluster = cluster
        self._names = names
        self._rng = Random(seed)
        self._encoded = [f'"{name}"'.encode() for name in cluster.nodes]
        self._ssd = cluster.ssd_nodes()
        self._next = 0

    def filter_body(self, pod: PodId) -> bytes:
        """A filter request with the next window of names."""
        return _body(self._cluster.writer.incoming(pod), b",".join(self._window(pod)))

    def prioritize_body(self, pod: PodId, names: Sequence[str]) -> bytes:
        """A prioritize request with the nodes that passed filter."""
        return _body(self._cluster.writer.incoming(pod), b",".join(f'"{name}"'.encode() for name in names))

    def _window(self, pod: PodId) -> list[bytes]:
        """The next names: of all nodes, or of those that match the pod's node selector."""
        of = [self._encoded[node] for node in self._ssd] if pod.wants_ssd else self._encoded
        count = min(self._names, len(of))
        start = self._next % len(of)
        self._next = (self._next + self._names + self._rng.randint(0, _MOST_SKIPPED)) % len(self._encoded)
        window = of[start : start + count]
        return window + of[: count - len(window)]


def _body(pod: bytes, names: bytes) -> bytes:
    return b'{"Pod":%s,"Nodes":null,"NodeNames":[%s]}\n' % (pod, names)


_ALIVE: Final = 50
_STEPS: Final = (
    ("ADDED", "pending"),
    ("MODIFIED", "bound"),
    ("MODIFIED", "running"),
    ("MODIFIED", "terminating"),
    ("DELETED", "terminating"),
)


class PodEvent(NamedTuple):
    """One event of one pod, with the pod's body after it."""

    event: str
    pod: PodId
    node: str
    body: bytes

    @property
    def line(self) -> bytes:
        """The watch line."""
        return watch_line(self.event, self.body)


def pod_events(cluster: SyntheticCluster, first: int) -> Iterator[PodEvent]:
    """An endless stream of events, of the incoming pods from number `first` on."""
    numbers = count(first)
    while True:
        places = [
            (cluster.incoming_pod(number), number * 7919 % len(cluster.nodes)) for number in islice(numbers, _ALIVE)
        ]
        for event, state in _STEPS:
            for pod, node in places:
                name = cluster.nodes[node] if state != "pending" else ""
                yield PodEvent(event, pod, name, cluster.writer.write(state, pod, name, cluster.zone(node)))
