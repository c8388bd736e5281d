"""What the leader knows of the decision for a group: one of a closed set of states, and one table of transitions.

Each state is an immutable value with its own fields. `advance` applies an event to a state. The table `TRANSITIONS` says to which states
an event leads; an event that it does not name for a state raises `NotAllowed`. `python -m tests.tools.release_states` draws the table in
extender/README.md.

Only the decision outlives the process, in the GroupPlacement. `read_back` makes the state of the decision and of the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from extender.model.group_placements import GroupPlacement
from extender.model.release import GroupDecision, Level

# -- the states -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodsAtTheGate:
    """What the leader knows of the pods of a decided group that the watch shows at the gate.

    - ``sent``: pods whose release was sent, with the time until which they count as released. Then they are read, because a lost
      event must not block the group for ever.
    - ``absent``: pods that do not exist.
    - ``refused``: why the API server refuses the release of a pod. It is tried again at ``refused_until``, because the cause may be
      an admission plugin, whose verdict may change.
    """

    sent: Mapping[str, float] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_until: float = 0.0


NO_PODS: Final = PodsAtTheGate()


@dataclass(frozen=True, slots=True)
class _Decided:
    """``claimed_until``: until then the domain is the group's own although no pod of it runs there.

    ``needs_room``: a pod is released only into reserved room. False if the group is released without room, or is too large to have
    room reserved.
    """

    decision: GroupDecision
    claimed_until: float = 0.0
    needs_room: bool = True
    pods: PodsAtTheGate = NO_PODS


@dataclass(frozen=True, slots=True)
class Waiting:
    """No domain is chosen. Pods are missing, or no domain has room."""


@dataclass(frozen=True, slots=True)
class Preempting:
    """Pods of lower priority leave, and their room is reserved. ``decided``: a decision without room, see `Displaced`."""

    victims: tuple[str, ...]
    decided: Decided | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The write of a decision got no answer, so the decision may stand. It is written again before any pod is released."""

    decision: GroupDecision
    claimed_until: float
    needs_room: bool
    decided: Decided | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A domain is chosen, and the decision is being written."""

    levels: tuple[Level, ...]
    claimed_until: float
    needs_room: bool
    decided: Decided | None = None
    unanswered: Unanswered | None = None


@dataclass(frozen=True, slots=True)
class Releasing(_Decided):
    """The decision is written. Fewer pods have been released than the group needs."""


@dataclass(frozen=True, slots=True)
class Placed(_Decided):
    """As many pods as the group needs have been released. Further pods replace others, or let the group grow."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """The decided domain has no room, and none of the released pods exists. Another domain may be chosen."""

    decided: Decided


@dataclass(frozen=True, slots=True)
class Expired:
    """The reservation has ended before the released pods were bound."""

    decided: Decided


@dataclass(frozen=True, slots=True)
class Unasked:
    """The room of the released pods was given back, because their schedulers ask about no pod."""

    decided: Decided


@dataclass(frozen=True, slots=True)
class Bound:
    """Each released pod has a node."""

    decided: Decided


@dataclass(frozen=True, slots=True)
class Emptied:
    """No pod is left. The decision stays for a while, because the owner may replace all pods. ``at``: since when."""

    at: float
    before: Alive


@dataclass(frozen=True, slots=True)
class Ended:
    """The GroupPlacement is deleted."""


Decided: TypeAlias = Releasing | Placed
Alive: TypeAlias = (
    Waiting | Preempting | Chosen | Unanswered | Releasing | Placed | Displaced | Expired | Unasked | Bound
)
State: TypeAlias = Alive | Emptied | Ended
Kinds: TypeAlias = tuple[type[State], ...]

_DECIDED: Final[Kinds] = (Releasing, Placed)
_ALIVE: Final[Kinds] = (
    *(Waiting, Preempting, Chosen, Unanswered, Releasing, Placed),
    *(Displaced, Expired, Unasked, Bound),
)
STATES: Final[Kinds] = (*_ALIVE, Emptied, Ended)


def decided_of(state: State) -> Decided | None:
    """The written decision of a group, with what belongs to it; None if there is none."""
    match state:
        case Releasing() | Placed():
            return state
        case Waiting() | Ended():
            return None
        case Emptied():
            return decided_of(state.before)
        case _:
            return state.decided


def levels_of(state: State) -> tuple[Level, ...] | None:
    """The domain that a group has or is being given; None if it has none, or no pod is left."""
    match state:
        case Chosen():
            return state.levels
        case Unanswered():
            return state.decision.levels
        case Emptied():
            return None
        case _:
            decided = decided_of(state)
            return None if decided is None else decided.decision.levels


def claimed_until(state: State) -> float:
    """Until when the domain is the group's own although no pod of it runs there."""
    if isinstance(state, Chosen | Unanswered):
        return state.claimed_until
    decided = decided_of(state)
    return 0.0 if decided is None else decided.claimed_until


