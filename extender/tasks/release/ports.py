"""What the release of groups needs of the index and of the verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from extender.model.release import GroupKey, Level, Proposal, Slot
from extender.verbs.release.progress import GroupState


class Groups(Protocol):
    """The groups of gated and released pods, as the watch shows them."""

    def of(self, key: GroupKey) -> GroupState | None:
        """A group, None where no pod of it is left. O(its pods)."""

    def __iter__(self) -> Iterator[GroupKey]:
        """All groups."""


class Source(Protocol):
    """Where changes are told of; implemented by `Subscribers` of the index."""

    def subscribe(self, callback: Callable[[Any], None]) -> None:
        """Calls it after each change from now on."""

    def unsubscribe(self, callback: Callable[[Any], None]) -> None:
        """Ends a `subscribe`."""


class Reservations(Protocol):
    """Room for pods of decided groups; implemented by `index.claims.reserved`."""

    def node_of(self, uid: str) -> str:
        """The node with room for a pod, empty where there is none."""

    def reserve(self, group: GroupKey, slots: Iterable[Slot], until: float) -> int:
        """Replaces the slots of a group."""

    def release(self, group: GroupKey) -> None:
        """Ends the slots of a group."""

    def expire(self, now: float) -> list[GroupKey]:
        """Ends the slots that have expired."""


class Budget(Protocol):
    """How much of the cluster the groups of one namespace may have reserved."""

    def excess(self, group: GroupState) -> str:
        """Why room may not be reserved for a group now, empty where it may."""


class Propose(Protocol):
    """Where the pods of a group that have no node may go together; implemented by `verbs.release`."""

    def __call__(
        self, group: GroupState, levels: Sequence[Level] | None, taken: Sequence[tuple[GroupKey, Sequence[Level]]]
    ) -> Proposal:
        """``levels``: the domain that is decided, None where any may be chosen; ``taken``: those of other groups. O(nodes)."""


class ReleaseRecorder(Protocol):
    """Counts; implemented by `telemetry.release`."""

    def record_decision(self, result: str, seconds: float) -> None:
        """A decision was tried."""

    def record_patch(self, result: str) -> None:
        """The release of a pod ended."""

    def record_timeout(self, action: str) -> None:
        """The time of a group was over."""

    def record_wait(self, seconds: float) -> None:
        """The pods of a group were all released so many seconds after the group was first seen."""
