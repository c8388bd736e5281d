"""The metrics of the release of gated pods; those that are read at each scrape are in `scraped`.

`Metrics` creates one `ReleaseMetrics`. Results and actions are closed sets; no group and no policy is named.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

DECISIONS: Final = ("room", "no_room")
PATCHES: Final = ("released", "already", "gone", "refused", "forbidden", "conflict", "unknown")
TIMEOUTS: Final = ("KeepGated", "Ungate", "UngateAtCoarserLevel")
_DECISION_SECONDS: Final = tuple(0.0005 * 2**power for power in range(12))  # 0.5 ms to 1 s
_WAIT_SECONDS: Final = tuple(0.1 * 2**power for power in range(16))  # 0.1 s to an hour


class ReleaseMetrics:
    """Records decisions, patches and the ends of groups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Histogram(
            "extender_release_decision_seconds",
            "Time to find a domain for a group of gated pods, by result.",
            ["result"],
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self._patches = Counter(
            "extender_release_patches",
            "Releases of gated pods, by result. refused: the API server would refuse it again (422); unknown: no usable answer.",
            ["result"],
            registry=registry,
        )
        self._timeouts = Counter(
            "extender_release_timeouts",
            "Groups of gated pods whose decisionTimeout was over, by what the policy says happens then.",
            ["action"],
            registry=registry,
        )
        self._waits = Histogram(
            "extender_release_wait_seconds",
            "Time from the first sight of a group of gated pods until all of its pods were released.",
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        for result in DECISIONS:
            self._decisions.labels(result)
        for result in PATCHES:
            self._patches.labels(result)  # rate() needs a value from before the first error
        for action in TIMEOUTS:
            self._timeouts.labels(action)

    def record_decision(self, result: str, seconds: float) -> None:
        """Records that a domain was searched: room or no_room."""
        self._decisions.labels(result).observe(seconds)

    def record_patch(self, result: str) -> None:
        """Records the end of the release of one pod."""
        self._patches.labels(result).inc()

    def record_timeout(self, action: str) -> None:
        """Records that the time of a group was over."""
        self._timeouts.labels(action).inc()

    def record_wait(self, seconds: float) -> None:
        """Records that all pods of a group were released."""
        self._waits.observe(seconds)
