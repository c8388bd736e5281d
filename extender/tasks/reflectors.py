"""Runs one reflector per kind into the index, in the order in which their objects may be added.

Objects go to the index as they come. Each reflector is a job of its own under the supervisor; one that fails begins again
with a list, while requests are answered from what the index holds.

Order: pods and workloads are added after namespaces and nodes, since a pod's counts depend on both. The index is correct
in any order, but another one would move every pod. The first list is added in time slices, as no request is answered yet.
The changes of a later list are applied in one step, between two answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from extender.kube.reflector_status import ReflectorStatus
from extender.tasks.event_handler import FOUNDATION, KindHandler
from extender.tasks.ports import Clock, ObjectIndex, ObjectReflector
from extender.tasks.readiness import Freshness

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReflectorsOptions:
    """Seconds. ``slice_seconds``: how long objects are added before other tasks run.

    ``stale_after``: a kind without any event for so long, not even a bookmark, is not ready. Where changes are known to
    be missed, because no watch is granted, it is not ready at once.
    """

    slice_seconds: float = 0.003
    stale_after: float = 180.0


def _ignore(_kind: str, _begun: float) -> None:
    """The default of ``on_relisted``."""


class Reflectors:
    """All reflectors together: their jobs, and the order of their first lists. ``freshness``: whether the index is current."""

    def __init__(
        self,
        index: ObjectIndex,
        reflectors: Sequence[ObjectReflector],
        clock: Clock,
        options: ReflectorsOptions | None = None,
        on_synced: Callable[[], None] | None = None,
        on_relisted: Callable[[str, float], None] = _ignore,
        readable: Callable[[], Container[int]] = tuple,
    ) -> None:
        """``on_synced`` is called once, when every kind is listed and before any request is answered.

        ``on_relisted`` is called after each later list, with the kind and the time at which the list was requested.
        ``readable`` returns the descriptors of the sockets of watches that hold unread bytes.
        """
        self._options = options or ReflectorsOptions()
        self._on_synced = on_synced
        self.note_relisted = on_relisted
        self._foundation = asyncio.Event()
        self._all = asyncio.Event()
        self._handlers = [
            KindHandler(self, index, reflector, clock, self._options.slice_seconds) for reflector in reflectors
        ]
        self.freshness = Freshness(self._handlers, self._all, clock, self._options.stale_after, readable)
        if FOUNDATION.isdisjoint(handler.name for handler in self._handlers):
            self._foundation.set()

    def jobs(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """(name, job) of each reflector, for the supervisor."""
        return [(f"reflector {handler.name}", handler.run) for handler in self._handlers]

    async def wait_until_synced(self) -> None:
        """Waits until every kind has been listed and added to the index."""
        await self._all.wait()

    def known_until(self, kind: str) -> Callable[[], float]:
        """A function that returns the time up to which every event of a kind has been handled."""
        (status,) = (handler.status for handler in self._handlers if handler.name == kind)
        return lambda: status.last_heard

    def statuses(self) -> Mapping[str, ReflectorStatus]:
        """The status of each reflector by kind, for metrics."""
        return {handler.name: handler.status for handler in self._handlers}

    def relist_changes(self) -> dict[str, int]:
        """By kind the objects changed by later lists: changes that the watch missed, so 0 in a healthy cluster."""
        return {handler.name: handler.relist_changes for handler in self._handlers}

    async def wait_for_foundation(self, kind: str) -> None:
        """Waits until objects of ``kind`` may be added."""
        if kind not in FOUNDATION:
            await self._foundation.wait()

    def note_listed(self) -> None:
        """Called by each handler after its first list; the last call completes the sync."""
        if all(handler.is_listed for handler in self._handlers if handler.name in FOUNDATION):
            self._foundation.set()
        if not self._all.is_set() and all(handler.is_listed for handler in self._handlers):
            if self._on_synced:
                self._on_synced()
            self._all.set()
            _LOG.info("all %d kinds are synced", len(self._handlers))
