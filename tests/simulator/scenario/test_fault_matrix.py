"""Every fault under steady load: no wrong answer meanwhile, and the same counts afterwards as without any fault."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from extender.simulator.json_objects import JsonObject
from tests.simulator.scenario.faulted import base, run, steps_under

STALE_AFTER = 0.72  # of the scenario's extender: 1.2 times the inactivityTimeout
MACHINE = 0.6  # one loop runs API server, scheduler and service, on a machine with other work


@dataclass(frozen=True)
class Case:
    """Faults; for how long they delay events without a sign of it; whether the service can notice that it is stale."""

    faults: tuple[JsonObject, ...]
    held: float = 0.0
    blinds: bool = False


def case(*faults: JsonObject, held: float = 0.0, blinds: bool = False) -> Case:
    return Case(faults, held, blinds)


CASES = {
    "no fault": case(),
    "lines cut in the middle": case({"cutLine": {"probability": 0.3}}),
    "every connection cut at once": case({"cutLine": {}}),
    "watches that end early": case({"endWatch": {"probability": 0.5}}),
    "410 as an event, at once and repeatedly": case({"expire": {}}, {"endWatch": {"probability": 0.3}}),
    "410 as a status": case({"expire": {"form": "status"}}, {"endWatch": {"probability": 0.3}}),
    "ERROR events": case({"errorEvent": {"probability": 0.3}}),
    "stalls": case({"stall": {"time": "300ms", "probability": 0.5}}, held=0.6),
    "half-open watches": case({"halfOpen": {}}, blinds=True),
    "half-open lists": case({"halfOpen": {"verbs": ["read"]}}, {"cutLine": {"probability": 0.5}}, blinds=True),
    "events repeated": case({"repeatEvents": {}}),
    "kinds overtaking one another": case({"delayEvents": {"time": ["0s", "300ms"]}}, held=0.6),
    "no bookmarks": case({"loseBookmarks": {}}, blinds=True),
    "slow pages": case({"slowPages": {"time": "100ms"}}, {"expire": {"probability": 0.5}}, {"endWatch": {}}, held=1.0),
    "too many requests": case({"throttle": {"retryAfter": 1}}, {"endWatch": {}}, blinds=True),
    "500 for reads and watches": case({"fail": {}}, {"cutLine": {"probability": 0.3}}, blinds=True),
    "503 now and then": case({"fail": {"code": 503, "probability": 0.5}}, {"endWatch": {"probability": 0.5}}),
    "conflicts": case({"conflict": {"probability": 0.5}}),
    "answers to writes lost": case({"loseAnswer": {"probability": 0.5}}),
    "a restart": case({"restart": {"down": "900ms"}}, blinds=True),
    "a quick restart": case({"restart": {}}),
    "a quick restart with a new history": case({"restart": {"newHistory": True}}),
    "a restart with a new history": case({"restart": {"newHistory": True, "down": "300ms"}}),
    "no processor time now and then": case(
        {"pauseProcess": {"time": ["50ms", "400ms"], "probability": 0.01}}, held=0.8
    ),
    "no processor time for long": case({"pauseProcess": {"time": ["900ms", "1100ms"], "times": 1}}, held=1.1),
    "a jump of the clock": case({"jumpClock": {"by": "10m"}}, blinds=True),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_leaves_nothing_behind_and_nothing_wrong_is_said_meanwhile(name: str) -> None:
    faults, held = CASES[name].faults, CASES[name].held
    document = base(steps=steps_under(*faults), lag=f"{STALE_AFTER + held + MACHINE}s")
    outcome = await run(document, bound=STALE_AFTER + held + MACHINE)
    assert outcome.report.violations == ()
    assert (outcome.report.waiting, outcome.report.failures) == ((), ())
    assert outcome.differences == []
    assert outcome.restarts == []
    assert outcome.lies == []
    assert {next(iter(fault)) for fault in faults} - {"restart", "jumpClock"} <= outcome.injected.keys()
    if CASES[name].blinds:
        assert outcome.unready > 0


async def test_pods_on_their_way_to_a_node_count_however_the_clock_jumps() -> None:
    """Ten minutes are far more than an answer counts for by itself, and every binding is still to come."""
    jump = [{"faults": [{"jumpClock": {"by": "10m"}}]}, {"pause": {"time": "120ms"}}]
    load = {"arrive": {"mix": {"apart": 1, "even": 2}, "count": 150, "rate": 150, "background": True}}
    document = base(steps=[load, {"pause": {"time": "100ms"}}, *(jump * 6)])
    document["scheduler"] = {**document["scheduler"], "bindDelay": ["300ms", "500ms"]}
    outcome = await run(document, bound=STALE_AFTER + MACHINE)
    assert (outcome.report.violations, outcome.report.waiting, outcome.lies) == ((), (), [])
    assert outcome.unready > 0


async def test_pods_whose_bindings_failed_unheard_make_no_room_that_is_not_there() -> None:
    """Neither the binding nor the report of its failure reaches the API server, and the scheduler lets the pod wait.

    Counted where they are not, such pods would raise the minimum that the skew of all others is measured against.
    """
    arrive = {"mix": {"even": 1}, "namespaces": "team-0"}
    steps = [
        {"faults": [{"fail": {"verbs": ["write"]}}]},
        {"arrive": {**arrive, "count": 7, "rate": 200}},
    ]
    then: list[JsonObject] = [{"faults": []}, {"arrive": {**arrive, "count": 40, "rate": 100}}]
    document = base(steps=steps, lag="600ms")
    document["scheduler"] = {"podInitialBackoff": "2s", "podMaxBackoff": "2s"}
    document["extender"]["assumedPods"] = {"doubt": "100ms"}
    outcome = await run(
        document, bound=STALE_AFTER + MACHINE, once=lambda service: service.index.assumed.doubted == 7, then=then
    )
    assert outcome.injected["fail"] > 0
    assert (outcome.report.violations, outcome.report.waiting, outcome.lies) == ((), (), [])
