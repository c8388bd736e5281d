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
INCOMING: Final = "asking"  # the namespace of the incoming pods, and the label that separates them from the other pods
INCOMING_LABEL: Final = f"{INCOMING}=yes"
_TEAM: Final = {"team": "devops"}
_TEAMS: Final = {"matchLabels": _TEAM}

Make = Callable[[int, str], JsonObject]  # from a pod's number and its app to the fields of its spec


@dataclass(frozen=True, slots=True)
class Workload:
    """`app` is every pod's label. Spread counts its own namespace only, so there all pods are in that one.

    `share`: of the nodes, the part on which running pods of one app stand, where each wants a node of its own. More running
    pods are of further apps, on the same nodes. `control`: the workload that is the same without the field of a KEP.
    """

    name: str
    title: str
    app: str
    spec: Make
    existing: int = 5000
    in_one_namespace: bool = False
    share: float = 0.0
    control: str = ""
    zones: int = ZONES
    others: tuple[tuple[str, Make], ...] = ()
    published: str = ""

    def running(self, count: int, nodes: int, first: int = 0) -> Iterator[JsonObject]:
        """Pods that stand on nodes, one node after the other: those with the numbers from `first` to below `count`."""
        kinds = self.others or ((self.app, self.spec),)
        taken = int(nodes * self.share) or (nodes if self.others else 0)
        for number in range(first, count):
            where = INCOMING if self.in_one_namespace else f"team-{number % NAMESPACES}"
            kind, spec = kinds[number % len(kinds)]
            of_kind = number // len(kinds)
            group = of_kind // taken if taken else 0
            app = f"{kind}-{group}" if group else kind
            on = node_name(of_kind % (taken or nodes))
            yield pod(f"run-{number}", where, on=on, labels={"app": app}, **spec(number, app))

    def incoming(self, count: int) -> Iterator[JsonObject]:
        """Pods that want to be placed."""
        for number in range(count):
            yield pod(
                f"ask-{number}", INCOMING, labels={"app": self.app, INCOMING: "yes"}, **self.spec(number, self.app)
            )


def nodes(count: int, zones: int = ZONES) -> Iterator[JsonObject]:
    """Nodes with room for everything, in so many zones."""
    return (node(node_name(number), f"zone-{number % zones}", cpu="32") for number in range(count))


def namespaces() -> list[JsonObject]:
    """All of one team, which the terms select."""
    return [namespace(name, **_TEAM) for name in (INCOMING, *(f"team-{number}" for number in range(NAMESPACES)))]


def node_name(number: int) -> str:
    return f"node-{number}"


def warming(number: int) -> JsonObject:
    """A pod without constraints, which the scheduler has for practice."""
    return pod(f"warm-{number}", INCOMING, labels={INCOMING: "yes"})


