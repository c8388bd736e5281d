"""What is measured: an index with its decisions, put together by the command line just as the service is.

Protocols and nothing more, so that the bench neither builds a service of its own nor imports one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from extender.index.cluster import ClusterIndex
from extender.model.objects import Namespace, Node, Pod, Workload
from extender.settings import Settings
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from extender.wire.kinds import Event

T = TypeVar("T", bound=Pod | Node | Namespace | Workload)


class Decisions(Protocol):
    """The verbs, bound to an index and to settings."""

    @property
    def filter(self) -> Callable[[ExtenderArgs], FilterResult]:
        """Which nodes pass."""

    @property
    def prioritize(self) -> Callable[[ExtenderArgs], Mapping[str, int]]:
        """Which of them are preferred."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An index, how decisions are bound to it, and what the service does once everything has been listed."""

    index: ClusterIndex
    decisions: Callable[[Settings], Decisions]
    settle: Callable[[], None]


# Called in the process that measures, so it must be a function that can be named there.
MakeSubject = Callable[[], Subject]


def apply(index: ClusterIndex, event: Event[T]) -> None:
    """One event of a watch into the index."""
    if event.object is None:
        return
    if event.type == "DELETED":
        index.delete(event.object)
    else:
        index.upsert(event.object)
