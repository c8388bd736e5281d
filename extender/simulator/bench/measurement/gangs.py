"""Measures groups of gated pods: their events and memory, decisions for them, and what they cost all other pods.

Called by `in_process.py`. Times are processor time, which other processes do not change.
"""

import tracemalloc
from collections.abc import Iterable, Sequence
from time import thread_time_ns
from typing import Final

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.constraints.selectors import EVERYTHING
from extender.model.objects import Pod
from extender.model.policies import GROUP, Directives, Moment, Policy, PolicyKey, PolicyObject, Scope
from extender.model.release import RELEASE_GATE, ReleaseSpec
from extender.settings.configuration import Settings
from extender.simulator.bench.measurement.in_process_player import Player
from extender.simulator.bench.measurement.probes import measure_events
from extender.simulator.bench.measurement.subject import Subject
from extender.simulator.bench.reporting.figures import Figures, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId
from extender.simulator.bench.workload.scenario import Point
from extender.verbs.release.choice import Rest, propose
from extender.wire.objects.kinds import PODS

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
    policy = PolicyObject(_policy())
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


def _policy() -> Policy:
    key = PolicyKey(GROUP, "", "bench")
    scope = Scope("", EVERYTHING, EVERYTHING)
    return Policy(key, scope, Directives(), when=frozenset({Moment.RELEASE}), release=_RELEASE)
