"""A cluster whose policies exclude domains, with the verdicts of the filter and the verdicts of a brute-force reading."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import ExcludedDomain, TopologyDomains
from extender.model.policies import PolicyObject
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.simulator.oracle.brute_force import ClusterState, OracleTopologySpread
from extender.simulator.oracle.directed_spread import DirectedSpread, Known, takes_pods
from extender.verbs.effective_pod import effective_pod
from extender.wire.objects import kinds
from tests.builders import Json, index_of, node_json, pod_json, read_pod
from tests.builders import settings as settings_of
from tests.policies import policy

ENABLED = settings_of(policies={"enabled": True})
ZONES = "abcd"
AFTER = 5.0
MINIMA: list[Json] = [{}, {"minDomains": "Declared"}, {"minDomains": 3}]
INCLUSION = {"nodeAffinityPolicy": ["Honor", "Ignore"], "nodeTaintsPolicy": ["Honor", "Ignore"]}
OTHERS: list[Json] = [{}, {"fullDomains": "Exclude"}]


def directive(rng: Random) -> Json:
    found: Json = {"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": f"{AFTER:g}s"}
    return found | rng.choice(MINIMA) | rng.choice(OTHERS)


class Cluster:
    """The objects, what happened to each domain, and the index that follows them."""

    def __init__(self, rng: Random, directed: Json) -> None:
        self.rng = rng
        self.template: dict[str, Any] = {}
        self.now = 1000.0
        self.index: ClusterIndex = index_of(PolicyObject(policy(spread=[directed])))
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.since: dict[str, float] = {}
        self.declared: TopologyDomains = TopologyDomains("zones", ZONE)

    def put_node(self, name: str, zone: str, *, lost: bool, cordoned: bool = False) -> None:
        taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}] if lost else []
        pool = {"pool": "large"} if self.rng.random() < 0.7 else {}
        body = node_json(name, zone=zone, unschedulable=cordoned, allocatable={"cpu": "1", "pods": "3"}, labels=pool)
        body["spec"]["taints"] = taints
        self.nodes[name] = body
        self.index.upsert(kinds.NODES.decode_object(orjson.dumps(body)))

    def drop_node(self, name: str) -> None:
        self.index.delete(kinds.NODES.decode_object(orjson.dumps(self.nodes.pop(name))))

    def put_pod(self, name: str, node: str) -> None:
        self.pods[name] = pod_json(name, on=node, app="web", requests={"cpu": "1"}, **self.template)
        self.index.upsert(read_pod(self.pods[name]))

    def drop_pod(self, name: str) -> None:
        self.index.delete(read_pod(self.pods.pop(name)))

    def declare(self, declared: str, excluded: dict[str, float | None]) -> None:
        found = tuple(ExcludedDomain(zone, until) for zone, until in excluded.items())
        self.declared = TopologyDomains("zones", ZONE, tuple(declared), found)
        self.index.upsert(self.declared)

    def begin(self) -> None:
        """Six nodes in three of the four zones that are declared."""
        for number in range(6):
            self.put_node(f"n{number}", ZONES[number % 3], lost=False)
        self.declare("abcd", {})
        self._follow()

    def happen(self) -> None:
        """One random change, after which time has passed."""
        rng, name = self.rng, f"n{self.rng.randrange(6)}"
        zone = "" if rng.random() < 0.1 else rng.choice(ZONES)
        match rng.randrange(9):
            case 0 | 1 | 2:
                self.put_node(name, zone, lost=rng.random() < 0.5, cordoned=rng.random() < 0.2)
            case 3:
                for other, body in list(self.nodes.items()):  # a zone is lost, or returns
                    if body["metadata"]["labels"].get(ZONE) == zone:
                        self.put_node(other, zone, lost=rng.random() < 0.8)
            case 4 if name in self.nodes:
                self.drop_node(name)
            case 5 | 6:
                self.put_pod(f"p{rng.randrange(12)}", name)
            case 7 if self.pods:
                self.drop_pod(rng.choice(sorted(self.pods)))
            case _:
                ends = [None, self.now + 3, self.now - 1]
                excluded = {each: rng.choice(ends) for each in rng.sample(ZONES + "e", rng.randint(0, 2))}
                self.declare("".join(rng.sample(ZONES + "e", rng.randint(0, 4))), excluded)
        self._follow()

    def _follow(self) -> None:
        lost = self.lost()
        self.since = {zone: self.since.get(zone, self.now) for zone in lost}
        self.index.domains.step(self.now)
        self.now += self.rng.choice([0.0, 1.0, 4.0])
        if self.rng.random() < 0.1:  # the clock is set: nothing is unavailable for longer or shorter by that
            jumped = self.rng.choice([-3600.0, -2.0, 2.0, 3600.0])
            self.now += jumped
            self.since = {zone: since + jumped for zone, since in self.since.items()}
            self.index.domains.step(self.now, jumped)
        if self.index.domains.due() <= self.now:
            self.index.domains.step(self.now)

    def lost(self) -> set[str]:
        """The zones with nodes, none of which takes pods."""
        zones: dict[str, list[bool]] = {}
        for body in self.nodes.values():
            if (zone := body["metadata"]["labels"].get(ZONE)) is not None:
                zones.setdefault(zone, []).append(takes_pods(body))
        return {zone for zone, taking in zones.items() if not any(taking)}

    def excludes_ineligible(self, body: Json) -> bool:
        """Whether an excluded zone has nodes, none of which counts for the pod's constraint."""
        state, (constraint,) = ClusterState(self.nodes.values()), body["spec"]["topologySpreadConstraints"]
        counts = OracleTopologySpread(body, state, [constraint]).counts[0]
        zones = {each["metadata"]["labels"].get(ZONE) for each in self.nodes.values()}
        return bool(self.excluded & zones - counts.keys())

    @property
    def excluded(self) -> set[str]:
        long = {zone for zone, since in self.since.items() if since + AFTER <= self.now}
        by_operator = {each.domain for each in self.declared.excluded if each.until is None or each.until > self.now}
        return long | by_operator


