"""Records an event on a policy whose conditions have changed. For the leader, after it has written the status.

Bounded: a policy has each reason at most once in `REPEATED_AFTER_SECONDS`, and the next event tells how often it came in
between; and of all policies at most `AT_ONCE` events come at once, after which one follows every `REFILL_SECONDS`. Half of them are kept
for warnings. An event is not retried: the condition itself stays in the status.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from extender.kube.effects import PolicyEvent
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.kube.writer import PolicyObjects
from extender.model.policies import PolicyKey
from extender.model.units import counted, times
from extender.tasks.event_tokens import EventTokens

JsonObject = dict[str, Any]

_LOG = logging.getLogger(__name__)
REPEATED_AFTER_SECONDS: Final = 600.0
AT_ONCE: Final = 50
REFILL_SECONDS: Final = 2.0
_NORMAL: Final = "Normal"
_WARNING: Final = "Warning"
_LONGEST_CONFLICT: Final = 700  # characters; the note has 1 KiB


class _Told(NamedTuple):
    type: str
    reason: str
    action: str
    note: str


class PolicyEvents:
    """``results``: events by what became of them."""

    def __init__(self, store: PolicyObjects, clock: Clock, utc_now: Callable[[], datetime]) -> None:
        self.results: Counter[str] = Counter({"written": 0, "failed": 0, "suppressed": 0})
        self._store = store
        self._clock = clock
        self._utc_now = utc_now
        # By policy and reason: when it was written, and how often it was suppressed since then.
        self._written: dict[PolicyKey, dict[str, tuple[float, int]]] = {}
        self._tokens = EventTokens(AT_ONCE, REFILL_SECONDS, clock.now())
        self._problem = ""

    async def record(self, key: PolicyKey, uid: str, before: JsonObject, after: JsonObject) -> None:
        """Writes what the change from one status to the next tells. Raises nothing."""
        for told in _told(before, after):
            await self._record(key, uid, told)

    def forget(self, key: PolicyKey) -> None:
        """The policy has been deleted."""
        self._written.pop(key, None)

    async def _record(self, key: PolicyKey, uid: str, told: _Told) -> None:
        now = self._clock.now()
        written = self._written.setdefault(key, {})
        last, repeated = written.get(told.reason, (-REPEATED_AFTER_SECONDS, 0))
        spare = AT_ONCE / 2 if told.type == _NORMAL else 0
        if now - last < REPEATED_AFTER_SECONDS or not self._tokens.take(now, spare=spare):
            written[told.reason] = last, repeated + 1
            self.results["suppressed"] += 1
            return
        written[told.reason] = now, 0
        note = f"{told.note} (and {times(repeated)} before)" if repeated else told.note
        event = PolicyEvent(key, uid, told.type, told.reason, told.action, note, self._utc_now())
        try:
            await self._store.create_policy_event(event)
        except KubeError as error:
            self.results["failed"] += 1
            if self._problem != str(error):
                _LOG.warning("an event about a policy cannot be recorded", extra={"problem": str(error)})
            self._problem = str(error)
        else:
            self.results["written"] += 1
            self._problem = ""


def _told(before: JsonObject, after: JsonObject) -> Iterator[_Told]:
    old, new = _conditions(before), _conditions(after)
    was_valid, valid = old.get("Valid", {}).get("status"), new.get("Valid", {})
    if valid.get("status") == "True" and was_valid != "True":
        yield _Told(
            _NORMAL, "Applied", "Validating", f"the policy is valid; it selects {counted(after['matchedPods'], 'pod')}"
        )
    elif valid.get("status") == "False" and was_valid != "False":
        yield _Told(_WARNING, "Invalid", "Validating", f"the policy is not applied: {valid['message']}")
    was_conflicting = old.get("Conflicting", {}).get("status")
    conflicting = new.get("Conflicting", {}).get("status")
    if conflicting == "True" and was_conflicting != "True":
        yield _Told(_WARNING, "Conflict", "Comparing", _conflicts(after["conflicts"]))
    elif conflicting == "False" and was_conflicting == "True":
        yield _Told(_NORMAL, "ConflictResolved", "Comparing", "no conflict is known any more")


def _conditions(status: JsonObject) -> dict[str, JsonObject]:
    return {str(each.get("type")): each for each in status.get("conditions") or ()}


def _conflicts(conflicts: list[JsonObject]) -> str:
    first = conflicts[0]
    text = f"{first['policy']}: {first['field']}: {first['message']}"[:_LONGEST_CONFLICT]
    return f"{text}; status.conflicts has {len(conflicts)}" if len(conflicts) > 1 else text
