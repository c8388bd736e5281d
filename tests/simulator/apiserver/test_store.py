"""The store's history: any version it still knows can be shown again, and it knows as many as it was told to keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.simulator.apiserver.kinds import NODES, PODS
from extender.simulator.apiserver.store import Store
from tests.simulator.plain import node, pod

_STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"])), max_size=40)


@given(steps=_STEPS, capacity=st.integers(1, 30))
def test_the_past_is_shown_as_it_was_or_not_at_all(steps: list[tuple[str, str]], capacity: int) -> None:
    store = Store(history=capacity)
    table = store.table(NODES)
    past = {store.version: table.latest()}
    for name, step in steps:
        if step == "put":
            store.put(NODES, node(name))
        elif name in table.objects:
            store.remove(NODES, name)
        past[store.version] = table.latest()
    shown = {version: rows for version in past if (rows := table.at(version)) is not None}
    assert shown == {version: rows for version, rows in past.items() if version >= table.floor}
    assert len(table.changes) <= capacity * 5 // 4


@given(steps=_STEPS)
def test_replaying_the_changes_gives_the_objects(steps: list[tuple[str, str]]) -> None:
    store = Store()
    table = store.table(NODES)
    for name, step in steps:
        if step == "put":
            store.put(NODES, node(name))
        elif name in table.objects:
            store.remove(NODES, name)
    replayed: dict[str, bytes] = {}
    for change in table.since(0) or []:
        replayed[change.stored.key] = change.stored.body
        if change.type == "DELETED":
            del replayed[change.stored.key]
    assert replayed == {key: stored.body for key, stored in table.objects.items()}


def test_loaded_objects_have_identity_but_no_history() -> None:
    store = Store(seed=7)
    assert store.load([node("n1"), pod("a", on="n1"), pod("b")]) == 3
    first = store.find(PODS, "default/a").read()
    assert (first["metadata"]["resourceVersion"], len(first["metadata"]["uid"])) == ("3", 36)
    assert (store.table(PODS).changes, store.table(PODS).at(2)) == ([], None)
    assert Store(seed=7).new_uid() == Store(seed=7).new_uid() != Store(seed=8).new_uid()


def test_loading_under_a_watch_is_rejected() -> None:
    store = Store()
    store.table(PODS).listen(lambda: None)
    with pytest.raises(RuntimeError, match="load objects before the first watch"):
        store.load([pod("a")])


def test_a_watch_line_is_encoded_once_for_all_watchers() -> None:
    store = Store()
    store.put(NODES, node("n1"))
    change = store.table(NODES).changes[0]
    assert change.line is change.line
