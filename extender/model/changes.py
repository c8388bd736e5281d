"""Changes of the state that decisions read: of objects, and of claims on nodes. Immutable values.

`index` notes each where something records them (`ChangeJournal` of `index/objects/changes.py`), and applies them again (`index/state.py`).
They are in no reference cycle, so thousands that wait to be written do not cost the garbage collector a round.
"""

from __future__ import annotations

from msgspec import Struct

from extender.model.objects import Object, Pod, PodSignature
from extender.model.release import GroupKey, Slot


class ObjectChange(Struct, frozen=True, gc=False):
    """An object as it is now, or its deletion."""

    obj: Object
    is_deleted: bool = False


class Assumption(Struct, frozen=True, gc=False):
    """A pod is assumed on the nodes from now on; an earlier assumption of it ends. ``doubted``: or it is on no node."""

    pod: Pod
    nodes: tuple[str, ...]
    doubted: bool = False


class AssumptionEnd(Struct, frozen=True, gc=False):
    """A pod is assumed no longer, although no change of the pod ended that. ``unreported``: a report of its failed attempt may come."""

    uid: str
    unreported: bool = False


class Nomination(Struct, frozen=True, gc=False):
    """A plan for the pod is being executed. ``victims`` are UIDs, sorted."""

    pod: Pod
    node: str
    victims: tuple[str, ...] = ()


class NominationRelease(Struct, frozen=True, gc=False):
    """The pod counts as nominated where its status says; its plan is not over."""

    uid: str


class NominationEnd(Struct, frozen=True, gc=False):
    """The plan for a pod is over."""

    uid: str


class Reservation(Struct, frozen=True, gc=False):
    """Room is reserved for the pods of a group, in place of what was reserved before."""

    group: GroupKey
    slots: tuple[Slot, ...]


class ReservationEnd(Struct, frozen=True, gc=False):
    """Nothing is reserved for a group any more."""

    group: GroupKey


class PolicyRecheck(Struct, frozen=True, gc=False):
    """What policies add to the pods of a signature was corrected, after they had changed."""

    signature: PodSignature
    terminating: bool


class DomainTimes(Struct, frozen=True, gc=False):
    """The time that exclusions of topology domains are judged by, and domains that are unavailable: key, domain, and since when.

    Seconds of the Unix epoch.
    """

    now: float
    since: tuple[tuple[str, str, float], ...] = ()


Change = (
    ObjectChange
    | Assumption
    | AssumptionEnd
    | Nomination
    | NominationRelease
    | NominationEnd
    | Reservation
    | ReservationEnd
    | PolicyRecheck
    | DomainTimes
)
