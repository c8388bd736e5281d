"""Plays kube-scheduler's sampling on an index, and compares the node of each pod with the best one of all nodes.

The scheduler asks about the next nodes in its order, from where it stopped, and places the pod on the answered node that
it scores best. A pod that is rejected on the whole sample is nominated elsewhere, as the service does it. Two threads of the
scheduler look at runs of nodes side by side until there are enough, so a sample is not one run of its order (`sampled`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from random import Random
from statistics import fmean
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.objects import Node, Pod
from extender.model.resources import CPU, MEMORY
from extender.rules import catalog
from extender.rules.catalog import counts_of_rules
from extender.rules.frames import IndexFrame
from extender.settings.configuration import default_settings
from extender.simulator.json_objects import JsonObject
from extender.simulator.scheduler.cache import nodes_to_find
from extender.verbs.filter import FilterVerb
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import decode_args
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, Kind
from tests.e2e import workloads as e2e
from tests.simulator.plain import pod
from tests.tools.sampling.workloads import Workload, cluster

_KINDS: Mapping[str, Kind[Any]] = {"Node": NODES, "Pod": PODS, "Namespace": NAMESPACES}
_NODE_AFFINITY_WEIGHT = 2  # of the plugin, as in kube-scheduler's defaults; the two for resources have 1 each


@dataclass(slots=True)
class Loss:
    """What the pods of one run lost against the best node, in points of 100 for one plugin.

    ``constraints``: of the rules' own score (inter-pod affinity and spread). ``preference``: of preferred node affinity.
    ``resources``: of what is free and how evenly (LeastAllocated and balanced allocation, on average). ``elsewhere``: pods that
    no node of the sample took. ``preferred_elsewhere``: pods that were nominated to a better node outside of the sample.
    """

    constraints: list[float] = field(default_factory=list)
    preference: list[float] = field(default_factory=list)
    resources: list[float] = field(default_factory=list)
    elsewhere: int = 0
    preferred_elsewhere: int = 0

    def line(self) -> str:
        """Mean and worst of each, and how many pods were nominated elsewhere."""
        parts = (self.constraints, self.preference, self.resources)
        losses = " | ".join(f"{fmean(each):.1f} / {max(each):.0f}" for each in parts)
        return f"{losses} | {self.elsewhere} | {self.preferred_elsewhere}"


_PARALLELISM = 16  # of kube-scheduler by default, which bounds a run; on two cores two threads are at work
_LEAD = 40  # nodes that the first thread has looked at, on average, before the second begins


def sampled(start: int, wanted: int, nodes: int, rng: Random) -> list[int]:
    """The first nodes that two threads have looked at which take runs of the order from ``start`` on, until there are enough.

    A run has as many nodes as kube-scheduler's `chunkSizeFor` gives it. Where the threads stop, the ends of runs are left out.
    """
    size = min(isqrt(nodes), nodes // _PARALLELISM + 1)
    runs = (iter(range(begin, min(begin + size, nodes))) for begin in range(0, nodes, size))
    both: list[Iterator[int]] = [iter(()), iter(())]
    lead, found = int(rng.expovariate(1 / _LEAD)), list[int]()
    while len(found) < min(wanted, nodes):
        thread = 0 if len(found) < lead else rng.randrange(2)
        at = next(both[thread], None)
        if at is not None:
            found.append((start + at) % nodes)
        elif (run := next(runs, None)) is not None:
            both[thread] = run
        else:
            both[thread] = both[1 - thread]  # no run is left: the other ends its own
    return found


class Field:
    """A cluster of so many nodes on which the pods of one workload are placed."""

    def __init__(self, workload: Workload, nodes: int, seed: int, margin: float = 0.0) -> None:
        """``margin``: the points by which the best node has to be better than the best one of the sample for a nomination; 0 is never."""
        self._margin = margin
        self._workload = workload
        self._rng = Random(seed)
        self._settings = default_settings("offload")
        self._index = ClusterIndex(self._settings.rules, counts_of_rules())
        for obj in (
            *e2e.namespaces(),
            *cluster(nodes, self._rng, is_uneven=workload.is_uneven, is_idle=workload.is_idle),
            *workload.existing(nodes),
        ):
            self._add(obj)
        self._verb = FilterVerb(self._index.view, self._settings)
        self._names = [e2e.node_name(number) for number in range(nodes)]
        self._rng.shuffle(self._names)  # names of real nodes say nothing of the pods on them
        self._next = 0

    def fill(self, percentage: int) -> int:
        """Places as many pods as there are nodes, and returns how many of them were rejected on the whole sample."""
        loss = Loss()
        for number in range(len(self._names)):
            self._place(number, nodes_to_find(percentage, len(self._names)), loss, is_judged=False)
        return loss.elsewhere

    def play(self, pods: int, percentage: int) -> Loss:
        """Places so many pods, one after the other."""
        loss = Loss()
        wanted = nodes_to_find(percentage, len(self._names))
        for number in range(pods):
            self._place(number, wanted, loss)
        return loss

    def nodes(self) -> list[Node]:
        return [
            node for number in self._index.view.known.values() if (node := self._index.view.node(number)) is not None
        ]

    def _place(self, number: int, wanted: int, loss: Loss, *, is_judged: bool = True) -> None:
        made = pod(f"ask-{number}", e2e.INCOMING, labels={"app": self._workload.app}, **self._workload.incoming(number))
        self._add(made)
        names = [self._names[at] for at in sampled(self._next, wanted, len(self._names), self._rng)]
        self._next += wanted
        args = decode_args(orjson.dumps({"Pod": _with_uid(made), "Nodes": None, "NodeNames": names}))
        passed = self._verb.decide(args, self._rng.getrandbits(32)).result.passed
        if not passed:
            loss.elsewhere += 1
            found, _ = find_node_elsewhere(args.pod, self._index.view, self._settings, self._rng.getrandbits(32))
            passed = [found]
        chosen = self._judge(args.pod, passed, loss) if is_judged else passed[0]
        made["spec"]["nodeName"] = chosen
        self._add(made)

    def _judge(self, incoming: Pod, passed: Sequence[str], loss: Loss) -> str:
        """The node that the scheduler takes of those that passed; what it lost is added."""
        view, compiled = self._index.view, self._index.view.compiled(incoming.signature)
        filters = catalog.prepare_filters(incoming, compiled, view, IndexFrame())
        possible = filters.passing(range(len(self._names)))
        points = catalog.points(compiled, view, IndexFrame(), possible, self._settings.rules)
        constraints = {node: points.of.get(node, 0) / (points.most or 1) * 100 for node in possible}
        preference = self._preferences(incoming, possible)
        resources = {node: self._resources(node, incoming) for node in possible}
        candidates = [view.known[name] for name in passed]
        chosen = max(candidates, key=lambda node: _NODE_AFFINITY_WEIGHT * (preference[node] + resources[node]))
        best = max(possible, key=lambda node: (constraints[node] + preference[node], resources[node]))
        gained = constraints[best] + preference[best] - constraints[chosen] - preference[chosen]
        if self._margin and gained >= self._margin:
            loss.preferred_elsewhere += 1
            chosen = best
        for found, kept in (
            (constraints, loss.constraints),
            (preference, loss.preference),
            (resources, loss.resources),
        ):
            kept.append(max(found.values()) - found[chosen])
        return view.node_names[chosen]

    def _preferences(self, incoming: Pod, nodes: Sequence[int]) -> Mapping[int, float]:
        terms = incoming.signature.preferred_nodes
        found = {}
        for number in nodes:
            node = self._index.view.node(number)
            assert node is not None
            found[number] = float(sum(each.weight for each in terms if each.term.matches(node.name, node.labels)))
        most = max(found.values(), default=0.0)
        return {number: weight / most * 100 if most else 0.0 for number, weight in found.items()}

    def _resources(self, number: int, incoming: Pod) -> float:
        node, used = self._index.view.node(number), self._index.view.requested(number)
        assert node is not None
        cpu, memory = (
            (used.get(name, 0) + incoming.requests.get(name, 0)) / node.allocatable[name] for name in (CPU, MEMORY)
        )
        least_allocated, balanced = 1 - (cpu + memory) / 2, 1 - abs(cpu - memory) / 2
        return fmean((least_allocated, balanced)) * 100

    def _add(self, obj: JsonObject) -> None:
        self._index.upsert(_KINDS[obj["kind"]].decode_object(orjson.dumps(_with_uid(obj))))


def _with_uid(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"]}}
