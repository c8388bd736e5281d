"""Plain values of a reflector: its options, its phase, why it began again, and its status.

``reflector`` writes the status; every other module only reads it. No I/O.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from extender.kube.timing import BackoffOptions


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Times in seconds.

    ``page_limit``: objects per page of a LIST. ``confirm_timeout``: for the request whether the server has reached a version,
    which it delays by 3 s before it answers no. ``watch_list``: begin with a streaming list (KEP-3157) and fall back to
    LIST when the server has none. ``initial_silence`` and ``initial_seconds`` bound the wait for the end of its initial
    events; a server that ignores the request never sends it. ``initial_seconds_per_object`` is added for each object so far: a
    million of them need more time than any fixed bound that is useful for a few. ``watch_shortest``/``watch_longest``: the
    requested duration of a watch, drawn at random so that clients do not reconnect together; ``watch_slack`` is how long
    its end may be late. ``max_silence``: without event or bookmark (one a minute) for so long, the watch is replaced.
    ``longest_line``: bytes of a watch line. An object has at most 1.5 MiB in etcd by default, 3 MiB in a request, and a character
    six times its size in JSON at worst. ``largest_page``: bytes of a page, and ``most_values`` what it may have of values; of a
    larger page less is requested, so an object of ``longest_line`` must fit into it, with any number of values. A page is split
    into objects in one step, at 1.2 ms a megabyte and 60 ns an object. ``most_pages``: of one list.
    ``batch_events`` and ``slice_seconds`` bound what is decoded before other tasks run.
    """

    page_limit: int = 500
    watch_list: bool = True
    list_timeout: float = 60.0
    confirm_timeout: float = 10.0
    initial_silence: float = 20.0
    initial_seconds: float = 120.0
    initial_seconds_per_object: float = 0.002
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    watch_slack: float = 30.0
    max_silence: float = 150.0
    longest_line: int = 20 * 2**20
    largest_page: int = 24 * 2**20
    most_values: int = 400_000
    most_pages: int = 10_000
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
    """Why a list or a watch had to be started again; the label of a counter."""

    ENDED = "ended"  # the server closed the watch properly: it does so every few minutes, and to slow readers
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
    """What a reflector is doing and has counted. Times are monotonic seconds of its clock, 0.0 before the first.

    ``synced``: the handler has handled a complete list. ``page``: pages of the running list, 0 with none;
    ``listed``: objects of it so far. ``unreadable``: objects that exist and cannot be read now. ``last_heard``: the time up
    to which every change has been handled; ``lag`` counts from there. ``restarts``: by `RestartReason`. ``list_begun``: when
    the last list was requested. ``error`` is empty while all is well.
    ``outage``: why changes are known to be missed, empty otherwise: no watch has begun yet, the server rejects it, or a
    change was lost and the new list is not complete. A lost connection is none: its events follow when it is back.
    ``not_served``: the API server does not know this custom resource, which then counts as one without objects.
    """

    kind: str
    phase: ReflectorPhase = ReflectorPhase.STARTING
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
    not_served: bool = False

    def lag(self, now: float) -> float:
        """Seconds since the last event; a quiet kind has one a minute, a bookmark."""
        return max(0.0, now - self.last_heard)
