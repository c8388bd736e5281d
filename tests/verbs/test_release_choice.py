"""Which domain a group gets, where in it each pod goes, and why the other domains do not hold the group."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from types import FrameType
from typing import Any, TypeVar, cast

import orjson
import pytest

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Object, Pod
from extender.model.rejections import Reason
from extender.model.release import (
    Domain,
    GroupKey,
    Level,
    Proposal,
    RejectedDomain,
    ReleaseMode,
    ReleaseSpec,
    Slot,
    Strategy,
)
from extender.verbs.release import choice
from extender.verbs.release.choice import Rest, propose, propose_in_steps
from extender.verbs.slots import placing
from extender.verbs.slots.placing import Trials, kinds_of
from extender.wire.objects.kinds import PODS
from tests.builders import settings, spread, taint, term
from tests.contenders import cluster, contender, stage
from tests.gangs import gated, gated_json
from tests.verbs.release_choice import KEY, RACK, SETTINGS, decide, domain, gang, host, on_nodes

OTHER = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "y")
T = TypeVar("T")
THREE_ZONES: tuple[Object, ...] = (
    *(host("a1", "a", 2), host("a2", "a", 2)),
    *(host("b1", "b", 3), host("b2", "b", 3)),
    *(host("c1", "c", 8), host("c2", "c", 1)),
)


@pytest.mark.parametrize(("count", "expected"), [(4, "a"), (5, "b"), (6, "b"), (7, "c"), (9, "c"), (10, "")])
def test_the_tightest_zone_that_holds_the_whole_group_is_taken(count: int, expected: str) -> None:
    assert domain(decide(cluster(*THREE_ZONES), gang(count))) == expected


@pytest.mark.parametrize(("strategy", "expected"), [(Strategy.MOST_FREE, "a"), (Strategy.LEAST_FREE, "b")])
def test_the_zone_with_the_most_or_the_least_free_is_taken(strategy: Strategy, expected: str) -> None:
    """Zone a is empty, half of zone b is in use, and a ninth of zone c."""
    index = cluster(*THREE_ZONES, contender("x", cpu=1000, on="c1"), contender("y", cpu=3000, on="b1"))
    assert domain(decide(index, gang(2), strategy=strategy)) == expected
    assert domain(decide(index, gang(4), strategy=strategy)) == "ca"[strategy is Strategy.MOST_FREE]


NEAR, FAR = Domain("near", ("b", "a")), Domain("far", ("c",))


@pytest.mark.parametrize(
    ("count", "strategy", "expected"),
    [
        (8, Strategy.IN_ORDER, "far"),
        (10, Strategy.IN_ORDER, "near"),
        (8, Strategy.BEST_FIT, "far"),
        (2, Strategy.MOST_FREE, "near"),
        (2, Strategy.LEAST_FREE, "far"),
        (11, Strategy.IN_ORDER, ""),
    ],
)
def test_a_group_goes_into_one_of_the_sets_that_the_policy_lists(count: int, strategy: Strategy, expected: str) -> None:
    """Zones a and b hold ten pods together, and zone c eight. Zone d has the most room, and is not listed."""
    index = cluster(*THREE_ZONES, host("d1", "d", 50), contender("x", cpu=1000, on="c1"))
    found = decide(index, gang(count), strategy=strategy, domains=(FAR, NEAR))
    spec = ReleaseSpec((ZONE,), domains=(NEAR, FAR))
    assert found.levels == {"near": (spec.level_of(NEAR),), "far": (spec.level_of(FAR),)}.get(expected, ())
    assert all(node[0] in {"near": "ab", "far": "c"}[expected] for node in on_nodes(found))
    if not expected:
        assert [str(each.domain) for each in found.rejected] == [f"{ZONE} in (b, a)", f"{ZONE}=c"]


def test_a_domain_without_nodes_is_rejected_and_the_next_one_taken() -> None:
    nowhere = Domain("nowhere", ("x", "y"))
    found = decide(cluster(*THREE_ZONES), gang(2), strategy=Strategy.IN_ORDER, domains=(nowhere, NEAR))
    assert domain(found) == "b"
    assert found.rejected == (RejectedDomain(Level(ZONE, "x", ("x", "y")), 2),)


def test_spread_in_a_set_counts_its_zones_only() -> None:
    """Two pods in each of two zones: for pods that are narrowed to them a third zone is none in which a pod is missing."""
    index = cluster(*THREE_ZONES)
    found = decide(index, gang(4, spreads=[spread(ZONE, gang="x")]), strategy=Strategy.IN_ORDER, domains=(NEAR,))
    assert Counter(node[0] for node, count in on_nodes(found).items() for _ in range(count)) == {"a": 2, "b": 2}


@pytest.mark.parametrize("node", ["", "b1"])
def test_pods_follow_their_siblings_into_the_set(node: str) -> None:
    """Where the decision is lost, it is read from what released pods are narrowed to: zone c would be the first."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]}
    body = gated_json("s", "x", released="x", on=node)
    body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    sibling = PODS.decode_object(orjson.dumps(body))
    index = cluster(*THREE_ZONES, sibling)
    found = decide(index, gang(2), siblings=[sibling], strategy=Strategy.IN_ORDER, domains=(FAR, NEAR))
    assert found.levels == (Level(ZONE, "b", ("b", "a")),)
    lost = decide(index, gang(2), siblings=[sibling], strategy=Strategy.IN_ORDER, domains=(FAR,))
    assert lost.slots == ()


