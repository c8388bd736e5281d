"""Compiled constraints: shared where they are equal, corrected where they must be, dropped when there are too many."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import ClassVar

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts import compiled_constraints, selections
from extender.index.counts.compiled_constraints import ConstraintCompiler
from extender.index.counts.groups import CountGroup
from extender.index.counts.selections import PodSelector, Selection, Selections
from extender.index.objects.selector_index import MOST_PAIRS, SelectorIndex
from extender.index.objects.workloads import Workloads
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import Requirement
from extender.model.objects import Object
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.rules.topology_spread import spread_groups
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from tests.builders import (
    Json,
    extender_args,
    index_of,
    matching,
    namespace,
    node,
    pod,
    pod_json,
    settings,
    spread,
    term,
    workload,
)
from tests.contenders import contender_json
from tests.index.counting import Calls, apart, compiled_of, counts_of, drop_all, inverse, near, sizes

NEAR_WEB = [term("zone", app="web")]


def zoned() -> ClusterIndex:
    """Two nodes in two zones and a web pod on the first."""
    return index_of(node("n1", zone="z1"), node("n2", zone="z2"), pod("web", on="n1", app="web"))


BOTH = [term("zone", app="web"), term("zone", tier="x")]
BY_CLAUSE = [term("zone", selector=matching(("app", "In", ["web"])))]
WEB_SPREAD = [spread("zone", app="web")]


def groups(index: ClusterIndex, side: str, incoming: Json) -> set[int]:
    """The identities of the count groups that constraints of one kind read."""
    compiled = compiled_of(index, incoming)
    if side == "spread":
        return {id(constraint.group) for constraint in spread_groups(compiled).hard}
    return {id(group) for group in getattr(own_terms(compiled), side)}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("affinity", {"app": "a", "near": NEAR_WEB}), ("affinity", {"app": "b", "near": BY_CLAUSE}), True),
        (("affinity", {"near": NEAR_WEB, "apart": NEAR_WEB}), ("anti", {"near": NEAR_WEB, "apart": NEAR_WEB}), True),
        # The pods that match all terms count; the order among the terms means nothing.
        (("affinity", {"app": "a", "near": BOTH}), ("affinity", {"app": "b", "near": BOTH[::-1]}), True),
        (("spread", {"app": "a", "spreads": WEB_SPREAD}), ("spread", {"app": "b", "spreads": WEB_SPREAD}), True),
        # Constraints share a group only where the same nodes are eligible.
        (
            ("spread", {"app": "a", "spreads": WEB_SPREAD}),
            ("spread", {"app": "c", "spreads": WEB_SPREAD, "node_selector": {"disk": "ssd"}}),
            False,
        ),
    ],
    ids=["equal terms", "affinity and anti-affinity", "another order", "spread", "other eligible nodes"],
)
def test_equal_constraints_share_one_group(one: tuple[str, Json], other: tuple[str, Json], *, shared: bool) -> None:
    index = zoned()
    first, second = (groups(index, side, pod_json(**fields)) for side, fields in (one, other))
    assert (first == second, bool(first & second)) == (shared, shared)
    assert len(first) == len(second) == 1


def test_requests_share_what_is_compiled() -> None:
    index = zoned()
    assert compiled_of(index, pod_json("a-1", near=NEAR_WEB)) is compiled_of(index, pod_json("a-2", near=NEAR_WEB))
    assert index.statistics()["term_groups"] == 1
    selective = pod_json(spreads=WEB_SPREAD, node_selector={"disk": "ssd"})
    domains = [spread_groups(compiled_of(index, incoming)).hard[0].group.domains for incoming in (VERSIONED, selective)]
    assert domains == [2, 0]
    assert near(two_teams(), pod_json(near=[*many(20), *many(3, "host")])) == [{"z1": 1}, {"n1": 1}]


VERSIONED = pod_json(near=NEAR_WEB, spreads=WEB_SPREAD, app="web")
OF_TEAM = pod_json(app="web", near=[term("zone", namespace_selector=matching(team="a"), app="web")])
# The incoming pod, a change, and whether its compiled constraints and the version of the answer stay. A Service and an
# owner change soft constraints only, and these reject no node.
CHANGES: dict[str, tuple[Json, Object, bool, bool]] = {
    "another pod": (VERSIONED, pod("db", on="n2", app="db"), True, True),
    "another namespace": (VERSIONED, namespace("red", team="a"), True, True),
    "a term that selects others": (
        *(VERSIONED, pod("lonely", on="n2", apart=[term("zone", app="stranger")])),
        *(True, True),
    ),
    "a counted pod": (VERSIONED, pod("web-2", on="n2", app="web"), True, False),
    "a new node": (VERSIONED, node("n3", zone="z3"), True, False),
    "a moved node": (VERSIONED, node("n1", zone="z2"), True, False),
    "a relabelled node": (VERSIONED, node("n1", zone="z1", disk="ssd"), True, False),
    "a term that selects it": (pod_json(app="guest"), pod("h", on="n1", apart=[term(app="guest")]), False, False),
    "a Service that selects it": (pod_json(app="guest"), workload("Service", "s", {"app": "guest"}), False, True),
    "its namespace's labels": (OF_TEAM, namespace("default", team="a"), False, False),
    "its owner": (
        *(pod_json(owner=("ReplicaSet", "rs"), app="x"), workload("ReplicaSet", "rs", matching(app="x"))),
        *(False, True),
    ),
}


@pytest.mark.parametrize(("incoming", "change", "compiled_stays", "version_stays"), CHANGES.values(), ids=CHANGES)
def test_what_a_change_makes_invalid(
    incoming: Json, change: Object, *, compiled_stays: bool, version_stays: bool
) -> None:
    """While the version stays, an earlier answer may be given again."""
    index = zoned()
    before = compiled_of(index, incoming)
    version = index.view.dependency_version(before)
    index.upsert(change)
    after = compiled_of(index, incoming)
    assert (after is before, index.view.dependency_version(after) == version) == (compiled_stays, version_stays)


def test_a_pod_that_came_and_was_deleted_has_changed_the_version_for_good() -> None:
    index = zoned()
    compiled = compiled_of(index, VERSIONED)
    seen = [index.view.dependency_version(compiled)]
    for _ in range(3):
        index.upsert(pod("w2", on="n2", app="web"))
        seen.append(index.view.dependency_version(compiled))
        index.delete(pod("w2", on="n2", app="web"))
        seen.append(index.view.dependency_version(compiled))
    assert len(set(seen)) == len(seen)


class TestTooMany:
    """No more compiled constraints are kept than fit into the limits."""

    def test_the_request_unused_for_longest_goes_first_and_takes_its_groups_along(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiled_constraints, "MOST_COMPILED", 3)
        index = zoned()
        kept = compiled_of(index, often := pod_json(app="often", near=[term("zone", app="often")]))
        for number in range(10):
            compiled_of(index, pod_json(near=[term("zone", app=f"app-{number}")]))
            assert compiled_of(index, often) is kept
        sizes = index.statistics()
        assert (sizes["compiled_constraints"], sizes["term_groups"]) == (3, 3)

    def test_a_topology_key_goes_with_the_last_request_over_it_and_is_right_when_it_comes_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiled_constraints, "MOST_COMPILED", 1)
        index = zoned()
        incoming = pod_json(near=NEAR_WEB, spreads=[spread("host", app="web")])
        assert near(index, incoming) == [{"z1": 1}]
        for number in range(10):
            compiled_of(index, pod_json(near=[term(f"example.com/odd-{number}", app="web")]))
        assert list(index.topology.keys) == ["example.com/odd-9"]
        index.upsert(node("n3", zone="z3"))
        index.upsert(pod("web-3", on="n3", app="web"))
        assert near(index, incoming) == [{"z1": 1, "z3": 1}]
        assert audit(index) == []

    def test_a_key_of_terms_that_pods_carry_goes_with_the_last_of_these_pods(self) -> None:
        index = zoned()
        index.upsert(node("n1", zone="z1", labels={"example.com/odd": "o1"}))
        before = list(index.topology.keys)
        lonely = pod("lonely", on="n1", apart=[term("example.com/odd", app="web")])
        index.upsert(lonely)
        assert list(index.topology.keys) == [*before, "example.com/odd"]
        index.delete(lonely)
        assert list(index.topology.keys) == before


# -- Compiling constraints is linear in the terms of the pod, and a correction looks only at what has changed ----------


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Everything that compiling does once for each term, or for each of its groups."""
    return Calls(
        monkeypatch,
        (PodSelector, "__hash__"),
        (PodSelector, "__eq__"),
        (Selection, "selects"),
        (Selections, "add_group"),
        (Selections, "remove_group"),
    )


