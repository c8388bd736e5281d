"""The states of a release: every row of the table is reached, nothing that was released is forgotten, and a restart reads the decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.group_placements import GroupPlacement
from extender.verbs.release.states import (
    STATES,
    TRANSITIONS,
    Adopted,
    Chosen,
    Displaced,
    DomainFull,
    Emptied,
    Ended,
    Event,
    NotAllowed,
    NotReleased,
    Observed,
    Placed,
    PlacementDeleted,
    PodsDeleted,
    Releasing,
    Resumed,
    Sent,
    State,
    StillSent,
    Unanswered,
    Waiting,
    Written,
    advance,
    claimed_until,
    decided_of,
    levels_of,
    read_back,
)
from tests.laws.cases import case, meets_its_case
from tests.laws.release_states import DECISIONS, EVENTS, all_steps, is_allowed, object_of
from tests.tools.release_states import README, as_text


def test_each_row_of_the_table_is_reached_and_nothing_else() -> None:
    reached = {(type(event), type(state), type(after)) for state, event, after in all_steps()}
    table = {
        (event, state, target)
        for event, by_state in TRANSITIONS.items()
        for state, targets in by_state.items()
        for target in targets
    }
    assert reached - table == set()
    assert {_names(row) for row in table - reached} == set()


def _names(row: tuple[type[Event], type[State], type[State]]) -> str:
    event, state, target = row
    return f"{event.__name__}: {state.__name__} -> {target.__name__}"


def test_the_last_state_is_reached_from_each_state_and_left_by_none() -> None:
    for state, event, after in all_steps():
        assert type(state) is not Ended or after == state, event
        empty = after if isinstance(after, Emptied | Ended) else advance(after, PodsDeleted(1.0))
        assert isinstance(empty, Ended) or advance(empty, PlacementDeleted()) == Ended()


def test_the_document_draws_the_table() -> None:
    text = README.read_text("utf-8")
    assert as_text(text) == text, "run `python -m tests.tools.release_states`"
    assert all(f"| {state.__name__} | " in text for state in STATES)


def ended(event: Event, state: State) -> set[str]:
    """Pods whose release does not count any more, because of this event alone."""
    decided = decided_of(state)
    sent = set() if decided is None else set(decided.pods.sent)
    match event:
        case NotReleased(uids=uids, absent=absent, refusals=refusals):
            return {*uids, *absent, *refusals}
        case Observed(uids=uids):
            return sent - set(uids)  # by the watch they are out, or deleted
        case PodsDeleted():
            return sent
        case _:
            return set()


@meets_its_case
@given(st.lists(st.integers(0, len(EVENTS)), min_size=3, max_size=40))
def test_nothing_that_was_released_is_forgotten_and_a_restart_reads_the_decision(choices: list[int]) -> None:
    """``stored``: the GroupPlacement."""
    state: State = Waiting()
    stored: GroupPlacement | None = None
    for choice in choices:
        events = [event for event in EVENTS if is_allowed(state, event)]
        event = events[choice % len(events)]
        try:
            after = advance(state, event)
        except NotAllowed:
            assert isinstance(event, Adopted | DomainFull | Resumed), "the value of a state forbids these events alone"
            continue
        if isinstance(after, Ended):
            break
        before, decided = decided_of(state), decided_of(after)
        if isinstance(event, Written | Adopted):
            assert before is None or not before.pods.sent, "a group with a pod on its way keeps its domain"
            stored = object_of(event.decision)
        sent = {} if before is None else before.pods.sent
        out = {} if decided is None else decided.pods.sent
        assert set(sent) - set(out) <= ended(event, state)
        assert isinstance(event, Sent | StillSent) or set(out) <= set(sent)
        restarted = read_back(stored, claimed_until(after), 2 if isinstance(decided, Placed) else 1)
        again = decided_of(restarted)
        assert (again and (type(again), again.decision)) == (decided and (type(decided), decided.decision))
        if not isinstance(after, Chosen | Unanswered | Emptied):
            assert levels_of(restarted) == levels_of(after)
            assert claimed_until(restarted) == claimed_until(after)
        state = after
    case(stored)


def test_an_event_that_the_table_does_not_name_is_an_error() -> None:
    for state in {type(state): state for state, _, _ in all_steps()}.values():
        for event in EVENTS:
            if not is_allowed(state, event):
                with pytest.raises(NotAllowed):
                    advance(state, event)


def test_a_group_with_a_pod_on_its_way_is_not_decided_anew() -> None:
    begun = advance(Releasing(DECISIONS[0]), Sent(["a"], 9.0))
    with pytest.raises(NotAllowed, match="DomainFull in the state Releasing"):
        advance(begun, DomainFull())
    assert isinstance(advance(advance(begun, Observed((), 1.0)), DomainFull()), Displaced)
