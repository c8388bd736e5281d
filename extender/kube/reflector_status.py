"""Plain values of a reflector: its options, its phase, why it started again, and its status.

``reflector`` writes the status; every other module only reads it. No I/O.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from extender.kube.timing import BackoffOptions


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Times are in seconds."""

    # Objects per page of a LIST.
    page_limit: int = 500
    # Begin with a streaming list (KEP-3157); fall back to LIST if the server has none.
    watch_list: bool = True
    list_timeout: float = 60.0
    # For the request whether the server has reached a version. It waits 3 s before it answers no.
    confirm_timeout: float = 10.0
    # Bounds of the wait for the end of the initial events, because a server without streaming lists never sends it. The
    # time grows with each object so far: a million objects need more than any fixed bound that is useful for a few.
    initial_silence: float = 20.0
    initial_seconds: float = 120.0
    initial_seconds_per_object: float = 0.002
    # The requested duration of a watch is random, so that clients do not reconnect together. The end may be late by the
    # slack.
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    watch_slack: float = 30.0
    # Without event or bookmark (one a minute) for so long, the watch is replaced.
    max_silence: float = 150.0
    # Bytes of a line of a watch. An object has at most 1.5 MiB in etcd by default and 3 MiB in a request; in JSON a
    # character takes at most six times its size.
    longest_line: int = 20 * 2**20
    # Bytes and values of a page. If a page is larger, fewer objects are requested; so one object of ``longest_line``
    # must fit, with any number of values. A page is split into objects in one step: 1.2 ms a megabyte and 60 ns an
    # object.
    largest_page: int = 24 * 2**20
    most_values: int = 400_000
    # Pages of one list.
    most_pages: int = 10_000
    # Bounds of what is decoded before other tasks run.
    batch_events: int = 500
    slice_seconds: float = 0.003
    backoff: BackoffOptions = field(default_factory=BackoffOptions)


class ReflectorPhase(StrEnum):
    """What a reflector is doing now."""

    STARTING = "starting"
    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"


class RestartReason(StrEnum):
    """Why a list or a watch started again; the label of a counter."""

    ENDED = "ended"  # the server closed the watch properly, as it does every few minutes and for slow readers
    SILENT = "silent"
    EXPIRED = "expired"
    ERROR_EVENT = "error_event"
    BAD_VERSION = "bad_version"
    UNDECODABLE = "undecodable"
    OVERSIZED = "oversized"
    THROTTLED = "throttled"
    REJECTED = "rejected"
    UNREACHABLE = "unreachable"
    NO_WATCH_LIST = "no_watch_list"


@dataclass(slots=True)
class ReflectorStatus:
    """What a reflector is doing and has counted. Times are monotonic seconds of its clock; 0.0: not yet."""

    kind: str
    phase: ReflectorPhase = ReflectorPhase.STARTING
    # The handler has handled a complete list.
    synced: bool = False
    # Pages and objects of the running list; 0 without one.
    page: int = 0
    listed: int = 0
    # The time up to which every change has been handled; ``lag`` counts from it.
    last_heard: float = 0.0
    resource_version: str = ""
    events: int = 0
    bytes_read: int = 0
    relists: int = 0
    decode_errors: int = 0
    # Objects that exist and cannot be read now.
    unreadable: int = 0
    # By `RestartReason`.
    restarts: Counter[str] = field(default_factory=Counter)
    # Empty while all is well.
    error: str = ""
    # Why changes are known to be missed, else empty: no watch has begun, the server rejects it, or a change was lost
    # and the new list is not complete. A lost connection is no outage: its events follow after reconnecting.
    outage: str = "no watch has begun"
    # When the last list was requested.
    list_begun: float = 0.0
    # The API server does not know this custom resource: it counts as a kind without objects.
    not_served: bool = False

    def lag(self, now: float) -> float:
        """Seconds since the last event. A quiet kind has one a minute, a bookmark."""
        return max(0.0, now - self.last_heard)