def read_back(stored: GroupPlacement | None, claimed: float = 0.0, out: int = 0) -> Waiting | Decided:
    """The state of a group for a leader that has just started, from the object of the group.

    ``out``: how many of its pods are released, by the watch.
    """
    decision = None if stored is None else stored.decision
    if stored is None or decision is None:
        return Waiting()
    # A pod that was released and is deleted by now is in the status still.
    is_placed = max(out, stored.status.released) >= decision.size
    return Placed(decision, claimed) if is_placed else Releasing(decision, claimed)


def _within(state: State, change: Callable[[Decided], Decided]) -> State:
    """The state with a changed written decision."""
    match state:
        case Releasing() | Placed():
            return change(state)
        case Displaced() | Expired() | Unasked() | Bound():
            return replace(state, decided=change(state.decided))
        case Preempting() | Chosen() | Unanswered() if state.decided is not None:
            return replace(state, decided=change(state.decided))
        case _:
            return state


def _claiming(state: State, until: float) -> State:
    if isinstance(state, Chosen | Unanswered):
        return replace(state, claimed_until=until)
    return _within(state, lambda decided: replace(decided, claimed_until=until))


def _with_pods(state: State, change: Callable[[PodsAtTheGate], PodsAtTheGate]) -> State:
    return _within(state, lambda decided: replace(decided, pods=change(decided.pods)))


# -- the events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DomainChosen:
    """A domain is chosen: with room, or for pods that are to wait for nodes there."""

    levels: tuple[Level, ...]
    claimed_until: float
    needs_room: bool


@dataclass(frozen=True, slots=True)
class VictimsChosen:
    """Pods of lower priority are to leave, and their room is reserved."""

    victims: tuple[str, ...]
    reserved_until: float


@dataclass(frozen=True, slots=True)
class VictimsGone:
    """All victims have left and the room does not hold the group, or a victim cannot be removed."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write of the decision is answered. ``decision``: the one that stands, which may be an earlier one."""

    decision: GroupDecision


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The write of the decision got no answer."""

    decision: GroupDecision


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The write of the decision failed, and the decision does not stand."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The group is one pod that went into its domain without the gate, and its decision is written after the fact."""

    decision: GroupDecision


@dataclass(frozen=True, slots=True)
class DomainFull:
    """The decided domain has no room, none of the released pods exists, and the policy lets the group have another domain."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The group goes on with its decision: a pod is released or is to be released, or a scheduler asks about its pods again."""


@dataclass(frozen=True, slots=True)
class RoomReserved:
    """Room is reserved in the decided domain."""

    until: float


@dataclass(frozen=True, slots=True)
class RoomNeeded:
    """Whether pods are released only into reserved room from now on."""

    is_needed: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """The patches of these pods are sent."""

    uids: Collection[str]
    until: float


@dataclass(frozen=True, slots=True)
class StillSent:
    """A read did not show the gate of these pods, or got no answer: they count as released for as long again."""

    uids: Collection[str]
    until: float


@dataclass(frozen=True, slots=True)
class NotReleased:
    """Pods whose patch failed or whose gate a read shows, pods that do not exist, and why the API server refuses others."""

    uids: frozenset[str]
    absent: frozenset[str] = frozenset()
    refusals: Mapping[str, str] = field(default_factory=dict)
    refused_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """The watch shows these pods at the gate, ``at`` the present time."""

    uids: Collection[str]
    at: float


@dataclass(frozen=True, slots=True)
class AllReleased:
    """As many pods as the group needs are released."""


@dataclass(frozen=True, slots=True)
class AllBound:
    """Each released pod has a node."""


@dataclass(frozen=True, slots=True)
class ReservationEnded:
    """The reservation of the group has ended before all of its pods were bound."""


@dataclass(frozen=True, slots=True)
class NoneAsked:
    """The schedulers of all released pods have asked about no pod for a while, and the room is given back."""


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """The last pod of the group is deleted."""

    at: float


@dataclass(frozen=True, slots=True)
class PodsCame:
    """The group has pods again."""


@dataclass(frozen=True, slots=True)
class PlacementDeleted:
    """The GroupPlacement of a group without pods is deleted."""


