"""What the service writes into the cluster, as values: whom an effect is for, and what it says.

Used by ``writer`` here and by the loops that decide to write. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod, and no namesake: with ``uid`` a write fails with ``Conflict`` when the name now means another pod."""

    namespace: str
    name: str
    uid: str


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
