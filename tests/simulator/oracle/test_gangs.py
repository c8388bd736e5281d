"""The judge of groups: each way in which a group is not whole, or in which room is given away twice, and nothing else."""

from __future__ import annotations

from typing import Any

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NODES, PODS, Target
from extender.simulator.apiserver.operations import Operations, PodOperations
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.gangs import Shares, gang_violations
from extender.simulator.oracle.journal import Journal
from tests.simulator.plain import ZONE, namespace, node, pod

GATE = "placement.extender.dev/group"
POLICY: JsonObject = {
    "kind": "ClusterPodSchedulingPolicy",
    "apiVersion": "placement.extender.dev/v1alpha1",
    "metadata": {"name": "gangs"},
    "spec": {
        "podSelector": {"matchLabels": {"app": "gang"}},
        "namespaceSelector": {},
        "when": ["Release"],
        "release": {"group": {"label": "gang"}, "size": {"label": "size"}, "topology": [ZONE]},
    },
}


class Run:
    """Two zones with a node of four processors each, and a gang of pods with one each."""

    def __init__(self, size: int = 2, **policy: Any) -> None:
        self.store = Store()
        found = {**POLICY, "spec": {**POLICY["spec"], **policy}}
        self.store.load([node("a", "za"), node("b", "zb"), namespace("default"), found])
        self.operations = Operations(self.store)
        self.journal = Journal(self.store)
        self.size = size
        for number in range(size):
            self.create(f"g-{number}", gang="g", size=str(size))

    def create(self, name: str, cpu: str = "1", gate: str = GATE, **labels: str) -> None:
        more: dict[str, Any] = {"schedulingGates": [{"name": gate}]} if labels else {}
        app = {"app": "gang"} if labels else {}
        self.operations.create(PODS, pod(name, cpu=cpu, labels={**app, **labels}, **more))

    def decide(self, zone: str) -> None:
        """Writes the decision for the gang."""
        spec = {"policy": "ClusterPodSchedulingPolicy/gangs", "group": "g", "topology": [{"key": ZONE, "value": zone}]}
        metadata = {"name": "gangs-g", "namespace": "default"}
        self.operations.create(GROUP_PLACEMENTS, {"metadata": metadata, "spec": spec})

    def release(self, *numbers: int, zone: str = "za") -> None:
        def let_go(found: JsonObject) -> None:
            found["spec"].pop("schedulingGates", None)
            found["spec"]["nodeSelector"] = {ZONE: zone} if zone else {}

        for number in numbers:
            self.operations.change(PODS, f"default/g-{number}", let_go)

    def place(self, name: str, on: str, at: float = 1.0) -> None:
        """The scheduling loop decides, and binds."""
        found = self.store.find(PODS, f"default/{name}").read()
        self.journal.decided(1.0, at, found["metadata"]["uid"], found, on)
        self.operations.change(PODS, f"default/{name}", lambda pod: pod["spec"].update(nodeName=on))

    @property
    def found(self) -> list[str]:
        """What the judge says."""
        return [str(each) for each in gang_violations(self.journal)]


def test_a_gang_that_lands_whole_in_the_decided_zone_is_right() -> None:
    run = Run()
    run.decide("za")
    run.release(0, 1)
    run.place("g-0", "a")
    run.place("g-1", "a")
    assert run.found == []


def test_a_gang_that_stays_whole_at_its_gate_is_right() -> None:
    assert Run().found == []


def test_a_gang_in_two_zones_is_split() -> None:
    run = Run()
    run.decide("za")
    run.release(0, 1)
    run.place("g-0", "a")
    run.place("g-1", "b")
    assert run.found == ["group default/g: split between zb and za"]


def test_a_gang_of_which_a_part_is_left_is_not_whole() -> None:
    run = Run(3)
    run.decide("za")
    run.release(0, 1)
    run.place("g-0", "a")
    assert run.found == ["group default/g: not whole at the end: 1 placed, 1 released only, 1 gated"]


def test_a_release_without_a_decision_to_another_zone_and_without_a_zone_are_told_apart() -> None:
    early, elsewhere, unpinned = Run(1), Run(1), Run(1)
    early.release(0)
    early.place("g-0", "a")
    assert early.found == ["group default/g: a pod was released to za, decided was nothing"]
    elsewhere.decide("zb")
    elsewhere.release(0)
    elsewhere.place("g-0", "a")
    assert elsewhere.found == ["group default/g: a pod was released to za, decided was zb"]
    unpinned.decide("za")
    unpinned.release(0, zone="")
    unpinned.place("g-0", "a")
    assert unpinned.found == ["group default/g: a pod was released without a domain"]


