"""The status of a reflector: its phase, the time of its last event, and counts of failures.

Plain values; no I/O. ``reflector`` writes ``ReflectorProgress``, all other modules read ``ReflectorStatus``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """What a reflector is doing now."""

    STARTING = "starting"
    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"


class RestartReason(StrEnum):
    """Why a list or a watch had to be started again; the label of a counter."""

    ENDED = "ended"  # the server closed the watch properly: it does so every few minutes, and to slow readers
    SILENT = "silent"
    EXPIRED = "expired"
    ERROR_EVENT = "error_event"
    BAD_VERSION = "bad_version"
    UNDECODABLE = "undecodable"
    OVERSIZED = "oversized"
    THROTTLED = "throttled"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NO_WATCH_LIST = "no_watch_list"


@dataclass(frozen=True, slots=True)
class ReflectorStatus:
    """A snapshot. Times are monotonic seconds of the reflector's clock, 0.0 before the first.

    ``synced``: the handler has handled a complete list. ``page``: pages of the running list, 0 with none;
    ``listed``: objects of it so far. ``unreadable``: objects that exist and cannot be read now. ``last_heard``: the time up to which
    every change has been handled; ``lag`` counts from there. ``list_begun``: when the last list was requested. ``error`` is empty while all is well.
    ``outage``: why changes are known to be missed, empty otherwise: no watch has begun yet, the server rejects it, or a
    change was lost and the new list is not complete. A lost connection is none: its events follow when it is back.
    """

    kind: str
    phase: Phase
    synced: bool
    page: int
    listed: int
    last_heard: float
    resource_version: str
    events: int
    bytes_read: int
    relists: int
    decode_errors: int
    unreadable: int
    restarts: Mapping[str, int]
    error: str
    outage: str
    list_begun: float = 0.0

    def lag(self, now: float) -> float:
        """Seconds since the last event; a quiet kind has one a minute, a bookmark."""
        return max(0.0, now - self.last_heard)


@dataclass(slots=True)
class ReflectorProgress:
    """The same, while it changes; only the reflector writes it."""

    kind: str
    phase: Phase = Phase.STARTING
    synced: bool = False
    page: int = 0
    listed: int = 0
    last_heard: float = 0.0
    resource_version: str = ""
    events: int = 0
    bytes_read: int = 0
    relists: int = 0
    decode_errors: int = 0
    unreadable: int = 0
    restarts: Counter[str] = field(default_factory=Counter)
    error: str = ""
    outage: str = "no watch has begun"
    list_begun: float = 0.0

    def snapshot(self) -> ReflectorStatus:
        """The present moment as a value."""
        return ReflectorStatus(
            kind=self.kind,
            phase=self.phase,
            synced=self.synced,
            page=self.page,
            listed=self.listed,
            last_heard=self.last_heard,
            resource_version=self.resource_version,
            events=self.events,
            bytes_read=self.bytes_read,
            relists=self.relists,
            decode_errors=self.decode_errors,
            unreadable=self.unreadable,
            restarts=dict(self.restarts),
            error=self.error,
            outage=self.outage,
            list_begun=self.list_begun,
        )