OfDecision: TypeAlias = (
    DomainChosen | VictimsChosen | VictimsGone | Written | NoAnswer | NotWritten | Adopted | DomainFull | Resumed
)
OfPods: TypeAlias = Sent | StillSent | NotReleased | Observed
OfRoom: TypeAlias = RoomReserved | RoomNeeded | ReservationEnded | NoneAsked | AllReleased | AllBound
OfGroup: TypeAlias = PodsDeleted | PodsCame | PlacementDeleted
Event: TypeAlias = OfDecision | OfPods | OfRoom | OfGroup

# -- the table --------------------------------------------------------------------------------------------------------


def _stay(*states: type[State]) -> dict[type[State], Kinds]:
    return {state: (state,) for state in states}


def _lead(states: Kinds, *targets: type[State]) -> dict[type[State], Kinds]:
    return dict.fromkeys(states, targets)


TRANSITIONS: Final[Mapping[type[Event], Mapping[type[State], Kinds]]] = {
    DomainChosen: _lead((Waiting, Displaced, Preempting), Chosen) | _lead((Unanswered,), Chosen, Unanswered),
    VictimsChosen: _lead((Waiting, Displaced, Preempting), Preempting),
    VictimsGone: _lead((Preempting,), Waiting, Displaced),
    Written: _lead((Chosen, Unanswered), *_DECIDED),
    NoAnswer: _lead((Chosen, Unanswered), Unanswered),
    NotWritten: _lead((Chosen,), Waiting, Displaced, Unanswered) | _stay(Unanswered),
    Adopted: _lead((Waiting, Preempting, Unanswered), Releasing),
    DomainFull: _lead((*_DECIDED, Expired, Unasked), Displaced) | _stay(Displaced, Preempting),
    Resumed: _lead((Displaced, Preempting, Bound, Unasked), *_DECIDED),
    RoomReserved: _lead((Displaced,), *_DECIDED) | _stay(*_DECIDED, Expired, Unasked, Bound, Unanswered),
    RoomNeeded: _stay(*_ALIVE),
    Sent: _lead((Displaced, Expired, Unasked, Bound), *_DECIDED) | _stay(*_DECIDED),
    StillSent: _stay(*_ALIVE),
    NotReleased: _stay(*_ALIVE),
    Observed: _stay(*_ALIVE),
    AllReleased: _lead(_DECIDED, Placed) | _stay(Expired, Unasked),
    AllBound: _lead((*_DECIDED, Expired, Unasked), Bound),
    ReservationEnded: _stay(*STATES) | _lead(_DECIDED, Expired),
    NoneAsked: _stay(*_ALIVE) | _lead((*_DECIDED, Expired, Bound), Unasked),
    PodsDeleted: _lead(_ALIVE, Emptied),
    PodsCame: _lead((Emptied,), *_ALIVE),
    PlacementDeleted: _lead((Emptied,), Ended),
}
"""By event and state: the states to which the event leads."""


class NotAllowed(Exception):  # noqa: N818 (as `NotExplained`)
    """The table names no transition for the event in this state, or the value of the state contradicts it."""

    def __init__(self, event: Event, state: State) -> None:
        super().__init__(f"{type(event).__name__} in the state {type(state).__name__}")


def advance(state: State, event: Event) -> State:
    """The state after an event. O(pods at the gate)."""
    targets = TRANSITIONS[type(event)].get(type(state), ())
    after = _after(state, event) if targets else None
    if type(after) not in targets or after is None:
        raise NotAllowed(event, state)
    return after


def _after(state: State, event: Event) -> State | None:
    """None if the value of the state contradicts the event."""
    match event:
        case Sent() | StillSent() | NotReleased() | Observed():
            return _after_pods(state, event)
        case RoomReserved() | RoomNeeded() | ReservationEnded() | NoneAsked() | AllReleased() | AllBound():
            return _after_room(state, event)
        case PodsDeleted(at=at):
            # Nothing is on its way any more.
            before = _with_pods(state, lambda pods: replace(pods, sent={}))
            return None if isinstance(before, Emptied | Ended) else Emptied(at, before)
        case PodsCame():
            return state.before if isinstance(state, Emptied) else None
        case PlacementDeleted():
            return Ended()
        case _:
            return _after_decision(state, event)


def _after_decision(state: State, event: OfDecision) -> State | None:
    decided = decided_of(state)
    match event, state:
        case DomainChosen(levels=levels), Unanswered(decision=decision) if decision.levels == levels:
            # The same decision is written again. An equal one with a later time would give way to it, if it stands.
            return replace(state, needs_room=event.needs_room)
        case DomainChosen(levels=levels, claimed_until=until, needs_room=needs_room), _:
            return Chosen(levels, until, needs_room, decided, state if isinstance(state, Unanswered) else None)
        case VictimsChosen(victims=victims, reserved_until=until), _:
            return Preempting(victims, decided and replace(decided, claimed_until=until))
        case VictimsGone(), _:
            return _searching(decided)
        case Adopted(decision=decision), _:
            return Releasing(decision) if decided is None else None
        case DomainFull(), _:
            # A group with a pod on its way is not decided anew, because a group is never split.
            is_split = decided is None or bool(decided.pods.sent)
            return None if is_split else state if isinstance(state, Preempting) else _searching(decided)
        case Resumed(), _:
            return decided
        case Written() | NoAnswer() | NotWritten(), Chosen() | Unanswered():
            return _after_write(state, event)
        case _:
            return None


