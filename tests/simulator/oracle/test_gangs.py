"""The judge of groups: each way in which a group is not whole, or in which room is given away twice, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NODES, PODS, Target
from extender.simulator.apiserver.operations import Operations, PodOperations
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.gangs import Shares, gang_violations
from extender.simulator.oracle.journal import Journal
from tests.builders import PREFERRED, REQUIRED, requirement
from tests.simulator.oracle.steps import play
from tests.simulator.plain import ZONE, namespace, node, pod, spread, term

GATED: JsonObject = {"schedulingGates": [{"name": "placement.extender.dev/group"}]}
LATE = float("inf")  # long after everything else
DISK = "example.com/disk"


class Run:
    """Two zones with a node of four processors each, further nodes in za, and a gang `g` of pods with one processor each."""

    def __init__(
        self, size: int = 2, *, nodes: list[JsonObject] | None = None, pods: JsonObject | None = None, **policy: Any
    ) -> None:
        spec: JsonObject = {
            "podSelector": {"matchLabels": {"app": "gang"}},
            "namespaceSelector": {},
            "when": [policy.pop("when", "Release")],
            "release": {"group": {"label": "gang"}, "size": {"label": "size"}, "topology": [ZONE], **policy},
        }
        api_version = "placement.extender.dev/v1alpha1"
        found = {"apiVersion": api_version, "kind": "ClusterPodSchedulingPolicy", "metadata": {"name": "gangs"}}
        self.store = Store()
        self.store.load([node("a", "za"), node("b", "zb"), namespace("default"), found | {"spec": spec}])
        self.operations = Operations(self.store)
        self.journal = Journal(self.store)
        self.size, self.pods = size, GATED | (pods or {})
        for extra in nodes or ():
            self.operations.create(NODES, extra)
        for number in range(size):
            self.grow(f"g-{number}")

    def after(self, steps: str) -> list[str]:
        """What the judge says after these steps."""
        play(self, steps)
        return [str(violation).removeprefix("group default/g: ") for violation in gang_violations(self.journal)]

    def create(self, name: str, cpu: str = "1") -> None:
        self.operations.create(PODS, pod(name, cpu=cpu))

    def grow(self, name: str) -> None:
        labels = {"app": "gang", "gang": name.partition("-")[0], "size": str(self.size)}
        self.operations.create(PODS, pod(name, cpu="1", labels=labels, **self.pods))

    def decide(self, zone: str, group: str = "g") -> None:
        level = {"key": ZONE, "value": zone}
        spec = {"policy": "ClusterPodSchedulingPolicy/gangs", "group": group, "topology": [level]}
        metadata = {"name": f"gangs-{group}", "namespace": "default"}
        self.operations.create(GROUP_PLACEMENTS, {"metadata": metadata, "spec": spec})

    def release(self, name: str, *zones: str) -> None:
        """Narrows to one zone by the node selector, to several by node affinity."""
        terms = [{"matchExpressions": [requirement(ZONE, "In", list(zones))]}]
        pin: JsonObject = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
        if len(zones) < 2:
            pin = {"nodeSelector": {ZONE: zones[0]} if zones else {}}
        self.change(name, lambda found: found["spec"].update(pin, schedulingGates=[]))

    def place(self, name: str, on: str, at: float = 1.0) -> None:
        """The scheduling loop decides, and binds."""
        found = self.store.find(PODS, f"default/{name}").read()
        self.journal.decided(1.0, at, found["metadata"]["uid"], found, on)
        self.change(name, lambda found: found["spec"].update(nodeName=on))

    def place_late(self, name: str, on: str) -> None:
        self.place(name, on, LATE)

    def terminate(self, name: str) -> None:
        self.change(name, lambda found: found["metadata"].update(deletionTimestamp="now"))

    def delete(self, name: str) -> None:
        PodOperations(self.operations).delete(Target(PODS, "default", name), {})

    def delete_node(self, name: str) -> None:
        self.operations.delete(Target(NODES, "", name), {})

    def taint(self, node: str) -> None:
        self.operations.change(NODES, node, lambda found: found["spec"].update(taints=SOFT))

    def change(self, name: str, edit: Any) -> None:
        self.operations.change(PODS, f"default/{name}", edit)


PLACED = "decide za; release g-0 g-1 -> za; place g-0 g-1 -> a"
BOTH = [{"name": "both", "values": ["za", "zb"]}]  # the first value stands for the set
IN_BOTH = "decide za; release g-0 g-1 -> za zb; place g-0 -> a; place g-1 -> b"
WHOLE = "release g-0 g-1 g-2 -> za; place g-0 g-1 g-2 -> a"
GROWN = f"grow g-2 g-3; decide za; {WHOLE}"
FULL = "decide za; release g-0 g-1 -> za; place g-0 g-1 -> a; terminate g-0; release g-2 -> za; place g-2 -> a"
QUOTA = {"name": "near", "values": ["za"], "quota": {"resources": {"cpu": "2500m"}}}
LABELLED = [requirement(DISK, "In", ["ssd"])]
SSD_FIRST = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": LABELLED}}]}}
SOFT = [{"key": "old", "value": "yes", "effect": "PreferNoSchedule"}]
NEAR: JsonObject = {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term(ZONE)}]}}
# A gang of one in za, where a node with one processor has an SSD and another has a taint.
ONE = {"size": 1, "nodes": [node("ssd", "za", cpu="1", labels={DISK: "ssd"}), node("old", "za", taints=SOFT)]}
PREFERS = ONE | {"pods": {"affinity": SSD_FIRST}}
OUT = "decide za; release g-0 -> za; "

RUNS: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "whole in the decided zone": ({}, PLACED, []),
    "whole at its gate": ({}, "", []),
    "in two zones": (
        {},
        "decide za; release g-0 g-1 -> za; place g-0 -> a; place g-1 -> b",
        ["split between zb and za"],
    ),
    "in parts": (
        {"size": 3},
        "decide za; release g-0 g-1 -> za; place g-0 -> a",
        ["not whole at the end: 1 placed, 1 released only, 1 gated"],
    ),
    "released without a decision": (
        {"size": 1},
        "release g-0 -> za; place g-0 -> a",
        ["a pod was released to za, decided was nothing"],
    ),
    "released to another zone": (
        {"size": 1},
        "decide zb; release g-0 -> za; place g-0 -> a",
        ["a pod was released to za, decided was zb"],
    ),
    "released without a zone": (
        {"size": 1},
        "decide za; release g-0; place g-0 -> a",
        ["a pod was released without a domain"],
    ),
    "more than its size where it may not grow": (
        {"laterPods": "Replace"},
        f"grow g-2; decide za; {WHOLE}",
        ["3 of 2 pods are released"],
    ),
    "a further pod waits while its zone has room": ({}, GROWN, ["beyond its size 1 gated, and za has room"]),
    "a further pod waits for room": ({}, f"{GROWN}; create other; place other -> a", []),
    "its room goes to another pod": (
        {"size": 4},
        "decide za; create thief; place thief -> a; release g-0 g-1 g-2 g-3 -> za; place g-0 g-1 g-2 -> a",
        [
            "room in za that was decided for it went to another pod",
            "not whole at the end: 3 placed, 1 released only, 0 gated",
        ],
    ),
    "another pod leaves it room": (
        {"size": 3},
        "create other; decide za; place other -> a; create big -> 4; place big -> b; " + WHOLE,
        [],
    ),
    "its zone is lost": ({}, "decide za; release g-0 -> za; delete_node a", []),
    "a released pod fails": ({}, "decide za; release g-0 g-1 -> za; place g-0 -> a; delete g-1; grow g-2", []),
    "need not land in one domain": ({"noRoom": [{"action": "SeveralDomains"}]}, "release g-0", []),
    "a policy of another moment": ({"when": "Admission"}, "release g-0", []),
    "in the zones of one domain": ({"domains": BOTH}, IN_BOTH, []),
    "narrowed to a zone of another domain": (
        {"domains": BOTH},
        f"{IN_BOTH}; grow g-2; release g-2 -> za zc",
        ["a pod was released without a domain", "not whole at the end: 2 placed, 1 released only, 0 gated"],
    ),
    "above a quota of resources": (
        {"size": 3, "domains": [QUOTA]},
        FULL,
        ["with it pods have 3 cpu of near, its quota is 2.5"],
    ),
    "above a quota of pods": ({"size": 3, "maxPerDomain": 2}, FULL, ["with it pods have 3 pods of za, its quota is 2"]),
    "at a quota of pods": ({"size": 3, "maxPerDomain": 3}, f"decide za; {WHOLE}", []),
    "a preferred label has room": (
        PREFERS,
        f"{OUT}place_late g-0 -> a",
        ["a pod landed on a, and prefers ssd, which has room"],
    ),
    "a node without a taint has room": (
        ONE,
        f"{OUT}place_late g-0 -> old",
        ["a pod landed on old, and prefers a, which has room"],
    ),
    "on the preferred label": (PREFERS, f"{OUT}place_late g-0 -> ssd", []),
    "on a node without a taint": (ONE, f"{OUT}place_late g-0 -> a", []),
    "on another node without a taint": (ONE, f"{OUT}place_late g-0 -> ssd", []),
    "the preferred node is full": (PREFERS, f"{OUT}create other; place_late other -> ssd; place_late g-0 -> a", []),
    "the preferred node has just come": (PREFERS, f"{OUT}place g-0 -> a", []),
    "other pods need the preferred node": (
        {"nodes": [node("new", "za", cpu="1")]},
        "taint a; decide za; release g-0 g-1 -> za; place_late g-0 -> a; place_late g-1 -> new",
        [],
    ),
    "soft spread may weigh more": (
        ONE | {"pods": {"affinity": SSD_FIRST, "topologySpreadConstraints": [spread(hard=False, labels={})]}},
        f"{OUT}place_late g-0 -> a",
        [],
    ),
    "affinity may weigh more": (ONE | {"pods": {"affinity": SSD_FIRST | NEAR}}, f"{OUT}place_late g-0 -> a", []),
}


@pytest.mark.parametrize(("given", "steps", "found"), RUNS.values(), ids=RUNS)
def test_a_group_is_judged_by_where_its_pods_land(given: dict[str, Any], steps: str, found: list[str]) -> None:
    assert Run(**given).after(steps) == found


SAID = "group default/g2: with it the namespace has room reserved for"


@pytest.mark.parametrize(
    ("groups", "size", "scheduler", "shares", "exceeded"),
    [
        pytest.param(2, 2, "default-scheduler", {}, [], id="up to the share"),
        pytest.param(3, 2, "default-scheduler", {}, [f"{SAID} 6 of 8 cpu, its share is 0.5"], id="of resources"),
        pytest.param(
            3, 2, "default-scheduler", {"share": 1.0, "pods": 5}, [f"{SAID} 6 pods, its share is 5"], id="of pods"
        ),
        pytest.param(
            3, 2, "default-scheduler", {"share": 1.0, "groups": 2}, [f"{SAID} 3 groups, its share is 2"], id="of groups"
        ),
        pytest.param(2, 5, "default-scheduler", {}, [], id="a group that is larger by itself has no room"),
        pytest.param(3, 2, "absent", {"unasked": 0.0}, [], id="the scheduler sends no requests"),
        pytest.param(3, 2, "default-scheduler", {"reservation": 0.0}, [], id="the reservation ends"),
        pytest.param(
            3,
            2,
            "default-scheduler",
            {"unasked": 0.0},
            [f"{SAID} 6 of 8 cpu, its share is 0.5"],
            id="the scheduler sends requests",
        ),
    ],
)
def test_room_is_reserved_up_to_the_share_of_a_namespace(
    groups: int, size: int, scheduler: str, shares: dict[str, Any], exceeded: list[str]
) -> None:
    """Of eight processors in all, groups of pods with one processor each are decided one after the other."""
    run = Run(0, pods={"schedulerName": scheduler})
    run.size = size
    for number in range(groups):
        for member in range(size):
            run.grow(f"g{number}-{member}")
        run.decide("za" if number % 2 else "zb", f"g{number}")
    limits = Shares(groups=10, pods=100, share=0.5, reservation=300.0, unasked=60.0)
    found = map(str, gang_violations(run.journal, limits._replace(**shares)))
    assert [violation for violation in found if "reserved" in violation] == exceeded
