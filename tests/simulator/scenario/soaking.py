"""Hours of a busy cluster in minutes: rounds of load, of pods that go again, and of faults drawn from a seed.

After each round all comes to rest, is compared and judged, and the journal begins anew, so that nothing here grows with
the rounds: what grows is the product's.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from extender.cli.simulation.scenarios import scenario_settings
from extender.compose.embedded import FREE_PORT, service_running
from extender.compose.service import Service
from extender.index.audit import audit
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.violations import violations
from extender.simulator.process_usage import resident_megabytes
from extender.simulator.scenario.language import Step, parse_scenario
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.fakes import until
from tests.simulator import plain
from tests.simulator.scenario.faulted import base, held, real, restarts

ARRIVING: Final = 150  # pods in a round
_RATE: Final = 30
_PAUSES: Final = 6  # in a round, each with something that happens before it
_SPARE: Final = "node-5?,node-6?"  # nodes that may go
_MACHINE: Final = 0.6  # as in the fault matrix
_LAG: Final = 0.72 + 2.0 + _MACHINE  # until it is stale, and what several faults together hold back

# Each fault with its fields but for the probability, and how likely it may be at most.
_CONDITIONS: Final[Sequence[tuple[str, JsonObject, float]]] = (
    ("cutLine", {}, 0.3),
    ("endWatch", {}, 0.5),
    ("expire", {}, 0.7),
    ("expire", {"form": "status"}, 0.5),
    ("errorEvent", {}, 0.2),
    ("stall", {"time": "300ms"}, 0.3),
    ("halfOpen", {}, 0.1),
    ("halfOpen", {"verbs": ["read"]}, 0.3),
    ("repeatEvents", {}, 1.0),
    ("delayEvents", {"time": ["0s", "300ms"]}, 1.0),
    ("loseBookmarks", {}, 1.0),
    ("slowPages", {"time": "80ms"}, 1.0),
    ("throttle", {"retryAfter": 1}, 0.4),
    ("throttle", {"retryAfter": 0, "verbs": ["write"]}, 0.2),
    ("fail", {}, 0.4),
    ("fail", {"code": 503}, 0.4),
    ("conflict", {}, 0.4),
    ("loseAnswer", {}, 0.3),
)
_BLOWS: Final[Sequence[JsonObject]] = (
    {"restart": {}},
    {"restart": {"down": "300ms"}},
    {"restart": {"newHistory": True}},
    {"restart": {"newHistory": True, "down": "200ms"}},
    {"jumpClock": {"by": "10m"}},
    {"jumpClock": {"by": "3s"}},
)
_LOADED: Final = {"load": "yes"}  # the label of pods that come and go


@dataclass
class Soak:
    """What came of it: what was wrong, by round, how much was kept after each, and what happened all in all."""

    problems: list[str] = field(default_factory=list)
    kept: list[dict[str, float]] = field(default_factory=list)
    placed: int = 0
    injected: Mapping[str, int] = field(default_factory=dict)

    def growth(self) -> dict[str, float]:
        """By what is kept, its mean over the last third of the rounds as a multiple of that over the first third."""
        third = max(1, len(self.kept) // 3)
        first, last = _means(self.kept[:third]), _means(self.kept[-third:])
        return {name: (last[name] + 1) / (first.get(name, 0) + 1) for name in last}


async def soak(seconds: float, seed: int) -> Soak:
    """Rounds until the time is over, with one service."""
    rng, result = Random(seed), Soak()
    document = base(lag=f"{_LAG}s", steps=[])
    for template in document["templates"].values():
        template["labels"]["load"] = "yes" if template["labels"]["app"] not in {"anchor", "quiet"} else "no"
    play = parse_scenario(document)
    settings = scenario_settings(play, "soak", FREE_PORT)
    async with (
        SimulatedCluster(play, seed) as simulated,
        service_running(settings, simulated.api.url, seed, simulated.clock) as (url, service),
    ):
        await simulated.begin(url)
        player, end = Player(simulated), time.monotonic() + seconds
        while not result.kept or time.monotonic() < end:
            number = len(result.kept) + 1
            await player.run(_steps(document, rng))
            await until(lambda: service.readiness.is_ready and held(service.index) == real(simulated))
            found = [*_judged(simulated), *player.failures, *audit(service.index), *restarts(service)]
            result.problems += [f"round {number}: {problem}" for problem in found]
            player.failures.clear()
            result.kept.append(_kept(service))
            result.placed += len(simulated.loop.bound)
            simulated.loop.bound.clear()
        result.injected = dict(simulated.fault_injector.injected)
    return result


def _steps(document: JsonObject, rng: Random) -> Sequence[Step]:
    """One round: half of the pods of the rounds before go while new ones come, under faults and other changes."""
    load = {"arrive": {"mix": {"apart": 3, "near": 1, "even": 2}, "count": ARRIVING, "rate": _RATE, "background": True}}
    steps: list[JsonObject] = [load]
    for _ in range(_PAUSES):
        steps += [
            {"faults": _random_faults(rng)},
            {"deletePods": {"selector": _LOADED, "count": ARRIVING // _PAUSES}},
            rng.choice(_CHANGES),
            {"pause": {"time": f"{rng.randrange(300, 1000)}ms"}},
        ]
    steps += [{"faults": []}, *_AS_IT_WAS, {"settle": {"timeout": "1m"}}, {"expect": {"pending": 0}}]
    return parse_scenario({**document, "steps": steps}).steps


def _random_faults(rng: Random) -> list[JsonObject]:
    """Up to three lasting faults, and now and then a blow."""
    found: list[JsonObject] = []
    for name, fields, most in rng.sample(_CONDITIONS, rng.randrange(4)):
        found.append({name: {**fields, "probability": round(rng.uniform(0.05, most), 2)}})
    return [*found, rng.choice(_BLOWS)] if rng.random() < 1 / 4 else found


_CHANGES: Final[Sequence[JsonObject]] = (
    {"changePods": {"selector": {"app": "quiet"}, "count": 8, "labels": {"app": "apart-1"}}},
    {"changePods": {"selector": {"app": "quiet"}, "count": 4, "labels": {"app": "even-0"}}},
    {"relabelNamespace": {"namespaces": "team-4", "labels": {"team": "none"}}},
    {"relabelNamespace": {"namespaces": "team-4", "labels": {"team": "devops"}}},
    {"changeNodes": {"action": "relabel", "nodes": _SPARE, "count": 1, "labels": {plain.ZONE: "zone-0"}}},
    {"changeNodes": {"action": "cordon", "nodes": _SPARE, "count": 2}},
    {"changeNodes": {"action": "uncordon", "nodes": _SPARE}},
    {"changeNodes": {"action": "delete", "nodes": _SPARE, "count": 1}},
    {"addNodes": {"cpu": "16", "memory": "64Gi"}},
)
_AS_IT_WAS: Final[Sequence[JsonObject]] = (
    {"changePods": {"selector": {"load": "no", "app": "apart-1"}, "labels": {"app": "quiet"}}},
    {"changePods": {"selector": {"load": "no", "app": "even-0"}, "labels": {"app": "quiet"}}},
    {"relabelNamespace": {"namespaces": "team-4", "labels": {"team": "devops"}}},
    {"changeNodes": {"action": "uncordon", "nodes": "*"}},
)


def _judged(simulated: SimulatedCluster) -> Iterator[str]:
    """What broke a constraint since the last time; the journal begins anew."""
    journal = simulated.loop.journal
    journal.close()
    simulated.loop.journal = Journal(simulated.api.store)
    yield from map(str, violations(journal, lag=simulated.play.scenario.lag))


def _kept(service: Service) -> dict[str, float]:
    """How much the service holds: sizes by its own account, its objects by type, and memory in use."""
    gc.collect()
    types = Counter(type(found) for found in gc.get_objects())
    ours = {kind.__qualname__: count for kind, count in types.items() if _is_ours(kind)}
    index = service.index
    return {
        **{f"index: {name}": size for name, size in index.statistics().items()},
        "index: names": len(index.topology.names),
        **{f"objects: {name}": count for name, count in ours.items()},
        "metrics: lines": service.metrics.render().count(b"\n"),
        "memory: MB": resident_megabytes(),
    }


def _is_ours(kind: type[Any]) -> bool:
    """Whether objects of a type are the product's; the embedded cluster is not."""
    module = kind.__module__
    return module.startswith("extender.") and not module.startswith("extender.simulator")


def _means(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for each in rounds for name in each}
    return {name: sum(each.get(name, 0) for each in rounds) / len(rounds) for name in names}
