"""Whether questions can be answered now: what feeding says, and whatever else holds the service back by name.

Fits what the server's health handler asks for, by shape. No loop, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Part(Protocol):
    """Something that can be ready."""

    @property
    def is_ready(self) -> bool:
        """All its checks pass."""

    @property
    def is_stale(self) -> bool:
        """It was ready, and has not been told of the world for too long."""

    def checks(self) -> Mapping[str, str]:
        """By name what is missing; empty is a pass."""


class Replica(Protocol):
    """One of several services, of which one at a time may answer."""

    @property
    def is_ready(self) -> bool:
        """It is our turn, and what the one before has let through is known."""

    @property
    def is_leader(self) -> bool:
        """It is our turn, and nobody else's."""

    def checks(self) -> Mapping[str, str]:
        """By name what is missing; empty is a pass."""


class Readiness:
    """Ready when every part is and nothing holds it: ``hold("serving", "the service is stopping")``.

    Without ``replica`` we are the only one.
    """

    def __init__(self, *parts: Part, replica: Replica | None = None) -> None:
        self._parts = parts
        self._replica = replica
        self._holds: dict[str, str] = {}

    def hold(self, name: str, reason: str) -> None:
        """Not ready from now on, for this reason, until ``release``."""
        self._holds[name] = reason

    def release(self, name: str) -> None:
        """This reason is gone."""
        self._holds.pop(name, None)

    @property
    def is_ready(self) -> bool:
        """Asked for every request."""
        return self._has_turn and all(part.is_ready for part in self._parts)

    @property
    def is_stale(self) -> bool:
        """All that is missing is news of the cluster. Asked for every request."""
        stale = [part.is_stale for part in self._parts if not part.is_ready]
        return bool(stale) and all(stale) and self._has_turn

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still go out. Holds do not count: what is in flight is finished."""
        return self._replica is None or self._replica.is_leader

    @property
    def _has_turn(self) -> bool:
        return not self._holds and (self._replica is None or self._replica.is_ready)

    def checks(self) -> dict[str, str]:
        """By name what is missing; empty is a pass."""
        found: dict[str, str] = {}
        for part in self._parts:
            found.update(part.checks())
        if self._replica is not None:
            found.update(self._replica.checks())
        return found | self._holds
