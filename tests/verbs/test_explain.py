"""What an explanation says of rules that count by no domain, of nominated pods, and of pods that nothing keeps pending."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cli.answers.explain_report import report
from extender.index.counts import counts
from extender.model.answers.explanations import Explanation
from extender.model.objects import Object, Pod
from extender.model.release import GroupKey, Slot
from extender.rules import constraint_states
from extender.settings.configuration import Settings
from extender.verbs.explain import changes
from extender.verbs.explain import explaining as explaining_module
from tests.builders import index_of, matching, namespace, node, pod, settings, spread, term
from tests.explaining import explained
from tests.quotas import Tenants, limited, reaching

ROOM: dict[str, str] = {"cpu": "4", "pods": "5"}


def explaining(incoming: Pod, *objects: Object, **sections: Any) -> Explanation:
    """The explanation of a pod beside these objects."""
    return explained(index_of(*objects), incoming, settings(**sections))


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


def test_a_cluster_without_nodes_says_so() -> None:
    assert list(report(explaining(pod("asking")))) == ["default/asking: pending", "there is no node"]


def test_needs_that_the_extender_does_not_see_are_named() -> None:
    found = explaining(pod("asking"), node("n0"))
    assert not found.unchecked
    needing = pod("asking")
    needing = type(needing)(needing.uid, needing.name, needing.signature, has_unseen_needs=True)
    assert "volumes and devices" in explaining(needing, node("n0")).unchecked


def test_steps_that_end_within_a_table_change_nothing_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is long enough to be left in the middle, as in a cluster with a signature for each pod."""
    objects: list[Object] = [node(f"n{at}", zone=f"z{at % 2}", allocatable=ROOM) for at in range(6)]
    objects += [pod(f"web-{at}", on=f"n{at}", app="web", labels={"number": f"{at}"}) for at in range(6)]
    objects += [namespace(f"a{at}", team="a") for at in range(6)]
    near = [term("zone", namespace_selector=matching(team="b"), app="web")]
    asking = [
        pod("far", namespace="a1", near=near),
        pod("alone", apart=[term("host", app="web")], requests={"cpu": "9"}),
    ]
    whole = [explaining(each, *objects) for each in asking]
    monkeypatch.setattr(counts, "_SIGNATURES_A_STEP", 1)
    monkeypatch.setattr(constraint_states, "_STEP", 1)
    monkeypatch.setattr(changes, "_A_STEP", 1)
    monkeypatch.setattr(explaining_module, "_FITS_A_STEP", 1)
    monkeypatch.setattr(explaining_module, "_CLAUSES_A_STEP", 1)
    assert [explaining(each, *objects) for each in asking] == whole


def test_a_move_within_the_domain_that_rejects_is_not_offered() -> None:
    nodes = [node(f"n{at}", zone="z1", pool=pool, allocatable=ROOM) for at, pool in enumerate("ab")]
    asking = pod("asking", apart=[term("zone", app="web")], node_selector={"pool": "a"})
    old = pod("old", on="n0", app="web")
    assert "movePod" not in {each.kind for each in explaining(asking, *nodes, old).changes}
    elsewhere = node("n2", zone="z2", pool="b", allocatable=ROOM)
    (move,) = [each for each in explaining(asking, *nodes, elsewhere, old).changes if each.kind == "movePod"]
    assert (move.pods, move.from_node, move.to, move.node) == (("default/old",), "n0", "n2", "n0")
