"""Which pods ask for more than a limit of the configuration allows: counted for a metric, and told in the log.

Stands between the feeds and the index and changes nothing that passes. No limit is exceeded silently: what the
scheduler asks about, the watch has shown.
"""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakSet

import msgspec

from extender.model.objects import Object, Pod, PodSignature
from extender.settings import Limits
from extender.tasks.ports import Clock, IndexSink
from extender.telemetry.repeated import RepeatedWarnings

_LOG = logging.getLogger(__name__)
_NAMES: Final = tuple(field.encode_name for field in msgspec.structs.fields(Limits))


class OverLimits:
    """The index, as feeds see it, with an eye on pods above a limit, waiting or placed."""

    def __init__(self, index: IndexSink, clock: Clock) -> None:
        self._index = index
        self._limit_of: dict[str, str] = {}
        self._told: WeakSet[PodSignature] = WeakSet()
        self._warnings = RepeatedWarnings(_LOG, "pod is above a limit", now=clock.now)

    def upsert(self, obj: Object) -> bool:
        """Passes it on. O(1) besides."""
        if isinstance(obj, Pod) and (obj.signature.excess is not None or obj.uid in self._limit_of):
            self._note(obj)
        return self._index.upsert(obj)

    def delete(self, obj: Object) -> bool:
        """Passes it on. O(1) besides."""
        if isinstance(obj, Pod):
            self._limit_of.pop(obj.uid, None)
        return self._index.delete(obj)

    def counts(self) -> dict[str, int]:
        """How many pods are above each limit, by its name. O(such pods): for metrics."""
        found = dict.fromkeys(_NAMES, 0)
        for limit in self._limit_of.values():
            found[limit] += 1
        return found

    def _note(self, pod: Pod) -> None:
        """Tells of each shape once; where many come within seconds, of the first by each limit and how many more."""
        excess = pod.signature.excess
        if excess is None:
            del self._limit_of[pod.uid]
            return
        self._limit_of[pod.uid] = excess.limit
        if pod.signature not in self._told:
            self._told.add(pod.signature)
            self._warnings.tell(excess.limit, pod=pod.full_name, limit=excess.text)
