"""Further measurements on a loaded index: watch events, retries of rejected pods, a relabelled namespace.

Each returns figures by name and restores the cluster. Times are processor time, which other processes do not change.
Called by `in_process.py`.
"""

import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import islice
from time import thread_time_ns
from typing import Any, Final

import orjson
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.constraints.selectors import EVERYTHING
from extender.model.objects import Pod
from extender.model.policies import (
    CLUSTER_KIND,
    GROUP,
    VERSION,
    Directives,
    Moment,
    Policy,
    PolicyKey,
    PolicyObject,
    PolicyScope,
)
from extender.model.release import RELEASE_GATE, ReleaseSpec
from extender.settings.configuration import Settings
from extender.verbs.release.choice import Rest, propose
from extender.wire.extender_v1 import decode_args, encode_filter
from extender.wire.objects.kinds import NAMESPACES, PODS
from extender.wire.policies.policies_v1 import decode_policy
from tests.tools.bench.cluster import (
    PLAIN,
    PodId,
    PodWriter,
    RequestMaker,
    SyntheticCluster,
    namespace_line,
    pod_events,
)
from tests.tools.bench.player import Player
from tests.tools.bench.results import Figures, milliseconds
from tests.tools.bench.scenario import Point
from tests.tools.bench.subject import Decisions, Subject, apply

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


_POLICIES: Final = 200
_ROUNDS: Final = 3
_ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def measure_policies(subject: Subject, player: Player, point: Point) -> Figures:
    """The processor time of answers with policies, as a multiple of the time without any, medians of the best round.

    `policies.unmatched`: 200 policies that select no pod; `policies.selected`: one of them selects every pod, and
    requires what every node has, so that the answers are the same. The kinds take turns. No policy is left at the end.
    """
    decisions = subject.decisions(replace(point.settings, policies=replace(point.settings.policies, enabled=True)))
    others = [_policy(f"other-{number}", {"app": f"other-{number}"}) for number in range(_POLICIES)]
    kinds = {"none": [], "unmatched": others, "selected": [*others[1:], _policy("every", {})]}
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(_ROUNDS):
        for name, policies in kinds.items():
            _put(subject.index, policies)
            best[name] = min(best[name], player.play(decisions, point)["cpu.p50"])
    _put(subject.index, [])
    return {f"policies.{name}": best[name] / best["none"] for name in ("unmatched", "selected")}


def _put(index: ClusterIndex, policies: Sequence[PolicyObject]) -> None:
    """Makes the index hold exactly these policies."""
    for old in list(index.policies):
        index.delete(PolicyObject(old))
    for each in policies:
        index.upsert(each)


def _policy(name: str, labels: dict[str, str]) -> PolicyObject:
    terms = [{"matchExpressions": [{"key": _ZONE, "operator": "Exists"}]}]
    body: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": CLUSTER_KIND,
        "metadata": {"name": name, "generation": 1},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "namespaceSelector": {},
            "affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}},
        },
    }
    return PolicyObject(decode_policy(orjson.dumps(body)))


_MOST_GROUPS: Final = 500
_SIZE: Final = 20
_NODES_A_GROUP: Final = 10  # so that a pod of 4 CPUs is on half of the nodes when all groups are decided
_LABEL: Final = "bench.example/gang"
_RELEASE: Final = ReleaseSpec(topology=("topology.kubernetes.io/zone", "kubernetes.io/hostname"), group_label=_LABEL)
_NEVER: Final = 1e12


def measure_gangs(cluster: SyntheticCluster, subject: Subject, player: Player, point: Point) -> Figures:
    """500 groups of 20 gated pods, each decided with its room reserved; at the end the index is as it was before.

    `gang.bytesPerPod`: memory of the index for a gated pod. `gang.eventsPerSecond`: gated pods decoded and applied.
    `decision.*`: milliseconds for a group, with the reservation. `besideGangs.events`: events of other pods in a second, and
    `besideGangs.filter`: the time of an answer about them, as multiples of those without any group.
    """
    index, decisions = subject.index, subject.decisions(point.settings)
    bodies = list(_bodies(cluster))
    alone = measure_events(cluster, index)["apply.eventsPerSecond"], player.play(decisions, point)["cpu.p50"]
    policy = PolicyObject(_gang_policy())
    index.upsert(policy)
    found = {"gang.bytesPerPod": _bytes_of(index, bodies), "gang.eventsPerSecond": _rate_of(index, bodies)}
    found |= _decide(index, point.settings)
    beside = measure_events(cluster, index)["apply.eventsPerSecond"], player.play(decisions, point)["cpu.p50"]
    for pod in [pod for pod in index.pods.values() if pod.gating is not None]:
        index.delete(pod)
    index.delete(policy)
    return found | {"besideGangs.events": beside[0] / alone[0], "besideGangs.filter": beside[1] / alone[1]}


def _decide(index: ClusterIndex, settings: Settings) -> Figures:
    """One group after the other; `decision.slots` is the share of the pods that got a slot."""
    times, waiting = list[int](), 0
    for group in list(index.gated):
        pods = [index.pods[uid] for uid in group.roles]
        started = thread_time_ns()
        proposal = propose(Rest(group.key, group.release, pods), index.view, settings)
        index.reserved.reserve(group.key, proposal.slots, _NEVER)
        times.append(thread_time_ns() - started)
        waiting += len(pods)
    return milliseconds(times, "decision") | {"decision.slots": len(index.reserved.held) / waiting}


def _bytes_of(index: ClusterIndex, bodies: Sequence[bytes]) -> float:
    """What the index holds for each pod; they are deleted again."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    pods = _apply(index, bodies)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    for pod in pods:
        index.delete(pod)
    return held / len(bodies)


def _rate_of(index: ClusterIndex, bodies: Sequence[bytes]) -> float:
    """Pods decoded and applied in a second."""
    started = thread_time_ns()
    _apply(index, bodies)
    return 1e9 * len(bodies) / (thread_time_ns() - started)


def _apply(index: ClusterIndex, bodies: Iterable[bytes]) -> list[Pod]:
    pods = []
    for body in bodies:
        pod = PODS.decode_object(body)
        index.upsert(pod)
        pods.append(pod)
    return pods


def _bodies(cluster: SyntheticCluster) -> Iterable[bytes]:
    """The gated pods of all groups, which are in all namespaces."""
    groups = max(1, min(_MOST_GROUPS, len(cluster.nodes) // _NODES_A_GROUP))
    for number in range(groups * _SIZE):
        group = number // _SIZE
        pod = PodId(50_000_000 + number, 0, f"ns-{group % cluster.part.namespaces}")
        body = orjson.loads(cluster.writer.line("ADDED", "pending", pod))["object"]
        body["metadata"]["labels"] = {_LABEL: f"gang-{group}"}
        body["spec"].pop("affinity", None)
        body["spec"].pop("topologySpreadConstraints", None)
        body["spec"]["schedulingGates"] = [{"name": RELEASE_GATE}]
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "4Gi"}}
        yield orjson.dumps(body)


def _gang_policy() -> Policy:
    key = PolicyKey(GROUP, "", "bench")
    scope = PolicyScope("", EVERYTHING, EVERYTHING)
    return Policy(key, scope, Directives(), when=frozenset({Moment.RELEASE}), release=_RELEASE)
