"""Measurements beside the questions, on the same loaded index: the stream of events, the herd, a relabelled namespace.

Each gives figures by name and leaves the cluster as it was. Times are processor time: what it costs, whatever else the
machine does. Called by `playing` in the process that measures.
"""

from collections.abc import Iterable
from itertools import islice
from time import thread_time_ns
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.simulator.bench.measurement.subject import Decisions, apply
from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PLAIN, PodId, PodWriter, namespace_line
from extender.simulator.bench.workload.traffic import RequestMaker, pod_events
from extender.wire.extender_v1 import decode_args, encode_filter
from extender.wire.kinds import NAMESPACES, PODS

_EVENTS: Final = 15_000  # whole generations, so that none is left
_HERD: Final = 1000
_MOVES: Final = 6


def feed_events(cluster: SyntheticCluster, index: ClusterIndex) -> Figures:
    """Pods live and die at once: created, bound, running, ending, gone. Each line is decoded and applied by itself.

    `feed.eventsPerSecond` counts these lines on one core; `feedDecode` is decoding alone.
    """
    lines = [moment.line for moment in islice(pod_events(cluster, 10_000_000), _EVENTS)]
    decode, whole = list[int](), list[int]()
    for line in lines:
        started = thread_time_ns()
        event = PODS.decode_event(line)
        decoded = thread_time_ns()
        apply(index, event)
        whole.append(thread_time_ns() - started)
        decode.append(decoded - started)
    found = milliseconds(whole, "feed") | milliseconds(decode, "feedDecode")
    return found | {"feed.eventsPerSecond": 1e9 * len(whole) / sum(whole)}


def ask_herd(cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, names: int) -> Figures:
    """A thousand rejected pods, each filtered again after an event that concerns none of them.

    `herd`: with the window of names moved on, as it does with default sampling. `herdSame`: with the very same bytes,
    as without sampling.
    """
    questions = RequestMaker(cluster, names, cluster.load.scenario.seed)
    incoming = [cluster.incoming_pod(20_000_000 + number) for number in range(_HERD)]
    first = [(pod, questions.filter_body(pod)) for pod in incoming]
    for pod in incoming:
        _tell(cluster, index, "ADDED", pod)
    _ask_all(cluster, index, decisions, first)
    _bind_unrelated(cluster, index)
    same, rejected = _ask_all(cluster, index, decisions, first)
    _bind_unrelated(cluster, index)
    moved, _ = _ask_all(cluster, index, decisions, [(pod, questions.filter_body(pod)) for pod in incoming])
    for pod in incoming:
        _tell(cluster, index, "DELETED", pod)
    found = milliseconds(moved, "herd") | milliseconds(same, "herdSame")
    return found | {"herd.rejectedShare": rejected / len(incoming)}


def _ask_all(
    cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, asked: Iterable[tuple[PodId, bytes]]
) -> tuple[list[int], int]:
    times, rejected = list[int](), 0
    for pod, body in asked:
        started = thread_time_ns()
        result = decisions.filter(decode_args(body))
        encode_filter(result)
        times.append(thread_time_ns() - started)
        if result.passed:
            _take_back(cluster, index, pod)
        else:
            rejected += 1
    return times, rejected


def _take_back(cluster: SyntheticCluster, index: ClusterIndex, pod: PodId) -> None:
    """The pod is pending again, and not expected any longer on the node that it was let through to."""
    _tell(cluster, index, "DELETED", pod)
    _tell(cluster, index, "ADDED", pod)


def _tell(cluster: SyntheticCluster, index: ClusterIndex, event: str, pod: PodId) -> None:
    """The watch tells of a pending pod."""
    apply(index, PODS.decode_event(cluster.writer.line(event, "pending", pod)))


def _bind_unrelated(cluster: SyntheticCluster, index: ClusterIndex) -> None:
    """Create and delete a pod that no request concerns."""
    writer, pod = PodWriter(PLAIN), PodId(30_000_000, 0, "ns-0", is_plain=True)
    for line in (
        writer.line("ADDED", "running", pod, cluster.nodes[0], cluster.zone(0)),
        writer.line("DELETED", "ending", pod, cluster.nodes[0], cluster.zone(0)),
    ):
        apply(index, PODS.decode_event(line))


def relabel_namespace(cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, names: int) -> Figures:
    """A namespace loses its label and gets it back, several times: how long nothing else could be answered.

    `relabel` is the event itself, `relabelAfter` the first question after it, `relabel.pods` how many pods moved.
    """
    questions, name = RequestMaker(cluster, names, cluster.load.scenario.seed), "ns-1"
    moves, after = list[int](), list[int]()
    for number in range(_MOVES):
        labels = {} if number % 2 == 0 else cluster.part.namespace_labels
        event = NAMESPACES.decode_event(namespace_line(name, labels, "MODIFIED"))
        pod = cluster.incoming_pod(40_000_000 + number)
        body = questions.filter_body(pod)
        _tell(cluster, index, "ADDED", pod)
        started = thread_time_ns()
        apply(index, event)
        applied = thread_time_ns()
        encode_filter(decisions.filter(decode_args(body)))
        after.append(thread_time_ns() - applied)
        moves.append(applied - started)
        _tell(cluster, index, "DELETED", pod)
    moved = sum(pod.namespace == name for pod in index.pods.values())
    return milliseconds(moves, "relabel") | milliseconds(after, "relabelAfter") | {"relabel.pods": moved}
