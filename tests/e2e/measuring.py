"""How fast a real kube-scheduler places waiting pods: in-tree plugins against the extender, on the same cluster.

Backlog mode: the scheduler is held (SIGSTOP) while the asking pods are created and then let go, so that what is measured
is the scheduler with its extender and the binding, not the load generator.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from extender.simulator.json_objects import JsonObject, node_of
from extender.simulator.oracle.brute_force import ClusterState
from tests.e2e import workloads
from tests.e2e.board import Board, following, key_of
from tests.e2e.client import Api, connect, pod_path
from tests.e2e.cluster import eventually_ready, permit
from tests.e2e.control_plane import ControlPlane, scheduler_document
from tests.e2e.judging import decision_order, judge_in_order
from tests.e2e.serving import Extender
from tests.e2e.workloads import Workload

WARMING = 5
# More existing pods than that repeat on the same nodes what stands there already: the judge need not count them.
JUDGED = 5000
_LONGEST = 600.0  # seconds for all asking pods
IN_TREE: JsonObject = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run. Seconds of processor time by program; `load` is the machine's load average when the run began.

    `algorithm`: milliseconds of a pod in kube-scheduler's scheduling algorithm, on average.
    """

    variant: str
    bound: int
    seconds: float
    violations: int
    cpu: dict[str, float]
    load: float
    cycles: int
    nodes_used: int
    algorithm: float

    @property
    def rate(self) -> float:
        """Pods per second."""
        return self.bound / self.seconds if self.seconds else 0.0


class Course:
    """A cluster of so many nodes that holds a workload's existing pods; schedulers are measured on it in turn.

    ``judge_every``: one of so many decisions is judged, as that takes longer than the measurement.
    """

    def __init__(
        self, plane: ControlPlane, api: Api, board: Board, workload: Workload, nodes: int, judge_every: int
    ) -> None:
        self.plane = plane
        self._api = api
        self._board = board
        self._workload = workload
        self._nodes = nodes
        self._judge_every = judge_every
        self._existing = 0

    async def fill(self, existing: int) -> float:
        """Add running pods up to a number; returns the seconds that it took."""
        began = time.monotonic()
        await self._api.create(*self._workload.running(existing, self._nodes, self._existing))
        self._existing = max(existing, self._existing)
        return time.monotonic() - began

    async def measure(
        self,
        variant: str,
        incoming: int,
        extender: Extender | None = None,
        percentage: int = 0,
        longest: float = _LONGEST,
    ) -> Measurement:
        """Place the asking pods once, judge where they are, and take them away again. `longest`: seconds for all of them."""
        pods = list(self._workload.incoming(incoming))
        await asyncio.to_thread(self.plane.start_scheduler, _document(extender, percentage))
        try:
            await self._warm_up()
            warmed = await asyncio.to_thread(self.plane.scheduling_time)
            self.plane.scheduler.send(signal.SIGSTOP)
            await self._api.create(*pods)
            await self._rest(extender)
            result = await self._let_go(variant, pods, extender, longest, warmed)
        finally:
            await asyncio.to_thread(self.plane.scheduler.stop)
        await self._remove(pods)
        return result

    async def _let_go(
        self,
        variant: str,
        pods: Sequence[JsonObject],
        extender: Extender | None,
        longest: float,
        warmed: tuple[float, int],
    ) -> Measurement:
        before, load = self._cpu(extender), os.getloadavg()[0]
        began = time.monotonic()
        self.plane.scheduler.send(signal.SIGCONT)
        bound = await self._bound(pods, longest)
        seconds = max((self._board.bound_at[name] for name in bound), default=began) - began
        cpu = {name: round(used - before[name], 2) for name, used in self._cpu(extender).items()}
        spent, placed = await asyncio.to_thread(self.plane.scheduling_time)
        algorithm = round((spent - warmed[0]) / max(placed - warmed[1], 1) * 1000, 2)
        log = self.plane.scheduler.log()
        broken = await asyncio.to_thread(self._violations, bound, log)
        used = len({node_of(pod) for pod in bound.values()})
        cycles = log.count('"Attempting to schedule pod"') - WARMING
        shown = round(seconds, 3), len(broken), cpu, round(load, 2)
        return Measurement(variant, len(bound), *shown, cycles, used, algorithm)

    async def _bound(self, pods: Sequence[JsonObject], longest: float) -> dict[str, JsonObject]:
        """The pods that have a node, once all have or the time is over."""
        names, board = {key_of(pod) for pod in pods}, self._board
        with suppress(TimeoutError):  # told by the count
            await board.until(lambda: len(board.bound_at) >= len(names) + WARMING, longest)
        return {name: board.pods[name] for name in names if board.node(name)}

    def _violations(self, bound: dict[str, JsonObject], log: str) -> list[str]:
        state = ClusterState(workloads.nodes(self._nodes, self._workload.zones), workloads.namespaces())
        standing = self._workload.running(min(self._existing, JUDGED), self._nodes)
        return judge_in_order(
            bound | {key_of(pod): pod for pod in standing}, decision_order(log), state, self._judge_every
        )

    async def _warm_up(self) -> None:
        """A first placement makes the scheduler's snapshot and opens its connections."""
        self._board.bound_at.clear()
        pods = [workloads.warming(number) for number in range(WARMING)]
        await self._api.create(*pods)
        await self._board.bound(*pods)

    async def _rest(self, extender: Extender | None) -> None:
        """Return when apiserver and extender have nothing more to do for the pods just created."""
        async with asyncio.timeout(60):
            used = 0.0
            while (now := sum(self._cpu(extender).values())) - used > 0.1:
                used = now
                await asyncio.sleep(0.5)

    async def _remove(self, pods: Iterable[JsonObject]) -> None:
        waiting = iter([*pods, *(workloads.warming(number) for number in range(WARMING))])

        async def remove() -> None:
            for pod in waiting:
                await self._api.delete(pod_path(pod), grace=0)

        await asyncio.gather(*(remove() for _ in range(16)))

    def _cpu(self, extender: Extender | None) -> dict[str, float]:
        programs = [
            self.plane.apiserver,
            self.plane.scheduler,
            self.plane.etcd,
            *([extender.program] if extender else []),
        ]
        return {program.name: program.cpu_seconds() for program in programs}


def _document(extender: Extender | None, percentage: int) -> JsonObject:
    if extender is None:
        return {**IN_TREE, "percentageOfNodesToScore": percentage}
    return scheduler_document("offload", extender.url, percentageOfNodesToScore=percentage)


@asynccontextmanager
async def extender_at(plane: ControlPlane, folder: Path) -> AsyncIterator[Extender]:
    """`extender serve` that has read the cluster."""
    with Extender(folder, plane.extender_kubeconfig) as extender:
        await eventually_ready(extender)
        yield extender


@asynccontextmanager
async def open_course(assets: Path, workload: Workload, nodes: int, judge_every: int = 1) -> AsyncIterator[Course]:
    """A control plane of its own with namespaces and nodes, and no pods yet."""
    with ControlPlane(assets) as plane:
        async with (
            connect(plane.url, plane.token, plane.authority) as api,
            following(api, workloads.INCOMING_LABEL) as board,
        ):
            await permit(api)
            await api.create(*workloads.namespaces())
            await api.create(*workloads.nodes(nodes, workload.zones))
            yield Course(plane, api, board, workload, nodes, judge_every)
