"""Which changes of nodes and namespaces explain offers, in which words, and which it leaves to controllers."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Object, Pod
from extender.wire.policies.policies_v1 import read_policy
from tests.builders import index_of, matching, namespace, node, pod, requirement, settings, spread, taint, term
from tests.contenders import contender, stage
from tests.deploy.policies.examples import policy
from tests.explaining import explained

ROOM: dict[str, str] = {"cpu": "4", "pods": "5"}
CORDON = taint("node.kubernetes.io/unschedulable")


def offered(incoming: Pod, *objects: Object, **sections: Any) -> dict[str, str]:
    """The text of each change, by kind."""
    found = explained(index_of(*objects), incoming, settings(**sections)).changes
    assert len({each.kind for each in found}) == len(found)
    return {each.kind: each.text for each in found}


def required(*clauses: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"node_terms": [{"matchExpressions": [requirement(*each) for each in clauses]}]}


@pytest.mark.parametrize("taints", [[], [CORDON]])
def test_a_cordoned_node_is_uncordoned_with_the_taint_that_its_controller_takes_back(taints: list[Any]) -> None:
    cordoned = node("n0", allocatable=ROOM, unschedulable=True, taints=taints)
    assert offered(pod("asking"), cordoned) == {
        "uncordonNode": "uncordon n0",
        "addNode": "one more node like n0",
    }


def test_of_several_nodes_the_first_is_offered() -> None:
    nodes = [node(f"n{number}", allocatable=ROOM, unschedulable=True) for number in range(3)]
    assert offered(pod("asking"), *nodes)["uncordonNode"] == "uncordon n0"


def test_of_a_node_with_more_pods_than_it_takes_all_that_lack_a_place_are_offered() -> None:
    here = [contender(name, on="n1") for name in "abc"]
    assert offered(contender("late"), stage("n1", pods=1), *here)["addRoom"] == "more room on n1: pods 3"


def test_a_node_that_is_offered_has_a_host_name_of_its_own() -> None:
    full = contender("full", cpu=4000, on="n1")
    found = explained(index_of(stage("n1", labels={"rack": "r1"}), full), contender("late", cpu=1000), settings())
    (one,) = (each for each in found.changes if each.kind == "addNode")
    assert one.labels == {HOSTNAME: "new-node", "rack": "r1"}


def test_pods_are_deleted_where_the_fewest_must_go() -> None:
    here = {"n0": (2, 1500), "n1": (4, 800)}
    pods = [contender(f"{name}-{at}", cpu=cpu, on=name) for name, (count, cpu) in here.items() for at in range(count)]
    found = offered(contender("late", cpu=3000, priority=9), stage("n0"), stage("n1"), *pods)
    assert found["deletePods"].startswith("deleting ")
    assert found["deletePods"].count("n0-") == 2


def test_more_room_is_not_offered_where_another_pod_holds_the_host_port() -> None:
    stays = contender("web", cpu=4000, host_ports=[80], on="n1")
    wanted = contender("late", cpu=1000, host_ports=[80])
    assert "addRoom" not in offered(wanted, stage("n1"), stays)
    assert "addRoom" in offered(contender("late", cpu=1000, host_ports=[81]), stage("n1"), stays)


def test_a_spread_constraint_counts_no_domain_of_tainted_nodes_or_of_an_earlier_revision_where_that_helps() -> None:
    """One constraint is kept from zone b, which is tainted, the other by pods of the revision before."""
    zones = [node("a0", zone="a", allocatable=ROOM), node("b0", zone="b", allocatable=ROOM, taints=[taint("spot")])]
    placed = [pod("one", on="a0", app="web")]
    found = offered(pod("asking", app="web", spreads=[spread("zone", app="web")]), *zones, *placed)
    assert found["changeConstraint"] == (
        "nodeTaintsPolicy: Honor in the spread constraint of the pod by topology.kubernetes.io/zone"
    )
    owner = ("ReplicaSet", "web-2")
    revision = {"pod-template-hash": "2"}
    full = [pod(f"old-{at}", on="a0", app="web", labels={"pod-template-hash": "1"}) for at in range(2)]
    zones = [node("a0", zone="a", allocatable=ROOM), node("b0", zone="b", allocatable={"cpu": "4", "pods": "0"})]
    rolled = pod("asking", app="web", labels=revision, owner=owner, spreads=[spread("zone", app="web")])
    found = offered(rolled, *zones, *full)
    assert found["changeConstraint"] == (
        "matchLabelKeys: pod-template-hash in the spread constraint of the pod by topology.kubernetes.io/zone"
    )
    with_key = spread("zone", app="web", match_label_keys=["pod-template-hash"])
    keyed = pod("asking", app="web", labels=revision, owner=owner, spreads=[with_key])
    assert "changeConstraint" not in offered(keyed, *zones, *full)


def test_all_taints_that_the_pod_does_not_tolerate_are_removed_at_once() -> None:
    tainted = node("n0", allocatable=ROOM, taints=[taint("a", "1"), taint("b", effect="NoExecute"), taint("c")])
    found = offered(pod("asking", tolerations=[{"key": "c", "operator": "Exists"}]), tainted)
    assert found == {"removeTaints": "remove the taints a=1:NoSchedule and b=:NoExecute from n0"}


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"])
def test_a_taint_that_a_controller_would_set_again_is_not_removed(key: str) -> None:
    assert offered(pod("asking"), node("n0", allocatable=ROOM, taints=[taint("a"), taint(key)])) == {}


@pytest.mark.parametrize(
    ("fields", "labels", "text"),
    [
        ({"node_selector": {"disk": "ssd"}}, {}, "label disk=ssd on node n0"),
        ({"node_selector": {"disk": "ssd", "arch": "x"}}, {"disk": "hdd", "arch": "x"}, "label disk=ssd on node n0"),
        (required(("old", "DoesNotExist", [])), {"old": "yes"}, "remove the label old from node n0"),
        (
            required(("a", "NotIn", ["1"]), ("b", "Exists", [])),
            {"a": "1"},
            "remove the label a from node n0 and set b=true",
        ),
        (required(("size", "Gt", ["5"])), {"size": "4"}, "label size=6 on node n0"),
        (required(("size", "Lt", ["5"])), {}, "label size=4 on node n0"),
    ],
)
def test_labels_that_node_affinity_asks_for_are_set_or_removed(
    fields: dict[str, Any], labels: dict[str, str], text: str
) -> None:
    found = offered(pod("asking", **fields), node("n0", allocatable=ROOM, labels=labels))
    assert found == {"labelNode": text}


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ({"kubernetes.io/hostname": "n9"}, {}),
        ({"topology.kubernetes.io/zone": "z9"}, {"topology.kubernetes.io/zone": "z1"}),
    ],
)
def test_labels_of_the_kubelet_and_the_cloud_provider_stay(selector: dict[str, str], labels: dict[str, str]) -> None:
    assert offered(pod("asking", node_selector=selector), node("n0", allocatable=ROOM, labels=labels)) == {}


def test_a_topology_key_that_nodes_lack_is_set_to_a_domain_that_passes() -> None:
    cache = pod("cache-0", on="n0", app="cache", requests={"cpu": "4"})
    near = pod("asking", near=[term("rack", app="cache")], requests={"cpu": "1"})
    found = offered(near, node("n0", rack="r1", allocatable=ROOM), node("n1", allocatable=ROOM), cache)
    assert found["labelNode"] == "label rack=r1 on node n1"


def test_the_pods_on_a_labelled_node_count_in_its_new_domain() -> None:
    """As soon as n1 is in rack r1, the anti-affinity of the pod on it rejects the pod there."""
    keeper = pod("keeper", on="n1", apart=[term("rack", app="web")])
    near = pod("asking", app="web", near=[term("rack", app="cache")])
    full = node("n0", rack="r1", allocatable={"cpu": "4", "pods": "1"})
    objects: list[Object] = [full, node("n1", allocatable=ROOM), pod("cache-0", on="n0", app="cache"), keeper]
    assert "labelNode" not in offered(near, *objects)
    assert "labelNode" in offered(near, *objects[:-1])


def test_pods_count_where_no_node_was_in_any_domain_before() -> None:
    here = node("n0", zone="z0", allocatable=ROOM)
    cache = pod("cache-0", on="n0", app="cache")
    assert (
        offered(pod("asking", near=[term("rack", app="cache")]), here, cache)["labelNode"]
        == "label rack=new on node n0"
    )
    spreads = [spread("zone", app="web", min_domains=2)]
    incoming = pod("asking", app="web", spreads=spreads, node_selector={"disk": "ssd"})
    assert "labelNode" in offered(incoming, here)
    assert "labelNode" not in offered(incoming, here, pod("web-0", on="n0", app="web"))


def test_a_domain_that_a_node_would_leave_empty_is_no_minimum_for_skew() -> None:
    full, free = node("n1", rack="r2", allocatable={"cpu": "4", "pods": "2"}), node("n0", rack="r1", allocatable=ROOM)
    placed = [pod("web-0", on="n1", app="web"), pod("db-0", on="n1", app="db")]
    incoming = pod("asking", app="web", near=[term("rack", app="db")], spreads=[spread("rack", app="web")])
    assert offered(incoming, full, free, *placed)["labelNode"] == "label rack=r2 on node n0"


def test_a_label_key_that_no_node_carries_is_not_offered_where_anti_affinity_over_it_would_begin_to_count() -> None:
    objects: list[Object] = [node("n0", allocatable=ROOM)]
    incoming = pod("asking", app="web", node_selector={"rack": "r1"})
    assert offered(incoming, *objects) == {"labelNode": "label rack=r1 on node n0"}
    assert offered(incoming, *objects, pod("keeper", on="n0", apart=[term("rack", app="web")])) == {}
    assert "labelNode" in offered(incoming, *objects, pod("keeper", on="n0", apart=[term("rack", app="db")]))
    apart = pod("asking", app="web", node_selector={"rack": "r1"}, apart=[term("rack", app="db")])
    assert offered(apart, *objects, pod("db-0", on="n0", app="db")) == {}
    assert "labelNode" in offered(apart, *objects, pod("web-0", on="n0", app="web"))


def test_a_node_whose_taint_skew_honors_brings_its_pods_into_the_count() -> None:
    """The pods on a tainted node count once the taint is gone, so the domain of n1 is full then."""
    honoring = [spread("zone", app="web", taints_policy="Honor")]
    nodes = [node("n0", zone="z0", allocatable=ROOM), node("n1", zone="z1", allocatable=ROOM, taints=[taint("a")])]
    placed = [pod("web-0", on="n0", app="web"), pod("web-1", on="n1", app="web"), pod("web-2", on="n1", app="web")]
    incoming = pod("asking", app="web", spreads=honoring, requests={"cpu": "1"})
    full = pod("full", on="n0", requests={"cpu": "4"})
    assert "removeTaints" not in offered(incoming, *nodes, *placed, full)
    assert "removeTaints" in offered(incoming, *nodes, *placed[:2], full)


def test_one_more_node_is_put_into_an_existing_domain_before_a_new_one() -> None:
    nodes = [node("n0", zone="z0", allocatable=ROOM), node("n1", zone="z1", allocatable=ROOM, taints=[taint("a")])]
    incoming = pod("asking", app="web", spreads=[spread("zone", app="web")])
    found = offered(incoming, *nodes, pod("web-0", on="n0", app="web"))
    assert found["addNode"] == "one more node like n0, in topology.kubernetes.io/zone=z1"


def test_a_namespace_is_labelled_so_that_anti_affinity_no_longer_reaches_it() -> None:
    apart = [term("host", app="db", namespace_selector=matching(team="a"))]
    objects: list[Object] = [
        node("n0", allocatable=ROOM),
        namespace("data", team="a", tier="1"),
        pod("db-0", namespace="data", on="n0", app="db"),
    ]
    found = offered(pod("asking", apart=apart), *objects, namespace("default"))
    assert found["labelNamespace"] == "remove the label team from namespace data"
    apart = [term("host", app="db", namespace_selector=matching(("open", "DoesNotExist", [])))]
    found = offered(pod("asking", apart=apart), *objects, namespace("default"))
    assert found["labelNamespace"] == "label open=true on namespace data"


def test_the_own_namespace_is_labelled_so_that_anti_affinity_of_others_no_longer_reaches_it() -> None:
    keeper = pod(
        "keeper", namespace="data", on="n0", apart=[term("host", app="web", namespace_selector=matching(team="a"))]
    )
    objects: list[Object] = [node("n0", allocatable=ROOM), namespace("data"), namespace("default", team="a"), keeper]
    found = offered(pod("asking", app="web"), *objects)
    assert found["labelNamespace"] == "remove the label team from namespace default"
    disabled = {"rules": {"interPodAffinity": {"namespaceSelector": False}}}
    assert "labelNamespace" not in offered(pod("asking", app="web"), *objects, **disabled)


def test_a_label_that_a_scheduling_policy_asks_namespaces_for_is_not_changed() -> None:
    apart = [term("host", app="db", namespace_selector=matching(team="a"))]
    objects: list[Object] = [
        node("n0", allocatable=ROOM),
        namespace("data", team="a"),
        pod("db-0", namespace="data", on="n0", app="db"),
    ]
    incoming = pod("asking", apart=apart)
    found = read_policy(policy("ClusterPodSchedulingPolicy", namespaceSelector={"matchLabels": {"team": "a"}}))
    assert "labelNamespace" in offered(incoming, *objects)
    index = index_of(*objects)
    index.policies.put(found)
    assert "labelNamespace" not in {each.kind for each in explained(index, incoming, settings()).changes}