def test_a_set_that_shares_a_zone_with_that_of_another_group_is_taken() -> None:
    taken = [(OTHER, (Level(ZONE, "a", ("a", "d")),))]
    found = decide(cluster(*THREE_ZONES), gang(2), domains=(NEAR, FAR), exclusive=True, taken=taken)
    assert domain(found) == "c"


def test_equal_zones_are_chosen_by_name() -> None:
    index = cluster(host("n1", "b", 4), host("n2", "a", 4))
    for strategy in Strategy:
        assert domain(decide(index, gang(2), strategy=strategy)) == "a"


def test_halves_of_pods_on_two_nodes_are_no_room() -> None:
    """Zone a has 6 CPUs free, and no node with two times 2."""
    index = cluster(host("a1", "a", 3), host("a2", "a", 3), host("b1", "b", 6))
    found = decide(index, gang(3, cpu=2))
    assert (domain(found), on_nodes(found)) == ("b", {"b1": 3})
    assert found.rejected == (RejectedDomain(Level(ZONE, "a"), 3, holds=2),)


def test_where_resources_do_not_count_the_pods_take_as_few_nodes_as_possible_and_the_tightest_for_the_last_ones() -> (
    None
):
    index = cluster(host("n1", "a", 5), host("n2", "a", 2), host("n3", "a", 3), host("n4", "a", 9))
    ignored = settings(answers={"scoringStrategy": "Ignored"})
    assert on_nodes(decide(index, gang(2), settings=ignored)) == {"n2": 2}
    assert on_nodes(decide(index, gang(12), settings=ignored)) == {"n4": 9, "n3": 3}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"initContainers": [{"resources": {"requests": {"cpu": "3"}}}]}, 3),
        ({"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]}, 2),
        ({"overhead": {"cpu": "2"}}, 3),
        ({"resources": {"requests": {"cpu": "4"}}}, 4),
    ],
    ids=["init container", "sidecar", "overhead", "resources of the pod"],
)
def test_what_a_pod_requests_is_what_the_scheduler_counts(spec: dict[str, Any], cpu: int) -> None:
    """Containers of one CPU, and what else counts: a node of so many holds one such pod, and one of a CPU less none."""
    bodies = [gated_json(f"p{number}", "x", cpu=1000) for number in range(2)]
    for body in bodies:
        body["spec"] |= spec
    pods = [PODS.decode_object(orjson.dumps(body)) for body in bodies]
    index = cluster(host("a1", "a", 2 * cpu - 1), host("b1", "b", cpu), host("b2", "b", cpu))
    found = decide(index, pods)
    assert (domain(found), on_nodes(found)) == ("b", {"b1": 1, "b2": 1})


