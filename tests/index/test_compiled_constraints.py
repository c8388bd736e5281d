"""Compiled constraints: shared where they are equal, corrected where they must be, dropped when there are too many."""

from __future__ import annotations

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts import compiled_constraints
from extender.rules.interpod_affinity import own_terms
from extender.rules.topology_spread import spread_groups
from tests.builders import Json, index_of, matching, namespace, node, pod, pod_json, spread, term, workload
from tests.index.counting import compiled_of, near

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
