"""The workloads that in-tree plugins and extender are compared on: which pods stand there, and which ask for a place.

Existing pods carry the same labels and constraints as those that ask, as they do in a cluster where a workload grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.simulator.json_objects import JsonObject
from tests.simulator.plain import HOSTNAME, ZONE, namespace, node, pod, spread, term

ZONES: Final = 10
NAMESPACES: Final = 100
ASKING: Final = "asking"  # the namespace of the pods that ask, and the label by which they are told from the others
ASKING_LABEL: Final = f"{ASKING}=yes"
_TEAM: Final = {"team": "devops"}
_TEAMS: Final = {"matchLabels": _TEAM}

Make = Callable[[int], JsonObject]  # from a pod's number to the fields of its spec


@dataclass(frozen=True, slots=True)
class Workload:
    """`app` is every pod's label. Spread counts its own namespace only, so there all pods are in that one."""

    name: str
    title: str
    app: str
    spec: Make
    existing: int = 5000
    in_one_namespace: bool = False

    def running(self, count: int, nodes: int) -> Iterator[JsonObject]:
        """Pods that stand on nodes, one node after the other."""
        for number in range(count):
            where = ASKING if self.in_one_namespace else f"team-{number % NAMESPACES}"
            on = node_name(number % nodes)
            yield pod(f"run-{number}", where, on=on, labels={"app": self.app}, **self.spec(number))

    def asking(self, count: int) -> Iterator[JsonObject]:
        """Pods that want to be placed."""
        for number in range(count):
            yield pod(f"ask-{number}", ASKING, labels={"app": self.app, ASKING: "yes"}, **self.spec(number))


def nodes(count: int) -> Iterator[JsonObject]:
    """Nodes with room for everything, in ten zones."""
    return (node(node_name(number), f"zone-{number % ZONES}", cpu="32") for number in range(count))


def namespaces() -> list[JsonObject]:
    """All of one team, which the terms select."""
    return [namespace(name, **_TEAM) for name in (ASKING, *(f"team-{number}" for number in range(NAMESPACES)))]


def node_name(number: int) -> str:
    """By number."""
    return f"node-{number}"


def warming(number: int) -> JsonObject:
    """A pod without constraints, which the scheduler has for practice."""
    return pod(f"warm-{number}", ASKING, labels={ASKING: "yes"})


def _affinity(side: str, key: str, app: str, *, required: bool) -> Make:
    clause = term(key, namespaces=_TEAMS, app=app)
    if required:
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": [clause]}
    else:
        rules = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": clause}]}
    return lambda _: {"affinity": {side: rules}}


def _spread(app: str, *, hard: bool) -> Make:
    more: JsonObject = {"minDomains": ZONES} if hard else {}

    def spec(number: int) -> JsonObject:
        return {"topologySpreadConstraints": [spread(skew=number % 5 + 1, hard=hard, labels={"app": app}, **more)]}

    return spec


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            "required anti-affinity, node",
            "green",
            _affinity("podAntiAffinity", HOSTNAME, "green", required=True),
            existing=4000,  # of 5,000 nodes; the asking thousand fills the rest
        ),
        Workload("W2", "required affinity, zone", "blue", _affinity("podAffinity", ZONE, "blue", required=True)),
        Workload("W3", "preferred affinity, node", "red", _affinity("podAffinity", HOSTNAME, "red", required=False)),
        Workload(
            "W4",
            "preferred anti-affinity, node",
            "yellow",
            _affinity("podAntiAffinity", HOSTNAME, "yellow", required=False),
        ),
        Workload("W5", "hard spread, zone", "cyan", _spread("cyan", hard=True), in_one_namespace=True),
        Workload("W6", "soft spread, zone", "pink", _spread("pink", hard=False), in_one_namespace=True),
        Workload("W7", "no constraints", "grey", lambda _: {}, in_one_namespace=True),
    )
}
