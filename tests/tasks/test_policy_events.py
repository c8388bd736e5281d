"""Events about policies: one for each change of a condition, and a bounded number of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from extender.kube.effects import PolicyEvent
from extender.kube.errors import Unreachable
from extender.kube.writer import PolicyObjects
from extender.model.policies import GROUP, PolicyKey
from extender.tasks.policy_events import AT_ONCE, REFILL_SECONDS, REPEATED_AFTER_SECONDS, PolicyEvents
from tests.fakes import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ONE = PolicyKey(GROUP, "default", "one")
Json = dict[str, Any]


class Api(PolicyObjects):
    """Keeps the events that are created."""

    def __init__(self) -> None:
        self.events: list[PolicyEvent] = []
        self.failure: Exception | None = None

    async def create_policy_event(self, event: PolicyEvent) -> None:
        """Keep it."""
        if self.failure is not None:
            raise self.failure
        self.events.append(event)

    def told(self) -> list[tuple[str, str, str]]:
        """Type, reason and note of each."""
        return [(each.type, each.reason, each.note) for each in self.events]


class Scene:
    """The events with a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.api, self.clock = Api(), FakeClock()
        self.events = PolicyEvents(self.api, self.clock, lambda: NOON)

    async def change(self, before: Json, after: Json, key: PolicyKey = ONE) -> None:
        """The status of a policy has been written."""
        await self.events.record(key, "uid-1", before, after)


def status(*, valid: bool = True, conflicts: int = 0, message: str = "text", pods: int = 3) -> Json:
    """A status as it is written."""
    found = [{"policy": "other", "field": f"spec.field{each}", "message": "differs"} for each in range(conflicts)]
    conditions = [
        {"type": "Valid", "status": str(valid), "message": message},
        {"type": "Conflicting", "status": str(bool(conflicts)), "message": ""},
    ]
    return {"matchedPods": pods, "conditions": conditions, "conflicts": found}


APPLIED = ("Normal", "Applied", "the policy is valid; it selects 3 pods")
APPLIED_TO_ONE = ("Normal", "Applied", "the policy is valid; it selects 1 pod")
INVALID = ("Warning", "Invalid", "the policy is not applied: text")
CONFLICT = ("Warning", "Conflict", "other: spec.field0: differs")
RESOLVED = ("Normal", "ConflictResolved", "no conflict is known any more")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param({}, status(), [APPLIED], id="a new policy"),
        pytest.param({}, status(pods=1), [APPLIED_TO_ONE], id="a new policy that selects one pod"),
        pytest.param({}, status(valid=False), [INVALID], id="a new policy that is invalid"),
        pytest.param({}, status(conflicts=1), [APPLIED, CONFLICT], id="a new policy with a conflict"),
        pytest.param(status(), status(), [], id="nothing changed"),
        pytest.param(status(), status(valid=False), [INVALID], id="became invalid"),
        pytest.param(status(valid=False), status(), [APPLIED], id="became valid"),
        pytest.param(status(valid=False), status(valid=False, message="b"), [], id="invalid for another reason"),
        pytest.param(status(), status(conflicts=1), [CONFLICT], id="a conflict appeared"),
        pytest.param(
            status(),
            status(conflicts=4),
            [("Warning", "Conflict", f"{CONFLICT[2]}; status.conflicts has 4")],
            id="several conflicts",
        ),
        pytest.param(status(conflicts=1), status(conflicts=2), [], id="one conflict more"),
        pytest.param(status(conflicts=1), status(), [RESOLVED], id="the conflict is resolved"),
    ],
)
async def test_an_event_is_recorded_where_a_condition_changes(
    before: Json, after: Json, told: list[tuple[str, str, str]]
) -> None:
    scene = Scene()
    await scene.change(before, after)
    assert scene.api.told() == told
    assert {(each.policy, each.uid, each.at) for each in scene.api.events} <= {(ONE, "uid-1", NOON)}


@pytest.mark.parametrize(("repeated", "text"), [(1, "once"), (4, "4 times")])
async def test_a_reason_that_comes_again_and_again_is_told_once_with_the_number(repeated: int, text: str) -> None:
    scene = Scene()
    for _ in range(1 + repeated):
        await scene.change(status(), status(valid=False))
    assert scene.api.told() == [INVALID]
    assert scene.events.results == {"written": 1, "failed": 0, "suppressed": repeated}
    scene.clock.time += REPEATED_AFTER_SECONDS
    await scene.change(status(), status(valid=False))
    assert scene.api.told()[1:] == [(*INVALID[:2], f"{INVALID[2]} (and {text} before)")]


async def test_a_thousand_policies_at_once_make_a_bounded_number_of_events_and_warnings_have_half_of_them() -> None:
    scene = Scene()
    for number in range(1000):
        await scene.change({}, status(), ONE._replace(name=f"p{number}"))
    assert len(scene.api.events) == AT_ONCE / 2
    for number in range(1000):
        await scene.change(status(), status(valid=False), ONE._replace(name=f"p{number}"))
    assert len(scene.api.events) == AT_ONCE
    scene.clock.time += 3 * REFILL_SECONDS
    for number in range(1000):
        await scene.change(status(), status(conflicts=1), ONE._replace(name=f"p{number}"))
    assert len(scene.api.events) == AT_ONCE + 3


async def test_an_event_that_fails_is_counted_and_not_repeated() -> None:
    scene = Scene()
    scene.api.failure = Unreachable("no answer")
    await scene.change({}, status())
    scene.api.failure = None
    await scene.change(status(), status())
    assert scene.api.events == []
    assert scene.events.results == {"written": 0, "failed": 1, "suppressed": 0}


async def test_a_policy_that_was_deleted_and_made_again_is_told_again() -> None:
    scene = Scene()
    await scene.change({}, status())
    scene.events.forget(ONE)
    await scene.change({}, status())
    assert scene.api.told() == [APPLIED, APPLIED]
