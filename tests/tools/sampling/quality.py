"""Plays kube-scheduler's sampling on an index, and compares the node of each pod with the best one of all nodes.

The scheduler asks about the next nodes in its order, from where it stopped, and places the pod on the answered node that
it scores best. A pod that is rejected on the whole sample is nominated elsewhere, as the service does it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    ``resources``: of what is free and how evenly (LeastAllocated and balanced allocation, on average).
    """

    constraints: list[float] = field(default_factory=list)
    preference: list[float] = field(default_factory=list)
    resources: list[float] = field(default_factory=list)
    elsewhere: int = 0

    def line(self) -> str:
        """Mean and worst of each."""
        parts = (self.constraints, self.preference, self.resources)
        return " | ".join(f"{fmean(each):.1f} / {max(each):.0f}" for each in parts) + f" | {self.elsewhere}"


class Field:
    """A cluster of so many nodes on which the pods of one workload are placed."""

    def __init__(self, workload: Workload, nodes: int, seed: int) -> None:
        self._workload = workload
        self._rng = Random(seed)
        self._settings = default_settings("offload")
        self._index = ClusterIndex(self._settings.rules, counts_of_rules())
        for obj in (
            *e2e.namespaces(),
            *cluster(nodes, self._rng, is_uneven=workload.is_uneven),
            *workload.existing(nodes),
        ):
            self._add(obj)
        self._verb = FilterVerb(self._index.view, self._settings)
        self._names = [e2e.node_name(number) for number in range(nodes)]
        self._rng.shuffle(self._names)  # names of real nodes say nothing of the pods on them
        self._next = 0

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

    def _place(self, number: int, wanted: int, loss: Loss) -> None:
        made = pod(f"ask-{number}", e2e.ASKING, labels={"app": self._workload.app}, **self._workload.incoming(number))
        self._add(made)
        names = [self._names[(self._next + at) % len(self._names)] for at in range(wanted)]
        self._next += wanted
        args = decode_args(orjson.dumps({"Pod": _with_uid(made), "Nodes": None, "NodeNames": names}))
        passed = self._verb.decide(args, self._rng.getrandbits(32)).result.passed
        if not passed:
            loss.elsewhere += 1
            found, _ = find_node_elsewhere(args.pod, self._index.view, self._settings, self._rng.getrandbits(32))
            passed = [found]
        chosen = self._judge(args.pod, passed, loss)
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