def test_more_released_pods_than_the_gang_has_are_too_many_where_it_may_not_grow() -> None:
    run = Run(release={**POLICY["spec"]["release"], "growth": "KeepGated"})
    run.create("g-2", gang="g", size="2")
    run.decide("za")
    run.release(0, 1, 2)
    for number in range(3):
        run.place(f"g-{number}", "a")
    assert run.found == ["group default/g: 3 of 2 pods are released"]


def test_a_gang_that_grows_is_right_and_a_further_pod_waits_only_while_its_zone_has_no_room() -> None:
    run = Run()
    run.create("g-2", gang="g", size="2")
    run.create("g-3", gang="g", size="2")
    run.decide("za")
    run.release(0, 1, 2)
    for number in range(3):
        run.place(f"g-{number}", "a")
    assert run.found == ["group default/g: beyond its size 1 gated, and za has room"]
    run.create("other")
    run.place("other", "a")
    assert run.found == []


def test_room_that_was_decided_for_a_gang_and_goes_to_another_pod_is_given_away_twice() -> None:
    run = Run(4)
    run.decide("za")
    run.create("thief")
    run.place("thief", "a")
    run.release(*range(4))
    for number in range(3):
        run.place(f"g-{number}", "a")
    assert run.found == [
        "group default/g: room in za that was decided for it went to another pod",
        "group default/g: not whole at the end: 3 placed, 1 released only, 0 gated",
    ]


def test_a_pod_that_leaves_room_for_the_gang_is_welcome() -> None:
    run = Run(3)
    run.create("other")
    run.decide("za")
    run.place("other", "a")
    run.create("elsewhere", cpu="4")
    run.place("elsewhere", "b")
    run.release(*range(3))
    for number in range(3):
        run.place(f"g-{number}", "a")
    assert run.found == []


def test_what_a_lost_zone_or_a_failed_pod_leaves_behind_is_no_fault_of_the_release() -> None:
    lost = Run()
    lost.decide("za")
    lost.release(0)
    lost.operations.delete(Target(NODES, "", "a"), {})
    assert lost.found == []
    failed = Run()
    failed.decide("za")
    failed.release(0, 1)
    failed.place("g-0", "a")
    PodOperations(failed.operations).delete(Target(PODS, "default", "g-1"), {})
    failed.create("g-2", gang="g", size="2")
    assert failed.found == []


def test_groups_that_need_not_land_in_one_domain_are_not_judged() -> None:
    run = Run(release={**POLICY["spec"]["release"], "mode": "Preferred"})
    run.release(0, zone="")
    assert run.found == []
    run = Run(when=["Admission"])
    run.release(0, zone="")
    assert run.found == []


SHARES = Shares(groups=10, pods=100, share=0.5, reservation=300.0, unasked=60.0)


class Groups(Run):
    """Of eight processors in all, groups of two pods with one processor each are decided one after the other."""

    def __init__(self, count: int, *, size: int = 2, scheduler: str = "default-scheduler", **policy: Any) -> None:
        super().__init__(0, **policy)
        for number in range(count):
            for member in range(size):
                spec: dict[str, Any] = {"schedulingGates": [{"name": GATE}], "schedulerName": scheduler}
                labels = {"app": "gang", "gang": f"g{number}", "size": str(size)}
                self.operations.create(PODS, pod(f"g{number}-{member}", cpu="1", labels=labels, **spec))
            level = {"key": ZONE, "value": "za" if number % 2 else "zb"}
            decision = {"policy": "ClusterPodSchedulingPolicy/gangs", "group": f"g{number}", "topology": [level]}
            metadata = {"name": f"gangs-g{number}", "namespace": "default"}
            self.operations.create(GROUP_PLACEMENTS, {"metadata": metadata, "spec": decision})

    def exceeded(self, **shares: Any) -> list[str]:
        """What the judge says of shares."""
        found = map(str, gang_violations(self.journal, SHARES._replace(**shares)))
        return [each for each in found if "reserved" in each]


def test_room_up_to_a_share_is_right_and_beyond_it_is_not() -> None:
    said = "group default/g2: with it the namespace has room reserved for"
    assert Groups(2).exceeded() == []
    assert Groups(3).exceeded() == [f"{said} 6 of 8 cpu, its share is 0.5"]
    assert Groups(3).exceeded(share=1.0, pods=5) == [f"{said} 6 pods, its share is 5"]
    assert Groups(3).exceeded(share=1.0, groups=2) == [f"{said} 3 groups, its share is 2"]


def test_a_group_that_is_larger_by_itself_has_no_room_and_takes_none_from_others() -> None:
    assert Groups(2, size=5).exceeded() == []


def test_room_that_was_given_back_counts_no_more() -> None:
    assert Groups(3, scheduler="absent").exceeded(unasked=0.0) == []
    assert Groups(3).exceeded(reservation=0.0) == []
    assert Groups(3).exceeded(unasked=0.0) != [], "those of a scheduler that asks"


BOTH: JsonObject = {"name": "both", "values": ["za", "zb"]}


