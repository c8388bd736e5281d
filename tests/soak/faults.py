"""The faults of a soak, each in its turn: a deck that is shuffled again when it is used up, so that none stays away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Final

from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.faults import Condition, read_conditions

# Each fault with its fields but for the probability, and how likely it may be at most.
_CONDITIONS: Final[Sequence[tuple[str, JsonObject, float]]] = (
    ("cutLine", {}, 0.3),
    ("endWatch", {}, 0.5),
    ("expire", {}, 0.7),
    ("expire", {"form": "status"}, 0.5),
    ("errorEvent", {}, 0.2),
    ("stall", {"time": "300ms"}, 0.3),
    ("stall", {"time": "4s"}, 0.1),
    ("halfOpen", {}, 0.1),
    ("halfOpen", {"verbs": ["read"]}, 0.3),
    ("halfOpen", {"verbs": ["write"]}, 0.05),
    ("repeatEvents", {}, 1.0),
    ("delayEvents", {"time": ["0s", "300ms"]}, 1.0),
    ("delayEvents", {"time": ["0s", "8s"], "kinds": ["pods"]}, 0.5),
    ("loseBookmarks", {}, 1.0),
    ("throttle", {"retryAfter": 1}, 0.4),
    ("throttle", {"retryAfter": 0, "verbs": ["write"]}, 0.2),
    ("fail", {}, 0.4),
    ("fail", {"code": 503}, 0.4),
    ("fail", {"verbs": ["write"]}, 0.2),
    ("conflict", {}, 0.2),
    ("loseAnswer", {}, 0.3),
)
_WITH_EACH: Final[JsonObject] = {"slowPages": {"time": "80ms", "probability": 0.5}}  # others lead to lists
CONDITION_NAMES: Final = frozenset((*(name for name, _, _ in _CONDITIONS), *_WITH_EACH))
_LATE: Final = (3.0, 12.0)  # seconds


class Blow(Enum):
    """What happens once, at its value as it is counted."""

    STARVED = "starved of processor time"
    SUSPENDED = "suspended"
    RESTARTED = "restarted"
    RESTORED = "restored from a backup"
    NONE = ""


class FaultDeck:
    """Hands out faults. ``count`` is called with the name of each blow."""

    def __init__(self, rng: Random, count: Callable[[str], None]) -> None:
        self._rng = rng
        self._count = count
        self._conditions: list[tuple[str, JsonObject, float]] = []
        self._blows: list[Blow] = []

    def conditions(self) -> Sequence[Condition]:
        """Up to three lasting faults, and none half of the time."""
        chosen = []
        for _ in range(self._rng.choice((0, 0, 0, 1, 2, 3))):
            if not self._conditions:
                self._conditions = self._rng.sample(_CONDITIONS, len(_CONDITIONS))
            name, fields, most = self._conditions.pop()
            chosen.append({name: {**fields, "probability": round(self._rng.uniform(most / 4, most), 3)}})
        problems: list[str] = []
        found = read_conditions([*chosen, _WITH_EACH] if chosen else [], "faults", problems)
        assert not problems
        return found

    def blow(self) -> Blow:
        """Mostly none."""
        if not self._blows:
            self._blows = [*Blow, *[Blow.NONE] * 3 * len(Blow)]
            self._rng.shuffle(self._blows)
        found = self._blows.pop()
        if found is not Blow.NONE:
            self._count(found.value)
        return found

    def delay_of_binding(self) -> float:
        """Seconds: mostly short, and now and then beyond what a request may take, and until the service doubts the binding."""
        chance = self._rng.random()
        if chance < 1 / 50:
            self._count("late bindings")
            return self._rng.uniform(*_LATE)
        return self._rng.uniform(0.0, 2.0) if chance < 1 / 10 else chance / 5


class LateBindings(Faults):
    """Delays each binding as a deck says."""

    def __init__(self, deck: FaultDeck) -> None:
        self._deck = deck

    async def before_write(self, call: Call) -> None:
        """Waits before the binding is done."""
        if call.path.endswith("/binding"):
            await asyncio.sleep(self._deck.delay_of_binding())