def two_teams() -> ClusterIndex:
    """Two nodes in two zones, a web pod on the first, and namespaces of two teams."""
    return index_of(
        node("n1", zone="z1"),
        node("n2", zone="z2"),
        namespace("default", team="a"),
        namespace("other", team="b"),
        pod("web", on="n1", app="web"),
    )


def many(number: int, key: str = "zone") -> list[Json]:
    """So many different terms about web pods."""
    return [term(key, selector=matching((f"x{each}", "DoesNotExist", []), app="web")) for each in range(number)]


@pytest.mark.parametrize("key", ["zone", ""], ids=["one key", "a key for each term"])
def test_required_affinity_compiles_in_time_linear_in_its_terms(work: Calls, key: str) -> None:
    costs = []
    for number in (50, 100):
        index = two_teams()
        terms = many(number)
        if not key:
            terms = [{**each, "topologyKey": f"example.com/k{at}"} for at, each in enumerate(terms)]
        incoming = pod_json(near=terms)
        work.taken()
        compiled_of(index, incoming)
        drop_all(index)
        costs.append(work.taken())
    assert costs[1] <= 2.2 * costs[0]


UNRELATED = [
    pytest.param(workload("ReplicaSet", "rs", matching(app="x")), id="a ReplicaSet"),
    pytest.param(workload("Service", "svc", {"app": "x"}, namespace="other"), id="a Service elsewhere"),
    pytest.param(namespace("other", team="a"), id="another namespace"),
    pytest.param(namespace("new", team="c"), id="a new namespace"),
]


