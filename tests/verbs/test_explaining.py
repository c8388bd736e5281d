"""Explanations, the changes that they offer, and the note of an event on a rejected pod."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest

from extender.cli.explain import report
from extender.index.cluster import ClusterIndex
from extender.index.counts import counts
from extender.model.answers.explanations import ConstraintState, Explanation, Obstacle, TermReach
from extender.model.answers.pages import PageOf, TopologyQuestion
from extender.model.objects import Node, Object, Pod
from extender.model.release import GroupKey, Slot
from extender.rules import constraint_states
from extender.settings.configuration import Settings
from extender.verbs.browse.pods import PodFinder, workload_page
from extender.verbs.browse.topology import topology_page
from extender.verbs.explain import changes, namespace_labels, node_changes
from extender.verbs.explain import explaining as explaining_module
from extender.verbs.explain.explaining import MOST_BYTES, explain, rejection_note
from tests.builders import index_of, matching, namespace, node, pod, settings, spread, term, weighted
from tests.explaining import explained, finished
from tests.features.quotas.tenants import Tenants, limited, reaching

ROOM: dict[str, str] = {"cpu": "4", "pods": "5"}


def explaining(incoming: Pod, *objects: Object, **sections: Any) -> Explanation:
    """The explanation of a pod beside these objects."""
    return explained(index_of(*objects), incoming, settings(**sections))


def test_an_obstacle_of_one_node_does_not_say_so() -> None:
    """Fields with their default are left out, and readers take that for 1."""
    one, two = (msgspec.to_builtins(Obstacle(rule="r", reason="x", text="t", nodes=nodes)) for nodes in (1, 2))
    assert ("nodes" in one, two["nodes"]) == (False, 2)


def causes(found: Explanation) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Rule, reason, nodes and the objects to blame of each obstacle."""
    return [(each.rule, each.reason, each.nodes, each.blamed) for each in found.obstacles]


def test_a_quota_is_named_with_its_limit() -> None:
    tenants = Tenants(limited(1), reaching("bound", on="n1"))
    found = explained(tenants.index, reaching("asking"), tenants.settings)
    ((rule, reason, nodes, blamed),) = [each for each in causes(found) if each[0] != "NodeFit"]
    assert (rule, reason, nodes) == ("CrossNamespaceQuota", "quota", 3)
    assert "team/cross" in blamed
    assert "quota cross (CrossNamespacePodAffinity) limits pods to 1" in found.obstacles[0].text


def test_reserved_room_names_the_resource_and_the_pods_that_have_slots() -> None:
    index = index_of(node("n0", allocatable=ROOM), node("n1"), pod("member", requests={"cpu": "3"}))
    index.reserved.reserve(GroupKey("default", "policy", "job"), [Slot("uid-member", "n0")], until=60.0)
    found = explained(index, pod("asking", requests={"cpu": "2"}), Settings())
    assert causes(found)[0] == ("ReservedRoom", "reserved", 1, ("cpu", "default/member"))


@pytest.mark.parametrize(("resources", "offers"), [(3, True), (1001, False)])
def test_more_room_is_looked_for_unless_the_pod_requests_hundreds_of_resources(resources: int, *, offers: bool) -> None:
    requests = {f"x.io/r{number}": "1" for number in range(resources)}
    found = explaining(pod("asking", requests=requests), node("n0", allocatable=ROOM))
    assert found.fitting == 0
    assert [each.kind for each in found.changes if each.kind == "addRoom"] == ["addRoom"] * offers


def test_the_node_that_lacks_least_is_offered_also_where_the_resource_that_was_looked_at_first_lacks_less() -> None:
    """Of cpu n1 lacks less than n0, but memory as well."""
    large, small = {"pods": "5", "memory": "8Gi"}, {"pods": "5", "memory": "1Gi"}
    nodes = node("n0", allocatable={"cpu": "2"} | large), node("n1", allocatable={"cpu": "3"} | small)
    found = explaining(pod("asking", requests={"cpu": "4", "memory": "2Gi"}), *nodes)
    assert [(each.node, each.room) for each in found.changes if each.kind == "addRoom"] == [("n0", {"cpu": 2000})]


