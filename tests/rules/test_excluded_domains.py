"""Topology domains that policies leave out of spread: examples of each part, explained, by both ways of asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from extender.cli.explain import report
from extender.index.cluster import ClusterIndex
from extender.index.nodes.domains import KeyView
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import MOST_TOPOLOGY_DOMAINS, ExcludedDomain, TopologyDomains
from extender.model.policies import Policy, PolicyObject
from extender.rules import catalog, excluded_domains
from extender.rules.frames import ChangedNodeFrame
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.filter import FilterVerb
from tests.builders import (
    Json,
    extender_args,
    index_of,
    node_json,
    pod_json,
    read_node,
    read_pod,
    settings,
    spread,
    taint,
)
from tests.explaining import explained
from tests.index.counting import Calls
from tests.policies import policy

ENABLED: Settings = settings(policies={"enabled": True}, preemption={"mode": "off"}, placement="cooperative")
LOST = taint("node.kubernetes.io/unreachable", effect="NoExecute")
EARLIER = "2026-11-26T00:00:00Z"
NOON = 1795694400.0  # twelve hours later
WEB = pod_json(app="web", spreads=[spread("zone", app="web")], requests={"cpu": "1"})


def directing(**fields: Any) -> Policy:
    return policy(spread=[{"topologyKey": ZONE} | fields])


EXCLUDING = directing(unavailableDomains="Exclude", after="5m")


class Zones:
    """Zones a, b and c of one node each, with so many pods of the app web."""

    def __init__(self, counts: tuple[int, ...], *policies: Policy) -> None:
        self.index: ClusterIndex = index_of(*map(PolicyObject, policies))
        self.domains = self.index.domains
        for zone, count in zip("abcde", counts, strict=False):
            self.node(zone)
            for number in range(count):
                self.pod(f"web-{zone}-{number}", zone)
        self.domains.step(NOON)
        self.verb = FilterVerb(self.index.view, ENABLED)

    def node(self, zone: str, *taints: Json, name: str = "", cpu: str = "8", **more: Any) -> None:
        body = node_json(name or f"n{zone}", zone=zone, taints=taints, allocatable={"cpu": cpu, "pods": "99"}, **more)
        self.index.upsert(read_node(body))

    def pod(self, name: str, zone: str) -> None:
        body = pod_json(name, on=f"n{zone}", app="web", requests={"cpu": "1"})
        self.index.upsert(read_pod(body))

    def passed(self, body: Json = WEB, *, nodes: list[Json] | None = None) -> list[str]:
        args = (
            extender_args(body, *sorted(self.index.view.known)) if nodes is None else extender_args(body, nodes=nodes)
        )
        return sorted(self.verb.decide(args, 0).result.passed)

    def texts(self, body: Json = WEB) -> str:
        found = explained(self.index, read_pod(body), ENABLED)
        return "\n".join(report(found))


def test_a_lost_zone_is_excluded_after_the_time_and_counts_again_at_once() -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    zones.node("c", LOST)
    zones.domains.step(NOON)
    assert zones.passed() == ["nc"], "as kube-scheduler, whose taints are its own matter"
    assert zones.domains.due() == NOON + 300
    zones.domains.step(NOON + 299)
    assert zones.passed() == ["nc"]
    zones.domains.step(NOON + 300)
    assert zones.passed() == ["na", "nb"]
    zones.node("c")
    assert zones.passed() == ["nc"], "without a step, and no pod is moved"


@pytest.mark.parametrize(
    ("change", "is_lost"),
    [
        (lambda zones: zones.node("c", LOST), True),
        (lambda zones: zones.node("c", unschedulable=True), True),
        (lambda zones: zones.node("c", taint("karpenter.sh/disrupted")), True),
        (lambda zones: zones.node("c", taint("dedicated")), False),
        (lambda zones: zones.node("c", taint("node.kubernetes.io/memory-pressure", effect="PreferNoSchedule")), False),
        (lambda zones: (zones.node("c", LOST), zones.node("c", name="other")), False),
    ],
    ids=[
        *("a taint", "a cordon", "an autoscaler", "a taint of the cluster's own", "a taint that only scores"),
        "another node takes pods",
    ],
)
def test_what_makes_a_zone_unavailable(change: Callable[[Zones], object], *, is_lost: bool) -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    change(zones)
    zones.domains.step(NOON)
    assert (zones.domains.due() == NOON + 300) is is_lost
    assert is_lost or zones.domains.due() == float("inf")
    zones.domains.step(NOON + 300)
    assert (zones.passed() == ["na", "nb"]) is is_lost


def test_a_node_that_is_not_ready_takes_no_pods_from_the_time_of_its_condition() -> None:
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": EARLIER}
    body = {"metadata": {"name": "n"}, "status": {"conditions": [condition]}}
    assert read_node(body).unavailable_at == NOON - 12 * 3600
    body["spec"] = {"taints": [LOST | {"timeAdded": "2026-11-25T23:00:00Z"}]}
    assert read_node(body).unavailable_at == NOON - 13 * 3600


def test_after_a_restart_the_times_of_taints_count() -> None:
    zones = Zones((2, 2), EXCLUDING)
    zones.node("c", LOST | {"timeAdded": EARLIER})
    zones.domains.step(NOON)
    assert zones.domains.excluded(ZONE, 300.0)["c"].since == NOON - 12 * 3600
    assert zones.passed() == ["na", "nb"]


def test_a_changed_policy_keeps_since_when_a_zone_is_unavailable() -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    zones.node("c", LOST)
    zones.domains.step(NOON)
    zones.index.upsert(PolicyObject(directing(unavailableDomains="Exclude", after="10m")))
    zones.domains.step(NOON + 300)
    assert zones.passed() == ["nc"]
    zones.domains.step(NOON + 600)
    assert zones.passed() == ["na", "nb"]


def test_an_operator_excludes_a_zone_until_a_time_and_takes_it_back() -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    excluded = ExcludedDomain("c", NOON + 7200, NOON, "new switches")
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (excluded,)))
    assert zones.domains.due() == float("-inf")
    zones.domains.step(NOON)
    assert (zones.passed(), zones.domains.due()) == (["na", "nb"], NOON + 7200)
    zones.index.upsert(TopologyDomains("zones", ZONE))
    assert zones.passed() == ["nc"], "taken back: at once"
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (excluded,)))
    zones.domains.step(NOON)
    zones.domains.step(NOON + 7200)
    assert zones.passed() == ["nc"], "over"
    zones = Zones((2, 0, 1), EXCLUDING)
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain("b", NOON + 7200), excluded)))
    zones.domains.step(NOON)
    assert zones.passed() == ["na"]
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain("b", NOON + 7200),)))
    assert zones.passed() == ["nc"], "one of two is taken back"


def test_of_many_excluded_zones_the_first_are_named() -> None:
    zones = Zones((1, 1, 1), EXCLUDING)
    zones.index.upsert(TopologyDomains("zones", ZONE, (), tuple(ExcludedDomain(zone) for zone in "abc")))
    zones.domains.step(NOON)
    assert [list(zones.domains.names(most)) for most in (2, 9)] == [
        [(ZONE, "a"), (ZONE, "b")],
        [(ZONE, "a"), (ZONE, "b"), (ZONE, "c")],
    ]


def test_of_many_zones_it_is_kept_for_the_first_whether_they_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excluded_domains, "_MOST_DOMAINS", 1)
    zones = Zones((2, 2, 1), directing(fullDomains="Exclude"))
    zones.node("c", cpu="1")
    for _ in range(2):
        assert zones.passed() == ["na", "nb", "nc"]
    assert len(zones.domains.full) == 2, "one for the key, and one for the nodes, which all keys share"


def test_who_follows_excluded_zones_is_reported_when_an_operator_excludes_one_and_takes_it_back() -> None:
    zones, notified = Zones((2, 2, 1), EXCLUDING), list[float]()
    zones.domains.changes.subscribe(lambda _: notified.append(zones.domains.now))
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain("c", NOON + 7200),)))
    notified.clear()  # of the object
    for now in (NOON, NOON + 60, NOON + 7200):
        zones.domains.step(now)
    assert notified == [NOON, NOON + 7200]


@pytest.mark.parametrize("least", ["Declared", 4])
def test_min_domains_waits_for_a_domain_without_nodes_but_not_for_an_excluded_one(least: object) -> None:
    zones = Zones((1, 1, 1), directing(minDomains=least, unavailableDomains="Exclude"))
    zones.index.upsert(TopologyDomains("zones", ZONE, tuple("abcd")))
    assert zones.passed() == []
    zones.index.upsert(TopologyDomains("zones", ZONE, tuple("abcd"), (ExcludedDomain("d"),)))
    zones.domains.step(NOON)
    assert zones.passed() == ["na", "nb", "nc"]


THREE_DOMAINS = spread("zone", min_domains=3, app="web")


@pytest.mark.parametrize(
    ("body", "least"),
    [
        (pod_json(app="web", spreads=[THREE_DOMAINS | {"nodeTaintsPolicy": "Honor"}]), None),
        (pod_json(app="web", spreads=[THREE_DOMAINS], node_selector={"pool": "large"}), None),
        (pod_json(app="web", spreads=[THREE_DOMAINS, spread("pool", 9, app="web")]), None),
        (pod_json(app="web", spreads=[spread("zone", taints_policy="Honor", app="web")]), 3),
        (pod_json(app="web", spreads=[spread("zone", taints_policy="Honor", app="web")]), "Declared"),
    ],
    ids=["tainted", "another pool", "without another key", "tainted, by a policy", "tainted, Declared"],
)
def test_min_domains_does_not_wait_for_an_excluded_zone_whose_nodes_do_not_count(body: Json, least: object) -> None:
    zones = Zones((), directing(unavailableDomains="Exclude", **({"minDomains": least} if least else {})))
    zones.index.upsert(TopologyDomains("zones", ZONE, tuple("abc")))
    for zone in "ab":
        zones.node(zone, pool="large")
        zones.pod(f"web-{zone}", zone)
    zones.node("c", LOST | {"timeAdded": EARLIER})
    assert zones.passed(body) in ([], ["nc"])
    zones.domains.step(NOON)
    assert zones.passed(body) == ["na", "nb"]


def test_an_excluded_zone_that_the_pod_cannot_use_does_not_replace_one_that_it_waits_for() -> None:
    zones = Zones((1, 1), directing(unavailableDomains="Exclude"))
    zones.node("d")
    own = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b", "c"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [own]}}}
    body = pod_json(app="web", spreads=[THREE_DOMAINS])
    body["spec"]["affinity"] = affinity
    for excluded, passed in (("d", []), ("e", ["nd"]), ("c", ["na", "nb", "nd"])):
        zones.index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain(excluded),)))
        zones.domains.step(NOON)
        assert zones.passed(body) == passed


def test_a_node_that_would_leave_an_excluded_zone_empty_does_not_make_min_domains_wait_for_it() -> None:
    zones = Zones((1, 1, 0), directing(unavailableDomains="Exclude"))
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (ExcludedDomain("c"),)))
    zones.domains.step(NOON)
    view = zones.index.view
    pod = effective_pod(read_pod(pod_json(app="web", spreads=[THREE_DOMAINS])), view, ENABLED)
    moved = read_node(node_json("nc", zone="b"))
    frame = ChangedNodeFrame(view.known["nc"], moved, view)
    assert catalog.prepare_beside_fit(pod, view.compiled(pod.signature), view, frame).reason(0) is None


def test_declared_domains_are_those_that_the_pod_may_use_and_its_own_min_domains_stays() -> None:
    zones = Zones((1, 1, 1), directing(minDomains="Declared"))
    zones.index.upsert(TopologyDomains("zones", ZONE, tuple("abcd")))
    pinned = pod_json(app="web", spreads=[spread("zone", app="web")], node_selector={ZONE: "a"})
    assert zones.passed(pinned) == ["na", "nb", "nc"], "its node selector is kube-scheduler's matter"
    own = spread("zone", app="web") | {"minDomains": 2}
    assert zones.passed(pod_json(app="web", spreads=[own])) == ["na", "nb", "nc"]


def test_a_full_zone_is_left_out_for_the_pod_that_does_not_fit_and_no_longer_once_a_pod_has_left() -> None:
    zones = Zones((2, 2, 1), directing(fullDomains="Exclude"))
    zones.node("c", cpu="1")
    assert zones.passed() == ["na", "nb", "nc"]
    small = pod_json(app="web", spreads=[spread("zone", app="web")])
    assert zones.passed(small) == ["nc"], "it needs nothing that zone c lacks"
    zones.index.delete(read_pod(pod_json("web-c-0", on="nc", app="web")))
    assert zones.passed() == ["nc"]


def test_nodes_in_a_request_are_read_once_for_each_constraint_however_many_zones_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = Calls(monkeypatch, (KeyView, "value_on"))
    costs = []
    for number in (20, 40):
        zones, nodes = Zones((), directing(fullDomains="Exclude")), []
        for zone in range(number):
            zones.node(f"{zone}", cpu="0")
            nodes.append(node_json(f"n{zone}", zone=f"{zone}", allocatable={"cpu": "0", "pods": "99"}))
        reads.taken()
        assert len(zones.passed(nodes=nodes)) == number, "no zone has pods"
        costs.append(reads.taken())
    assert 0 < costs[1] <= 2.5 * costs[0]


def test_other_pods_keys_and_soft_constraints_are_as_before() -> None:
    zones = Zones((2, 2, 1), directing(unavailableDomains="Exclude", fullDomains="Exclude", minDomains=5))
    other = Zones((2, 2, 1))
    for each in (zones, other):
        each.node("c", LOST | {"timeAdded": EARLIER})
        each.domains.step(NOON)
    by_host = pod_json(app="web", spreads=[spread(HOSTNAME, app="web")])
    soft = pod_json(app="web", spreads=[spread("zone", app="web", hard=False)])
    assert zones.passed(by_host) == other.passed(by_host)
    assert zones.passed(soft) == other.passed(soft)


def test_a_policy_of_a_namespace_excludes_no_domain_for_others() -> None:
    mine = policy("mine", "shop", spread=[{"topologyKey": ZONE, "unavailableDomains": "Exclude", "after": "1s"}])
    zones = Zones((2, 2, 1), mine)
    zones.node("c", LOST)
    zones.domains.step(NOON)
    zones.domains.step(NOON + 1)
    assert zones.passed() == ["nc"], "the pod is in another namespace"
    mine_too = pod_json(namespace="shop", app="web", spreads=[spread("zone", app="web")], requests={"cpu": "1"})
    assert zones.passed(mine_too) == ["na", "nb"]


def test_nodes_that_flap_change_counts_and_neither_version_nor_subscribers() -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    notified: list[object] = []
    zones.domains.changes.subscribe(notified.append)
    for _ in range(100):
        zones.node("c", LOST)
        zones.node("c")
    assert (notified, zones.domains.due()) == ([], float("inf"))


def test_nodes_of_a_request_may_make_a_domain_available() -> None:
    zones = Zones((2, 2, 1), EXCLUDING)
    zones.node("c", LOST)
    zones.domains.step(NOON)
    zones.domains.step(NOON + 300)
    template = node_json("template", zone="c", allocatable={"cpu": "8", "pods": "99"})
    known = node_json("na", zone="a", allocatable={"cpu": "8", "pods": "99"})
    assert zones.passed(nodes=[known]) == ["na"]
    assert zones.passed(nodes=[known, template]) == ["template"]


def test_an_explanation_says_which_domain_is_left_out_since_when_and_why() -> None:
    zones = Zones((1, 0), EXCLUDING)
    zones.node("c", LOST | {"timeAdded": EARLIER})
    excluded = ExcludedDomain("b", NOON + 7200, NOON, "new switches")
    zones.index.upsert(TopologyDomains("zones", ZONE, (), (excluded,)))
    zones.domains.step(NOON)
    zones.node("a", unschedulable=True)
    text = zones.texts()
    assert "node(s) were in an excluded topology domain" in text
    assert "without c: no node takes pods since 2026-11-26T00:00:00Z" in text
    assert "without b: excluded since 2026-11-26T12:00:00Z until 2026-11-26T14:00:00Z: new switches" in text
    full = Zones((1,), directing(fullDomains="Exclude"))
    full.node("a", cpu="1")
    assert "without a: no node has room for the pod" in full.texts()


def test_of_many_objects_the_first_by_name_are_read() -> None:
    domains = Zones((), EXCLUDING).domains
    last = TopologyDomains("z", "rack", ("r1",), (ExcludedDomain("r1"),))
    domains.change(last, is_gone=False)
    assert domains.declared("rack") == {"r1"}
    for number in range(MOST_TOPOLOGY_DOMAINS):
        domains.change(TopologyDomains(f"a{number:02}", ZONE, (f"z{number}",)), is_gone=False)
    assert not domains.declared("rack")
    assert len(domains.declared(ZONE)) == MOST_TOPOLOGY_DOMAINS
    domains.change(TopologyDomains("a00"), is_gone=True)
    assert domains.declared("rack") == {"r1"}
