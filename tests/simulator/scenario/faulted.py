"""The real service under the faults of a scenario: what it said, what it knew, and whether that was the truth.

A witness changes one object of each kind all the time. Whenever the service says that it is ready, it must know every
change that is older than what it declares, `bound` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from extender.compose.service import Service
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.language import parse_scenario
from extender.simulator.scenario.report import Report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.wire.objects import kinds as wire
from tests.fakes import until
from tests.simulator import plain
from tests.simulator.scenario.playing import serving

FAULTS = Path(__file__).parents[3] / "config" / "scenarios" / "faults.yaml"
_WITNESS = "witness"
_BEAT_SECONDS = 0.1
_LOOK_SECONDS = 0.01


@dataclass
class Outcome:
    """What came of a run; `injected` counts the faults that came, `restarts` the tasks that died."""

    report: Report
    injected: Mapping[str, int]
    differences: list[str]
    restarts: list[str]
    lies: list[str]
    unready: float


@dataclass
class Witness:
    """Writes, looks, and notes where readiness was not the truth."""

    simulated: SimulatedCluster
    service: Service
    bound: float
    lies: list[str] = field(default_factory=list)
    looks: int = 0
    unready: int = 0
    _beats: list[tuple[float, int]] = field(default_factory=list)

    async def run(self) -> None:
        operations = self.simulated.api.operations
        operations.create(NAMESPACES, plain.namespace(_WITNESS))
        operations.create(NODES, plain.node(_WITNESS, unschedulable=True))
        operations.create(PODS, plain.pod(_WITNESS, _WITNESS, on=_WITNESS))
        while True:
            self._beat()
            for _ in range(round(_BEAT_SECONDS / _LOOK_SECONDS)):
                await self.simulated.clock.sleep(_LOOK_SECONDS)  # which a jump ends, before the service can catch up
                self._look()

    def _beat(self) -> None:
        number, change = len(self._beats) + 1, self.simulated.api.operations.change
        labels = {"beat": str(number)}
        change(NAMESPACES, _WITNESS, lambda found: found["metadata"]["labels"].update(labels))
        change(PODS, f"{_WITNESS}/{_WITNESS}", lambda found: found["metadata"]["labels"].update(labels))
        change(NODES, _WITNESS, lambda found: found["status"]["allocatable"].update(pods=str(number)))
        self._beats.append((time.monotonic(), number))

    def _look(self) -> None:
        self.looks += 1
        if not self.service.readiness.is_ready:
            self.unready += 1
            return
        latest = time.monotonic() - self.bound
        due = max((number for at, number in self._beats if at < latest), default=0)
        for kind, shown in _shown(self.service.index).items():
            if shown < due:
                behind = time.monotonic() - self._beats[shown][0]
                self.lies.append(f"ready, but {behind:.2f} s behind in {kind}")


def _shown(index: ClusterIndex) -> dict[str, int]:
    """The number of the last beat that the index knows, by kind."""
    space = index.namespaces.objects.get(_WITNESS)
    node = index.view.node(index.view.known[_WITNESS]) if _WITNESS in index.view.known else None
    pod = next((found for found in index.pods.values() if found.name == _WITNESS), None)
    return {
        "namespaces": int(dict(space.labels).get("beat", 0)) if space else 0,
        "nodes": int(node.allocatable.get("pods", 0)) if node else 0,
        "pods": int(dict(pod.signature.labels).get("beat", 0)) if pod else 0,
    }


def base(**parts: Any) -> dict[str, Any]:
    """The cluster, the templates and the settings of the scenario that comes with the project, with other steps."""
    document: dict[str, Any] = yaml.safe_load(FAULTS.read_text("utf-8"))
    return {**document, **parts}


async def run(
    document: dict[str, Any],
    *,
    bound: float,
    seed: int = 1,
    once: Callable[[Service], object] = lambda _: True,
    then: Sequence[JsonObject] = (),
) -> Outcome:
    """Play it with the real service, then let everything come to rest and compare.

    The steps ``then`` follow those of the document, as soon as ``once`` holds of the service.
    """
    async with serving(document, seed) as (player, simulated, service):
        witness = Witness(simulated, service, bound)
        with _at_work(witness):
            await player.run(parse_scenario(document).steps)
            await until(lambda: once(service))
            await player.run(parse_scenario({**document, "steps": list(then)}).steps)
        report = await player.finish()  # when all is quiet, and with the witness it never is
        await until(lambda: service.readiness.is_ready and held(service.index) == real(simulated.api.store))
        return Outcome(
            report=report,
            injected=simulated.fault_injector.injected,
            differences=audit(service.index),
            restarts=restarts(service),
            lies=witness.lies,
            unready=witness.unready / witness.looks,
        )


@contextmanager
def _at_work(witness: Witness) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(witness.run())
    try:
        yield
    finally:
        assert not task.done(), task
        task.cancel()


def restarts(service: Service) -> list[str]:
    """The tasks that had to be started again, as the metrics tell."""
    lines = service.metrics.render().decode().splitlines()
    return [line for line in lines if line.startswith("extender_task_restarts_total") and not line.endswith(" 0.0")]


def held(index: ClusterIndex) -> list[str]:
    """What the index holds, as text: parsed selectors are compared by identity."""
    nodes = [node for node in index.topology.nodes if node is not None]
    return sorted(map(repr, [*index.pods.values(), *nodes, *index.namespaces.objects.values()]))


def real(store: Store) -> list[str]:
    """What the control plane holds, through the same decoding."""
    kinds = ((PODS, wire.PODS), (NODES, wire.NODES), (NAMESPACES, wire.NAMESPACES))
    rows = [(ours, stored) for theirs, ours in kinds for stored in store.table(theirs).latest()]
    return sorted(repr(ours.decode_object(stored.body)) for ours, stored in rows)


def steps_under(*faults: JsonObject) -> list[JsonObject]:
    """Steady load, labels that change under it, and these faults in the middle of it."""
    return [
        {"arrive": {"mix": {"apart": 3, "near": 1, "even": 2}, "count": 70, "rate": 70, "background": True}},
        {"pause": {"time": "150ms"}},
        {"faults": list(faults)},
        {"changePods": {"selector": {"app": "quiet"}, "count": 8, "labels": {"app": "apart-1"}}},
        {"pause": {"time": "210ms"}},
        {"relabelNamespace": {"namespaces": "team-4", "labels": {"team": "none"}}},
        {"deletePods": {"selector": {"app": "near"}, "count": 2}},
        {"pause": {"time": "210ms"}},
        {"changePods": {"selector": {"app": "quiet"}, "count": 4, "labels": {"app": "even-0"}}},
        {"changeNodes": {"action": "relabel", "nodes": "node-58", "labels": {plain.ZONE: "zone-0"}}},
        {"pause": {"time": "210ms"}},
        {"relabelNamespace": {"namespaces": "team-4", "labels": {"team": "devops"}}},
        {"pause": {"time": "150ms"}},
        {"faults": []},
        {"pause": {"time": "150ms"}},
    ]