@pytest.mark.parametrize("change", UNRELATED)
def test_a_change_that_does_not_concern_a_request_costs_none_of_its_terms(work: Calls, change: Object) -> None:
    index, incoming = two_teams(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, incoming)
    index.upsert(change)
    work.taken()
    assert compiled_of(index, incoming) is compiled
    assert work.taken() == 0


@pytest.mark.parametrize("change", UNRELATED)
def test_default_constraints_are_deduced_again_only_where_their_workloads_change(
    monkeypatch: pytest.MonkeyPatch, change: Object
) -> None:
    deduced = Calls(monkeypatch, (Workloads, "default_selector"))
    index, incoming = two_teams(), pod_json(app="web")
    index.upsert(workload("Service", "own", {"app": "web"}))
    compiled_of(index, incoming)
    deduced.taken()
    index.upsert(change)
    compiled_of(index, incoming)
    assert deduced.taken() == 0
    index.upsert(workload("Service", "own", {"app": "db"}))
    assert spread_groups(compiled_of(index, incoming)).soft == ()
    index.delete(workload("Service", "own", {"app": "db"}))
    index.upsert(workload("Service", "own", {"app": "web"}))
    assert len(spread_groups(compiled_of(index, incoming)).soft) == 2
    assert audit(index) == []


def test_terms_of_existing_pods_that_come_and_go_leave_the_request_s_own_groups(work: Calls) -> None:
    index, incoming = two_teams(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, incoming)
    index.upsert(repelling := pod("repelling", on="n2", apart=[term("zone", app="web")]))
    work.taken()
    now = compiled_of(index, incoming)
    assert work.taken() == 0
    assert own_terms(now).affinity is own_terms(compiled).affinity
    assert [counts_of(group) for group in terms_of_others(now).anti] == [{"z2": 1}]
    index.delete(repelling)
    assert terms_of_others(compiled_of(index, incoming)).anti == ()


def test_own_labels_of_a_namespace_decide_anew_whether_a_pod_matches_itself() -> None:
    index = two_teams()
    lone = [term("zone", namespace_selector=matching(team="a"), app="lone")]
    seen = []
    for team in ("a", "b", "a"):
        index.upsert(namespace("default", team=team))
        compiled_of(index, pod_json("another", near=lone))
        seen.append(own_terms(compiled_of(index, pod_json(app="lone", near=lone))).matches_itself)
    assert seen == [True, False, True]


def test_every_request_can_be_dropped_at_once() -> None:
    index = two_teams()
    before = sizes(index.topology)
    for number in range(3):
        compiled_of(index, pod_json(near=many(3), spreads=[spread("zone", app="web")], app=f"a{number}"))
    assert isinstance(index.counts.compiler, ConstraintCompiler)
    drop_all(index)
    numbers = index.statistics()
    kept = ("compiled_constraints", "term_groups", "spread_groups", "scopes", "topology_keys", "indexed_labels")
    assert [numbers[name] for name in kept] == [0] * len(kept)
    assert (index.counts.compiler.bytes, index.topology.scope_cells) == (0, 0)
    assert sizes(index.topology) == before


# -- Compiled constraints are kept within a number of bytes, and nothing else keeps the groups of a signature that
#    was dropped

