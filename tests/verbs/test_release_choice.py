"""Which domain a group gets, where in it each pod goes, and why the other domains do not hold the group."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from types import FrameType
from typing import Any, TypeVar, cast

import pytest

from extender.index.audit import audit
from extender.index.trial import TrialSteps
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Pod
from extender.model.rejections import Reason
from extender.model.release import (
    Domain,
    GroupKey,
    Level,
    NoRoom,
    Proposal,
    RejectedDomain,
    ReleaseSpec,
    Slot,
    Strategy,
)
from extender.verbs.release import choice
from extender.verbs.release.choice import Rest, propose, propose_in_steps
from extender.verbs.slots import placing
from extender.verbs.slots.placing import kinds_of
from tests.builders import Json, read_pod, settings, spread, taint, term
from tests.contenders import cluster, contender, stage
from tests.gangs import actions, gated, gated_json
from tests.index.counting import Assume, Review, Step, apply
from tests.verbs.release_choice import KEY, RACK, SETTINGS, decide, domain, gang, host, hosts, on_nodes

OTHER = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "y")
T = TypeVar("T")
ZONES = "a1:2 a2:2 b1:3 b2:3 c1:8 c2:1"
THREE_ZONES = tuple(hosts(ZONES))
LOADED = [*hosts(ZONES), contender("x", cpu=1000, on="c1"), contender("y", cpu=3000, on="b1")]
IGNORED = settings(answers={"scoringStrategy": "Ignored"})
RACKS: Json = {"topology": (ZONE, RACK)}
RACKED = [*hosts("a1/r1:2 a2/r1:2 a3/r2:3 b1/r1:9 b2:9")]
OF_RACKS = hosts("a1/r1:9 a2/r2:9 b1/r1:99")
A, A_R1 = (Level(ZONE, "a"),), (Level(ZONE, "a"), Level(RACK, "r1"))
EXCLUSIVE = RACKS | {"exclusive": True}
BOUND = gated("s1", "x", released="x", on="b1")
NARROWED = gated("s2", "x", released="x", node_selector={ZONE: "c", RACK: "r1"})
RELEASED = hosts("a1:2 b1:9 c1/r1:9 c2/r2:2")
DECIDED = hosts("a1/r1:2 a2/r2:9 b1:9")
APART: Json = {"apart": [term("host", gang="x")]}
NEAR_RACK: Json = {"near": [term("rack", gang="x")]}
SIX = hosts("a1:4 a2:4 a3:4 b1:4 b2:4 b3:4")
EVERYWHERE = tuple(node.name for node in SIX)
PREFERRED: Json = {"no_room": actions(NoRoom.SEVERAL_DOMAINS)}
WORKERS = [gated(f"w{n}", "x", cpu=2000, near=[term("zone", role="leader")]) for n in range(2)]


def stuck(name: str = "stuck", nodes: Sequence[str] = EVERYWHERE, now: float = 5.0, **fields: Any) -> list[Step]:
    """A pod of another tenant that passed on these nodes and is not bound, in doubt after 5 seconds."""
    return [Assume(contender(name, **fields), tuple(nodes)), Review(now)]


def two_stuck(cpu: int) -> list[Step]:
    return [*SIX, *stuck("stuck-0", cpu=cpu, now=0.0), *stuck("stuck-1", cpu=cpu)]


# The cluster, the pods, how it is decided, the domain, and the pods on each node where that matters.
CHOICES: dict[str, tuple[Sequence[Any], list[Pod], Json, str, dict[str, int] | None]] = {
    **{
        f"the tightest zone that holds {size}": (hosts(ZONES), gang(size), {}, zone, None)
        for size, zone in ((4, "a"), (5, "b"), (6, "b"), (7, "c"), (9, "c"), (10, ""))
    },
    # Zone a is empty, half of zone b is in use, and a ninth of zone c.
    **{
        f"the {strategy.value} zone for {size}": (LOADED, gang(size), {"strategy": strategy}, zone, None)
        for strategy, size, zone in (
            *((Strategy.MOST_FREE, 2, "a"), (Strategy.MOST_FREE, 4, "a")),
            *((Strategy.LEAST_FREE, 2, "b"), (Strategy.LEAST_FREE, 4, "c")),
        )
    },
    **{
        f"equal zones by name: {strategy.value}": (
            [host("n1", "b", 4), host("n2", "a", 4)], gang(2), {"strategy": strategy}, "a", None,
        )
        for strategy in Strategy
    },
    "resources ignored, few pods": (hosts("a1:5 a2:2 a3:3 a4:9"), gang(2), {"settings": IGNORED}, "a", {"a2": 2}),
    "as few nodes as possible, and the tightest for the last ones": (
        hosts("a1:5 a2:2 a3:3 a4:9"), gang(12), {"settings": IGNORED}, "a", {"a4": 9, "a3": 3},
    ),
    "a node takes one pod of a host port": (
        hosts("a1:9 b1:2 b2:2"), gang(2, host_ports=[8080]), {}, "b", {"b1": 1, "b2": 1},
    ),
    "also where the pods differ": (
        hosts("a1:9 b1:20 b2:20"), [gated(f"p{cpu}", "x", cpu=1000 * cpu, host_ports=[8080]) for cpu in (1, 2)],
        {}, "b", {"b1": 1, "b2": 1},
    ),
    **{
        f"the finest key that holds {size}": (RACKED, gang(size), RACKS, found, None)
        # Nodes without a rack are part of the zone.
        for size, found in ((3, "a/r2"), (4, "a/r1"), (7, "a"), (8, "b/r1"), (18, "b"))
    },
    "the hostname is finer": (RACKED, gang(2), {"topology": (ZONE, RACK, HOSTNAME)}, "a/r2/a3", None),
    # The pod keeps room on each of its nodes until it is in doubt; then it counts in a domain where it takes most.
    "before a pod is in doubt": ([*SIX, *stuck(now=4.9, cpu=4000)], gang(2, cpu=4), {}, "", None),
    "a pod in doubt counts once": ([*SIX, *stuck(cpu=4000)], gang(2, cpu=4), {}, "a", None),
    "it may be on one of three nodes in each zone": ([*SIX, *stuck(cpu=4000)], gang(3, cpu=4), {}, "", None),
    "it may be in one zone only": ([*SIX, *stuck(nodes=("a1", "a2"), cpu=4000)], gang(3, cpu=4), {}, "b", None),
    "two large pods in doubt": (two_stuck(4000), gang(1, cpu=4), {}, "a", None),
    "two large pods in doubt and one more": (two_stuck(4000), gang(2, cpu=4), {}, "", None),
    "two small pods in doubt": (two_stuck(2000), gang(4, cpu=2), {}, "a", None),
    "two small pods in doubt and one more": (two_stuck(2000), gang(5, cpu=2), {}, "", None),
    "a pod in doubt that requests nothing that the group needs": (
        [*SIX, *stuck(also={"memory": "1Gi"})], gang(3, cpu=4), {}, "a", None,
    ),
    "exclusive: zone a is taken": (OF_RACKS, gang(2), EXCLUSIVE | {"taken": [(OTHER, A)]}, "b/r1", None),
    "exclusive: a rack is taken": (OF_RACKS, gang(2), EXCLUSIVE | {"taken": [(OTHER, A_R1)]}, "a/r2", None),
    "exclusive: its own domain": (OF_RACKS, gang(2), EXCLUSIVE | {"taken": [(KEY, A)]}, "a/r1", None),
    "shared": (OF_RACKS, gang(2), RACKS | {"exclusive": False, "taken": [(OTHER, A)]}, "a/r1", None),
    "a bound sibling": (RELEASED, gang(2), {"siblings": [BOUND]}, "b", None),
    "a narrowed sibling": (RELEASED, gang(2), RACKS | {"siblings": [NARROWED]}, "c/r1", None),
    "a narrowed sibling leaves no other domain": (RELEASED, gang(10), RACKS | {"siblings": [NARROWED]}, "", None),
    "siblings in two zones: never a third one": (RELEASED, gang(1), {"siblings": [BOUND, NARROWED]}, "", None),
    "a decided domain": (DECIDED, gang(2), {"levels": A_R1}, "a/r1", {"a1": 2}),
    "anti-affinity within the group": (hosts("a1:9 a2:9 b0:9 b1:9 b2:9"), gang(2, **APART), {}, "a", {"a1": 1, "a2": 1}),
    "anti-affinity of three": (
        hosts("a1:9 a2:9 b0:9 b1:9 b2:9"), gang(3, **APART), {}, "b", {"b0": 1, "b1": 1, "b2": 1},
    ),
    "anti-affinity of existing pods": (
        [*hosts("a1:9 b1:20"), contender("x", on="a1", apart=[term("zone", gang="x")])], gang(2), {}, "b", None,
    ),
    "affinity within the group": (hosts("a1/r1:2 a2/r2:2 b1/r1:9"), gang(2, **NEAR_RACK), {}, "a", {"a1": 2}),
    "affinity that zone a does not hold": (hosts("a1/r1:2 a2/r2:2 b1/r1:9"), gang(3, **NEAR_RACK), {}, "b", None),
    "spread within the group": (
        hosts("a1:2 a2:2 b1:9"), gang(4, spreads=[spread("host", gang="x")]), {"levels": A}, "a", {"a1": 2, "a2": 2},
    ),
    "pods that need others of the group come after them": (
        hosts("a1:9 b1:9"), [*WORKERS, gated("leader", "x", cpu=1000, role="leader")], {}, "a", None,
    ),
    # One rack has room for all large pods, another for all small ones, the third for both.
    "finer domains hold pods of every shape": (
        hosts("a1/r1:2 a2/r2:4 a3/r3:1 a4/r3:4"), [gated("large", "x", cpu=4000), gated("small", "x", cpu=1000)],
        RACKS, "a/r3", None,
    ),
    "no room in any zone": ([*hosts("a1:2 b1:2"), stage("n1", cpu=1000)], gang(3), {}, "", None),
    "preferred: no room for all": ([*hosts("a1:2 b1:2"), stage("n1", cpu=1000)], gang(6), PREFERRED, "", None),
    "preferred: a zone has room": ([*hosts("a1:2 b1:2"), stage("n1", cpu=1000)], gang(2), PREFERRED, "a", None),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "pods", "how", "expected", "nodes"), CHOICES.values(), ids=CHOICES)
def test_the_domain_of_a_group(
    steps: Sequence[Step], pods: list[Pod], how: Json, expected: str, nodes: dict[str, int] | None
) -> None:
    found = decide(apply(cluster(), *steps), pods, **how)
    assert (domain(found), nodes or on_nodes(found)) == (expected, on_nodes(found))
    assert bool(found.slots) is bool(expected)


UNUSABLE: list[tuple[str, Json, Json, Reason]] = [
    ("cordoned", {"unschedulable": True}, {}, Reason.CORDONED),
    ("tainted", {"taints": [taint("gpu", "yes")]}, {}, Reason.TAINT),
    ("selected", {}, {"node_selector": {"disk": "ssd"}}, Reason.NODE_AFFINITY),
]
# The cluster, the pods, how it is decided, the domain, and the ones that are rejected.
REJECTED: dict[str, tuple[Sequence[Any], list[Pod], Json, str, tuple[RejectedDomain, ...]]] = {
    # Zone a has 6 CPUs free, and no node with two times 2.
    "halves of pods on two nodes": (
        hosts("a1:3 a2:3 b1:6"), gang(3, cpu=2), {}, "b", (RejectedDomain(Level(ZONE, "a"), 3, holds=2),),
    ),
    **{
        text: (
            [host("a1", "a", 4, **fields), host("a2", "a", 1, **fields)], gang(2, **pod), {},
            "", (RejectedDomain(Level(ZONE, "a"), 2, 0, ((reason.text, 2),)),),
        )
        for text, fields, pod, reason in UNUSABLE
    },
    "each node counts once for several kinds of pods": (
        [*hosts("a0:1 a1:1 a2:1"), host("a3", "a", 9, taints=(taint("pool", "db"),))],
        [gated(f"p{cpu}", "x", cpu=1000 * cpu) for cpu in (2, 3, 4)], {},
        "", (RejectedDomain(Level(ZONE, "a"), 3, 0, ((Reason.NO_ROOM.text, 3), (Reason.TAINT.text, 1))),),
    ),
    "rules reject the last pod": (
        hosts("a1:9"), gang(2, app="web", apart=[term("zone", app="web")]), {},
        "", (RejectedDomain(Level(ZONE, "a"), 2, 1, ((Reason.ANTI_AFFINITY.text, 1),)),),
    ),
    "anti-affinity within the group": (
        hosts("a1:9 a2:9 b0:9 b1:9 b2:9"), gang(3, **APART), {},
        "b", (RejectedDomain(Level(ZONE, "a"), 3, 2, ((Reason.ANTI_AFFINITY.text, 2),)),),
    ),
    # The whole zone a is not free of others.
    "exclusive": (
        OF_RACKS, gang(10), EXCLUSIVE | {"taken": [(OTHER, A_R1)]},
        "b/r1", (RejectedDomain(Level(ZONE, "a"), 10, taken_by="default/y"),),
    ),
    "a decided domain": (DECIDED, gang(3), {"levels": A_R1}, "", (RejectedDomain(Level(RACK, "r1"), 3, 2),)),
    "a decided domain without a node": (DECIDED[1:], gang(2), {"levels": A_R1}, "", (RejectedDomain(Level(RACK, "r1"), 2, 0),)),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "pods", "how", "expected", "rejected"), REJECTED.values(), ids=REJECTED)
def test_why_domains_are_rejected(
    steps: Sequence[Step], pods: list[Pod], how: Json, expected: str, rejected: tuple[RejectedDomain, ...]
) -> None:
    found = decide(apply(cluster(), *steps), pods, **how)
    assert (domain(found), found.rejected) == (expected, rejected)


def test_a_preferred_domain_is_not_needed() -> None:
    found = decide(cluster(*hosts("a1:2 b1:2"), stage("n1", cpu=1000)), gang(5), **PREFERRED)
    assert (found.levels, on_nodes(found)) == ((), {"a1": 2, "b1": 2, "n1": 1})
    assert [rejected.domain.value for rejected in found.rejected] == ["a", "b"]


def test_released_pods_pin_the_levels_that_they_share_and_no_levels_pin_nothing() -> None:
    in_zone = gated("s3", "x", released="x", node_selector={ZONE: "c"})
    found = decide(cluster(*RELEASED), gang(2), siblings=[NARROWED, in_zone], **RACKS)
    assert found.levels[0] == Level(ZONE, "c")
    assert len(decide(cluster(*DECIDED[1:]), gang(3), levels=()).slots) == 3


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
    sibling = read_pod(body)
    index = cluster(*THREE_ZONES, sibling)
    found = decide(index, gang(2), siblings=[sibling], strategy=Strategy.IN_ORDER, domains=(FAR, NEAR))
    assert found.levels == (Level(ZONE, "b", ("b", "a")),)
    lost = decide(index, gang(2), siblings=[sibling], strategy=Strategy.IN_ORDER, domains=(FAR,))
    assert lost.slots == ()


def test_a_set_that_shares_a_zone_with_that_of_another_group_is_taken() -> None:
    taken = [(OTHER, (Level(ZONE, "a", ("a", "d")),))]
    found = decide(cluster(*THREE_ZONES), gang(2), domains=(NEAR, FAR), exclusive=True, taken=taken)
    assert domain(found) == "c"


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
    pods = [read_pod(body) for body in bodies]
    index = cluster(host("a1", "a", 2 * cpu - 1), host("b1", "b", cpu), host("b2", "b", cpu))
    found = decide(index, pods)
    assert (domain(found), on_nodes(found)) == ("b", {"b1": 1, "b2": 1})


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


@pytest.mark.parametrize("unequal", [False, True])
def test_the_group_fits_wherever_a_pod_in_doubt_comes_to_be(*, unequal: bool) -> None:
    """Its slots are moved then: the decision is that the domain has room for all."""
    pods = [gated(f"p{number}", "x", cpu=1000 * (1 + number % 2 if unequal else 1)) for number in range(6)]
    found = decide(apply(cluster(), *SIX, *stuck(cpu=3000)), pods, topology=(ZONE, HOSTNAME))
    assert len(found.slots) == 6
    for name in EVERYWHERE:
        index = cluster(*SIX, contender("stuck", cpu=3000, on=name))
        assert len(decide(index, pods, levels=found.levels).slots) == 6


def test_a_group_with_a_selector_that_cannot_be_parsed_has_no_domain() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    pods = gang(2, apart=[{"topologyKey": HOSTNAME, "labelSelector": wrong}])
    found = decide(cluster(host("a1", "a", 4)), pods)
    assert domain(found) == ""
    assert found.rejected[0].nodes


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


INDEX = "batch.kubernetes.io/job-completion-index"
OF_GROUP: Any = term("host", gang="x")
OF_ONE: Any = term("host", **cast("Any", {INDEX: "3"}))


def indexed(count: int, **fields: Any) -> list[Pod]:
    """As of an indexed Job: each pod has a label of its own."""
    return [gated(f"p{number}", "x", cpu=1000, labels={INDEX: str(number)}, **fields) for number in range(count)]


def end_of(steps: TrialSteps[T], at_step: Callable[[int], object] = bool) -> T:
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
def test_pods_are_of_one_kind_unless_a_selector_says_them_apart(fields: dict[str, Any], expected: int) -> None:
    pods = indexed(8, **fields)
    index = cluster(*THREE_ZONES, *pods)
    assert len({pod.signature for pod in pods}) == 8
    assert len(set(end_of(kinds_of(pods, index.view)).values())) == expected


def test_a_term_of_an_existing_pod_that_reads_the_label_says_pods_apart() -> None:
    pods = indexed(8)
    index = cluster(*THREE_ZONES, contender("other", cpu=1, on="a1", apart=[OF_ONE]), *pods)
    assert len(set(end_of(kinds_of(pods, index.view)).values())) == 2
    found = decide(index, pods[:4], topology=(HOSTNAME,), **PREFERRED)
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
    ) -> TrialSteps[Sequence[placing.NodeRoom]]:
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