def incoming(rng: Random) -> Json:
    selector: Json = {"labelSelector": {"matchLabels": {"app": "web"}}}
    spread: Json = {"maxSkew": rng.randint(1, 2), "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"} | selector
    for policy_of, choices in INCLUSION.items():
        spread |= {policy_of: rng.choice(choices)} if rng.random() < 0.5 else {}
    spread |= {"minDomains": rng.randint(1, 4)} if rng.random() < 0.4 else {}
    pinned = {ZONE: rng.choice(ZONES)} if rng.random() < 0.2 else {}
    pinned |= {"pool": "large"} if rng.random() < 0.4 else {}
    found = pod_json("asking", app="web", spreads=[spread], requests={"cpu": "1"}, node_selector=pinned)
    if rng.random() < 0.3:
        found["spec"]["tolerations"] = [{"operator": "Exists"}]
    return found


def verdicts(index: ClusterIndex, body: Json) -> dict[str, str]:
    """The reason that the rule of spread has against each node, empty where it passes."""
    pod = effective_pod(read_pod(body), index.view, ENABLED)
    compiled = index.view.compiled(pod.signature)
    parts = [(rule, part) for rule, part in catalog.active(compiled, index.view) if rule.name == "PodTopologySpread"]
    filters = catalog.prepare(parts, pod, index.view, IndexFrame())
    passing = filters.passing(list(index.view.known.values()))
    found = {}
    for name, number in index.view.known.items():
        rejection = filters.verdict(number)
        assert (rejection is None) == (number in passing)
        found[name] = "" if rejection is None else rejection.text
    return found


def expected(cluster: Cluster, body: Json, directed: Json) -> dict[str, str]:
    state = ClusterState(cluster.nodes.values())
    for name, pod in cluster.pods.items():
        state.place(name, pod, pod["spec"]["nodeName"])
    known = {ZONE: Known(cluster.excluded, set(cluster.declared.domains))}
    judge = DirectedSpread(body, state, [directed], known)
    return {name: judge.check(name).reason for name in cluster.nodes}
