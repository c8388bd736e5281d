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
from extender.index.counts.selector_index import MOST_PAIRS, SelectorIndex
from extender.index.objects.workloads import Workloads
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import Requirement
from extender.model.objects import Object
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.rules.spread_groups import spread_groups
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from tests.builders import (
    Json,
    asking,
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


def test_replicas_put_one_request() -> None:
    index = zoned()
    first = compiled_of(index, pod_json("asking-1", near=NEAR_WEB))
    assert compiled_of(index, pod_json("asking-2", near=NEAR_WEB)) is first


def test_equal_terms_of_different_pods_share_one_count() -> None:
    index = zoned()
    first = compiled_of(index, pod_json(app="a", near=NEAR_WEB))
    by_clause = term("zone", selector=matching(("app", "In", ["web"])))
    second = compiled_of(index, pod_json(app="b", near=[by_clause]))
    assert own_terms(first).affinity[0] is own_terms(second).affinity[0]
    assert index.statistics()["term_groups"] == 1


def test_the_same_term_counts_as_affinity_and_as_anti_affinity_in_one_group() -> None:
    index = zoned()
    compiled = compiled_of(index, pod_json(near=NEAR_WEB, apart=NEAR_WEB))
    assert own_terms(compiled).affinity[0] is own_terms(compiled).anti[0]


def test_terms_in_another_order_are_the_same_set() -> None:
    """The pods that match all terms count; the order among them means nothing."""
    index = zoned()
    both = [term("zone", app="web"), term("zone", tier="x")]
    first, second = (
        compiled_of(index, pod_json(app=app, near=terms)) for app, terms in (("a", both), ("b", both[::-1]))
    )
    assert {id(group) for group in own_terms(first).affinity} == {id(group) for group in own_terms(second).affinity}


def test_constraints_are_shared_only_where_the_same_nodes_are_eligible() -> None:
    index = zoned()
    wanted = [spread("zone", app="web")]
    plain, same, picky = (
        compiled_of(index, pod_json(app=app, spreads=wanted, node_selector=selector))
        for app, selector in (("a", None), ("b", None), ("c", {"disk": "ssd"}))
    )
    assert spread_groups(plain).hard[0].group is spread_groups(same).hard[0].group
    assert spread_groups(plain).hard[0].group is not spread_groups(picky).hard[0].group
    assert (spread_groups(plain).hard[0].group.domains, spread_groups(picky).hard[0].group.domains) == (2, 0)


@pytest.mark.parametrize(
    "unrelated",
    [
        pod("db", on="n2", app="db"),
        pod("web-2", on="n2", app="web"),
        node("n3", zone="z3"),
        pod("lonely", on="n2", apart=[term("zone", app="stranger")]),
    ],
    ids=["other pod", "counted pod", "node", "term that selects others"],
)
def test_a_request_lives_through_changes_of_counts(unrelated: object) -> None:
    index = zoned()
    compiled = compiled_of(index, pod_json(near=NEAR_WEB))
    index.upsert(unrelated)  # type: ignore[arg-type]  # as the test gives it
    assert compiled_of(index, pod_json(near=NEAR_WEB)) is compiled


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        pytest.param(pod_json(app="guest"), pod("h", on="n1", apart=[term(app="guest")]), id="a term that selects it"),
        pytest.param(pod_json(app="guest"), workload("Service", "s", {"app": "guest"}), id="a service that selects it"),
        pytest.param(
            pod_json(app="web", near=[term("zone", namespace_selector=matching(team="a"), app="web")]),
            namespace("default", team="a"),
            id="its namespace's labels",
        ),
        pytest.param(
            pod_json(owner=("ReplicaSet", "rs"), app="x"),
            workload("ReplicaSet", "rs", matching(app="x")),
            id="its owner",
        ),
    ],
)
def test_a_request_is_put_anew_when_it_must_count_something_else(asked: Json, change: object) -> None:
    index = zoned()
    before = compiled_of(index, asked)
    index.upsert(change)  # type: ignore[arg-type]  # as the test gives it
    assert compiled_of(index, asked) is not before


