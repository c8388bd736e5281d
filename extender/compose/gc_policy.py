"""Configures the garbage collector, so that it does not traverse the long-lived objects of the index repeatedly.

A full collection visits every object that is not frozen: 0.3 s at 150,000 pods. Reference counting frees what the index
drops, so the collector is needed for cycles only, and those are young. How it works (CPython up to 3.13):

1. A full collection is due once a quarter more has survived the younger ones than the last full one left, frozen objects
   included. After `gc.freeze` a further collection of what is left, nothing, makes the next one due early and small.
2. It is due every 70,000 new objects at most, and visiting so many takes 30 ms: hence `_THRESHOLDS`.
3. Frozen objects are still freed by reference count; only a cycle among them is never freed.
"""

import gc
from time import perf_counter
from typing import Final

_THRESHOLDS: Final = (700, 10, 2)  # full collections every 14,000 new objects instead of 70,000
_LONG_SECONDS: Final = 0.005  # some 10,000 objects


def freeze_gc() -> None:
    """Excludes all current objects from collections. O(objects not frozen yet)."""
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()
    gc.collect()
    if _WATCH not in gc.callbacks:
        gc.callbacks.append(_WATCH)


class _Watch:
    """Freezes what has survived a long full collection, so that the next one is short after the index has grown."""

    def __init__(self) -> None:
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector before and after each collection."""
        if info["generation"] < len(_THRESHOLDS) - 1:
            return
        if phase == "start":
            self._started = perf_counter()
        elif perf_counter() - self._started > _LONG_SECONDS:
            gc.freeze()


_WATCH: Final = _Watch()