@pytest.mark.parametrize(
    ("fields", "pod", "reason"),
    [
        ({"unschedulable": True}, {}, Reason.CORDONED),
        ({"taints": [taint("gpu", "yes")]}, {}, Reason.TAINT),
        ({}, {"node_selector": {"disk": "ssd"}}, Reason.NODE_AFFINITY),
    ],
    ids=["cordoned", "tainted", "selected"],
)
def test_nodes_that_the_pods_may_not_use_hold_none(fields: dict[str, Any], pod: dict[str, Any], reason: Reason) -> None:
    index = cluster(host("a1", "a", 4, **fields), host("a2", "a", 1, **fields))
    found = decide(index, gang(2, **pod))
    assert found.slots == ()
    assert found.rejected == (RejectedDomain(Level(ZONE, "a"), 2, 0, ((reason.text, 2),)),)


def test_room_that_is_claimed_by_other_pods_does_not_count() -> None:
    index = cluster(*(host(f"{zone}1", zone, 4) for zone in "abcde"), *(gated(name, "y", cpu=3000) for name in "st"))
    index.reserved.reserve(OTHER, [Slot("uid-s", "a1")], until=9.0)
    index.upsert(contender("nominated", cpu=3000, nominated="b1"))
    index.assume(contender("assumed", cpu=3000), ("c1", "d1"), 0.0)
    assert domain(decide(index, gang(2))) == "e"
    found = decide(index, gang(4, cpu=4))
    reasons = {each.domain.value: each.nodes for each in found.rejected}
    assert reasons["a"] == ((Reason.RESERVED.text, 1),)
    assert reasons["b"] == ((Reason.NO_ROOM.text, 1),)


EVERYWHERE = tuple(f"{zone}{number}" for zone in "ab" for number in (1, 2, 3))
DOUBT = AssumptionTimeouts(expiry=120.0, failure_grace=2.0, doubt=5.0)


def test_a_node_that_holds_no_pod_of_a_group_is_counted_once_however_many_kinds_of_pods_it_rejects() -> None:
    index = cluster(
        *(host(f"a{number}", "a", 1) for number in range(3)), host("a3", "a", 9, taints=(taint("pool", "db"),))
    )
    pods = [gated(f"p{cpu}", "x", cpu=1000 * cpu) for cpu in (2, 3, 4)]
    (found,) = decide(index, pods).rejected
    assert found.nodes == ((Reason.NO_ROOM.text, 3), (Reason.TAINT.text, 1))


def wandered(*stuck: Pod, nodes: Sequence[str] = EVERYWHERE, now: float = 5.0) -> ClusterIndex:
    """Three nodes of four CPU in each of two zones, where some pods of another tenant passed and were not bound."""
    index = cluster(*(host(name, name[0], 4) for name in EVERYWHERE))
    for pod in stuck:
        index.assume(pod, nodes, 0.0)
    index.assumed.review(now, DOUBT)
    return index


def test_a_pod_that_is_not_bound_in_time_counts_once_in_a_domain_where_it_takes_most() -> None:
    """It keeps room on each of its nodes until then, and would keep the group of another tenant waiting for ever."""
    stuck = contender("stuck", cpu=4000)
    assert domain(decide(wandered(stuck, now=4.9), gang(2, cpu=4))) == ""
    assert domain(decide(wandered(stuck), gang(2, cpu=4))) == "a"
    assert domain(decide(wandered(stuck), gang(3, cpu=4))) == "", "it may be on one of three nodes in each zone"
    assert domain(decide(wandered(stuck, nodes=("a1", "a2")), gang(3, cpu=4))) == "b"


def test_each_of_several_such_pods_counts_once() -> None:
    stuck = [contender(f"stuck-{number}", cpu=4000) for number in range(2)]
    assert domain(decide(wandered(*stuck), gang(1, cpu=4))) == "a"
    assert domain(decide(wandered(*stuck), gang(2, cpu=4))) == ""
    small = [contender(f"small-{number}", cpu=2000) for number in range(2)]
    assert domain(decide(wandered(*small), gang(4, cpu=2))) == "a"
    assert domain(decide(wandered(*small), gang(5, cpu=2))) == ""


def test_such_a_pod_that_requests_nothing_that_the_group_needs_takes_no_room() -> None:
    """Also where the pods of the group fill the nodes."""
    stuck = contender("stuck", also={"memory": "1Gi"})
    assert domain(decide(wandered(stuck), gang(3, cpu=4))) == "a"