class TestGrounds:
    """The number that tells whether an answer given before may be given again."""

    ASKED = pod_json(near=NEAR_WEB, spreads=[spread("zone", app="web")], app="web")

    @pytest.mark.parametrize(
        "change",
        [
            pod("w2", on="n2", app="web"),
            node("n3", zone="z3"),
            node("n1", zone="z2"),
            node("n1", zone="z1", disk="ssd"),
        ],
        ids=["counted pod", "new node", "moved node", "relabelled node"],
    )
    def test_they_change_with_what_the_answer_rests_on(self, change: object) -> None:
        index = zoned()
        before = index.view.dependency_version(compiled_of(index, self.ASKED))
        index.upsert(change)  # type: ignore[arg-type]  # as the test gives it
        assert index.view.dependency_version(compiled_of(index, self.ASKED)) != before

    def test_they_stay_while_others_come_and_go(self) -> None:
        index = zoned()
        before = index.view.dependency_version(compiled_of(index, self.ASKED))
        index.upsert(pod("db", on="n1", app="db"))
        index.upsert(namespace("red", team="a"))
        assert index.view.dependency_version(compiled_of(index, self.ASKED)) == before

    def test_a_pod_that_came_and_went_has_changed_them_for_good(self) -> None:
        index = zoned()
        compiled = compiled_of(index, self.ASKED)
        seen = [index.view.dependency_version(compiled)]
        for _ in range(3):
            index.upsert(pod("w2", on="n2", app="web"))
            seen.append(index.view.dependency_version(compiled))
            index.delete(pod("w2", on="n2", app="web"))
            seen.append(index.view.dependency_version(compiled))
        assert len(set(seen)) == len(seen)


class TestTooMany:
    """No more compiled constraints are kept than fit into the limits."""

    def test_an_old_request_goes_for_a_new_one_and_takes_its_groups_along(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiled_constraints, "MOST_COMPILED", 3)
        index = zoned()
        for number in range(10):
            compiled_of(index, pod_json(near=[term("zone", app=f"app-{number}")]))
        sizes = index.statistics()
        assert (sizes["compiled_constraints"], sizes["term_groups"]) == (3, 3)

    def test_a_topology_key_goes_with_the_last_request_over_it_and_is_right_when_it_comes_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiled_constraints, "MOST_COMPILED", 1)
        index = zoned()
        asked = pod_json(near=NEAR_WEB, spreads=[spread("host", app="web")])
        assert near(index, asked) == [{"z1": 1}]
        for number in range(10):
            compiled_of(index, pod_json(near=[term(f"example.com/odd-{number}", app="web")]))
        assert list(index.topology.keys) == ["example.com/odd-9"]
        index.upsert(node("n3", zone="z3"))
        index.upsert(pod("web-3", on="n3", app="web"))
        assert near(index, asked) == [{"z1": 1, "z3": 1}]
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

    def test_the_request_unused_for_longest_goes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiled_constraints, "MOST_COMPILED", 2)
        index = zoned()
        often, once = pod_json(app="often", near=NEAR_WEB), pod_json(app="once")
        kept = compiled_of(index, often)
        compiled_of(index, once)
        compiled_of(index, often)
        compiled_of(index, pod_json(app="new"))
        assert compiled_of(index, often) is kept


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
        asked = pod_json(near=terms)
        work.taken()
        compiled_of(index, asked)
        drop_all(index)
        costs.append(work.taken())
    assert costs[1] <= 2.2 * costs[0]


def test_required_terms_over_one_key_share_one_group() -> None:
    index = two_teams()
    assert near(index, pod_json(near=[*many(20), *many(3, "host")])) == [{"z1": 1}, {"n1": 1}]


UNRELATED = [
    pytest.param(workload("ReplicaSet", "rs", matching(app="x")), id="a ReplicaSet"),
    pytest.param(workload("Service", "svc", {"app": "x"}, namespace="other"), id="a Service elsewhere"),
    pytest.param(namespace("other", team="a"), id="another namespace"),
    pytest.param(namespace("new", team="c"), id="a new namespace"),
]


@pytest.mark.parametrize("change", UNRELATED)
def test_a_change_that_does_not_concern_a_request_costs_none_of_its_terms(work: Calls, change: Object) -> None:
    index, asked = two_teams(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, asked)
    index.upsert(change)
    work.taken()
    assert compiled_of(index, asked) is compiled
    assert work.taken() == 0


@pytest.mark.parametrize("change", UNRELATED)
def test_default_constraints_are_deduced_again_only_where_their_workloads_change(
    monkeypatch: pytest.MonkeyPatch, change: Object
) -> None:
    deduced = Calls(monkeypatch, (Workloads, "default_selector"))
    index, asked = two_teams(), pod_json(app="web")
    index.upsert(workload("Service", "own", {"app": "web"}))
    compiled_of(index, asked)
    deduced.taken()
    index.upsert(change)
    compiled_of(index, asked)
    assert deduced.taken() == 0
    index.upsert(workload("Service", "own", {"app": "db"}))
    assert spread_groups(compiled_of(index, asked)).soft == ()
    index.delete(workload("Service", "own", {"app": "db"}))
    index.upsert(workload("Service", "own", {"app": "web"}))
    assert len(spread_groups(compiled_of(index, asked)).soft) == 2
    assert audit(index) == []


