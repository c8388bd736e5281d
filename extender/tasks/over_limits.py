"""Reports pods that exceed a limit of the configuration: in a metric, and once per signature in the log.

Wraps the index for the event handlers and passes each object on unchanged. No limit is exceeded silently: every pod that
the scheduler sends was shown by the watch before.
"""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakSet

import msgspec

from extender.model.objects import Object, Pod, PodSignature
from extender.settings import Limits
from extender.tasks.ports import Clock, ObjectIndex
from extender.telemetry.repeated import RepeatedWarnings

_LOG = logging.getLogger(__name__)
_NAMES: Final = tuple(field.encode_name for field in msgspec.structs.fields(Limits))


class OverLimits:
    """The index as the event handlers use it; counts pods above a limit, pending or bound."""

    def __init__(self, index: ObjectIndex, clock: Clock) -> None:
        self._index = index
        self._limit_of: dict[str, str] = {}
        self._logged: WeakSet[PodSignature] = WeakSet()
        self._warnings = RepeatedWarnings(_LOG, "pod is above a limit", now=clock.now)

    def upsert(self, obj: Object) -> bool:
        """Passes the object on. O(1) on top."""
        if isinstance(obj, Pod) and (obj.signature.excess is not None or obj.uid in self._limit_of):
            self._note(obj)
        return self._index.upsert(obj)

    def delete(self, obj: Object) -> bool:
        """Passes the object on. O(1) on top."""
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
        """Logs each signature once; of many within seconds, the first of each limit and the number of the others."""
        excess = pod.signature.excess
        if excess is None:
            del self._limit_of[pod.uid]
            return
        self._limit_of[pod.uid] = excess.limit
        if pod.signature not in self._logged:
            self._logged.add(pod.signature)
            self._warnings.warn(excess.limit, pod=pod.full_name, limit=excess.text)