def test_of_a_group_with_host_ports_a_node_takes_one_pod() -> None:
    index = cluster(host("a1", "a", 9), host("b1", "b", 2), host("b2", "b", 2))
    found = decide(index, gang(2, host_ports=[8080]))
    assert (domain(found), on_nodes(found)) == ("b", {"b1": 1, "b2": 1})


def test_unequal_pods_of_a_group_with_one_host_port_get_nodes_of_their_own() -> None:
    pods = [gated(f"p{cpu}", "x", cpu=1000 * cpu, host_ports=[8080]) for cpu in (1, 2)]
    index = cluster(host("a1", "a", 9), host("b1", "b", 20), host("b2", "b", 20))
    assert on_nodes(decide(index, pods)) == {"b1": 1, "b2": 1}


def test_a_domain_that_rules_reject_does_not_say_that_it_holds_the_group() -> None:
    apart = [term("zone", app="web")]
    (found,) = decide(cluster(host("a1", "a", 9)), gang(2, app="web", apart=apart)).rejected
    assert (found.holds, found.needed) == (1, 2)


def test_a_group_with_a_selector_that_cannot_be_parsed_has_no_domain() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    pods = gang(2, apart=[{"topologyKey": HOSTNAME, "labelSelector": wrong}])
    found = decide(cluster(host("a1", "a", 4)), pods)
    assert domain(found) == ""
    assert found.rejected[0].nodes


@pytest.mark.parametrize("unequal", [False, True])
def test_the_group_fits_wherever_such_a_pod_comes_to_be(*, unequal: bool) -> None:
    """Its slots are moved then: what is decided is that the domain has room for all."""
    stuck = contender("stuck", cpu=3000)
    pods = [gated(f"p{number}", "x", cpu=1000 * (1 + number % 2 if unequal else 1)) for number in range(6)]
    found = decide(wandered(stuck), pods, topology=(ZONE, HOSTNAME))
    assert len(found.slots) == 6
    for name in EVERYWHERE:
        index = wandered()
        index.upsert(contender("stuck", cpu=3000, on=name))
        assert len(decide(index, pods, levels=found.levels).slots) == 6


def test_the_finest_key_that_holds_the_group_is_taken() -> None:
    index = cluster(
        *(host("a1", "a", 2, rack="r1"), host("a2", "a", 2, rack="r1"), host("a3", "a", 3, rack="r2")),
        *(host("b1", "b", 9, rack="r1"), host("b2", "b", 9)),
    )
    racks = (ZONE, RACK)
    assert domain(decide(index, gang(3), topology=racks)) == "a/r2"
    assert domain(decide(index, gang(4), topology=racks)) == "a/r1"
    assert domain(decide(index, gang(7), topology=racks)) == "a"
    assert domain(decide(index, gang(8), topology=racks)) == "b/r1"
    assert domain(decide(index, gang(18), topology=racks)) == "b", "nodes without a rack are part of the zone"
    assert domain(decide(index, gang(2), topology=(ZONE, RACK, HOSTNAME))) == "a/r2/a3"


def test_a_preferred_domain_is_not_needed_but_room_for_all_is() -> None:
    index = cluster(host("a1", "a", 2), host("b1", "b", 2), stage("n1", cpu=1000))
    assert decide(index, gang(3)).slots == ()
    found = decide(index, gang(5), mode=ReleaseMode.PREFERRED)
    assert (found.levels, on_nodes(found)) == ((), {"a1": 2, "b1": 2, "n1": 1})
    assert [each.domain.value for each in found.rejected] == ["a", "b"]
    assert decide(index, gang(6), mode=ReleaseMode.PREFERRED).slots == ()
    assert domain(decide(index, gang(2), mode=ReleaseMode.PREFERRED)) == "a"


def test_an_exclusive_domain_takes_no_other_group() -> None:
    index = cluster(host("a1", "a", 9, rack="r1"), host("a2", "a", 9, rack="r2"), host("b1", "b", 99, rack="r1"))
    at = {"a": (Level(ZONE, "a"),), "a/r1": (Level(ZONE, "a"), Level(RACK, "r1"))}
    racks: dict[str, Any] = {"topology": (ZONE, RACK), "exclusive": True}
    assert domain(decide(index, gang(2), taken=[(OTHER, at["a"])], **racks)) == "b/r1"
    assert domain(decide(index, gang(2), taken=[(OTHER, at["a/r1"])], **racks)) == "a/r2"
    found = decide(index, gang(10), taken=[(OTHER, at["a/r1"])], **racks)
    assert domain(found) == "b/r1", "the whole zone a is not free of others"
    assert found.rejected == (RejectedDomain(Level(ZONE, "a"), 10, taken_by="default/y"),)
    assert domain(decide(index, gang(2), taken=[(KEY, at["a"])], **racks)) == "a/r1", "its own domain"
    shared = {**racks, "exclusive": False}
    assert domain(decide(index, gang(2), taken=[(OTHER, at["a"])], **shared)) == "a/r1"


