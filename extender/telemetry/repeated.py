"""Log lines about what happens with every request for a while: told at once, and then now and then with a count.

A scheduler under load asks hundreds of times a second, and so many equal lines would hide all others.
"""

import logging
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic
from typing import Final

_QUIET_SECONDS: Final = 10.0


class RepeatedWarning:
    """One message. Between two lines lie ten seconds; `times` is how often it happened since the line before."""

    def __init__(self, logger: logging.Logger, message: str, now: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._message = message
        self._now = now
        self._next = float("-inf")
        self._times = 0

    def tell(self, **fields: object) -> None:
        """It has happened, with these fields; those of the occurrences in between are not told."""
        self._times += 1
        if self._now() >= self._next:
            self._logger.warning(self._message, extra=fields | {"times": self._times})
            self._next, self._times = self._now() + _QUIET_SECONDS, 0


class RepeatedWarnings:
    """One message for several kinds of occurrence: the first of each kind is told at once, then as `RepeatedWarning`.

    Kinds beyond `most` share one: what a kind is called may come from outside.
    """

    def __init__(
        self, logger: logging.Logger, message: str, most: int = 100, now: Callable[[], float] = monotonic
    ) -> None:
        self._new: Callable[[], RepeatedWarning] = partial(RepeatedWarning, logger, message, now)
        self._most = most
        self._kinds: dict[Hashable, RepeatedWarning] = {}

    def tell(self, kind: Hashable, **fields: object) -> None:
        """It has happened in this way, with these fields."""
        if kind not in self._kinds and len(self._kinds) >= self._most:
            kind = None
        self._kinds.setdefault(kind, self._new()).tell(**fields)
