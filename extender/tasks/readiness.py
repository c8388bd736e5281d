"""Whether requests can be answered now: the state of the reflectors and of the replica, and named blockers.

Implements what the server's health handler reads. No loop, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Part(Protocol):
    """A part of the service with readiness checks."""

    @property
    def is_ready(self) -> bool:
        """All its checks pass."""

    @property
    def is_stale(self) -> bool:
        """It was ready, and misses recent changes of the cluster."""

    def checks(self) -> Mapping[str, str]:
        """By check its problem; empty is a pass."""


class ReplicaState(Protocol):
    """Whether this one of several replicas may answer."""

    @property
    def is_ready(self) -> bool:
        """It leads, and knows every pod that the earlier leader passed."""

    @property
    def is_leader(self) -> bool:
        """It is certain, at this moment, that no other replica leads."""

    def checks(self) -> Mapping[str, str]:
        """By check its problem; empty is a pass."""


class Readiness:
    """Ready when every part is and nothing blocks: ``block("shutdown", "the service is stopping")``.

    Without ``replica`` there is only this one.
    """

    def __init__(self, *parts: Part, replica: ReplicaState | None = None) -> None:
        self._parts = parts
        self._replica = replica
        self._blockers: dict[str, str] = {}

    def block(self, name: str, reason: str) -> None:
        """Not ready from now on, for this reason."""
        self._blockers[name] = reason

    @property
    def is_ready(self) -> bool:
        """Read for every request."""
        return self._is_unblocked and all(part.is_ready for part in self._parts)

    @property
    def is_stale(self) -> bool:
        """Only recent changes of the cluster are missing. Read for every request."""
        stale = [part.is_stale for part in self._parts if not part.is_ready]
        return bool(stale) and all(stale) and self._is_unblocked

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still go out. Blockers do not count: what is in flight is finished."""
        return self._replica is None or self._replica.is_leader

    @property
    def _is_unblocked(self) -> bool:
        return not self._blockers and (self._replica is None or self._replica.is_ready)

    def checks(self) -> dict[str, str]:
        """By check its problem; empty is a pass."""
        found: dict[str, str] = {}
        for part in self._parts:
            found.update(part.checks())
        if self._replica is not None:
            found.update(self._replica.checks())
        return found | self._blockers