def test_pods_that_were_released_before_pin_the_domain() -> None:
    bound = gated("s1", "x", released="x", on="b1")
    narrowed = gated("s2", "x", released="x", node_selector={ZONE: "c", RACK: "r1"})
    index = cluster(
        host("a1", "a", 2), host("b1", "b", 9), host("c1", "c", 9, rack="r1"), host("c2", "c", 2, rack="r2")
    )
    assert domain(decide(index, gang(2), siblings=[bound])) == "b"
    assert domain(decide(index, gang(2), siblings=[narrowed], topology=(ZONE, RACK))) == "c/r1"
    assert decide(index, gang(10), siblings=[narrowed], topology=(ZONE, RACK)).slots == ()
    assert decide(index, gang(1), siblings=[bound, narrowed]).slots == (), "they are in two zones: never a third one"
    in_zone = gated("s3", "x", released="x", node_selector={ZONE: "c"})
    found = decide(index, gang(2), siblings=[narrowed, in_zone], topology=(ZONE, RACK))
    assert found.levels[0] == Level(ZONE, "c"), "the levels that they share"


def test_a_decided_domain_is_kept_or_rejected_with_its_reason() -> None:
    index = cluster(host("a1", "a", 2, rack="r1"), host("a2", "a", 9, rack="r2"), host("b1", "b", 9))
    levels = (Level(ZONE, "a"), Level(RACK, "r1"))
    found = decide(index, gang(2), levels=levels)
    assert (found.levels, on_nodes(found)) == (levels, {"a1": 2})
    found = decide(index, gang(3), levels=levels)
    assert (found.slots, found.rejected) == ((), (RejectedDomain(Level(RACK, "r1"), 3, 2),))
    index.delete(host("a1", "a", 2))
    assert decide(index, gang(2), levels=levels).rejected == (RejectedDomain(Level(RACK, "r1"), 2, 0),)
    assert len(decide(index, gang(3), levels=()).slots) == 3, "an unpinned group goes anywhere"


def test_anti_affinity_within_the_group_spreads_it_over_nodes() -> None:
    apart: dict[str, Any] = {"apart": [term("host", gang="x")]}
    index = cluster(host("a1", "a", 9), host("a2", "a", 9), *(host(f"b{n}", "b", 9) for n in range(3)))
    assert on_nodes(decide(index, gang(2, **apart))) == {"a1": 1, "a2": 1}
    found = decide(index, gang(3, **apart))
    assert (domain(found), set(on_nodes(found).values())) == ("b", {1})
    assert found.rejected[0].nodes == ((Reason.ANTI_AFFINITY.text, 2),)


def test_anti_affinity_of_existing_pods_holds() -> None:
    index = cluster(host("a1", "a", 9), host("b1", "b", 20), contender("x", on="a1", apart=[term("zone", gang="x")]))
    assert domain(decide(index, gang(2))) == "b"


def test_affinity_and_spread_within_the_group_hold() -> None:
    near: dict[str, Any] = {"near": [term("rack", gang="x")]}
    index = cluster(host("a1", "a", 2, rack="r1"), host("a2", "a", 2, rack="r2"), host("b1", "b", 9, rack="r1"))
    assert on_nodes(decide(index, gang(2, **near))) in ({"a1": 2}, {"a2": 2})
    assert domain(decide(index, gang(3, **near))) == "b"
    even: dict[str, Any] = {"spreads": [spread("host", gang="x")]}
    assert on_nodes(decide(index, gang(4, **even), levels=[Level(ZONE, "a")])) == {"a1": 2, "a2": 2}


