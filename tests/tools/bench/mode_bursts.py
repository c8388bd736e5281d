"""Plays one burst of pods in each mode: measures the rate of bindings, waits, and violated constraints.

The service has its own process. The API server and the scheduling loop share another one, because the loop reads the
server's store; they cost the same in every mode. Called by the command line.
"""

import asyncio
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from statistics import median
from time import process_time
from typing import Any, Final

from extender.simulator.scenario.language import Play
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.report import Report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.process_memory import processor_seconds
from tests.tools.bench.child_process import Calls, child_running
from tests.tools.bench.results import Audit, Figures, Played, Row
from tests.tools.bench.scenario import MODES, Mode, ModesLoad
from tests.tools.bench.service import run_service

_SUMMED: Final = ("violations", "pending")
_COMPARED: Final = {"boundOfDecisive": "bound.perSecond", "decidedOfDecisive": "decided.perSecond"}


def play_modes(load: ModesLoad) -> Iterator[Played]:
    """Plays all modes with one seed after the other, so that a slow phase of the machine affects all modes."""
    found: dict[Mode, list[Figures]] = {mode: [] for mode in MODES}
    for seed in load.seeds:
        for mode in MODES:
            figures, audit = _play(load, mode, seed)
            found[mode].append(figures)
            yield Played([], audit)
    joined = {mode: join(figures) for mode, figures in found.items()}
    rows = [
        Row(load.scenario.name, "http", load.place(mode), figures | ratios(figures, joined["decisive"]))
        for mode, figures in joined.items()
    ]
    yield Played(rows, Audit((), 0))


def join(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over the runs; the sum of violations and pending pods."""
    return {name: (sum if name in _SUMMED else median)([run[name] for run in runs]) for name in runs[0]}


def ratios(figures: Figures, decisive: Figures) -> Figures:
    """The speed of a mode relative to mode decisive."""
    return {name: figures[speed] / decisive[speed] for name, speed in _COMPARED.items() if decisive[speed]}


def _play(load: ModesLoad, mode: Mode, seed: int) -> tuple[Figures, Audit]:
    """Plays one burst in one mode with a new cluster and a new service."""
    with child_running(run_scheduler, load.burst_in(mode), seed) as simulated:
        api_url = str(simulated.receive())
        with child_running(run_service, api_url, load.settings_in(mode)) as service:
            address = service.receive()["real"]
            used = processor_seconds(service.pid)
            simulated.notify("begin", address)
            cluster_seconds = float(simulated.receive())
            seconds = processor_seconds(service.pid) - used
            waits: Figures = service.call("waits")
            audit: Audit = service.call("audit")
        report: Figures = simulated.receive()
    pods = {"extenderCpu.perPod": seconds / load.pods * 1000, "clusterCpu.perPod": cluster_seconds / load.pods * 1000}
    return report | waits | pods, audit


def run_scheduler(pipe: Connection, play: Play, seed: int) -> None:
    """The process of cluster and scheduler: sends its address, and starts when it gets the extender's."""
    asyncio.run(_run(pipe, play, seed))


async def _run(pipe: Connection, play: Play, seed: int) -> None:
    async with SimulatedCluster(play, seed) as simulated:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        calls = Calls(pipe, answered={}, unanswered={"begin": address.set_result})
        calls.listen()
        calls.send(simulated.api.url)
        either: tuple[asyncio.Future[Any], ...] = (address, asyncio.create_task(calls.stopped.wait()))
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            return
        used = process_time()
        await simulated.begin(address.result())
        player = Player(simulated)
        await player.run(play.steps)
        calls.send(process_time() - used)
        calls.send(_figures(await player.finish()))
        await calls.stopped.wait()


def _figures(report: Report) -> Figures:
    return {
        "bound.perSecond": report.bound_per_second,
        "decided.perSecond": report.decisions_per_second,
        "pending": len(report.waiting),
        "violations": len(report.violations),
    }