def _after_write(state: Chosen | Unanswered, event: Written | NoAnswer | NotWritten) -> State:
    decided = state.decided
    match event, state:
        case Written(decision=decision), _:
            kind = Placed if isinstance(decided, Placed) else Releasing
            known = NO_PODS if decided is None else decided.pods
            return kind(decision, state.claimed_until, state.needs_room, known)
        case NoAnswer(decision=decision), _:
            return Unanswered(decision, state.claimed_until, state.needs_room, decided)
        case NotWritten(), Chosen(unanswered=Unanswered() as before):
            return replace(before, claimed_until=state.claimed_until)
        case NotWritten(), Chosen():
            return _searching(decided and replace(decided, claimed_until=0.0))
        case _:
            return state


def _after_pods(state: State, event: OfPods) -> State | None:
    match event:
        case Sent(uids=uids, until=until):
            # An earlier reservation that has ended does not matter any more.
            return _with_sent(decided_of(state) or state, uids, until)
        case StillSent(uids=uids, until=until):
            return _with_sent(state, uids, until)
        case NotReleased():
            return _with_pods(state, lambda pods: _not_released(pods, event))
        case Observed(uids=uids, at=at):
            return _with_pods(state, lambda pods: _observed(pods, set(uids), at))


def _with_sent(state: State, uids: Collection[str], until: float) -> State:
    return _with_pods(state, lambda pods: replace(pods, sent={**pods.sent, **dict.fromkeys(uids, until)}))


def _not_released(pods: PodsAtTheGate, event: NotReleased) -> PodsAtTheGate:
    ended = {*event.uids, *event.absent, *event.refusals}
    return PodsAtTheGate(
        {uid: until for uid, until in pods.sent.items() if uid not in ended},
        pods.absent | event.absent,
        {**pods.refused, **event.refusals},
        event.refused_until if event.refusals else pods.refused_until,
    )


def _observed(pods: PodsAtTheGate, at_the_gate: set[str], at: float) -> PodsAtTheGate:
    """Without the pods that have left the gate, and without refusals whose time is over."""
    sent = {uid: until for uid, until in pods.sent.items() if uid in at_the_gate}
    refused = {} if at >= pods.refused_until else pods.refused
    return PodsAtTheGate(sent, pods.absent & at_the_gate, refused, pods.refused_until)


def _after_room(state: State, event: OfRoom) -> State | None:
    decided = decided_of(state)
    match event:
        case RoomReserved(until=until):
            claimed = _claiming(state, until)
            return claimed.decided if isinstance(claimed, Displaced) else claimed
        case RoomNeeded(is_needed=is_needed):
            return _within(state, lambda decided: replace(decided, needs_room=is_needed))
        case ReservationEnded():
            free = _claiming(state, 0.0)
            return Expired(free) if isinstance(free, Releasing | Placed) else free
        case NoneAsked():
            free = _claiming(state, 0.0)
            decided = decided_of(free)
            is_out = isinstance(free, Releasing | Placed | Expired | Bound)
            return Unasked(decided) if is_out and decided is not None else free
        case AllReleased():
            return _within(state, _placed)
        case AllBound():
            return None if decided is None else Bound(decided)


def _placed(decided: Decided) -> Decided:
    return Placed(decided.decision, decided.claimed_until, decided.needs_room, decided.pods)


def _searching(decided: Decided | None) -> State:
    """No domain is chosen: the group waits for one, or has a decision without room."""
    return Waiting() if decided is None else Displaced(decided)


class Progress:
    """The state of a group, which `record` replaces, with what is often read of it.

    ``pods``: what is known of the pods at the gate. ``needs_room``: see `Releasing`.
    """

    def __init__(self, state: State) -> None:
        self._set(state)

    def record(self, event: Event) -> None:
        """Applies an event to the state. Raises `NotAllowed`."""
        self._set(advance(self.state, event))

    def _set(self, state: State) -> None:
        self.state, self.decided = state, decided_of(state)
        decided = self.decided
        self.decision = None if decided is None else decided.decision
        self.pods = NO_PODS if decided is None else decided.pods
        self.needs_room = decided is None or decided.needs_room
