"""Places pods that no rule touches by kube-scheduler's own scores, by answers of one name, and from shortlists, and compares the points.

Each way of placement meets the same nodes and the same pods, and has its own cluster, in which each pod stays where it was placed. A
placement is worth the weighted sum of the score plugins, which kube-scheduler would have given the node just before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from statistics import fmean
from typing import Final, Literal

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import parse_settings
from extender.simulator.json_objects import JsonObject
from extender.simulator.scheduler.cache import nodes_to_find
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import decode_args
from extender.wire.objects.kinds import NODES, PODS
from tests.in_tree_scores import UsedNode, scores
from tests.simulator.plain import pod
from tests.tools.sampling.workloads import cluster

Way = Literal["in-tree", "one", "shortlist"]
WAYS: Final[tuple[Way, ...]] = ("in-tree", "one", "shortlist")
_REQUESTS: Final = ((None, None), (100, None), (100, 256), (250, 2048), (1000, 512), (2000, 4096))  # milli-CPU, MiB
_SSD: Final = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
_ZONE: Final = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-1"]}]}
_BUSY: Final = {"key": "busy", "effect": "PreferNoSchedule"}
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class Worth:
    """For each placement its points, and what the best node of its sample had more."""

    points: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)

    def line(self) -> str:
        return f"{fmean(self.points):.2f} | {fmean(self.lost):.2f} | {max(self.lost):.0f}"


class PlainPods:
    """A cluster of so many nodes of four sizes. A fifth has an SSD, a tenth a soft taint."""

    def __init__(self, way: Way, nodes: int, seed: int) -> None:
        self._way = way
        self._rng = Random(seed)
        self._choice = Random(seed)  # apart, so that each way meets the same pods
        names = "one" if way == "one" else "shortlist"
        document = {"apiVersion": "placement.extender.dev/v1alpha1", "kind": "ExtenderConfiguration"}
        self._settings = parse_settings({**document, "answers": {"names": names}})
        self._index = ClusterIndex(self._settings.rules, counts_of_rules())
        self._nodes: list[UsedNode] = []
        used: dict[str, UsedNode] = {}
        for obj in cluster(nodes, self._rng, is_uneven=True, is_idle=False):
            if obj["kind"] == "Node":
                here = UsedNode(NODES.decode_object(orjson.dumps(_with_uid(self._varied(obj)))))
                used[here.node.name] = here
                self._index.upsert(here.node)
                self._nodes.append(here)
            else:
                load = PODS.decode_object(orjson.dumps(_with_uid(obj)))
                used[load.node].add(load)
                self._index.upsert(load)
        self._rng.shuffle(self._nodes)
        self._verb = FilterVerb(self._index.view, self._settings)
        self._next = 0

    def _varied(self, node: JsonObject) -> JsonObject:
        if self._rng.random() < 0.2:
            node["metadata"]["labels"]["disk"] = "ssd"
        if self._rng.random() < 0.1:
            node["spec"] = {**node.get("spec", {}), "taints": [_BUSY]}
        return node

    def play(self, pods: int, percentage: int) -> Worth:
        """Places so many pods, one after the other."""
        worth, wanted = Worth(), nodes_to_find(percentage, len(self._nodes))
        for number in range(pods):
            body = self._pod(number)
            incoming = PODS.decode_object(orjson.dumps(body))
            sample = list(islice(self._with_room(incoming), wanted))
            sums = scores(incoming, sample, self._settings.answers).sums(self._settings.answers)
            chosen = self._chosen(incoming, body, sample, sums)
            worth.points.append(sums[chosen])
            worth.lost.append(max(sums) - sums[chosen])
            body["spec"]["nodeName"] = sample[chosen].node.name
            sample[chosen].add(incoming)
            self._index.upsert(PODS.decode_object(orjson.dumps(body)))
        return worth

    def _chosen(self, incoming: Pod, body: JsonObject, sample: Sequence[UsedNode], sums: Sequence[float]) -> int:
        """The number of the chosen node in the sample. kube-scheduler takes any of the nodes with most points."""
        candidates = list(range(len(sample)))
        if self._way != "in-tree":
            self._index.upsert(incoming)
            names = [used.node.name for used in sample]
            args = decode_args(orjson.dumps({"Pod": body, "Nodes": None, "NodeNames": names}))
            passed = set(self._verb.decide(args, self._choice.getrandbits(32)).result.passed)
            candidates = [at for at in candidates if names[at] in passed]
        best = max(sums[at] for at in candidates)
        return self._choice.choice([at for at in candidates if sums[at] == best])

    def _with_room(self, incoming: Pod) -> Iterator[UsedNode]:
        """The nodes on which the pod fits, from where the last sample ended."""
        for _ in range(len(self._nodes)):
            used = self._nodes[self._next % len(self._nodes)]
            self._next += 1
            if used.has_room_for(incoming):
                yield used

    def _pod(self, number: int) -> JsonObject:
        rng = self._rng
        made = pod(f"plain-{number}", "plain")
        cpu, memory = rng.choice(_REQUESTS)
        requests = ({"cpu": f"{cpu}m"} if cpu else {}) | ({"memory": f"{memory}Mi"} if memory else {})
        made["spec"]["containers"] = [{"name": "main", "image": "pause", "resources": {"requests": requests}}]
        if rng.random() < 0.3:
            terms = [{"weight": rng.randint(1, 100), "preference": term} for term in (_SSD, _ZONE)]
            made["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: terms[: rng.randint(1, 2)]}}
        if rng.random() < 0.2:
            made["spec"]["tolerations"] = [{"key": "busy", "operator": "Exists"}]
        return _with_uid(made)


def _with_uid(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"]}}
