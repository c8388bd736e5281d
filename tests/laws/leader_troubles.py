"""Replicas that elect a leader while writes are lost, processes stall and clocks jump."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

from extender.kube.errors import Unreachable
from tests.fakes import FakeClock, every_sleep
from tests.tasks.electing import NOON, Leases, Replica, replica

PERIOD = 0.5
CALM = 60.0


def touch(leases: Leases, number: float) -> None:
    """Another client writes a label, which does not renew the Lease."""
    if leases.record is not None:
        leases.edit(labels={"touched": str(number)})


# What goes wrong, or right again, for one replica and a number from 0 to 20.
TROUBLES: tuple[Callable[[Leases, Replica, float], None], ...] = (
    lambda _, found, __: setattr(found.wire, "is_cut", True),
    lambda _, found, __: setattr(found.wire, "is_cut", False),
    lambda _, found, __: setattr(found.wire, "is_cut", False),
    lambda leases, _, __: leases.lost.append(Unreachable("the answer is lost")),
    lambda leases, _, __: leases.failures.append(Unreachable("the request is lost")),
    lambda leases, _, __: setattr(leases, "is_away", not leases.is_away),
    lambda _, found, number: setattr(found, "utc_now", timedelta(days=100 * (number - 10))),
    lambda _, found, __: setattr(found, "may_lead", not found.may_lead),
    lambda _, found, number: setattr(found.wire, "there", number),  # what was sent long ago counts when it arrives
    lambda _, found, number: setattr(found.wire, "back", number),
    lambda _, found, __: setattr(found.wire, "there", 0.0),
    lambda leases, _, number: touch(leases, number),
)


async def live(seed: int) -> None:
    """Five minutes of trouble for three replicas, one of which leaves in the middle, then peace."""
    rng, clock = Random(seed), FakeClock(held=every_sleep)
    leases = Leases(clock)
    replicas = [replica(f"{seed}-{n}", leases, now=lambda: NOON + timedelta(seconds=clock.time)) for n in range(3)]
    tasks = [asyncio.create_task(found.leadership.run()) for found in replicas]
    terms: list[tuple[int, str]] = []
    for step in range(600):
        if rng.random() < 0.3:
            rng.choice(TROUBLES)(leases, rng.choice(replicas), rng.uniform(0, 20))
        if step == 300:
            tasks.append(asyncio.create_task(rng.choice(replicas).leadership.release()))
        if rng.random() < 0.02:
            clock.jump(rng.uniform(0, 40))  # the whole machine stands still
        await clock.advance(PERIOD)
        leaders = [found.leadership for found in replicas if found.leadership.is_leader]
        assert len(leaders) <= 1
        terms += [(found.term.number, found.holder) for found in leaders if found.term]
    for found in replicas:
        found.wire.is_cut, found.wire.there, found.wire.back, found.may_lead = False, 0.0, 0.0, True
    leases.is_away, leases.lost, leases.failures = False, [], []
    await clock.advance(CALM)
    assert sum(found.leadership.is_leader for found in replicas) == 1
    assert [number for number, _ in terms] == sorted(number for number, _ in terms), "terms go up"
    assert len(set(terms)) == len({number for number, _ in terms}), "a term has one leader"
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
