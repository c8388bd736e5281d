"""How many events may be recorded at once, and how many after that: a token bucket."""

from __future__ import annotations


class EventTokens:
    """``at_once`` tokens, of which one comes back every ``refill`` seconds. Time is given by the caller."""

    def __init__(self, at_once: float, refill: float, now: float) -> None:
        self._most = self._left = at_once
        self._refill = refill
        self._filled = now

    def take(self, now: float, *, spare: float = 0.0) -> bool:
        """Takes a token, where one is left beside those to ``spare`` for others. O(1)."""
        self._left = min(self._most, self._left + (now - self._filled) / self._refill)
        self._filled = now
        if self._left < 1 + spare:
            return False
        self._left -= 1
        return True