def test_pods_that_need_others_of_the_group_come_after_them() -> None:
    index = cluster(host("a1", "a", 9), host("b1", "b", 9))
    leader = gated("leader", "x", cpu=1000, role="leader")
    workers = [gated(f"w{n}", "x", cpu=2000, near=[term("zone", role="leader")]) for n in range(2)]
    assert domain(decide(index, [*workers, leader])) == "a"


def test_a_trial_leaves_the_index_as_it_was() -> None:
    index = cluster(host("a1", "a", 9), host("a2", "a", 9))
    pods = gang(3, apart=[term("host", gang="x")])
    compiled = index.view.compiled(pods[0].signature)
    before = (index.view.dependency_version(compiled), [dict(group.counts) for group in compiled.filter_groups()])
    assert decide(index, pods).slots == ()
    after = (index.view.dependency_version(compiled), [dict(group.counts) for group in compiled.filter_groups()])
    assert before == after


def test_a_search_ends_with_its_budget() -> None:
    """Odd pods on even nodes: an exhaustive search would take years."""
    index = cluster(*(host(f"a{n}", "a", 5) for n in range(20)))
    pods = [gated(f"p{n}", "x", cpu=2000 if n % 2 else 3000 - n) for n in range(41)]
    found = decide(index, pods)
    assert found.slots == ()
    assert found.rejected[0].holds == 20


def test_a_topology_by_hostname_names_the_nearest_misses_only() -> None:
    index = cluster(*(host(f"n{n}", "a", 1 + n % 3) for n in range(50)))
    found = decide(index, gang(4), topology=(HOSTNAME,))
    assert (found.slots, len(found.rejected), {each.holds for each in found.rejected}) == ((), 16, {3})


def test_a_group_without_pods_that_wait_needs_no_slots() -> None:
    assert decide(cluster(host("a1", "a", 9)), []) == Proposal()


def test_domains_within_a_domain_that_hold_too_few_are_not_tried() -> None:
    """Each node is a domain of its hostname: to try thousands of them took half of a decision."""
    index = cluster(*(host(f"a{number}", "a", 1) for number in range(200)), host("b", "b", 3))
    tried = 0

    def note(frame: FrameType, what: str, _: object) -> None:
        nonlocal tried
        tried += what == "call" and frame.f_code.co_name == "_place"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        found = decide(index, gang(4), topology=(ZONE, HOSTNAME))
    finally:
        sys.setprofile(before)
    assert domain(found) == "a"
    assert tried == 2  # the zones


def test_finer_domains_hold_pods_of_every_shape() -> None:
    """One rack has room for all large pods, another for all small ones, the third for both."""
    index = cluster(
        host("a1", "a", 2, "r1"), host("a2", "a", 4, "r2"), host("a3", "a", 1, "r3"), host("a4", "a", 4, "r3")
    )
    pods = [gated("large", "x", cpu=4000), gated("small", "x", cpu=1000)]
    found = decide(index, pods, topology=(ZONE, RACK))
    assert domain(found) == "a/r3"


INDEX = "batch.kubernetes.io/job-completion-index"
OF_GROUP: Any = term("host", gang="x")
OF_ONE: Any = term("host", **cast("Any", {INDEX: "3"}))


def indexed(count: int, **fields: Any) -> list[Pod]:
    """As of an indexed Job: each pod has a label of its own."""
    return [gated(f"p{number}", "x", cpu=1000, labels={INDEX: str(number)}, **fields) for number in range(count)]


def end_of(steps: Trials[T], at_step: Callable[[int], object] = bool) -> T:
    """What the steps come to, where each is paused after, and ``at_step`` is called meanwhile."""
    try:
        for number in count():
            is_clean = next(steps)
            while not is_clean:
                is_clean = steps.send(True)
            at_step(number)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1),
        ({"apart": [OF_GROUP]}, 1),
        ({"apart": [OF_ONE]}, 2),
        ({"spreads": [spread(ZONE, gang="x")]}, 1),
    ],
    ids=["none", "the label of the group", "the label of the pod", "spread"],
)
def test_pods_are_of_one_kind_unless_a_selector_tells_them_apart(fields: dict[str, Any], expected: int) -> None:
    pods = indexed(8, **fields)
    index = cluster(*THREE_ZONES, *pods)
    assert len({pod.signature for pod in pods}) == 8
    assert len(set(end_of(kinds_of(pods, index.view)).values())) == expected


