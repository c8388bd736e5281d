"""Limits repeated log lines: the first is written at once, then one per ten seconds with a count.

A scheduler sends hundreds of requests per second. If all of them fail alike, their lines would hide all others.
"""

import logging
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic
from typing import Final

_QUIET_SECONDS: Final = 10.0


class RepeatedWarning:
    """One message, at most once per ten seconds; `times` counts the occurrences since the line before."""

    def __init__(self, logger: logging.Logger, message: str, now: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._message = message
        self._now = now
        self._next = float("-inf")
        self._times = 0

    def warn(self, **fields: object) -> None:
        """Logs or counts one occurrence; the fields of a counted one are dropped."""
        self._times += 1
        if self._now() >= self._next:
            self._logger.warning(self._message, extra=fields | {"times": self._times})
            self._next, self._times = self._now() + _QUIET_SECONDS, 0


class RepeatedWarnings:
    """One message for several kinds of occurrence, each with a limit of its own.

    Kinds beyond `most` share one limit: the name of a kind may come from a client.
    """

    def __init__(
        self, logger: logging.Logger, message: str, most: int = 100, now: Callable[[], float] = monotonic
    ) -> None:
        self._new: Callable[[], RepeatedWarning] = partial(RepeatedWarning, logger, message, now)
        self._most = most
        self._kinds: dict[Hashable, RepeatedWarning] = {}

    def warn(self, kind: Hashable, **fields: object) -> None:
        """Logs or counts one occurrence of a kind."""
        if kind not in self._kinds and len(self._kinds) >= self._most:
            kind = None
        self._kinds.setdefault(kind, self._new()).warn(**fields)
