"""Selectors found from labels, and shapes found from selectors: complete, and at a cost that is linear in a term."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from extender.index.cluster import ClusterIndex
from extender.index.counts import selections
from extender.index.counts.selector_index import MOST_PAIRS, SelectorIndex
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import Requirement
from tests.builders import index_of, matching, namespace, node, pod, pod_json, term
from tests.index.counting import apart, compiled_of, drop_all, inverse, near

MANY = 400


def names(stem: str, how_many: int = MANY) -> list[str]:
    """So many names, sorted."""
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
