"""Further measurements on a loaded index: watch events, retries of rejected pods, a relabelled namespace.

Each returns figures by name and restores the cluster. Times are processor time, which other processes do not change.
Called by `in_process.py`.
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
from extender.wire.objects.kinds import NAMESPACES, PODS

_EVENTS: Final = 15_000  # a multiple of the events of one batch of pods, so that all of them are deleted
_RETRIES: Final = 1000
_MOVES: Final = 6


def measure_events(cluster: SyntheticCluster, index: ClusterIndex) -> Figures:
    """Decodes and applies the events of pods from creation to deletion, one line at a time.

    `apply.eventsPerSecond` counts these lines on one core; `applyDecode` is decoding alone.
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
    found = milliseconds(whole, "apply") | milliseconds(decode, "applyDecode")
    return found | {"apply.eventsPerSecond": 1e9 * len(whole) / sum(whole)}


def measure_retries(cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, names: int) -> Figures:
    """Filters a thousand rejected pods again, after an event that affects none of them.

    `retry`: with other names, as with default sampling. `retrySame`: with the same bytes, as without sampling.
    """
    requests = RequestMaker(cluster, names, cluster.load.scenario.seed)
    incoming = [cluster.incoming_pod(20_000_000 + number) for number in range(_RETRIES)]
    first = [(pod, requests.filter_body(pod)) for pod in incoming]
    for pod in incoming:
        _apply_event(cluster, index, "ADDED", pod)
    _request_all(cluster, index, decisions, first)
    _bind_unrelated(cluster, index)
    same, rejected = _request_all(cluster, index, decisions, first)
    _bind_unrelated(cluster, index)
    moved, _ = _request_all(cluster, index, decisions, [(pod, requests.filter_body(pod)) for pod in incoming])
    for pod in incoming:
        _apply_event(cluster, index, "DELETED", pod)
    found = milliseconds(moved, "retry") | milliseconds(same, "retrySame")
    return found | {"retry.rejectedShare": rejected / len(incoming)}


def _request_all(
    cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, requests: Iterable[tuple[PodId, bytes]]
) -> tuple[list[int], int]:
    times, rejected = list[int](), 0
    for pod, body in requests:
        started = thread_time_ns()
        result = decisions.filter(decode_args(body))
        encode_filter(result)
        times.append(thread_time_ns() - started)
        if result.passed:
            _reset(cluster, index, pod)
        else:
            rejected += 1
    return times, rejected


def _reset(cluster: SyntheticCluster, index: ClusterIndex, pod: PodId) -> None:
    """Makes the pod pending again, and no longer assumed on a node."""
    _apply_event(cluster, index, "DELETED", pod)
    _apply_event(cluster, index, "ADDED", pod)


def _apply_event(cluster: SyntheticCluster, index: ClusterIndex, event: str, pod: PodId) -> None:
    """Applies a watch event of a pending pod."""
    apply(index, PODS.decode_event(cluster.writer.line(event, "pending", pod)))


def _bind_unrelated(cluster: SyntheticCluster, index: ClusterIndex) -> None:
    """Creates and deletes a pod that affects no request."""
    writer, pod = PodWriter(PLAIN), PodId(30_000_000, 0, "ns-0", is_plain=True)
    for line in (
        writer.line("ADDED", "running", pod, cluster.nodes[0], cluster.zone(0)),
        writer.line("DELETED", "terminating", pod, cluster.nodes[0], cluster.zone(0)),
    ):
        apply(index, PODS.decode_event(line))


def measure_relabel(cluster: SyntheticCluster, index: ClusterIndex, decisions: Decisions, names: int) -> Figures:
    """Removes and restores the label of a namespace several times.

    `relabel` is the time of the event, `relabelAfter` that of the next request, `relabel.pods` the pods of the namespace.
    """
    requests, name = RequestMaker(cluster, names, cluster.load.scenario.seed), "ns-1"
    moves, after = list[int](), list[int]()
    for number in range(_MOVES):
        labels = {} if number % 2 == 0 else cluster.part.namespace_labels
        event = NAMESPACES.decode_event(namespace_line(name, labels, "MODIFIED"))
        pod = cluster.incoming_pod(40_000_000 + number)
        body = requests.filter_body(pod)
        _apply_event(cluster, index, "ADDED", pod)
        started = thread_time_ns()
        apply(index, event)
        applied = thread_time_ns()
        encode_filter(decisions.filter(decode_args(body)))
        after.append(thread_time_ns() - applied)
        moves.append(applied - started)
        _apply_event(cluster, index, "DELETED", pod)
    moved = sum(pod.namespace == name for pod in index.pods.values())
    return milliseconds(moves, "relabel") | milliseconds(after, "relabelAfter") | {"relabel.pods": moved}
