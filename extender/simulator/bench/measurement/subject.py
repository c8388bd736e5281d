"""What is measured: an index with its decisions, composed as for the service; and the recount of the index afterwards.

Protocols, so that the bench neither builds a service of its own nor imports one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Namespace, Node, Pod, Workload
from extender.settings import Settings
from extender.simulator.bench.reporting.runs import Audit
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
    freeze_gc: Callable[[], None]


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


_GROUPS = ("term_groups", "owner_groups", "spread_groups")


def recount(index: ClusterIndex) -> Audit:
    """Everything: 3 s with 150,000 pods and 4,000 groups."""
    sizes = index.statistics()
    return Audit(tuple(audit(index)), sum(sizes[name] for name in _GROUPS))
