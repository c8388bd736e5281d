"""Which namespaces each selector selects, while namespaces and selectors come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.objects.namespaces import Namespaces
from extender.model.constraints.labels import Operator
from extender.model.constraints.selectors import LabelSelector, Requirement, selector
from extender.model.objects import Namespace
from tests.index.counting import Calls

LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"))
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from("ab"),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sampled_from([("x",), ("x", "y")]),
)
SELECTORS = st.lists(REQUIREMENTS, min_size=1, max_size=2, unique=True).map(selector)


@given(
    st.lists(st.tuples(st.sampled_from("mn"), st.none() | LABELS) | st.tuples(st.booleans(), SELECTORS), max_size=30)
)
def test_a_change_names_exactly_the_selectors_whose_result_changes(steps: list[tuple[object, object]]) -> None:
    namespaces, users = Namespaces(), dict[LabelSelector, int]()
    for first, second in steps:
        before = {known: set(namespaces.selected(known)) for known in users}
        if isinstance(second, LabelSelector):
            if first:
                namespaces.acquire(second)
                users[second] = users.get(second, 0) + 1
            elif users.pop(second, 0):
                for _ in range(namespaces._users[second]):
                    namespaces.release(second)
        else:
            assert isinstance(first, str)
            new = None if second is None else Namespace(first, second)  # type: ignore[arg-type]
            changed = namespaces.change(first, new)
            assert set(changed) == {known for known in users if before[known] != namespaces.selected(known)}
            assert len(changed) == len(set(changed))
        for known in users:
            true = {namespace.name for namespace in namespaces.objects.values() if known.matches(namespace.labels)}
            assert namespaces.selected(known) == true
    namespaces.release_all()
    assert namespaces.statistics()["namespace_selectors"] == 0


def test_a_change_tries_the_selectors_that_require_a_label_of_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces = Namespaces()
    for number in range(200):
        namespaces.acquire(selector([Requirement("team", Operator.IN, (f"t{number}",))]))
    calls = Calls(monkeypatch, (LabelSelector, "matches"))
    namespaces.change("n", Namespace("n", {"team": "t7"}))
    namespaces.change("n", Namespace("n", {"team": "t8"}))
    assert calls.taken() == 3
