"""One load from the empty index to its figures, in a process of its own, so that memory and caches are its own.

Called by the command line through `play_apart`; what runs in the child is `play`.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from time import perf_counter_ns
from typing import Any, Final

from extender.settings import Settings
from extender.simulator.bench.measurement.hostile_pods import ask_beside_hostile
from extender.simulator.bench.measurement.in_process_player import Player
from extender.simulator.bench.measurement.probes import ask_herd, feed_events, relabel_namespace
from extender.simulator.bench.measurement.subject import MakeSubject, Subject, apply, recount
from extender.simulator.bench.reporting.figures import Figures
from extender.simulator.bench.reporting.runs import Played, Row
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.scenario import Load, Point
from extender.simulator.process_usage import resident_megabytes
from extender.wire.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS, Kind

_BATCH: Final = 1000


def play_apart(load: Load, make: MakeSubject) -> Iterator[Played]:
    """What `play` gives in a fresh process; nothing if no point wants to be played in process."""
    if any(point.measures - {"service"} for point in load.points):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool.submit(play, load, make).result()


def play(load: Load, make: MakeSubject) -> Played:
    """Load the cluster, play every point on it, and recount the index in the end."""
    before = resident_megabytes()
    cluster, subject = SyntheticCluster(load), make()
    common = fill(cluster, subject)
    common["rss"] = resident_megabytes() - before
    player = Player(cluster, subject.index)
    common |= player.ask_first(subject.decisions(Settings()))
    rows = []
    for point in load.points:
        if point.measures == {"service"}:
            continue
        figures = _play_point(point, player, cluster, subject)
        rows.append(Row(load.scenario.name, "process", load.place(point), common | figures))
    return Played(rows, recount(subject.index))


def _play_point(point: Point, player: Player, cluster: SyntheticCluster, subject: Subject) -> Figures:
    """Everything that is to be measured at one point."""
    decisions, found = subject.decisions(point.settings), Figures()
    if "questions" in point.measures:
        found |= player.play(decisions, point)
    if "events" in point.measures:
        found |= feed_events(cluster, subject.index)
    if "herd" in point.measures:
        found |= ask_herd(cluster, subject.index, decisions, point.names)
    if "relabel" in point.measures:
        found |= relabel_namespace(cluster, subject.index, decisions, point.names)
    if "hostile" in point.measures:
        found |= ask_beside_hostile(cluster, subject.index, player, decisions, point)
    return found


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
    subject.freeze_gc()
    return {"load": (lasted + perf_counter_ns() - started) / 1e9}


def _initial(cluster: SyntheticCluster) -> Iterator[tuple[Kind[Any], Iterator[bytes]]]:
    yield NAMESPACES, cluster.namespace_lines()
    yield NODES, cluster.node_lines()
    yield REPLICA_SETS, cluster.replica_set_lines()
    yield PODS, cluster.pod_lines()
