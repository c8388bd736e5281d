"""What is measured: an index and its decisions, as the service composes them; and the recount of the index.

Protocols, so that the bench does not import the service.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Namespace, Node, Pod, Workload
from extender.settings.configuration import Settings
from extender.settings.limits import NamespaceLimits
from extender.simulator.bench.reporting.runs import Audit
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from extender.wire.objects.kinds import Event

T = TypeVar("T", bound=Pod | Node | Namespace | Workload)


class Decisions(Protocol):
    """The verbs, bound to an index and to settings."""

    @property
    def filter(self) -> Callable[[ExtenderArgs], FilterResult]:
        """The filter verb."""

    @property
    def prioritize(self) -> Callable[[ExtenderArgs], Mapping[str, int]]:
        """The prioritize verb."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An index, its decisions by settings, and the garbage collector policy that the service applies after its lists."""

    index: ClusterIndex
    decisions: Callable[[Settings], Decisions]
    freeze_gc: Callable[[], None]


# Sent to the child process by name, so it must be a module-level function.
MakeSubject = Callable[[NamespaceLimits], Subject]


def apply(index: ClusterIndex, event: Event[T]) -> None:
    """Applies a watch event to the index."""
    if event.object is None:
        return
    if event.type == "DELETED":
        index.delete(event.object)
    else:
        index.upsert(event.object)


_GROUPS = ("term_groups", "owner_groups", "spread_groups")


def recount(index: ClusterIndex) -> Audit:
    """Recounts the whole index: 3 s with 150,000 pods and 4,000 groups."""
    sizes = index.statistics()
    return Audit(tuple(audit(index)), sum(sizes[name] for name in _GROUPS))
