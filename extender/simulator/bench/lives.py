"""The lives of pods as the apiserver tells them: created, bound, running, ending, gone. Endless, and never the same pod.

Fifty pods live at a time, so what is counted changes with every event and stays within bounds. Called by the probes,
which make watch lines of it, and by the plane, which writes it into its store.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Final, NamedTuple

from extender.simulator.bench.cluster import SyntheticCluster
from extender.simulator.bench.pods import PodId, watch_line

_ALIVE: Final = 50
_STEPS: Final = (
    ("ADDED", "pending"),
    ("MODIFIED", "bound"),
    ("MODIFIED", "running"),
    ("MODIFIED", "ending"),
    ("DELETED", "ending"),
)


class Moment(NamedTuple):
    """One event of one pod: what happened, and the pod's body after it."""

    event: str
    pod: PodId
    node: str
    body: bytes

    @property
    def line(self) -> bytes:
        """The watch line."""
        return watch_line(self.event, self.body)


def lives(cluster: SyntheticCluster, first: int) -> Iterator[Moment]:
    """Events without end, of the askers from number `first` on."""
    numbers = count(first)
    while True:
        places = [(cluster.asker(number), number * 7919 % len(cluster.nodes)) for number in islice(numbers, _ALIVE)]
        for event, state in _STEPS:
            for pod, node in places:
                name = cluster.nodes[node] if state != "pending" else ""
                yield Moment(event, pod, name, cluster.writer.write(state, pod, name, cluster.zone(node)))