def test_terms_of_existing_pods_that_come_and_go_leave_the_request_s_own_groups(work: Calls) -> None:
    index, asked = two_teams(), pod_json(near=many(50), app="web")
    compiled = compiled_of(index, asked)
    index.upsert(repelling := pod("repelling", on="n2", apart=[term("zone", app="web")]))
    work.taken()
    now = compiled_of(index, asked)
    assert work.taken() == 0
    assert own_terms(now).affinity is own_terms(compiled).affinity
    assert [counts_of(group) for group in terms_of_others(now).anti] == [{"z2": 1}]
    index.delete(repelling)
    assert terms_of_others(compiled_of(index, asked)).anti == ()


def test_own_labels_of_a_namespace_decide_anew_whether_a_pod_matches_itself() -> None:
    index = two_teams()
    asked = pod_json(app="lone", near=[term("zone", namespace_selector=matching(team="a"), app="lone")])
    seen = [own_terms(compiled_of(index, asked)).matches_itself]
    for team in ("b", "a"):
        index.upsert(namespace("default", team=team))
        compiled_of(index, pod_json("another", near=[term("zone", namespace_selector=matching(team="a"), app="lone")]))
        seen.append(own_terms(compiled_of(index, asked)).matches_itself)
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


def test_a_request_that_is_too_large_by_itself_is_answered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_constraints, "MOST_BYTES", 50_000)
    index = cluster()
    for number in range(5):
        compiled_of(index, small(number))
    assert len(own_terms(compiled_of(index, large(1))).anti) == 50
    assert len(index.counts.compiler) == 1


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
    args = asking(contender_json("asking", priority=100, apart=[term(app="web")]), "n0", "n1")
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
    assert list(anchors.candidates("three", {"app": "a"})) == []
    assert list(anchors.candidates("one", {"app": "c"})) == []
    assert MOST_PAIRS >= 4


WIDE_TERM = term(namespaces=names("ns"), selector=matching(("app", "In", names("app"))))


def spaces() -> ClusterIndex:
    """A node, and pods in and out of the namespaces and values of a very wide term."""
    return index_of(
        node("n1"),
        pod("in", on="n1", namespace="ns3", app="app7"),
        pod("out", on="n1", namespace="other", app="app7"),
        pod("also-out", on="n1", namespace="ns3", app="else"),
    )


def test_a_very_wide_term_counts_the_pods_that_it_selects() -> None:
    index, asked = spaces(), pod_json(apart=[WIDE_TERM])
    assert apart(index, asked) == [{"n1": 1}]
    index.upsert(pod("later", on="n1", namespace=f"ns{MANY - 1}", app="app0"))
    assert apart(index, asked) == [{"n1": 2}]
    index.delete(pod("in", on="n1", namespace="ns3", app="app7"))
    assert apart(index, asked) == [{"n1": 1}]


def test_a_very_wide_term_of_an_existing_pod_selects_the_pods_that_it_names() -> None:
    index = spaces()
    index.upsert(pod("owner", on="n1", apart=[WIDE_TERM]))
    assert inverse(index, pod_json(namespace="ns3", app="app7")) == [{"n1": 1}]
    assert inverse(index, pod_json(namespace="ns3", app="else")) == []
    assert inverse(index, pod_json(namespace="else", app="app7")) == []


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


class TestLabelKeys:
    """Shapes are filed by the label keys that selections anchor on, and by no others."""

    def test_a_key_that_no_selection_anchors_on_any_more_is_given_up(self) -> None:
        index = spaces()
        owner = pod("owner", app="x", apart=[term(app="app7")])
        index.view.compiled(owner.signature)
        assert index.statistics()["indexed_labels"] == 1
        drop_all(index)
        assert index.statistics()["indexed_labels"] == 0

    def test_two_selections_share_a_key(self) -> None:
        index = spaces()
        for app in ("app7", "else"):
            index.view.compiled(pod("asking", app=app, near=[term(app=app, namespaces=["ns3"])]).signature)
        assert dict(index.counts.signatures.label_users()) == {"app": 2}
        assert near(index, pod_json(near=[term(app="else", namespaces=["ns3"])])) == [{"n1": 1}]

    def test_shapes_that_come_later_are_found_by_a_key_that_is_taken_up_again(self) -> None:
        index, asked = spaces(), pod_json(near=[term(app="late")])
        assert near(index, asked) == [{}]
        drop_all(index)
        index.upsert(pod("late", on="n1", app="late"))
        assert near(index, asked) == [{"n1": 1}]


def test_a_selection_that_no_request_reads_does_not_note_namespaces_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "MOST_STALE", 3)
    index, asked = spaces(), pod_json(near=[term(namespace_selector=matching(team="a"), app="app7")])
    compiled_of(index, asked)
    for number in range(20):
        index.upsert(namespace(f"ns{number}", team="a"))
    (selection,) = {selection for selection, _ in index.counts.selections.acquired()}
    assert len(selection.stale) <= 3
    assert near(index, asked) == [{"n1": 1}]
