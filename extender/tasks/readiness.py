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

    def checks(self) -> Mapping[str, str]:
        """By name what is missing; empty is a pass."""


class Readiness:
    """Ready when every part is and nothing holds it: ``hold("serving", "the service is stopping")``."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts
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
        return not self._holds and all(part.is_ready for part in self._parts)

    def checks(self) -> dict[str, str]:
        """By name what is missing; empty is a pass."""
        found: dict[str, str] = {}
        for part in self._parts:
            found.update(part.checks())
        return found | self._holds