def test_a_gang_in_the_zones_of_one_domain_is_whole_and_is_narrowed_by_its_node_affinity() -> None:
    run = Run(release={**POLICY["spec"]["release"], "domains": [BOTH]})
    run.decide("za")  # the first value stands for the set
    clause = {"key": ZONE, "operator": "In", "values": ["za", "zb"]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [clause]}]}
    }

    def let_go(found: JsonObject) -> None:
        found["spec"].pop("schedulingGates", None)
        found["spec"]["affinity"] = {"nodeAffinity": required}

    for number in range(2):
        run.operations.change(PODS, f"default/g-{number}", let_go)
    run.place("g-0", "a")
    run.place("g-1", "b")
    assert run.found == []
    clause["values"] = ["za", "zc"]
    run.create("g-2", gang="g", size="2")
    run.operations.change(PODS, "default/g-2", let_go)
    assert "group default/g: a pod was released without a domain" in run.found


def test_pods_above_a_quota_are_told_when_one_is_released_and_terminating_ones_count() -> None:
    domain = {"name": "near", "values": ["za"], "quota": {"resources": {"cpu": "2500m"}}}
    cases = (
        ({"domains": [domain]}, "3 cpu of near, its quota is 2.5"),
        ({"maxPerDomain": 2}, "3 pods of za, its quota is 2"),
    )
    for limits, text in cases:
        run = Run(3, release={**POLICY["spec"]["release"], **limits})
        run.decide("za")
        run.release(0, 1)
        run.place("g-0", "a")
        run.place("g-1", "a")
        run.operations.change(PODS, "default/g-0", lambda found: found["metadata"].update(deletionTimestamp="now"))
        run.release(2)
        run.place("g-2", "a")
        assert f"group default/g: with it pods have {text}" in run.found
    within = Run(3, release={**POLICY["spec"]["release"], "maxPerDomain": 3})
    within.decide("za")
    within.release(0, 1, 2)
    for number in range(3):
        within.place(f"g-{number}", "a")
    assert within.found == []


LATE = float("inf")  # long after everything else
DISK = "example.com/disk"
SSD = {"weight": 1, "preference": {"matchExpressions": [{"key": DISK, "operator": "In", "values": ["ssd"]}]}}
NODES_FIRST: JsonObject = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [SSD]}}


def preferring(affinity: JsonObject | None = None, **spec: Any) -> Run:
    """A gang of one pod with preferences, decided for a zone that has a node with an SSD, one without, and a tainted one."""
    run = Run(1)
    run.operations.create(NODES, node("ssd", "za", cpu="1", labels={DISK: "ssd"}))
    soft = [{"key": "old", "value": "yes", "effect": "PreferNoSchedule"}]
    run.operations.create(NODES, node("old", "za", taints=soft))
    run.operations.change(PODS, "default/g-0", lambda pod: pod["spec"].update({"affinity": affinity or {}, **spec}))
    run.decide("za")
    run.release(0)
    return run


def test_a_pod_that_lands_on_a_node_that_it_prefers_less_than_one_with_room_is_found() -> None:
    run = preferring(NODES_FIRST)
    run.place("g-0", "a", LATE)
    assert run.found == ["group default/g: a pod landed on a, and prefers ssd, which has room"]
    run = preferring()
    run.place("g-0", "old", LATE)
    assert run.found == ["group default/g: a pod landed on old, and prefers a, which has room"]


def test_a_pod_that_lands_on_the_node_that_it_prefers_most_is_right() -> None:
    for affinity, on in ((NODES_FIRST, "ssd"), ({}, "a"), ({}, "ssd")):
        run = preferring(affinity)
        run.place("g-0", on, LATE)
        assert run.found == []


def test_a_pod_that_lands_elsewhere_is_right_where_the_better_node_is_full_was_full_or_is_needed_by_others() -> None:
    run = preferring(NODES_FIRST)
    run.create("other")
    run.place("other", "ssd", LATE)
    run.place("g-0", "a", LATE)
    assert run.found == []
    run = preferring(NODES_FIRST)
    run.place("g-0", "a")
    assert run.found == [], "the node is there only since a moment"
    run = Run(2)
    run.operations.create(NODES, node("old", "za", cpu="1"))
    run.operations.change(
        NODES, "a", lambda found: found["spec"].update(taints=[{"key": "o", "effect": "PreferNoSchedule"}])
    )
    run.decide("za")
    run.release(0, 1)
    run.place("g-0", "a", LATE)
    run.place("g-1", "old", LATE)
    assert run.found == [], "the other pod needs that room"


def test_a_pod_with_other_preferences_that_may_weigh_more_is_not_judged() -> None:
    soft = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {}}}
    near = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    for run in (preferring(NODES_FIRST, topologySpreadConstraints=soft), preferring({**NODES_FIRST, **near})):
        run.place("g-0", "a", LATE)
        assert run.found == []
