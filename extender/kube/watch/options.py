"""How a kind is listed and watched. Plain values; ``compose`` fills them from the settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.kube.timing import BackoffOptions


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Times in seconds.

    ``page_limit``: objects per page of a LIST. ``confirm_timeout``: for the request whether the server has reached a version,
    which it delays by 3 s before it answers no. ``watch_list``: begin with a streaming list (KEP-3157) and fall back to
    LIST when the server has none. ``initial_silence`` and ``initial_seconds`` bound the wait for the end of its initial
    events; a server that ignores the request never sends it. ``watch_shortest``/``watch_longest``: the
    requested duration of a watch, drawn at random so that clients do not reconnect together; ``watch_slack`` is how long
    its end may be late. ``max_silence``: without event or bookmark (one a minute) for so long, the watch is replaced.
    ``longest_line``: bytes of a watch line. An object has at most 1.5 MiB in etcd by default, and a character
    six times its size in JSON at worst. ``largest_page``: bytes of a page; a larger page is requested again in parts, so
    an object of ``longest_line`` must fit into it. ``most_pages``: of one list.
    ``batch_events`` and ``slice_seconds`` bound what is decoded before other tasks run.
    """

    page_limit: int = 500
    watch_list: bool = True
    list_timeout: float = 60.0
    confirm_timeout: float = 10.0
    initial_silence: float = 20.0
    initial_seconds: float = 120.0
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    watch_slack: float = 30.0
    max_silence: float = 150.0
    longest_line: int = 32 * 2**20
    largest_page: int = 64 * 2**20
    most_pages: int = 10_000
    batch_events: int = 500
    slice_seconds: float = 0.003
    backoff: BackoffOptions = field(default_factory=BackoffOptions)
