"""All states that a group can reach, with a few pods and two domains."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Final, cast

from extender.model.constraints.labels import ZONE
from extender.model.group_placements import GroupPlacement, placement_name
from extender.model.release import RELEASE_GATE, GroupDecision, GroupKey, Level
from extender.verbs.release.states import (
    TRANSITIONS,
    Adopted,
    AllBound,
    AllReleased,
    DomainChosen,
    DomainFull,
    Event,
    NoAnswer,
    NoneAsked,
    NotAllowed,
    NotReleased,
    NotWritten,
    Observed,
    PlacementDeleted,
    PodsCame,
    PodsDeleted,
    ReservationEnded,
    Resumed,
    RoomNeeded,
    RoomReserved,
    Sent,
    State,
    StillSent,
    VictimsChosen,
    VictimsGone,
    Waiting,
    Written,
    advance,
)

GROUP: Final = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
UIDS: Final = (frozenset("a"), frozenset("b"))
LEVELS: Final = ((Level(ZONE, "a"),), (Level(ZONE, "b"),))
DECISIONS: Final = tuple(
    GroupDecision(GROUP, RELEASE_GATE, 2, levels, datetime(2026, 1, 1, tzinfo=UTC)) for levels in LEVELS
)
EVENTS: Final[tuple[Event, ...]] = (
    *(DomainChosen(levels, 9.0, needs_room) for levels, needs_room in product(LEVELS, (True, False))),
    VictimsChosen(("victim",), 9.0),
    VictimsGone(),
    *map(Written, DECISIONS),
    *map(NoAnswer, DECISIONS),
    NotWritten(),
    *map(Adopted, DECISIONS),
    DomainFull(),
    Resumed(),
    RoomReserved(9.0),
    RoomNeeded(is_needed=True),
    RoomNeeded(is_needed=False),
    *(Sent(uids, 9.0) for uids in UIDS),
    *(StillSent(uids, 9.0) for uids in UIDS[:1]),
    *map(NotReleased, UIDS),
    NotReleased(frozenset(), UIDS[0], {"b": "no"}, 9.0),
    Observed(UIDS[1], 1.0),
    Observed((), 9.0),
    AllReleased(),
    AllBound(),
    ReservationEnded(),
    NoneAsked(),
    PodsDeleted(1.0),
    PodsCame(),
    PlacementDeleted(),
)


FEW_EVENTS: Final = (*{type(event): event for event in reversed(EVENTS)}.values(), EVENTS[2])
"""One of each kind, and another domain. With all events a group has some hundred thousand states."""


def is_allowed(state: State, event: Event) -> bool:
    """By the table alone."""
    return type(state) in TRANSITIONS[type(event)]


def object_of(decision: GroupDecision) -> GroupPlacement:
    """The GroupPlacement with a decision."""
    name = placement_name(GROUP)
    return GroupPlacement(name, "uid", GROUP, decision.gate, decision.size, decision.levels, decision.decided)


@cache
def all_steps() -> Sequence[tuple[State, Event, State]]:
    """Each step from each state that a group can reach by few events. Without the steps that the value of a state forbids."""
    known: set[str] = set()
    waiting, steps = [cast("State", Waiting())], list[tuple[State, Event, State]]()
    while waiting:
        state = waiting.pop()
        for event in FEW_EVENTS:
            try:
                after = advance(state, event)
            except NotAllowed:
                continue
            steps.append((state, event, after))
            if repr(after) not in known:
                known.add(repr(after))
                waiting.append(after)
    return steps
