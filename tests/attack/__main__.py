"""`make attack`: every attack on a service of its own, with and without TLS; one line for each, and 1 if any succeeds."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.attack import tenants
from tests.attack.attacks import ATTACKS, Attacks, Target, registered
from tests.attack.pulse import Pulse, within
from tests.attack.service import is_ready, memory_of, target_of

_CONNECTING_SECONDS = 1.0  # the kubelet's patience; a new connection waits behind those that came before it
_KEPT_MEBIBYTES = 64.0
_ATTACK_SECONDS = 120.0  # without what they wait for a processor
_PATIENCE_STEPS = 24  # of a quarter of a second


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack did. `kept` in MiB."""

    name: str
    answered: str
    pulse: Pulse
    kept: float
    most_still: float

    @property
    def is_harmless(self) -> bool:
        """The service went on, and let go of what it had taken."""
        is_quick = self.pulse.still <= self.most_still and self.pulse.connecting <= _CONNECTING_SECONDS
        return is_quick and self.kept <= _KEPT_MEBIBYTES and not self.answered.startswith("failed")

    def line(self) -> str:
        """For people."""
        mark = "ok  " if self.is_harmless else "HURT"
        still = f"stood still {self.pulse.still * 1000:.0f} ms"
        if self.pulse.clock > 2 * max(self.pulse.still, self.most_still):
            still += f" ({self.pulse.clock * 1000:.0f} ms by the clock, most of it without a processor)"
        if self.pulse.connecting > 2 * self.most_still:
            still += f", a new connection took {self.pulse.connecting * 1000:.0f} ms"
        return f"{mark} {self.name}: {self.answered}; {still}; kept {self.kept:+.0f} MiB"


async def played(target: Target, name: str, attacks: Attacks = ATTACKS) -> Outcome:
    """One attack, and whether the service answers after it."""
    before = memory_of(target.process)
    await target.prober.pulse()
    try:
        async with within(target.process, _ATTACK_SECONDS):
            answered = await attacks.plays[name](target)
    except (TimeoutError, OSError, ValueError) as error:
        answered = f"failed: {type(error).__name__} {error}"
    await asyncio.sleep(0.05)
    pulse = await target.prober.pulse()
    kept = await _kept(target, before)
    if not pulse.probes:
        answered = f"failed: no probe was answered; {answered}"
    if not await _is_ready_soon(target):
        answered = f"failed: not ready afterwards; {answered}"
    return Outcome(name, answered, pulse, kept, attacks.still[name])


async def _is_ready_soon(target: Target) -> bool:
    for _ in range(_PATIENCE_STEPS):
        if await is_ready(target):
            return True
        await asyncio.sleep(0.25)
    return False


async def _kept(target: Target, before: float) -> float:
    """The memory that stays when what was left behind has had its time to end."""
    for _ in range(_PATIENCE_STEPS):
        if memory_of(target.process) - before <= _KEPT_MEBIBYTES:
            break
        await asyncio.sleep(0.25)
    return memory_of(target.process) - before


async def all_played(names: Sequence[str], *, tls: bool) -> list[Outcome]:
    """The attacks on one service, one after another, told as they end."""
    found = []
    async with target_of(tls=tls) as target:
        await played(target, "no HTTP at all")  # so that what is made on first use does not count
        for name in names:
            outcome = await played(target, name)
            _report(f"{'TLS  ' if tls else 'plain'} {outcome.line()}")
            found.append(outcome)
    return found


async def all_of_tenants(names: Sequence[str]) -> list[Outcome]:
    """The same for what a tenant creates, with a cluster of 5,000 nodes."""
    found = []
    async with target_of(tls=False, objects=tenants.cluster(), settings=tenants.SETTINGS) as target:
        for name in names:
            outcome = await played(target, name, tenants.TENANTS)
            _report(f"tenant {outcome.line()}")
            found.append(outcome)
    return found


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _is_wanted(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def main() -> int:
    """0 if no attack did harm."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("only", nargs="*", help="only attacks whose names contain one of these words")
    parser.add_argument("--plain", action="store_true", help="without TLS only")
    arguments = parser.parse_args()
    names, of_tenants = (
        [name for name in each.plays if _is_wanted(name, arguments.only)] for each in (registered(), tenants.TENANTS)
    )
    found = []
    for tls in (False,) if arguments.plain else (False, True):
        found += asyncio.run(all_played(names, tls=tls)) if names else []
    found += asyncio.run(all_of_tenants(of_tenants)) if of_tenants else []
    hurt = [outcome for outcome in found if not outcome.is_harmless]
    _report(f"{len(found)} attacks, {len(hurt)} of them did harm")
    return 1 if hurt else 0


if __name__ == "__main__":
    sys.exit(main())
