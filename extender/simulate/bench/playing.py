"""One load from the empty index to its figures, in a process of its own, so that memory and caches are its own.

Called by the command line through `play_all`; what runs in the child is `play`.
"""

import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from extender.settings import Answers, Settings
from extender.simulate.bench.asking import Player
from extender.simulate.bench.cluster import SyntheticCluster
from extender.simulate.bench.quantiles import Figures
from extender.simulate.bench.scenario import Load
from extender.simulate.bench.subject import MakeSubject, Subject, apply
from extender.wire.kinds import NAMESPACES, NODES, PODS, Kind

_BATCH: Final = 1000


class Row(msgspec.Struct, frozen=True):
    """The figures of one point: of which scenario, how it was played, where it stands in the matrix."""

    scenario: str
    via: str
    place: dict[str, int]
    figures: Figures


def play_all(loads: Iterable[Load], make: MakeSubject) -> Iterator[list[Row]]:
    """The rows of each load, one load after the other, each in a fresh process."""
    todo = list(loads)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        yield from pool.map(play, todo, [make] * len(todo))


def play(load: Load, make: MakeSubject) -> list[Row]:
    """Load the cluster and play every point on it."""
    before = resident_mebibytes()
    cluster, subject = SyntheticCluster(load), make()
    common = fill(cluster, subject)
    common["rss"] = resident_mebibytes() - before
    player = Player(cluster, subject.index)
    common |= player.ask_first(subject.decisions(Settings()))
    rows = []
    for point in load.points:
        settings = msgspec.structs.replace(Settings(), answers=Answers(shortlist=point.shortlist))
        figures = player.play(subject.decisions(settings), point)
        rows.append(Row(load.scenario.name, "process", load.place(point), common | figures))
    return rows


def fill(cluster: SyntheticCluster, subject: Subject) -> Figures:
    """Everything that exists is decoded and applied, in the order of the service; making the lines does not count."""
    lasted = 0
    for kind, lines in _initial(cluster):
        while batch := list(islice(lines, _BATCH)):
            started = perf_counter_ns()
            for line in batch:
                apply(subject.index, kind.decode_event(line))
            lasted += perf_counter_ns() - started
    started = perf_counter_ns()
    subject.settle()
    return {"load": (lasted + perf_counter_ns() - started) / 1e9}


def _initial(cluster: SyntheticCluster) -> Iterator[tuple[Kind[Any], Iterator[bytes]]]:
    yield NAMESPACES, cluster.namespace_lines()
    yield NODES, cluster.node_lines()
    yield PODS, cluster.pod_lines()


def resident_mebibytes() -> float:
    """The memory that this process has in use now, as Linux counts it; 0 elsewhere."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 2**20