def test_nominated_pods_that_keep_a_node_are_named() -> None:
    apart = [term("host", app="web")]
    index = index_of(node("n0", allocatable=ROOM), pod("first", app="web", apart=apart, priority=5))
    index.nominate_in_memory(index.pods["uid-first"], "n0", ())
    found = explained(index, pod("asking", app="web", apart=apart), settings(preemption={"mode": "execute"}))
    assert causes(found) == [("NominatedPods", "nominated", 1, ("default/first",))]
    assert found.passing == 0


def test_a_pod_for_which_others_are_preempted_waits_for_their_end() -> None:
    index = index_of(
        node("n0", allocatable=ROOM), pod("old", on="n0"), pod("asking", priority=5, requests={"cpu": "9"})
    )
    index.nominate_in_memory(index.pods["uid-asking"], "n0", ["uid-old"])
    found = explained(index, index.pods["uid-asking"], Settings())
    assert found.preempting == "n0"
    assert "pods are preempted for it on n0; it waits until they are gone" in list(report(found))


def test_the_namespaces_that_a_term_reaches_are_those_that_its_selector_selects_now() -> None:
    reaching_out = [term("host", namespaces=["listed"], namespace_selector=matching(team="a"), app="web")]
    names = [namespace(f"a{at:02}", team="a") for at in range(12)]
    found = explaining(pod("asking", apart=reaching_out), node("n0"), namespace("b"), namespace("listed"), *names)
    reach = found.constraints[0].reach
    assert (reach.count, reach.namespaces[:2]) == (13, ("a00", "a01"))
    assert reach.why == "namespaces listed and namespaceSelector team=a"


def test_the_minimum_counts_as_zero_below_min_domains() -> None:
    placed = [pod(f"web-{at}", on=f"n{at}", app="web") for at in range(2)]
    nodes = [node(f"n{at}", zone=f"z{at}", allocatable=ROOM) for at in range(2)]
    found = explaining(pod("asking", app="web", spreads=[spread("zone", min_domains=3, app="web")]), *nodes, *placed)
    (state,) = found.constraints
    assert (state.max_skew, state.min_domains, state.eligible, state.minimum, state.limit) == (1, 3, 2, 0, 0)
    assert found.changes[0].text == "one more node like n0, in a new topology.kubernetes.io/zone"


def test_a_pod_that_a_node_would_take_says_so_and_offers_nothing() -> None:
    found = explaining(pod("asking", requests={"cpu": "1"}), node("n0", allocatable=ROOM), node("n1"))
    assert (found.passing, found.fitting, found.candidates, found.changes) == (2, 1, ("n0",), ())
    assert "1 of 2 nodes would take it now" in list(report(found))
    assert list(report(explaining(pod("asking")))) == ["default/asking: pending", "there is no node"]


def test_needs_that_the_extender_does_not_see_are_named() -> None:
    plain = pod("asking")
    needing = type(plain)(plain.uid, plain.name, plain.signature, has_unseen_needs=True)
    found = [explaining(incoming, node("n0")).unchecked for incoming in (plain, needing)]
    assert (not found[0], "volumes and devices" in found[1]) == (True, True)


