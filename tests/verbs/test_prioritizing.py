"""The prioritize verb: both scales, and the empty answer that costs the scheduler least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.rules.catalog import PreparedFilters
from extender.settings.configuration import Settings
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import TRIED, find_node_elsewhere
from tests.builders import (
    Json,
    extender_args,
    index_of,
    matching,
    node,
    node_json,
    pod,
    pod_json,
    read_pod,
    settings,
    spread,
    taint,
    term,
    weighted,
)
from tests.contenders import cluster, contender, contender_json, stage
from tests.deciding import filter_nodes
from tests.index.counting import Assume, Step, apply

EXTENDER, IN_TREE = settings(), settings(answers={"scoreScale": "inTree"})
NEAR_WEB = pod_json(prefers=[weighted(10, term("zone", app="web"))])


def web_in(*zones: str) -> list[Object]:
    """Three nodes in three zones, and a web pod in each of these zones."""
    nodes = [node(zone, zone=zone) for zone in ("z1", "z2", "z3")]
    return [*nodes, *(pod(f"web-{number}", on=zone, app="web") for number, zone in enumerate(zones))]


def scores(index: ClusterIndex, incoming: Json, *, in_tree: bool = False) -> dict[str, int]:
    args = extender_args(incoming, *sorted(index.view.known))
    return dict(prioritize_nodes(args, index.view, IN_TREE if in_tree else EXTENDER))


BOTH_RULES = pod_json(prefers=[weighted(10, term("zone", app="web"))], spreads=[spread(hard=False, app="web")])
UNREADABLE = pod_json(prefers=[weighted(10, term("zone", selector=matching(("app", "In", []))))])
EQUALLY_SPREAD = pod_json(spreads=[spread(hard=False, app="web")])
REQUIRED = pod_json(near=[term("zone", app="web")])
# The zones of web pods, the incoming pod, its scores in the scale of the extender, and in that of the scheduler.
SCORES: dict[str, tuple[tuple[str, ...], Json, dict[str, int], dict[str, int]]] = {
    "in-tree points keep every difference": (
        *(("z1", "z1", "z1", "z2"), NEAR_WEB),
        *({"z1": 10, "z2": 3, "z3": 0}, {"z1": 200, "z2": 66, "z3": 0}),
    ),
    # Raw spread scores are 2 and 1 pods times ln(3 + 2), rounded: 3, 2 and 0.
    "both rules add up in-tree and share the ten points": (
        *(("z1", "z1", "z2"), BOTH_RULES),
        *({"z1": 5, "z2": 4, "z3": 5}, {"z1": 200 + 0, "z2": 100 + 66, "z3": 0 + 200}),
    ),
    "differences that ten steps cannot show": (
        *(("z1", "z1", "z1", "z2"), BOTH_RULES),
        *({}, {"z1": 200 + 0, "z2": 66 + 120, "z3": 0 + 200}),
    ),
    "unreadable terms": (("z1",), UNREADABLE, {}, {}),
    **{
        f"equal nodes, {text}": (zones, incoming, {}, {})
        for text, incoming in (
            ("no preference", pod_json()),
            ("a preference", NEAR_WEB),
            ("a soft spread", EQUALLY_SPREAD),
            ("required terms", REQUIRED),
        )
        for zones in ((), ("z1", "z2", "z3"))
    },
}


@pytest.mark.parametrize(("zones", "incoming", "ten", "in_tree"), SCORES.values(), ids=SCORES)
def test_scores(zones: tuple[str, ...], incoming: Json, ten: dict[str, int], in_tree: dict[str, int]) -> None:
    """An empty answer costs the scheduler least."""
    index = index_of(*web_in(*zones))
    assert (scores(index, incoming), scores(index, incoming, in_tree=True)) == (ten, in_tree)


def test_names_that_are_not_known_get_no_score() -> None:
    index = index_of(*web_in("z1"))
    args = extender_args(NEAR_WEB, "z1", "ghost", "z2")
    assert prioritize_nodes(args, index.view, EXTENDER) == {"z1": 10, "z2": 0}


@pytest.mark.parametrize("weight", [0, 100])
def test_a_hard_weight_of_nought_switches_that_off(weight: int) -> None:
    chosen = settings(rules={"interPodAffinity": {"hardPodAffinityWeight": weight}})
    host = pod("host", on="z2", near=[term("zone", app="guest")])
    index = index_of(*web_in(), host, rules=chosen.rules)
    found = prioritize_nodes(extender_args(pod_json(app="guest"), "z1", "z2"), index.view, chosen)
    assert found == ({} if not weight else {"z1": 0, "z2": 10})


def test_existing_pods_preferences_can_be_ignored_for_pods_without_their_own() -> None:
    chosen = settings(rules={"interPodAffinity": {"ignorePreferredTermsOfExistingPods": True}})
    host = pod("host", on="z2", prefers=[weighted(10, term("zone", app="guest"))])
    index = index_of(*web_in("z1"), host, rules=chosen.rules)
    plain = pod_json(app="guest")
    picky = pod_json(app="guest", prefers=[weighted(1, term("zone", app="web"))])
    assert prioritize_nodes(extender_args(plain, "z1", "z2"), index.view, chosen) == {}
    assert prioritize_nodes(extender_args(picky, "z1", "z2"), index.view, chosen) == {"z1": 0, "z2": 10}


def test_nodes_of_the_request_are_scored_by_their_own_labels() -> None:
    index = index_of(*web_in("z1"))
    nodes = [node_json("new-1", zone="z1"), node_json("new-2", zone="z9"), node_json("new-3")]
    found = prioritize_nodes(extender_args(NEAR_WEB, nodes=nodes), index.view, EXTENDER)
    assert found == {"new-1": 10, "new-2": 0, "new-3": 0}


# -- The one node of a decisive answer, among equals, and the node of the whole cluster to which a pod is nominated ----

DECISIVE = settings(placement="decisive")
SHY = taint("busy", effect="PreferNoSchedule")
LONELY: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}


LEAST, MOST = "LeastAllocated", "MostAllocated"


def staged(text: str) -> list[Object]:
    """Nodes "name:cpu", of 4000 by default, and pods "name@node:cpu", in milli-CPU."""
    words = [word.partition(":") for word in text.split()]
    made: list[Object] = [stage(name, cpu=int(cpu or 4000)) for name, _, cpu in words if "@" not in name]
    pods = [(*name.split("@"), cpu) for name, _, cpu in words if "@" in name]
    return [*made, *(contender(name, on=node, cpu=int(cpu or 0)) for name, node, cpu in pods)]


def sized(name: str, cpu: str, memory: str) -> list[Object]:
    """A node of 4 CPU and 8 Gi, of which so much is requested."""
    offered = {"cpu": "4", "memory": "8Gi"}
    return [node(name, allocatable=offered), pod(f"on-{name}", on=name, requests={"cpu": cpu, "memory": memory})]


HALF_USED = " ".join(f"n{number:02} p{number:02}@n{number:02}:2000" for number in range(100))
SIXTY = staged("large:64000 a@large:6400 " + " ".join(f"n{number:02}:2000" for number in range(60)))
TAINTED = [stage("n1", taints=[SHY]), stage("n2"), stage("n3", taints=[SHY, {**SHY, "key": "leaving"}])]
DB, WEB_N2 = contender("db", on="n1", app="db"), contender("w2", on="n2", app="web")
LIKING_DB: Json = {"prefers": [weighted(1, term("host", app="db"))]}
# The cluster, fields of the incoming pod, the strategy, a node to avoid, and the node that is answered.
DECISIVE_ANSWERS: dict[str, tuple[list[Any], Json, str, str, set[str]]] = {
    # A share and not an amount: half of a small node is less free than seven eighths of a large one.
    "the larger free share": (staged("n1:1000 n2:8000 a@n1:500 b@n2:1000"), {}, LEAST, "", {"n2"}),
    "of the small node": (staged("n1:1000 n2:8000 a@n1:100 b@n2:4000"), {}, LEAST, "", {"n1"}),
    "small requests count": (staged("n1:1000 n2:8000 b@n2:4000"), {"cpu": 100}, LEAST, "", {"n1"}),
    "large requests count": (staged("n1:1000 n2:8000 b@n2:4000"), {"cpu": 900}, LEAST, "", {"n2"}),
    "a pod without requests takes a share": (staged("n1 n2 a@n1"), {}, LEAST, "", {"n2"}),
    # A third of both is better than half of one: NodeResourcesFit prefers the second by 8 points, balanced allocation
    # the first by 25.
    **{
        f"the larger of the shares of CPU and memory, {strategy}": (
            [*sized("n1", "2", "1"), *sized("n2", "1333m", "2730Mi")], {}, strategy, "", {"n2"},
        )
        for strategy in (LEAST, MOST)
    },
    "most allocated": ([*sized("n1", "3", "6Gi"), *sized("n2", "1333m", "2730Mi")], {}, MOST, "", {"n1"}),
    "resources ignored": (staged("n1 n2 a@n1:3000"), {}, "Ignored", "", {"n1", "n2"}),
    # kube-scheduler samples a hundred nodes at least.
    "the emptiest of a hundred": (staged(HALF_USED.replace("@n57:2000", "@n57:1900")), {}, LEAST, "", {"n57"}),
    "the fullest of a hundred": (staged(HALF_USED.replace("@n57:2000", "@n57:2100")), {}, MOST, "", {"n57"}),
    # Of 300 nodes 30 pass, and they are in three of the hundreds that are read at once.
    "names are read on while few nodes pass": (
        [*(stage(f"n{at:03}") for at in range(300)), *(
            contender(f"p{at}", on=f"n{at:03}", cpu=1900 if at == 170 else 2000, app="web" if at % 10 else "db")
            for at in range(300))],
        {}, LEAST, "", {"n170"},
    ),
    "a large node among small ones that are emptier": (SIXTY, {"cpu": 1500}, LEAST, "", {"large"}),
    "a node without soft taints, whatever the rules prefer": ([*TAINTED, DB], LIKING_DB, LEAST, "", {"n2"}),
    "a soft taint where the other is avoided": ([*TAINTED, DB], LIKING_DB, LEAST, "n2", {"n1"}),
    "a soft taint where no other passes": ([*TAINTED, DB, WEB_N2], LIKING_DB, LEAST, "", {"n1"}),
    "the node with fewer soft taints": ([*TAINTED, WEB_N2, *staged("b@n1:3000")], LIKING_DB, LEAST, "", {"n1"}),
    "that node is avoided": ([*TAINTED, WEB_N2, *staged("b@n1:3000")], LIKING_DB, LEAST, "n1", {"n3"}),
    "soft taints count more than free resources": ([*TAINTED[:2], *staged("b@n2:3000")], {}, LEAST, "", {"n2"}),
    "soft taints that are tolerated": (
        [*TAINTED[:2], *staged("b@n2:3000")], {"tolerations": [{"key": "busy", "operator": "Exists"}]},
        LEAST, "", {"n1"},
    ),
    "the node where the pod did not arrive": (staged("n1 n2:1000 b@n2:900"), {}, LEAST, "n1", {"n2"}),
    "it is taken where no other passes": ([*staged("n1 n2:1000 b@n2:900"), WEB_N2], {}, LEAST, "n1", {"n1"}),
}  # fmt: skip


def decisive(index: ClusterIndex, incoming: Json, strategy: str = LEAST, avoid: str = "") -> set[str]:
    """The nodes that are answered over several seeds, each time one."""
    settled = settings(placement="decisive", answers={"scoringStrategy": strategy})
    args = extender_args(incoming, *sorted(index.view.known))
    answers = [list(filter_nodes(args, index.view, settled, seed, avoid).passed) for seed in range(6)]
    assert all(len(answer) == 1 for answer in answers)
    return {name for (name,) in answers}


@pytest.mark.parametrize(
    ("objects", "fields", "strategy", "avoid", "expected"), DECISIVE_ANSWERS.values(), ids=DECISIVE_ANSWERS
)
def test_the_node_of_a_decisive_answer(
    objects: list[Any], fields: Json, strategy: str, avoid: str, expected: set[str]
) -> None:
    assert decisive(cluster(*objects), contender_json("asking", **LONELY, **fields), strategy, avoid) == expected


def test_a_small_pod_goes_to_a_node_that_stays_emptier() -> None:
    index = cluster(*SIXTY)
    assert decisive(index, contender_json("asking", cpu=100, **LONELY)).isdisjoint({"large"})


@pytest.mark.parametrize(("app", "count"), [(LONELY, 1), ({"app": "web"}, 1), ({"app": "db"}, 2)])
def test_a_pod_that_others_may_count_gets_one_node(app: Json, count: int) -> None:
    """Once the constraints of the first pod are compiled, web pods are counted."""
    view, lists = cluster(*staged("n1 n2")).view, settings(placement="decisive", answers={"names": "shortlist"})
    filter_nodes(extender_args(contender_json("first", **LONELY), "n1", "n2"), view, lists, 0)
    request = extender_args(contender_json("asking", **app), "n1", "n2")
    assert len(filter_nodes(request, view, lists, 0).passed) == count


def test_nodes_that_a_request_brings_along_are_compared_by_what_they_offer_themselves() -> None:
    index = cluster(stage("n1"), contender("a", on="n1", cpu=400), contender("w", on="elsewhere", **LONELY))
    offered = [("n1", "4"), ("new", "2")]
    nodes = [node_json(name, allocatable={"cpu": cpu}) for name, cpu in offered]

    def answered(cpu: int) -> set[str]:
        args = extender_args(contender_json("asking", cpu=cpu, **LONELY), nodes=nodes)
        return {name for seed in range(4) for name in filter_nodes(args, index.view, DECISIVE, seed).passed}

    assert answered(100) == {"new"}
    assert answered(1000) == {"n1"}
    nodes[0]["spec"]["taints"] = [SHY]
    assert answered(1000) == {"new"}


# -- The search past the scheduler's sample: which node of the whole cluster a pod is nominated to -----------------------


def found(index: ClusterIndex, incoming: Json, seed: int = 0) -> tuple[str, bool]:
    """The node, and whether any passes our rules."""
    return find_node_elsewhere(read_pod(incoming), index.view, Settings(), seed)


def test_equally_good_nodes_take_turns_so_that_pods_rejected_together_do_not_all_go_to_one() -> None:
    index = cluster(*(stage(f"n{number}") for number in range(4)))
    chosen = [found(index, contender_json("asking", **LONELY), seed)[0] for seed in range(8)]
    assert set(chosen[:4]) == {"n0", "n1", "n2", "n3"}
    assert chosen[:4] == chosen[4:]


WITH_VOLUME: Json = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}
NO_SCHEDULE = [{"key": "gpu", "effect": "NoSchedule"}]
REJECTING = [stage(f"t{number}", taints=NO_SCHEDULE) for number in range(5)]
NO_CPU = [stage(f"f{number:02}", cpu=0) for number in range(TRIED - 1)]
# The cluster, fields of the incoming pod, the node, and whether any passes our rules.
ELSEWHERE: dict[str, tuple[Sequence[Step], Json, tuple[str, bool]]] = {
    "the best node": (
        [*staged("n0 n1 n2 n3"), contender("db", on="n2", app="db")],
        {"prefers": [weighted(10, term("host", app="db"))]}, ("n2", True),
    ),
    "no room": (staged("n1:1000"), {"cpu": 2000}, ("", True)),
    "volumes, which the index does not count": (staged("n1"), WITH_VOLUME, ("", True)),
    **{
        f"beside a nominated pod of priority {priority}": (
            [*staged("n1:1000"), contender("coming", nominated="n1", cpu=1000, priority=priority)],
            {"cpu": 1000, "priority": 5}, ("n1" if priority < 5 else "", True),
        )
        for priority in (4, 5, 6)
    },
    "its own nomination": ([*staged("n1:1000"), contender("asking", nominated="n1", cpu=1000)], {"cpu": 1000}, ("n1", True)),
    "as many as are tried for room": ([*REJECTING, *NO_CPU, stage("z")], {"cpu": 1}, ("z", True)),
    "where an assumed pod may be": (
        [*staged("n1 n2 n3"), Assume(pod("web", app="web"), ("n1", "n2"))], {}, ("n3", True),
    ),
    "a deleted node with pods": ([stage(), contender("db", on="gone", app="db")], {}, ("n1", True)),
    "after hundreds that reject": (
        [*(stage(f"n{number}", taints=NO_SCHEDULE) for number in range(400)), stage("last")], {}, ("last", True),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "fields", "expected"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_the_node_elsewhere(steps: Sequence[Step], fields: Json, expected: tuple[str, bool]) -> None:
    index = apply(cluster(), *steps)
    incoming = contender_json("asking", **LONELY, **fields)
    assert {found(index, incoming, seed) for seed in range(8)} == {expected}


def test_only_so_many_nodes_are_tried_for_room() -> None:
    index = cluster(*REJECTING, *NO_CPU, stage("f99", cpu=0), stage("z"))
    assert found(index, contender_json("asking", cpu=1, **LONELY)) == ("", True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes the filters are asked about, by call."""
    counts: list[int] = []
    passing = PreparedFilters.passing

    def counted(filters: PreparedFilters, positions: Sequence[int]) -> Sequence[int]:
        counts.append(len(positions))
        return passing(filters, positions)

    monkeypatch.setattr(PreparedFilters, "passing", counted)
    return counts


def test_where_most_nodes_pass_a_few_hundred_of_them_are_read(read: list[int]) -> None:
    """With a hundred thousand nodes all of them take 40 ms, for each rejected pod."""
    index = cluster(*(stage(f"n{number}", cpu=1000 if number % 50 else 4000) for number in range(3000)))
    assert found(index, contender_json("asking", cpu=2000, **LONELY), 1) == ("n50", True)
    assert sum(read) < 600


def test_where_most_nodes_pass_and_have_room_a_handful_is_read(read: list[int]) -> None:
    index = cluster(*(stage(f"n{number}") for number in range(300)), contender("web", on="n7", app="web"))
    assert found(index, contender_json("asking", **LONELY), 7) == ("n8", True)
    assert sum(read) <= 10
