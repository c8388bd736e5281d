"""Question bodies as kube-scheduler sends them: the pod, and a window of the nodes that passed its own filters.

The scheduler looks for a number of nodes, starting where the last question ended, so windows rotate; now and then a
node in between does not pass, so they drift too, and no two are the same. Called by the players.
"""

from collections.abc import Sequence
from random import Random

from extender.simulator.bench.cluster import SyntheticCluster
from extender.simulator.bench.pods import PodId

_MOST_SKIPPED = 4


class ConstraintCompiler:
    """Makes the bodies of one point. Cheap: names are encoded once and joined."""

    def __init__(self, cluster: SyntheticCluster, names: int, seed: int) -> None:
        self._cluster = cluster
        self._names = names
        self._rng = Random(seed)
        self._encoded = [f'"{name}"'.encode() for name in cluster.nodes]
        self._ssd = cluster.ssd_nodes()
        self._next = 0

    def filter_body(self, pod: PodId) -> bytes:
        """A filter request about the next window."""
        return _body(self._cluster.writer.asking(pod), b",".join(self._window(pod)))

    def prioritize_body(self, pod: PodId, names: Sequence[str]) -> bytes:
        """A prioritize request about the nodes that filter let through."""
        return _body(self._cluster.writer.asking(pod), b",".join(f'"{name}"'.encode() for name in names))

    def _window(self, pod: PodId) -> list[bytes]:
        """The next names: of all nodes, or of those with an SSD where the pod wants one."""
        of = [self._encoded[node] for node in self._ssd] if pod.wants_ssd else self._encoded
        count = min(self._names, len(of))
        start = self._next % len(of)
        self._next = (self._next + self._names + self._rng.randint(0, _MOST_SKIPPED)) % len(self._encoded)
        window = of[start : start + count]
        return window + of[: count - len(window)]


def _body(pod: bytes, names: bytes) -> bytes:
    return b'{"Pod":%s,"Nodes":null,"NodeNames":[%s]}\n' % (pod, names)
