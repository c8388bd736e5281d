"""Groups, nodes and the preferences of pods on one board, in both placements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from extender.model.constraints.labels import ZONE
from extender.model.constraints.taints import PREFER_NO_SCHEDULE
from extender.model.objects import Node, Object, Pod
from extender.model.release import GroupDecision, GroupKey, Proposal, ReleaseSpec
from extender.model.resources import CPU
from extender.rules.free_resources import free_resources_on, static_rejection
from extender.simulator.apiserver.patching import STRATEGIC, apply_patch
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.release.choice import Rest, propose
from extender.verbs.release.progress import release_patch
from tests.builders import PREFERRED, Json, extender_args, read_pod, settings
from tests.contenders import cluster, stage
from tests.gangs import gated_json

POLICY = "ClusterPodSchedulingPolicy/gangs"


class Board:
    """A cluster, and groups that are decided, released and scheduled there. ``answers``: the nodes of each answer, by pod."""

    def __init__(self, placement: str, *objects: Object, **answers: Any) -> None:
        self.index = cluster(*objects)
        wide = {"answers": {"shortlist": 0, "scoreScale": "inTree", **answers}}
        self.settings = settings(placement=placement, **wide)
        self.verb = FilterVerb(self.index.view, self.settings)
        self.answers: dict[str, Sequence[str]] = {}

    def place(self, group: str, count: int, *, topology: Sequence[str] = (ZONE,), **fields: Any) -> dict[str, str]:
        """The node of each pod of a group, by name. ``domains`` are those of the policy, the rest are fields of the pods."""
        spec = ReleaseSpec(tuple(topology), domains=fields.pop("domains", ()))
        bodies = [self.body(f"{group}-{number}", group, **fields) for number in range(count)]
        key, proposal = GroupKey("default", POLICY, group), self.propose(group, bodies, spec)
        self.index.reserved.reserve(key, proposal.slots, until=60.0)
        decision = GroupDecision(key, spec.gate, count, proposal.levels, datetime(2026, 1, 1, tzinfo=UTC))
        found = {}
        for body in bodies:
            released = apply_patch(body, release_patch(body, decision), STRATEGIC)
            self.index.upsert(read_pod(released))
            found[body["metadata"]["name"]] = self._schedule(released)
        return found

    def body(self, name: str, group: str, *, preferred_nodes: Sequence[Json] = (), **fields: Any) -> Json:
        """A gated pod of a group."""
        body = gated_json(name, group, **({"cpu": 1000} | fields))
        body["metadata"]["resourceVersion"] = "1"
        if preferred_nodes:
            body["spec"].setdefault("affinity", {})["nodeAffinity"] = {PREFERRED: list(preferred_nodes)}
        return body

    def propose(self, group: str, bodies: Sequence[Json], spec: ReleaseSpec) -> Proposal:
        """What is proposed for a group of these pods, which fit."""
        pods = [read_pod(body) for body in bodies]
        for pod in pods:
            self.index.upsert(pod)
        found = propose(Rest(GroupKey("default", POLICY, group), spec, pods), self.index.view, self.settings)
        assert len(found.slots) == len(pods)
        return found

    def slots(self, group: str, count: int, *, reserve: bool = False, **fields: Any) -> list[str]:
        """The nodes of the slots that are proposed for a group of equal pods."""
        bodies = [self.body(f"{group}-{number}", group, **fields) for number in range(count)]
        return self.reserved(group, bodies, reserve=reserve)

    def reserved(self, group: str, bodies: Sequence[Json], *, reserve: bool = False) -> list[str]:
        """The same of these pods."""
        found = self.propose(group, bodies, ReleaseSpec((ZONE,))).slots
        if reserve:
            self.index.reserved.reserve(GroupKey("default", POLICY, group), found, until=60.0)
        return [slot.node for slot in found]

    def _schedule(self, body: Json) -> str:
        pod, view = read_pod(body), self.index.view
        names = [name for name in sorted(view.known) if self._fits(pod, name)]
        passed = self.answers[pod.name] = list(self.verb.decide(extender_args(body, *names), 0).result.passed)
        self.index.assume(pod, passed, 0.0)
        chosen = self._best(pod, body, passed)
        self.index.upsert(read_pod({**body, "spec": {**body["spec"], "nodeName": chosen}}))
        return chosen

    def _node(self, name: str) -> Node:
        node = self.index.view.node(self.index.view.known[name])
        assert node is not None
        return node

    def _fits(self, pod: Pod, name: str) -> bool:
        view, node = self.index.view, self._node(name)
        return static_rejection(pod, node) is None and not free_resources_on(view, view.known[name], node).shortage(
            pod.requests
        )

    def _best(self, pod: Pod, body: Json, names: Sequence[str]) -> str:
        """The first of the nodes with the most points of the scheduler's plugins and of the extender."""
        view = self.index.view
        own = prioritize_nodes(extender_args(body, *names), view, self.settings)
        weights = {name: _weight(pod, self._node(name)) for name in names}
        taints = {name: sum(each.effect == PREFER_NO_SCHEDULE for each in self._node(name).taints) for name in names}
        most, worst = max(weights.values()) or 1, max(taints.values()) or 1
        used = {name: view.requested(view.known[name]).get(CPU, 0) for name in names}

        def points(name: str) -> float:
            free = 1 - used[name] / self._node(name).allocatable[CPU]
            by_taints = 300 - 300 * taints[name] / worst
            return own.get(name, 0) + 200 * weights[name] / most + by_taints + 100 * free

        return max(sorted(names), key=points)


def _weight(pod: Pod, node: Node) -> int:
    """Of the preferred node terms that match."""
    return sum(each.weight for each in pod.signature.preferred_nodes if each.term.matches(node.name, node.labels))


def nodes(count: int, cpu: int = 4, **fields: Any) -> list[Node]:
    return [stage(f"s{number}", "a", cpu=1000 * cpu, **fields) for number in range(count)]