def test_steps_that_end_within_a_table_change_nothing_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is long enough to be left in the middle, as in a cluster with a signature for each pod."""
    objects: list[Object] = [node(f"n{at}", zone=f"z{at % 2}", allocatable=ROOM) for at in range(6)]
    objects += [pod(f"web-{at}", on=f"n{at}", app="web", labels={"number": f"{at}"}) for at in range(6)]
    objects += [namespace(f"a{at}", team="a") for at in range(6)]
    near = [term("zone", namespace_selector=matching(team="b"), app="web")]
    incoming = [
        pod("far", namespace="a1", near=near),
        pod("alone", apart=[term("host", app="web")], requests={"cpu": "9"}),
    ]
    whole = [explaining(each, *objects) for each in incoming]
    monkeypatch.setattr(counts, "_SIGNATURES_A_STEP", 1)
    monkeypatch.setattr(constraint_states, "_STEP", 1)
    for module in (changes, namespace_labels, node_changes):
        monkeypatch.setattr(module, "_A_STEP", 1)
    monkeypatch.setattr(explaining_module, "_FITS_A_STEP", 1)
    monkeypatch.setattr(explaining_module, "_CLAUSES_A_STEP", 1)
    assert [explaining(each, *objects) for each in incoming] == whole


def test_a_move_within_the_domain_that_rejects_is_not_offered() -> None:
    nodes = [node(f"n{at}", zone="z1", pool=pool, allocatable=ROOM) for at, pool in enumerate("ab")]
    incoming = pod("asking", apart=[term("zone", app="web")], node_selector={"pool": "a"})
    old = pod("old", on="n0", app="web")
    assert "movePod" not in {each.kind for each in explaining(incoming, *nodes, old).changes}
    elsewhere = node("n2", zone="z2", pool="b", allocatable=ROOM)
    (move,) = [each for each in explaining(incoming, *nodes, elsewhere, old).changes if each.kind == "movePod"]
    assert (move.pods, move.from_node, move.to, move.node) == (("default/old",), "n0", "n2", "n0")


# -- The note of an event on a rejected pod: which rule, which domains with which counts, and who is to blame ------------

ROOMY = {"cpu": "9", "pods": "9"}
ZONES = [node(f"n{at}", zone=f"z{at % 2}", allocatable=ROOMY) for at in range(4)]
APART: dict[str, Any] = {"app": "web", "apart": [term("zone", app="web")]}


def on_nodes(count: int) -> list[Pod]:
    return [pod(f"web-{at:02}", on=f"n{at}", app="web") for at in range(count)]


MANY_ZONES = [node(f"n{at}", zone=f"z{at:02}", allocatable=ROOMY) for at in range(30)]
FULL = [node(f"n{at}", zone="z0", allocatable={"cpu": "1", "pods": "9"}) for at in range(5)]
LONG: dict[str, Any] = {f"label-{number}": "x" * 60 for number in range(9)}
BY_ZONE, COUNTED = "by topology.kubernetes.io/zone", "1 counted, 0 would pass (because of default/"
# The incoming pod, the cluster, and the note; after "..." its end.
NOTES: dict[str, tuple[Pod, list[Any], str]] = {
    "anti-affinity": (
        pod("asking", **APART),
        [*ZONES, *(pod(f"web-{at}", on=name, app="web") for at, name in enumerate(("n0", "n1", "n3")))],
        (f"pod anti-affinity {BY_ZONE} with pods app=web: z1: 2 counted, 0 would pass (because of default/web-1, "
        f"default/web-2), z0: {COUNTED}web-0)"),
    ),
    "affinity": (
        pod("asking", app="web", near=[term("zone", app="cache")]), ZONES,
        f"pod affinity {BY_ZONE} with pods app=cache: z0: no such pod, z1: no such pod",
    ),
    "existing pods": (
        pod("asking", app="web"), [*ZONES, *(pod(f"lonely-{at}", on=f"n{at}", **APART) for at in range(2))],
        (f"anti-affinity of existing pods {BY_ZONE}, of default/lonely-0 for example: z0: {COUNTED}lonely-0), "
        f"z1: {COUNTED}lonely-1)"),
    ),
    "spread": (
        pod("asking", app="web", spreads=[spread("zone", app="web", min_domains=3)]), [*ZONES, *on_nodes(2)],
        (f"topology spread {BY_ZONE} (maxSkew 1, minimum 0 of 2 domains, as minDomains is 3) with pods app=web: "
        f"z0: {COUNTED}web-00), z1: {COUNTED}web-01)"),
    ),
    "a node without the label": (
        pod("asking", near=[term("zone", app="web")]), [ZONES[0], node("bare", allocatable=ROOMY)],
        "...1 node lacks the label",
    ),
    "a node passes": (pod("asking", **APART), ZONES, ""),
    "what the scheduler rejects by itself": (
        pod("asking", requests={"cpu": "2"}, **APART), [*FULL, *on_nodes(1)],
        ("...; NodeFit: node(s) had too few resources left (because of cpu), 2000m needed and 1000m left at most, "
        "on n0, n1, n2 and 2 more"),
    ),
    "many domains": (
        pod("asking", **APART), [*MANY_ZONES, *on_nodes(30)], f"...z03: {COUNTED}web-03), at least 16 more domains",
    ),
    "one domain more": (pod("asking", **APART), [*MANY_ZONES[:5], *on_nodes(5)], "..., 1 more domain"),
    "a long note ends with a whole part": (
        pod("asking", apart=[term("zone", **{key: value}) for key, value in LONG.items()]),
        [*MANY_ZONES[:2], pod("a", on="n0", **LONG), pod("b", on="n1", **LONG)],
        f"...z01: {COUNTED}b); and 6 more",
    ),
    "a long selector leaves room for the domains": (
        pod("asking", near=[term("zone", app=f"{'w' * 60}{number}") for number in range(9)]), ZONES,
        "...www…: z0: no such pod, z1: no such pod",
    ),
}  # fmt: skip


def note(incoming: Pod, *objects: Object) -> str:
    return rejection_note(finished(explain(incoming, index_of(*objects).view, Settings(), offers_changes=False)))


@pytest.mark.parametrize(("incoming", "objects", "expected"), NOTES.values(), ids=NOTES)
def test_a_note_has_the_constraint_its_domains_their_counts_and_the_pods(
    incoming: Pod, objects: list[Any], expected: str
) -> None:
    text = note(incoming, *objects)
    assert text.endswith(expected[3:]) if expected.startswith("...") else text == expected
    assert len(text.encode()) <= MOST_BYTES


def test_min_domains_that_are_met_are_not_named() -> None:
    incoming = pod("asking", app="web", spreads=[spread("zone", app="web", min_domains=2)], near=[term(app="cache")])
    assert "minimum 0 of 2 domains) with" in note(incoming, *ZONES, pod("web", on="n0", app="web"))


def test_a_rule_without_domains_is_reported_with_what_is_to_blame() -> None:
    tenants = Tenants(limited(1), reaching("bound", on="n1"))
    steps = explain(reaching("asking"), tenants.index.view, tenants.settings, offers_changes=False)
    text = rejection_note(finished(steps))
    assert text.startswith(
        "CrossNamespaceQuota: namespace team: quota cross (CrossNamespacePodAffinity) limits pods to 1"
    )
    assert "(because of team/cross" in text


def test_objects_of_other_namespaces_are_counted_and_not_named() -> None:
    """Whoever may read the events of a namespace need not be allowed to read another."""
    far = term("zone", namespaces=["default", "secret"], app="web")
    placed = [pod("mine", on="n0", app="web"), pod("theirs", namespace="secret", on="n0", app="web")]
    placed += [pod("hidden", namespace="secret", on="n1", app="web")]
    text = note(pod("asking", apart=[far]), *ZONES, *placed)
    assert "z0: 2 counted, 0 would pass (because of default/mine and 1 more)" in text
    assert "z1: 1 counted, 0 would pass (because of a pod of another namespace)" in text
    carried = [pod(f"on-{name}", namespace="secret", on=name, apart=[far]) for name in ("n0", "n1")]
    text = note(pod("asking", app="web"), *ZONES, *carried)
    assert ", of a pod of another namespace for example: z0: 1 counted" in text
    assert "secret" not in text


LIMITED = "17 topology keys, limits.topologyKeys is 16"
LACKING = ConstraintState("Own", "own", "rack", "team=a", TermReach(""), lacking=3)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        *(
            (Obstacle("ReservedRoom", "reserved", "reserved", examples=("n1",), blamed=blamed), text)
            for blamed, text in (
                (("nvidia.com/gpu", "secret/one"), "ReservedRoom: reserved (because of nvidia.com/gpu and 1 more), on n1"),
                (("secret/one", "secret/two"), "ReservedRoom: reserved (because of objects of other namespaces), on n1"),
                (
                    ("ClusterPodSchedulingPolicy/zonal",),
                    "ReservedRoom: reserved (because of ClusterPodSchedulingPolicy/zonal), on n1",
                ),
                (("default/one",), "ReservedRoom: reserved (because of default/one), on n1"),
            )
        ),
        # A limit that the text names is not named again.
        (Obstacle("Limits", "over_limit", LIMITED, 1, ("n1",), blamed=("topologyKeys",)), f"Limits: {LIMITED}, on n1"),
        # The rule says whether nodes without the label are rejected.
        (msgspec.structs.replace(LACKING, rejects_lacking=True), "own by rack with pods team=a: 3 nodes lack the label"),
        (msgspec.structs.replace(LACKING, rejects_lacking=False), ""),
    ],
)  # fmt: skip
def test_what_is_to_blame_is_named_where_the_namespace_may_know_it(
    part: Obstacle | ConstraintState, expected: str
) -> None:
    known = Explanation(pod="default/asking", state="pending", nodes=1, passing=0, fitting=0)
    field = "obstacles" if isinstance(part, Obstacle) else "constraints"
    assert rejection_note(msgspec.structs.replace(known, **{field: (part,)})) == expected


def test_one_long_part_is_cut_between_characters() -> None:
    lonely = [pod(f"{'x' * 200}-{at}", on=f"n{at % 4}", **APART) for at in range(16)]
    text = note(pod("asking", **APART), *ZONES, *lonely)
    assert MOST_BYTES - 40 < len(text.encode()) <= MOST_BYTES


# -- Pages of pods: single ones by name, and workloads -----------------------------------------------------------------


def steps_to_find(finder: PodFinder, name: str) -> tuple[str, int]:
    """The UID, and after how many steps."""
    work, steps = finder.find("default", name), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Pod | None = end.value
            return "" if found is None else found.uid, steps
        steps += 1


def crowd() -> ClusterIndex:
    return index_of(node("n1"), node("n2"), *(pod(f"p{at}", on=f"n{at % 2 + 1}") for at in range(2000)))


def test_a_pod_is_found_wherever_it_is() -> None:
    index = index_of(
        node("n1"),
        pod("placed", on="n1"),
        pod("lost", on="ghost"),
        pod("waits"),
        pod("passed"),
        pod("waits", namespace="other", uid="u-other"),
    )
    index.assume(index.pods["uid-passed"], ["n1"], 0.0)
    finder = PodFinder(index.view)
    for name in ("placed", "lost", "waits", "passed"):
        found = finished(finder.find("default", name))
        assert found is index.pods[f"uid-{name}"], "the pod as the watch shows it"
    assert finished(finder.find("default", "none")) is None
    assert finished(finder.find("other", "waits")) is index.pods["u-other"]


def test_a_bounded_number_of_names_is_cached() -> None:
    finder = PodFinder(crowd().view)
    assert steps_to_find(finder, "p1999")[1] > 0
    assert steps_to_find(finder, "p1999") == ("uid-p1999", 0)
    for at in range(300):
        steps_to_find(finder, f"p{at}")
    assert (steps_to_find(finder, "p299")[1], steps_to_find(finder, "p0")[1] > 0) == (0, True)


def test_a_pod_that_replaces_another_of_its_name_is_found() -> None:
    index = crowd()
    finder = PodFinder(index.view)
    assert steps_to_find(finder, "p7")[0] == "uid-p7"
    index.upsert(pod("p7", on="n2", terminating=True))
    index.upsert(pod("p7", uid="u-new"))
    assert steps_to_find(finder, "p7")[0] == "u-new"
    index.delete(index.pods["u-new"])
    index.delete(index.pods["uid-p7"])
    assert steps_to_find(finder, "p7")[0] == ""


# -- The page of workloads: which labels tell workloads apart ------------------------------------------------------------


def test_pods_of_all_revisions_and_ordinals_are_one_workload() -> None:
    index = index_of(
        node("n1"),
        pod("web-1", on="n1", app="web", labels={"pod-template-hash": "old"}),
        pod("web-2", app="web", labels={"pod-template-hash": "new"}),
        pod("db-0", on="n1", app="db", labels={"statefulset.kubernetes.io/pod-name": "db-0"}),
        pod("db-1", on="n1", app="db", labels={"statefulset.kubernetes.io/pod-name": "db-1"}),
    )
    page = finished(workload_page(PageOf(), index.view))
    assert [(row.labels, row.selector, row.pods, row.pending, row.example_pod) for row in page.workloads] == [
        ({"app": "db"}, "app=db", 2, 0, "db-0"),
        ({"app": "web"}, "app=web", 2, 1, "web-2"),
    ]


def test_constraints_are_counted_by_kind() -> None:
    index = index_of(
        pod(
            "web",
            near=[term("zone", app="db")],
            apart=[term("host", app="web"), term("zone", app="noisy")],
            prefers=[weighted(1, term("zone", app="db"))],
            spreads=[spread("zone", app="web"), spread("host", hard=False, app="web")],
        )
    )
    (row,) = finished(workload_page(PageOf(), index.view)).workloads
    assert row.constraints == {
        "podAffinity": 1,
        "podAntiAffinity": 2,
        "preferredPodAffinity": 1,
        "topologySpread": 1,
        "preferredTopologySpread": 1,
    }


def going(index: ClusterIndex, nodes: list[Node], step: int) -> Callable[[], None]:
    """Deletes all but two nodes after so many steps."""
    steps = count(1)

    def drop() -> None:
        while next(steps) == step and len(nodes) > 2:
            for each in nodes[2:]:
                index.delete(each)
            del nodes[2:]

    return drop


@pytest.mark.parametrize("step", range(1, 6))
@pytest.mark.parametrize("domain", [None, "a"])
def test_nodes_that_go_while_a_page_about_a_topology_is_made_are_left_out(domain: str | None, step: int) -> None:
    nodes = [node(f"n{number:03}", labels={"rack": "a"}) for number in range(300)]
    index = index_of(*nodes)
    question = TopologyQuestion("rack", PageOf(), domain=domain)
    page = finished(topology_page(question, index.view), going(index, nodes, step))
    assert page.lacking == 0
    assert len(index.view.known) == 2
    assert {each.node for each in page.nodes} <= {f"n{number:03}" for number in range(80 * (step - 1))} | {
        "n000",
        "n001",
    }


@pytest.mark.parametrize("step", [*range(1, 12), 20, 40, 80])
def test_nodes_may_go_while_a_pod_is_explained(step: int) -> None:
    """Each offer names a node that was there; a node that took a freed number in between is another one."""
    nodes = [node(f"n{number:03}", labels={"rack": f"r{number % 7}"}, allocatable=ROOM) for number in range(300)]
    blocking = pod("blocking", on="n000", app="web", apart=[term("rack", app="web")])
    index = index_of(*nodes, blocking)
    incoming = pod("asking", app="web", apart=[term("rack", app="web")], requests={"cpu": "9"})
    drop = going(index, nodes, step)
    found = finished(explain(incoming, index.view, Settings(), ""), drop)
    assert found.changes
    assert len(index.view.known) in {2, 300}
