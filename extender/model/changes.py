"""Changes of the state that decisions read: of objects, and of claims on nodes. Immutable values.

`index` notes each where something records them (`index/journal.py`), and applies them again (`index/state.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.model.objects import Object, Pod
from extender.model.release import GroupKey, Slot


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object as it is now, or its deletion."""

    obj: Object
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """A pod is assumed on the nodes from now on; an earlier assumption of it ends. ``doubted``: or it is on no node."""

    pod: Pod
    nodes: tuple[str, ...]
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class AssumptionEnd:
    """A pod is assumed no longer, although no change of the pod ended that."""

    uid: str


@dataclass(frozen=True, slots=True)
class Nomination:
    """A plan for the pod is being executed. ``victims`` are UIDs, sorted."""

    pod: Pod
    node: str
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NominationRelease:
    """The pod counts as nominated where its status says; its plan is not over."""

    uid: str


@dataclass(frozen=True, slots=True)
class NominationEnd:
    """The plan for a pod is over."""

    uid: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room is reserved for the pods of a group, in place of what was reserved before."""

    group: GroupKey
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class ReservationEnd:
    """Nothing is reserved for a group any more."""

    group: GroupKey


Change = (
    ObjectChange
    | Assumption
    | AssumptionEnd
    | Nomination
    | NominationRelease
    | NominationEnd
    | Reservation
    | ReservationEnd
)
