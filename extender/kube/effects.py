"""What the service writes to pods, as values: a reference to the pod, a condition, an event.

Used by ``writer`` and by the tasks that decide to write. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from extender.model.objects import Pod


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod: with ``uid`` a write fails with ``Conflict`` when the name belongs to another pod by now."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Exactly this pod: the UID excludes a later pod of the same name."""
        return cls(pod.namespace, pod.name, pod.uid)


@dataclass(frozen=True, slots=True)
class PodCondition:
    """An entry of ``status.conditions``, merged by its type. ``status``: "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event that ``kubectl describe`` shows at the pod. ``type``: "Normal" or "Warning"; ``note`` is cut at 1 KiB."""

    pod: PodRef
    type: str
    reason: str
    action: str
    note: str
    at: datetime
