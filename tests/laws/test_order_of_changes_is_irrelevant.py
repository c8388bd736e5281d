"""Changes of different objects may come in any order, as the feeds of the kinds do: what comes of it is the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from tests.laws.observing import built, requested_pods, seen
from tests.strategies import Request, Step, histories


def _place(step: Step) -> object:
    """Steps of one object keep their order among themselves; a question is independent of everything."""
    return step if isinstance(step, Request) else (step.kind, step.key)


def _interleaved(history: list[Step], order: list[int]) -> list[Step]:
    """The same steps, those of one object in the same order, and the objects by turns as `order` says."""
    places = [_place(step) for step in history]
    names: list[object] = []
    for place in places:
        if place not in names:
            names.append(place)
    queues = [[step for step, other in zip(history, places, strict=True) if other == name] for name in names]
    mixed: list[Step] = []
    for turn in order:
        left = [queue for queue in queues if queue]
        mixed.append(left[turn % len(left)].pop(0))
    return mixed


@given(histories(), st.data())
def test_independent_changes_in_any_order_give_the_same_counts_and_answers(
    history: list[Step], data: st.DataObject
) -> None:
    turns = st.lists(st.integers(0, 1000), min_size=len(history), max_size=len(history))
    other = _interleaved(history, data.draw(turns))
    first, second = built(history)[0], built(other)[0]
    pods = requested_pods(history)
    assert seen(first, pods) == seen(second, pods)
    assert audit(second) == []
