"""One change at a time: what it does to the counts, and that what changes nothing does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import CountGroup, IndexDriftError
from extender.index.objects.changes import IndexChange
from extender.model.objects import Object, PodSignature
from extender.rules.interpod_affinity import own_terms
from tests.builders import Json, index_of, matching, namespace, node, pod, pod_json, spread, taint, term, workload
from tests.index.counting import Deleted, Step, apart, apply, compiled_of, counts_of, inverse, near, spread_over

NEAR_WEB = pod_json(near=[term("zone", app="web")])
SPREAD_WEB = pod_json(app="web", spreads=[spread("zone", app="web", taints_policy="Honor")])
GUEST = pod_json(app="guest")
FRIENDLY = pod_json(apart=[term("zone", namespace_selector=matching(team="a"), app="web")])
WEB = pod("web", on="n1", app="web")
HERMITS = [pod(f"h{number}", on="n1", apart=[term("zone", app="guest")]) for number in (1, 2)]


def zoned(*objects: Object) -> ClusterIndex:
    """Nodes n1 and n2 in zones z1 and z2, with the constraints above compiled already."""
    index = index_of(node("n1", zone="z1"), node("n2", zone="z2"), namespace("default"), *objects)
    for incoming in (NEAR_WEB, SPREAD_WEB, GUEST):
        compiled_of(index, incoming)
    return index


def test_a_pod_is_counted_elsewhere_although_another_one_like_it_is_going() -> None:
    """Spread counts no pod that is terminating, so the one that goes does not show that its like is counted."""
    index = index_of(node("n1", zone="z1"), pod("going", on="n1", app="web", terminating=True))
    compiled_of(index, pod_json(spreads=[spread("zone", app="web")]))
    assert index.view.is_touched(WEB.signature)
    assert not index.view.is_touched(pod("other", app="other").signature)


def test_over_a_key_that_no_node_carries_the_smallest_count_is_nought() -> None:
    index = zoned()
    (group,) = own_terms(compiled_of(index, pod_json(near=[term("rack", app="web")]))).affinity
    assert (group.smallest(), group.greatest()) == (0, 0)


N1, N3 = node("n1", zone="z1"), node("n3", zone="z3")
TAINTED = node("n1", zone="z1", taints=[taint("gpu")])
FIRST, SECOND = pod("web", on="n1", uid="first", app="web"), pod("web", on="n2", uid="second", app="web")


@pytest.mark.parametrize(
    ("steps", "near_web", "spread_web"),
    [
        pytest.param([WEB, Deleted(WEB)], {}, ({}, 2, 0), id="a count that falls to nought disappears"),
        pytest.param([WEB, pod("web", on="n1", app="db")], {}, ({}, 2, 0), id="a relabelled pod"),
        pytest.param([pod("web", app="web")], {}, ({}, 2, 0), id="a pending pod"),
        pytest.param([pod("web", app="web"), WEB], {"z1": 1}, ({"z1": 1}, 2, 0), id="its binding"),
        pytest.param([WEB, pod("web", on="n1", app="web", x="y")], {"z1": 1}, ({"z1": 1}, 2, 0), id="a further label"),
        pytest.param([WEB, pod("web", on="n1", app="web", terminating=True)], {"z1": 1}, ({}, 2, 0), id="terminating"),
        pytest.param([WEB, pod("web", on="n1", app="web", phase="Succeeded")], {}, ({}, 2, 0), id="finished"),
        pytest.param([FIRST, SECOND], {"z1": 1, "z2": 1}, ({"z1": 1, "z2": 1}, 2, 1), id="another of the same name"),
        pytest.param(
            [FIRST, SECOND, Deleted(FIRST)], {"z2": 1}, ({"z2": 1}, 2, 0), id="the first of the same name deleted"
        ),
        pytest.param([pod("web", on="n3", app="web")], {}, ({}, 2, 0), id="on a node that is not known yet"),
        pytest.param([pod("web", on="n3", app="web"), N3], {"z3": 1}, ({"z3": 1}, 3, 0), id="whose node comes later"),
        pytest.param([pod("web", on="n3"), Deleted(N3), N3], {}, ({}, 3, 0), id="a node that only pods mention goes"),
        pytest.param([WEB, Deleted(N1)], {}, ({}, 1, 0), id="a deleted node"),
        pytest.param([WEB, Deleted(N1), node("n1", zone="z2")], {"z2": 1}, ({"z2": 1}, 1, 1), id="that is back"),
        pytest.param(
            [WEB, Deleted(N1), node("other", zone="z7")], {}, ({}, 2, 0), id="its number is kept for its pods"
        ),
        pytest.param([WEB, node("n1", zone="z2")], {"z2": 1}, ({"z2": 1}, 1, 1), id="a relabelled node"),
        pytest.param([WEB, node("n1")], {}, ({}, 1, 0), id="a node that loses the key"),
        pytest.param([WEB, TAINTED], {"z1": 1}, ({}, 1, 0), id="a taint that the spread reads"),
        pytest.param([WEB, TAINTED, N1], {"z1": 1}, ({"z1": 1}, 2, 0), id="a taint that is removed"),
        pytest.param([WEB, node("n1", zone="z1", unschedulable=True)], {"z1": 1}, ({"z1": 1}, 2, 0), id="a cordon"),
    ],
)
def test_the_counts_after_changes_of_pods_and_nodes(
    steps: Sequence[Step], near_web: dict[str, int], spread_web: tuple[dict[str, int], int, int]
) -> None:
    index = apply(zoned(), *steps)
    assert (near(index, NEAR_WEB), spread_over(index, SPREAD_WEB), audit(index)) == ([near_web], [spread_web], [])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(HERMITS, [{"z1": 2}], id="carried twice"),
        pytest.param([*HERMITS, Deleted(HERMITS[0])], [{"z1": 1}], id="carried once"),
        pytest.param([*HERMITS, Deleted(HERMITS[0]), Deleted(HERMITS[1])], [], id="carried no more"),
        pytest.param([HERMITS[0], node("n1", zone="z2")], [{"z2": 1}], id="on a relabelled node"),
    ],
)
def test_terms_come_and_go_with_the_pods_that_carry_them(steps: Sequence[Step], expected: list[dict[str, int]]) -> None:
    index = apply(zoned(), *steps)
    assert (inverse(index, GUEST), index.statistics()["owner_groups"], audit(index)) == (expected, len(expected), [])


RED = {team: namespace("red", team=team) for team in "ab"}
NOT_TEAM_B = pod_json(apart=[term("zone", namespace_selector=matching(("team", "NotIn", ["b"])), app="web")])
LISTED = pod_json(apart=[term("zone", namespaces=["red"], namespace_selector=matching(team="a"), app="web")])


@pytest.mark.parametrize(
    ("incoming", "steps", "counted"),
    [
        pytest.param(FRIENDLY, [RED["a"], RED["b"], RED["a"]], [1, 0, 1], id="relabelled and back"),
        pytest.param(FRIENDLY, [RED["a"], Deleted(RED["a"])], [1, 0], id="removed"),
        pytest.param(
            NOT_TEAM_B, [RED["a"], Deleted(RED["a"])], [1, 0], id="not selected by what it lacks once removed"
        ),
        pytest.param(LISTED, [RED["a"], RED["b"], Deleted(RED["b"])], [1, 1, 1], id="listed, whatever its labels"),
    ],
)
def test_labels_of_a_namespace_decide_which_of_its_pods_count(
    incoming: Json, steps: Sequence[Step], counted: list[int]
) -> None:
    """Trap T3. A namespace without an object is not one without labels: only `{}` and its name reach it."""
    index = zoned(pod("web", on="n1", namespace="red", app="web"))
    assert apart(index, incoming) == [{"z1": 1} if incoming is LISTED else {}]
    assert [apart(apply(index, step), incoming) for step in steps] == [[{"z1": 1} if each else {}] for each in counted]


@pytest.mark.parametrize("was_assumed", [False, True])
def test_a_change_that_no_group_counts_leaves_results_by_their_counts_valid(*, was_assumed: bool) -> None:
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
def test_a_change_that_a_dry_run_reads_ends_what_was_found(change: dict[str, Any]) -> None:
    index = zoned(pod("web", on="n1", app="web"))
    compiled = compiled_of(index, NEAR_WEB)
    before = index.view.dependency_version(compiled)
    index.upsert(replace(index.pods["uid-web"], **change))
    assert index.view.dependency_version(compiled) > before
    assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])


def test_subscribers_are_reported_of_an_ended_assumption_when_the_binding_counts() -> None:
    index, seen = zoned(), list[object]()
    index.assume(pod("web", app="web"), ("n1",), 0.0)
    index.assumed.changes.subscribe(lambda _: seen.append(near(index, NEAR_WEB)))
    index.upsert(pod("web", on="n2", app="web"))
    assert seen == [[{"z2": 1}]]


def test_a_taint_that_no_spread_reads_moves_no_pod() -> None:
    """A zone that is lost is a taint on each of its nodes; to move their pods took most of that."""
    index = index_of(node("n1", zone="z1"), pod("web", on="n1", app="web"))
    (group,) = own_terms(compiled_of(index, NEAR_WEB)).affinity
    before = group.version
    index.upsert(node("n1", zone="z1", taints=[taint("gpu")]))
    assert group.version == before
    index.upsert(node("n1", zone="z2", taints=[taint("gpu")]))
    assert group.version > before


def test_other_labels_of_a_namespace_change_nothing() -> None:
    index = zoned(namespace("red", team="a"), pod("web", on="n1", namespace="red", app="web"))
    compiled = compiled_of(index, FRIENDLY)
    versions = [group.version for group in compiled.filter_groups()]
    index.upsert(namespace("red", team="a", note="x"))
    assert compiled_of(index, FRIENDLY) is compiled
    assert [group.version for group in compiled.filter_groups()] == versions


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


def test_a_count_below_nought_is_reported_as_drift() -> None:
    group = own_terms(compiled_of(zoned(pod("web", on="n1", app="web")), NEAR_WEB)).affinity[0]
    assert isinstance(group, CountGroup)
    with pytest.raises(IndexDriftError, match="zone=z1 make -1"):
        group.add(0, -2)
    assert counts_of(group) == {"z1": 1}


# -- Subscribers are notified of each change once, after it has been applied, and of nothing else --------------------------

NEAR_TEAM = pod_json(near=[term("zone", app="web", namespace_selector={"matchLabels": {"team": "a"}})])


def test_a_subscriber_to_namespaces_sees_the_counts_as_they_are_after_the_change() -> None:
    index = index_of(node("n1", zone="z1"), namespace("ns", team="b"), pod("web", on="n1", namespace="ns", app="web"))
    assert near(index, NEAR_TEAM) == [{}]
    seen = list[object]()
    index.namespaces.changes.subscribe(lambda _: seen.append(near(index, NEAR_TEAM)))
    index.upsert(namespace("ns", team="a"))
    index.upsert(namespace("ns", team="a"))
    assert seen == [[{"z1": 1}]]


def test_a_change_has_the_object_before_and_after() -> None:
    index, seen = index_of(), list[object]()
    index.workloads.changes.subscribe(seen.append)
    service = workload("Service", "web", {"app": "web"})
    index.upsert(service)
    index.upsert(service)
    index.delete(service)
    index.delete(service)
    assert seen == [IndexChange(None, service), IndexChange(service, None)]


def test_a_subscriber_to_one_pod_is_reported_of_that_pod_until_it_unsubscribes() -> None:
    index, seen = index_of(node("n1")), list[object]()
    waiting, placed, other = pod("web"), pod("web", on="n1"), pod("other")
    index.pod_changes.subscribe(waiting.uid, seen.append)
    for each in (waiting, other, placed):
        index.upsert(each)
    index.pod_changes.unsubscribe(waiting.uid, seen.append)
    index.delete(placed)
    assert seen == [IndexChange(None, waiting), IndexChange(waiting, placed)]
    assert len(index.pod_changes) == 0


def test_every_subscriber_is_reported_also_where_one_unsubscribes_meanwhile() -> None:
    index, seen = index_of(), list[str]()

    def once(_change: object) -> None:
        seen.append("once")
        index.namespaces.changes.unsubscribe(once)

    index.namespaces.changes.subscribe(once)
    index.namespaces.changes.subscribe(lambda _: seen.append("always"))
    index.upsert(namespace("ns"))
    index.upsert(namespace("ns", team="a"))
    assert seen == ["once", "always", "always"]


# -- The pods on nodes by signature, as pages and explanations read them: which, how many, and in steps ----------------


def test_pods_are_counted_by_node_for_the_signatures_that_are_wanted() -> None:
    index = index_of(
        node("n1"),
        node("n2"),
        pod("web-0", on="n1", app="web"),
        pod("web-1", on="n1", app="web"),
        pod("web-2", on="n2", app="web"),
        pod("web-3", app="web"),
        pod("db", on="n1", app="db"),
    )
    index.assume(index.pods["uid-web-3"], ["n2"], 0.0)
    found = [each for each in index.view.placed(wanted=lambda signature: signature.labels["app"] == "web") if each]
    assert [(each.signature.labels, each.nodes) for each in found] == [
        ({"app": "web"}, {index.view.known["n1"]: 2, index.view.known["n2"]: 2})
    ]
    assert {each.signature.labels["app"] for each in index.view.placed() if each} == {"web", "db"}


def test_what_is_read_does_not_change_with_the_index() -> None:
    index = index_of(node("n1"), pod("web", on="n1", app="web"))
    (found,) = index.view.placed()
    index.delete(index.pods["uid-web"])
    assert found is not None
    assert dict(found.nodes) == {0: 1}


def test_a_step_is_shorter_where_signatures_are_wanted() -> None:
    """Those that are not cost a comparison, the others a copy."""
    index = index_of(node("n1"), *(pod(f"p{at}", on="n1", own=str(at)) for at in range(2000)))
    signatures: dict[bool, list[PodSignature]] = {False: [], True: list(index.view.pods_of)}
    pauses = {
        is_wanted: sum(each is None for each in index.view.placed(wanted=chosen.__contains__))
        for is_wanted, chosen in ((each, set(some)) for each, some in signatures.items())
    }
    assert pauses == {False: 5, True: 25}