def test_a_term_of_an_existing_pod_that_reads_the_label_tells_pods_apart() -> None:
    pods = indexed(8)
    index = cluster(*THREE_ZONES, contender("other", cpu=1, on="a1", apart=[OF_ONE]), *pods)
    assert len(set(end_of(kinds_of(pods, index.view)).values())) == 2
    found = decide(index, pods[:4], topology=(HOSTNAME,), mode=ReleaseMode.PREFERRED)
    assert next(slot.node for slot in found.slots if slot.pod == pods[3].uid) != "a1"


@pytest.mark.parametrize("fields", [{}, {"apart": [OF_GROUP]}, {"spreads": [spread(ZONE, gang="x")]}])
def test_a_choice_that_pauses_at_every_step_is_the_same_and_leaves_no_trial_behind(fields: dict[str, Any]) -> None:
    hosts = [host(f"{zone}{number}", zone, 2) for zone in "ab" for number in range(6)]
    pods = [*indexed(3, **fields), *(gated(f"q{number}", "x", cpu=2000) for number in range(2))]
    index, problems = cluster(*hosts, *pods), list[str]()
    steps = propose_in_steps(Rest(KEY, ReleaseSpec((ZONE,)), pods), index.view, SETTINGS)
    found = end_of(steps, lambda _: problems.extend(audit(index)))
    assert (found, problems) == (propose(Rest(KEY, ReleaseSpec((ZONE,)), pods), index.view, SETTINGS), [])
    assert len(found.slots) == len(pods)


def test_of_many_kinds_of_pods_one_is_counted_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, over = list[Pod](), placing.Capacity.over

    def counting(
        capacity: placing.Capacity, pod: Pod, levels: Sequence[Level] = ()
    ) -> Trials[Sequence[placing.NodeRoom]]:
        counted.append(pod)
        return over(capacity, pod, levels)

    monkeypatch.setattr(placing.Capacity, "over", counting)
    pods = [gated(f"p{number}", "x", cpu=1000 + number) for number in range(9)]
    before, most = 0, 0
    for _ in propose_in_steps(Rest(KEY, ReleaseSpec((ZONE,)), pods), cluster(host("a1", "a", 20)).view, SETTINGS):
        before, most = len(counted), max(most, len(counted) - before)
    assert (len(counted) >= 9, most) == (True, 1)


def test_room_that_is_taken_during_a_pause_is_not_proposed() -> None:
    index, pods = cluster(host("a1", "a", 4), host("b1", "b", 6)), gang(4)
    late = contender("late", cpu=1000, on="a1")
    steps = propose_in_steps(Rest(KEY, ReleaseSpec((ZONE,)), pods), index.view, SETTINGS)
    found = end_of(steps, lambda number: index.upsert(late) if number == len(pods) + 3 else None)
    assert (domain(found), len(found.slots)) == ("b", 4)
    assert all(each.holds < len(pods) for each in found.rejected), found.rejected


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("topology", [(ZONE,), (HOSTNAME,), (ZONE, HOSTNAME)])
def test_a_step_looks_at_few_of_many_nodes_and_nodes_may_come_and_go_between_steps(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, topology: tuple[str, ...]
) -> None:
    hosts = [host(f"{zone}{number}", zone, 4) for zone in "abc" for number in range(20)]
    index, pods = cluster(*hosts, *gang(4)), gang(4)
    rest = Rest(KEY, ReleaseSpec(topology, strategy=strategy), pods)
    whole = propose(rest, index.view, SETTINGS)
    at_once = sum(1 for _ in propose_in_steps(rest, index.view, SETTINGS))
    monkeypatch.setattr(placing, "NODES_A_STEP", 5)
    monkeypatch.setattr(choice, "NODES_A_STEP", 5)
    assert propose(rest, index.view, SETTINGS) == whole
    assert sum(1 for _ in propose_in_steps(rest, index.view, SETTINGS)) >= at_once + 2 * len(hosts) // 5

    def replace_a_node(step: int) -> None:
        index.delete(hosts[step % 20])
        index.upsert(host(f"new-{step}", "c", 4))

    found = end_of(propose_in_steps(rest, index.view, SETTINGS), replace_a_node)
    assert {slot.node for slot in found.slots} <= index.view.known.keys()