SETTINGS: Settings = settings(preemption={"mode": "execute"})


def cluster(nodes: int = 20) -> ClusterIndex:
    """Nodes in two zones with a web pod on each."""
    made = index_of(*(node(f"n{number}", zone=f"z{number % 2}") for number in range(nodes)))
    for number in range(nodes):
        made.upsert(pod(f"w{number}", on=f"n{number}", app="web"))
    return made


def small(number: int) -> Json:
    return pod_json(near=[term("zone", app=f"app-{number}")])


def large(number: int, terms: int = 50) -> Json:
    """Each term counts the web pods in a group of its own."""
    odd = [term(selector=matching((f"x{number}-{each}", "DoesNotExist", []), app="web")) for each in range(terms)]
    return pod_json(apart=odd)


def test_large_requests_go_for_others_before_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 1_200_000)
    index, most = cluster(), 0
    for number in range(30):
        compiled_of(index, large(number))
        most = max(most, index.counts.compiler.bytes)
    assert (most <= 1_200_000, 1 < len(index.counts.compiler) < 8) == (True, True)
    assert index.statistics()["term_groups"] == 50 * len(index.counts.compiler)
    assert audit(index) == []
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 50_000)
    assert len(own_terms(compiled_of(index, large(31))).anti) == 50
    assert len(index.counts.compiler) == 1, "too large by itself, it is answered alone"