def _affinity(side: str, key: str, *, required: bool, in_teams: bool = True) -> Make:
    """Terms over all namespaces of the team, or over that of the pod alone."""

    def spec(_: int, app: str) -> JsonObject:
        clause = term(key, namespaces=_TEAMS if in_teams else None, app=app)
        if required:
            return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [clause]}}}
        preferred = [{"weight": 1, "podAffinityTerm": clause}]
        return {"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}

    return spec


def _spread(*, hard: bool, has_minimum: bool = False) -> Make:
    more: JsonObject = {"minDomains": ZONES} if has_minimum else {}

    def spec(number: int, app: str) -> JsonObject:
        return {"topologySpreadConstraints": [spread(skew=number % 5 + 1, hard=hard, labels={"app": app}, **more)]}

    return spec


def _plain(_: int, __: str) -> JsonObject:
    return {}


def _spread_by_five(_: int, app: str) -> JsonObject:
    return {"topologySpreadConstraints": [spread(skew=5, labels={"app": app})]}


_OF_ONE_NAMESPACE: Final = (
    ("grey", _plain),
    ("blue", _affinity("podAffinity", ZONE, required=True, in_teams=False)),
    ("green", _affinity("podAntiAffinity", HOSTNAME, required=True, in_teams=False)),
    ("red", _affinity("podAffinity", HOSTNAME, required=False, in_teams=False)),
    ("yellow", _affinity("podAntiAffinity", HOSTNAME, required=False, in_teams=False)),
)

# https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf
_PUBLISHED: Final = (
    Workload(
        "P1",
        "required anti-affinity, node",
        "green",
        _affinity("podAntiAffinity", HOSTNAME, required=True),
        share=2 / 3,
        published="SchedulingRequiredPodAntiAffinityWithNSSelector",
    ),
    Workload(
        "P2",
        "required affinity, one zone",
        "blue",
        _affinity("podAffinity", ZONE, required=True),
        zones=1,
        published="SchedulingRequiredPodAffinityWithNSSelector",
    ),
    Workload(
        "P3",
        "hard spread, three zones, beside pods without constraints",
        "blue",
        _spread_by_five,
        in_one_namespace=True,
        zones=3,
        others=(("grey", _plain),),
        published="TopologySpreading",
    ),
    Workload(
        "P4",
        "no constraints, beside pods of five kinds",
        "grey",
        _plain,
        in_one_namespace=True,
        zones=1,
        others=_OF_ONE_NAMESPACE,
        published="MixedSchedulingBasePod",
    ),
    Workload(
        "P5",
        "preferred affinity, node",
        "red",
        _affinity("podAffinity", HOSTNAME, required=False),
        published="SchedulingPreferredAffinityWithNSSelector",
    ),
    Workload("P6", "no constraints", "grey", _plain, in_one_namespace=True, zones=1, published="SchedulingBasic"),
)

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            "required anti-affinity, node",
            "green",
            _affinity("podAntiAffinity", HOSTNAME, required=True),
            existing=4000,  # of 5,000 nodes; the asking thousand fills the rest
            share=0.8,
            control="C1",
        ),
        # KEP-2249, "Test Plan", compares a namespaceSelector over 100 namespaces with one namespace and none; KEP-3022 minDomains.
        Workload(
            "C1",
            "W1 in one namespace, without namespaceSelector",
            "lime",
            _affinity("podAntiAffinity", HOSTNAME, required=True, in_teams=False),
            existing=4000,
            in_one_namespace=True,
            share=0.8,
        ),
        Workload(
            "C2",
            "W2 in one namespace, without namespaceSelector",
            "navy",
            _affinity("podAffinity", ZONE, required=True, in_teams=False),
            in_one_namespace=True,
        ),
        Workload(
            "C3",
            "W3 in one namespace, without namespaceSelector",
            "rose",
            _affinity("podAffinity", HOSTNAME, required=False, in_teams=False),
            in_one_namespace=True,
        ),
        Workload(
            "C4",
            "W4 in one namespace, without namespaceSelector",
            "gold",
            _affinity("podAntiAffinity", HOSTNAME, required=False, in_teams=False),
            in_one_namespace=True,
        ),
        Workload("C5", "W5 without minDomains", "teal", _spread(hard=True), in_one_namespace=True),
        Workload("W2", "required affinity, zone", "blue", _affinity("podAffinity", ZONE, required=True), control="C2"),
        Workload(
            "W3", "preferred affinity, node", "red", _affinity("podAffinity", HOSTNAME, required=False), control="C3"
        ),
        Workload(
            "W4",
            "preferred anti-affinity, node",
            "yellow",
            _affinity("podAntiAffinity", HOSTNAME, required=False),
            control="C4",
        ),
        Workload(
            "W5", "hard spread, zone", "cyan", _spread(hard=True, has_minimum=True), in_one_namespace=True, control="C5"
        ),
        Workload("W6", "soft spread, zone", "pink", _spread(hard=False), in_one_namespace=True),
        Workload("W7", "no constraints", "grey", _plain, in_one_namespace=True),
        *_PUBLISHED,
    )
}
