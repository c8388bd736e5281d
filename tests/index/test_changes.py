"""One change at a time: what it does to the counts, and that what changes nothing does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import Group, IndexDriftError
from extender.model.objects import Object
from extender.rules.interpod_affinity import own_terms
from tests.builders import index_of, matching, namespace, node, pod, pod_json, spread, taint, term, workload
from tests.index.counting import apart, compiled_of, counts_of, inverse, near, spread_over

NEAR_WEB = pod_json(near=[term("zone", app="web")])
SPREAD_WEB = pod_json(app="web", spreads=[spread("zone", app="web", taints_policy="Honor")])
GUEST = pod_json(app="guest")


def zoned(*objects: Object) -> ClusterIndex:
    """Nodes n1 and n2 in zones z1 and z2, with the constraints above compiled already."""
    index = index_of(node("n1", zone="z1"), node("n2", zone="z2"), namespace("default"), *objects)
    for asked in (NEAR_WEB, SPREAD_WEB, GUEST):
        compiled_of(index, asked)
    return index


class TestPods:
    """A pod comes, changes, moves and goes."""

    def test_a_count_that_falls_to_nought_disappears(self) -> None:
        index = zoned(web := pod("web", on="n1", app="web"))
        assert near(index, NEAR_WEB) == [{"z1": 1}]
        index.delete(web)
        assert near(index, NEAR_WEB) == [{}]
        assert own_terms(compiled_of(index, NEAR_WEB)).affinity[0].counts == {}

    def test_a_relabelled_pod_leaves_the_count(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.upsert(pod("web", on="n1", app="db"))
        assert near(index, NEAR_WEB) == [{}]

    def test_a_pod_counts_from_its_binding_on(self) -> None:
        index = zoned(pod("web", app="web"))
        assert near(index, NEAR_WEB) == [{}]
        index.upsert(pod("web", on="n2", app="web"))
        assert near(index, NEAR_WEB) == [{"z2": 1}]

    def test_a_label_that_binding_adds_does_not_count_the_pod_twice(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.upsert(pod("web", on="n1", app="web", labels={"topology.kubernetes.io/zone": "z1"}))
        assert near(index, NEAR_WEB) == [{"z1": 1}]

    @pytest.mark.parametrize("was_assumed", [False, True])
    def test_a_change_that_no_group_counts_leaves_results_by_their_counts_valid(self, *, was_assumed: bool) -> None:
        index = zoned(pod("web", app="web"))
        compiled = compiled_of(index, NEAR_WEB)
        if was_assumed:
            index.assume(pod("web", app="web"), ("n1",), 0.0)
        else:
            index.upsert(pod("web", on="n1", app="web"))
        before = index.view.dependency_version(compiled)
        index.upsert(pod("web", on="n1", app="web", labels={"topology.kubernetes.io/zone": "z1"}))
        assert (index.view.dependency_version(compiled), near(index, NEAR_WEB)) == (before, [{"z1": 1}])
        assert [each.signature.labels for each in index.view.pods_on(0).values()] == [
            {"app": "web", "topology.kubernetes.io/zone": "z1"}
        ]
        assert audit(index) == []

    @pytest.mark.parametrize(
        "change", [{"priority": 5}, {"terminating": True}, {"preempted": True}, {"requests": {"cpu": 2000}}], ids=str
    )
    def test_a_change_that_a_dry_run_reads_ends_what_was_found(self, change: dict[str, Any]) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        compiled = compiled_of(index, NEAR_WEB)
        before = index.view.dependency_version(compiled)
        index.upsert(replace(index.pods["uid-web"], **change))
        assert index.view.dependency_version(compiled) > before
        assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])

    def test_subscribers_are_reported_of_an_ended_assumption_when_the_binding_counts(self) -> None:
        index, seen = zoned(), list[object]()
        index.assume(pod("web", app="web"), ("n1",), 0.0)
        index.assumed.changes.subscribe(lambda _: seen.append(near(index, NEAR_WEB)))
        index.upsert(pod("web", on="n2", app="web"))
        assert seen == [[{"z2": 1}]]

    def test_a_terminating_pod_leaves_the_spread_and_stays_in_the_terms(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.upsert(pod("web", on="n1", app="web", terminating=True))
        assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)) == ([{"z1": 1}], [({}, 2, 0)])

    def test_a_finished_pod_is_gone(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        assert index.upsert(pod("web", on="n1", app="web", phase="Succeeded"))
        assert (near(index, NEAR_WEB), index.view.pod("uid-web"), index.statistics()["pods"]) == ([{}], None, 0)

    def test_a_pod_made_anew_under_its_old_name_is_another_pod(self) -> None:
        index = zoned(pod("web", on="n1", uid="first", app="web"))
        index.upsert(pod("web", on="n2", uid="second", app="web"))
        assert near(index, NEAR_WEB) == [{"z1": 1, "z2": 1}]
        index.delete(pod("web", on="n1", uid="first", app="web"))
        assert near(index, NEAR_WEB) == [{"z2": 1}]

    def test_terms_come_and_go_with_the_pods_that_carry_them(self) -> None:
        index = zoned()
        hermits = [pod(f"h{number}", on="n1", apart=[term("zone", app="guest")]) for number in (1, 2)]
        for hermit in hermits:
            index.upsert(hermit)
        assert inverse(index, GUEST) == [{"z1": 2}]
        index.delete(hermits[0])
        assert inverse(index, GUEST) == [{"z1": 1}]
        index.delete(hermits[1])
        assert (inverse(index, GUEST), index.statistics()["owner_groups"]) == ([], 0)

    def test_requests_of_the_pods_on_a_node_add_up_and_vanish(self) -> None:
        index = zoned(a := pod("a", on="n1", requests={"cpu": "1"}), b := pod("b", on="n1", requests={"cpu": "500m"}))
        number = index.view.known["n1"]
        assert (index.view.requested(number), set(index.view.pods_on(number))) == ({"cpu": 1500}, {a.uid, b.uid})
        index.delete(a)
        index.delete(b)
        assert (index.view.requested(number), dict(index.view.pods_on(number))) == ({}, {})


class TestNodes:
    """A node appears under pods that are there already, moves to another domain, and goes."""

    def test_pods_of_a_node_that_is_not_known_yet_count_once_it_is(self) -> None:
        index = zoned(pod("web", on="n3", app="web"))
        assert near(index, NEAR_WEB) == [{}]
        index.upsert(node("n3", zone="z3"))
        assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)) == ([{"z3": 1}], [({"z3": 1}, 3, 0)])

    def test_pods_of_a_deleted_node_count_no_more_and_again_when_it_is_back(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.delete(node("n1", zone="z1"))
        assert (near(index, NEAR_WEB), "n1" in index.view.known) == ([{}], False)
        index.upsert(node("n1", zone="z2"))
        assert near(index, NEAR_WEB) == [{"z2": 1}]

    def test_a_relabelled_node_takes_its_pods_to_the_other_domain(self) -> None:
        index = zoned(pod("web", on="n1", app="web"), pod("h", on="n1", apart=[term("zone", app="guest")]))
        index.upsert(node("n1", zone="z2"))
        assert (near(index, NEAR_WEB), inverse(index, GUEST)) == ([{"z2": 1}], [{"z2": 1}])
        assert spread_over(index, SPREAD_WEB) == [({"z2": 1}, 1, 1)]

    def test_a_node_that_loses_the_key_takes_its_pods_out(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.upsert(node("n1"))
        assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)) == ([{}], [({}, 1, 0)])

    def test_a_taint_takes_a_node_out_of_the_spread_and_not_out_of_the_terms(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.upsert(node("n1", zone="z1", taints=[taint("gpu")]))
        assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)) == ([{"z1": 1}], [({}, 1, 0)])

    def test_a_taint_takes_a_node_out_of_a_spread_that_is_counted_already(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        assert spread_over(index, SPREAD_WEB) == [({"z1": 1}, 2, 0)]
        index.upsert(node("n1", zone="z1", taints=[taint("gpu")]))
        assert spread_over(index, SPREAD_WEB) == [({}, 1, 0)]
        index.upsert(node("n1", zone="z1"))
        assert spread_over(index, SPREAD_WEB) == [({"z1": 1}, 2, 0)]

    def test_a_taint_that_no_spread_reads_moves_no_pod(self) -> None:
        """A zone that is lost is a taint on each of its nodes; to move their pods took most of that."""
        index = index_of(node("n1", zone="z1"), pod("web", on="n1", app="web"))
        (group,) = own_terms(compiled_of(index, NEAR_WEB)).affinity
        before = group.version
        index.upsert(node("n1", zone="z1", taints=[taint("gpu")]))
        assert group.version == before
        index.upsert(node("n1", zone="z2", taints=[taint("gpu")]))
        assert group.version > before

    def test_cordoning_changes_no_count(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        assert index.upsert(node("n1", zone="z1", unschedulable=True))
        assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB)) == ([{"z1": 1}], [({"z1": 1}, 2, 0)])

    def test_numbers_of_nodes_that_are_gone_are_used_again(self) -> None:
        index = zoned()
        for number in range(20):
            passing_by = node(f"spot-{number}", zone="z9")
            index.upsert(passing_by)
            index.delete(passing_by)
        assert len(index.view.node_names) <= 3

    def test_a_number_is_kept_while_a_pod_claims_the_node(self) -> None:
        index = zoned(pod("web", on="n1", app="web"))
        index.delete(node("n1", zone="z1"))
        index.upsert(node("other", zone="z7"))
        assert (near(index, NEAR_WEB), audit(index)) == ([{}], [])


class TestNamespaces:
    """Labels of namespaces decide membership as they change (trap T3)."""

    FRIENDLY = pod_json(apart=[term("zone", namespace_selector=matching(team="a"), app="web")])

    def test_a_relabelled_namespace_leaves_the_count_and_comes_back(self) -> None:
        index = zoned(namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
        assert apart(index, self.FRIENDLY) == [{"z1": 1}]
        index.upsert(namespace("red", team="b"))
        assert apart(index, self.FRIENDLY) == [{}]
        index.upsert(namespace("red", team="a"))
        assert apart(index, self.FRIENDLY) == [{"z1": 1}]

    def test_a_removed_namespace_leaves_the_count(self) -> None:
        index = zoned(red := namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
        assert apart(index, self.FRIENDLY) == [{"z1": 1}]
        index.delete(red)
        assert apart(index, self.FRIENDLY) == [{}]

    def test_a_removed_namespace_is_not_selected_by_what_it_lacks(self) -> None:
        """A namespace without an object is not one without labels: only `{}` and its name reach it."""
        asked = pod_json(apart=[term("zone", namespace_selector=matching(("team", "NotIn", ["b"])), app="web")])
        index = zoned(red := namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
        assert apart(index, asked) == [{"z1": 1}]
        index.delete(red)
        assert apart(index, asked) == [{}]

    def test_pods_that_come_before_their_namespace_count_with_it(self) -> None:
        index = zoned(pod("web", on="n1", namespace="red", app="web"))
        assert apart(index, self.FRIENDLY) == [{}]
        index.upsert(namespace("red", team="a"))
        assert apart(index, self.FRIENDLY) == [{"z1": 1}]

    def test_other_labels_of_a_namespace_change_nothing(self) -> None:
        index = zoned(namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
        compiled = compiled_of(index, self.FRIENDLY)
        versions = [group.version for group in compiled.filter_groups()]
        index.upsert(namespace("red", team="a", note="x"))
        assert compiled_of(index, self.FRIENDLY) is compiled
        assert [group.version for group in compiled.filter_groups()] == versions

    def test_a_listed_namespace_stays_whatever_its_labels(self) -> None:
        asked = pod_json(apart=[term("zone", namespaces=["red"], namespace_selector=matching(team="a"), app="web")])
        index = zoned(namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
        assert apart(index, asked) == [{"z1": 1}]
        index.upsert(namespace("red"))
        assert apart(index, asked) == [{"z1": 1}]

    def test_the_incoming_pod_s_namespace_decides_which_terms_select_it(self) -> None:
        hermit = pod(
            "h",
            on="n1",
            namespace="blue",
            apart=[term("zone", namespace_selector=matching(team="a"), app="guest")],
        )
        index = zoned(hermit)
        assert inverse(index, GUEST) == []
        index.upsert(namespace("default", team="a"))
        assert inverse(index, GUEST) == [{"z1": 1}]
        index.upsert(namespace("default"))
        assert inverse(index, GUEST) == []

    def test_the_first_pod_rule_follows_the_labels_of_its_namespace(self) -> None:
        asked = pod_json(near=[term("zone", namespace_selector=matching(team="a"), app="web")], app="web")
        index = zoned()
        assert not own_terms(compiled_of(index, asked)).matches_itself
        index.upsert(namespace("default", team="a"))
        assert own_terms(compiled_of(index, asked)).matches_itself


class TestWithout:
    """Pods left out for a moment: for the rules they are deleted, and afterwards the index is as before."""

    def test_inside_they_do_not_count_and_outside_nothing_has_happened(self) -> None:
        index = zoned(web := pod("web", on="n1", app="web"), pod("other", on="n2", app="web"))
        compiled = compiled_of(index, NEAR_WEB)
        before = (
            near(index, NEAR_WEB),
            [group.version for group in own_terms(compiled).affinity],
            index.view.dependency_version(compiled),
        )
        with index.view.without([web]):
            assert near(index, NEAR_WEB) == [{"z2": 1}]
        after = (
            near(index, NEAR_WEB),
            [group.version for group in own_terms(compiled).affinity],
            index.view.dependency_version(compiled),
        )
        assert after == before

    def test_a_pod_that_is_named_twice_is_left_out_once(self) -> None:
        index = zoned(web := pod("web", on="n1", app="web"))
        with index.view.without([web, web]):
            assert near(index, NEAR_WEB) == [{}]
        assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])

    def test_pods_without_a_place_and_unknown_ones_are_passed_over(self) -> None:
        index = zoned(pod("web", on="n1", app="web"), waiting := pod("waiting", app="web"))
        with index.view.without([waiting, pod("ghost", on="n1", app="web")]):
            assert near(index, NEAR_WEB) == [{"z1": 1}]

    def test_an_error_inside_leaves_the_counts_true(self) -> None:
        index = zoned(web := pod("web", on="n1", app="web"))
        with pytest.raises(ZeroDivisionError), index.view.without([web]):
            raise ZeroDivisionError
        assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])


@pytest.mark.parametrize(
    "obj",
    [
        pod("web", on="n1", app="web"),
        pod("pending", app="web"),
        node("n1", zone="z1"),
        namespace("red", team="a"),
        workload("Service", "web", {"app": "web"}),
    ],
    ids=lambda obj: type(obj).__name__ + obj.name,
)
def test_what_is_the_same_changes_nothing_and_says_so(obj: Object) -> None:
    index = zoned(pod("web", on="n1", app="web"))
    index.upsert(obj)
    compiled = compiled_of(index, NEAR_WEB)
    before = index.view.dependency_version(compiled)
    assert not index.upsert(obj)
    assert (compiled_of(index, NEAR_WEB) is compiled, index.view.dependency_version(compiled)) == (True, before)


@pytest.mark.parametrize(
    "obj",
    [pod("ghost", on="n1"), node("ghost"), namespace("ghost"), workload("ReplicaSet", "ghost", {})],
    ids=lambda obj: type(obj).__name__,
)
def test_what_was_not_there_cannot_go(obj: Object) -> None:
    index = zoned()
    before = index.statistics()
    assert not index.delete(obj)
    assert index.statistics() == before


def test_a_finished_pod_that_the_index_does_not_hold_is_no_change() -> None:
    assert not zoned().upsert(pod("job", on="n1", phase="Succeeded"))


def test_a_node_that_only_pods_mention_can_go_without_harm() -> None:
    index = zoned(pod("web", on="ghost", app="web"))
    assert not index.delete(node("ghost"))
    index.upsert(node("ghost", zone="z1"))
    assert near(index, NEAR_WEB) == [{"z1": 1}]


def test_a_count_below_nought_is_reported_as_drift() -> None:
    group = own_terms(compiled_of(zoned(pod("web", on="n1", app="web")), NEAR_WEB)).affinity[0]
    assert isinstance(group, Group)
    with pytest.raises(IndexDriftError, match="zone=z1 make -1"):
        group.add(0, -2)
    assert counts_of(group) == {"z1": 1}