@pytest.mark.parametrize(("pods", "are_all_kept"), [(20, False), (200, True)])
def test_with_more_pods_more_is_kept(pods: int, *, are_all_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of 2,000 workloads grow with their pods. What is kept for too few of them is compiled for each request."""
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 50_000)
    monkeypatch.setattr(compiled_constraints, "BYTES_A_POD", 1000)
    index = cluster(pods)
    for number in range(30):
        compiled_of(index, small(number))
    assert (len(index.counts.compiler) == 30) is are_all_kept


def test_columns_of_scopes_are_charged_once_however_many_requests_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = cluster(200)
    for number in range(10):
        compiled_of(index, pod_json(spreads=[spread("zone", app=f"a{number}")]))
    shared = index.counts.compiler.bytes
    for number in range(10):
        wanted = pod_json(spreads=[spread("zone", app=f"a{number}")], node_terms=[{"matchExpressions": []}])
        compiled_of(index, {**wanted, "spec": {**wanted["spec"], "nodeSelector": {"disk": f"d{number}"}}})
    assert index.topology.scope_cells < 2 * 250, "no node is eligible for the others"
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", shared)
    compiled_of(index, small(1))
    assert index.counts.compiler.bytes <= shared


def test_what_is_cached_of_a_rejection_does_not_keep_a_request_that_was_dropped() -> None:
    """Neither the nodes tried in vain, nor the answer, nor the list of refused pods."""
    index = cluster(2)
    verb = FilterVerb(index.view, SETTINGS)
    unhelpful, memory = verb.unhelpful, verb.rejections
    index.upsert(node("n2", zone="z0"))  # passes, and is not asked about
    index.upsert(pod("low", on="n1", priority=-1))
    for name in ("w0", "w1"):
        index.upsert(pod(name, on=f"n{name[1]}", app="web", priority=1000))
    args = extender_args(contender_json("asking", priority=100, apart=[term(app="web")]), "n0", "n1")
    verb.decide(args, 0)
    assert len(memory) == 1
    assert unhelpful.without(args.pod, [0, 1], index.view) == []
    groups = {id(group) for group in index.view.compiled(args.pod.signature).filter_groups()}
    drop_all(index)
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is CountGroup and id(each) in groups] == []
    assert unhelpful.without(args.pod, [0, 1], index.view) == [0, 1]


# -- Selectors found from labels, and shapes found from selectors: complete, and at a cost that is linear in a term ----

MANY = 400


def names(stem: str, how_many: int = MANY) -> list[str]:
    return sorted(f"{stem}{number}" for number in range(how_many))


class Visited(tuple[str, ...]):
    """Values that note how many of them are gone through."""

    __slots__ = ()
    seen: ClassVar = [0]

    def __iter__(self) -> Iterator[str]:
        for each in super().__iter__():
            self.seen[0] += 1
            yield each


@pytest.mark.parametrize(
    ("namespaces", "values", "entries"),
    [(1, 1, 1), (8, 8, 64), (MANY, 1, MANY), (1, MANY, 1), (MANY, MANY - 1, MANY - 1), (MANY - 1, MANY, MANY - 1)],
)
def test_many_namespaces_and_values_are_filed_under_the_fewer_of_the_two(
    namespaces: int, values: int, entries: int
) -> None:
    anchors: SelectorIndex[str] = SelectorIndex()
    anchor, where = Requirement("app", Operator.IN, tuple(names("v", values))), names("ns", namespaces)
    anchors.file("item", anchor, where)
    assert len(anchors) == (1 if (namespaces, values) == (MANY, 1) else entries)
    for space in (where[0], where[-1]):
        for value in (anchor.values[0], anchor.values[-1]):
            assert list(anchors.candidates(space, {"app": value, "tier": "x"})) == ["item"]
    anchors.discard("item", anchor, where)
    assert len(anchors) == 0


def test_a_term_with_few_namespaces_and_values_is_offered_to_no_other_pod() -> None:
    anchors: SelectorIndex[str] = SelectorIndex()
    anchors.file("item", Requirement("app", Operator.IN, ("a", "b")), ("one", "two"))
    assert [*anchors.candidates("three", {"app": "a"}), *anchors.candidates("one", {"app": "c"})] == []
    assert MOST_PAIRS >= 4


WIDE_TERM = term(namespaces=names("ns"), selector=matching(("app", "In", names("app"))))


def test_a_very_wide_term_selects_the_pods_that_it_names() -> None:
    index, incoming = spaces(), pod_json(apart=[WIDE_TERM])
    seen = [apart(index, incoming)]
    index.upsert(pod("later", on="n1", namespace=f"ns{MANY - 1}", app="app0"))
    seen.append(apart(index, incoming))
    index.delete(pod("in", on="n1", namespace="ns3", app="app7"))
    assert [*seen, apart(index, incoming)] == [[{"n1": 1}], [{"n1": 2}], [{"n1": 1}]]
    index = spaces()
    index.upsert(pod("owner", on="n1", apart=[WIDE_TERM]))
    selected = [
        inverse(index, pod_json(namespace=namespace, app=app))
        for namespace, app in (("ns3", "app7"), ("ns3", "else"), ("else", "app7"))
    ]
    assert selected == [[{"n1": 1}], [], []], "also where an existing pod carries the term"


def spaces() -> ClusterIndex:
    """A node, and pods in and out of the namespaces and values of a very wide term."""
    return index_of(
        node("n1"),
        pod("in", on="n1", namespace="ns3", app="app7"),
        pod("out", on="n1", namespace="other", app="app7"),
        pod("also-out", on="n1", namespace="ns3", app="else"),
    )


def test_looking_for_members_goes_through_a_wide_term_once() -> None:
    """Not once for each of its namespaces, as long as few pods carry the label at all."""
    index = spaces()
    for _ in range(2):
        index.counts.signatures.acquire_label("app")
    Visited.seen[0] = 0
    anchor = Requirement("app", Operator.IN, Visited(names("app")))
    found = [each.signature.namespace for each in index.counts.signatures.reachable(anchor, Visited(names("ns")))]
    assert found == ["ns3"]
    assert Visited.seen[0] <= 2 * MANY


def test_pods_are_filed_by_the_label_keys_that_selections_anchor_on() -> None:
    index = spaces()
    for app in ("app7", "else"):
        index.view.compiled(pod("asking", app=app, near=[term(app=app, namespaces=["ns3"])]).signature)
    assert dict(index.counts.signatures.label_users()) == {"app": 2}, "two selections share a key"
    assert index.statistics()["indexed_labels"] == 1
    assert near(index, pod_json(near=[term(app="else", namespaces=["ns3"])])) == [{"n1": 1}]
    drop_all(index)
    assert index.statistics()["indexed_labels"] == 0, "nor by a key that is used no more"
    late = pod_json(near=[term(app="late")])
    assert near(index, late) == [{}]
    drop_all(index)
    index.upsert(pod("late", on="n1", app="late"))
    assert near(index, late) == [{"n1": 1}], "pods that come later are found by a key that is used again"


def test_a_selection_that_no_request_reads_does_not_note_namespaces_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "MOST_STALE", 3)
    index, incoming = spaces(), pod_json(near=[term(namespace_selector=matching(team="a"), app="app7")])
    compiled_of(index, incoming)
    for number in range(20):
        index.upsert(namespace(f"ns{number}", team="a"))
    (selection,) = {selection for selection, _ in index.counts.selections.acquired()}
    assert len(selection.stale) <= 3
    assert near(index, incoming) == [{"n1": 1}]
