"""Changes of the state that decisions read: of objects, and of claims on nodes. Immutable values.

`index` notes each change where a recording needs it (`ChangeJournal` of `index/objects/changes.py`), and applies it
again (`index/state.py`). The values are in no reference cycle, so thousands that wait to be written cost the garbage
collector nothing.
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
    """A pod is assumed on the nodes from now on; its earlier assumption ends.

    ``doubted``: the pod may be on no node.
    """

    pod: Pod
    nodes: tuple[str, ...]
    doubted: bool = False


class AssumptionEnd(Struct, frozen=True, gc=False):
    """A pod is no longer assumed, and no event of the pod ended that.

    ``unreported``: its failed attempt may still be reported.
    """

    uid: str
    unreported: bool = False


class LaterAttempt(Struct, frozen=True, gc=False):
    """A later attempt for an assumed pod was answered, and the pod is still assumed.

    ``passed``: a node passed again; else the answer was the error that the pod is on its way.
    """

    uid: str
    passed: bool


class Nomination(Struct, frozen=True, gc=False):
    """A plan for the pod is being executed. ``victims`` are UIDs, sorted."""

    pod: Pod
    node: str
    victims: tuple[str, ...] = ()


class NominationRelease(Struct, frozen=True, gc=False):
    """The pod counts as nominated where its status says. Its plan continues."""

    uid: str


class NominationEnd(Struct, frozen=True, gc=False):
    """The plan for a pod is over."""

    uid: str


class Reservation(Struct, frozen=True, gc=False):
    """Room is reserved for the pods of a group. It replaces an earlier reservation of the group."""

    group: GroupKey
    slots: tuple[Slot, ...]


class ReservationEnd(Struct, frozen=True, gc=False):
    """Nothing is reserved for a group any more."""

    group: GroupKey


class PolicyRecheck(Struct, frozen=True, gc=False):
    """After a change of policies, what they add to the pods of a signature was corrected."""

    signature: PodSignature
    terminating: bool


class DomainTimes(Struct, frozen=True, gc=False):
    """The time by which exclusions of topology domains are judged, and the unavailable domains as (key, domain, since).

    Times are seconds of the Unix epoch.
    """

    now: float
    since: tuple[tuple[str, str, float], ...] = ()


Change = (
    ObjectChange
    | Assumption
    | AssumptionEnd
    | LaterAttempt
    | Nomination
    | NominationRelease
    | NominationEnd
    | Reservation
    | ReservationEnd
    | PolicyRecheck
    | DomainTimes
)
