"""Measures one load in a new process, which starts with empty caches: `play` runs in the child.

Called by the command line through `play_in_process`.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from time import perf_counter_ns
from typing import Any, Final

from extender.compose.process import freeze_gc
from extender.settings.configuration import Settings
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS, Kind
from tests.process_memory import resident_megabytes
from tests.tools.bench.cluster import SyntheticCluster
from tests.tools.bench.other_pods import measure_hostile, measure_tenants
from tests.tools.bench.player import Player
from tests.tools.bench.probes import measure_events, measure_gangs, measure_policies, measure_relabel, measure_retries
from tests.tools.bench.results import Figures, Played, Row
from tests.tools.bench.scenario import OVER_HTTP, Load, Point
from tests.tools.bench.subject import Decisions, Subject, apply, recount

_BATCH: Final = 1000


def play_in_process(load: Load) -> Iterator[Played]:
    """Runs `play` in a new process; yields nothing if no point is measured in process."""
    if any(point.measures - OVER_HTTP for point in load.points):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool.submit(play, load).result()


def play(load: Load) -> Played:
    """Loads the cluster, measures every point on it, and recounts the index."""
    before = resident_megabytes()
    cluster, subject = SyntheticCluster(load), Subject(load.scenario.namespace_limits)
    common = fill(cluster, subject)
    common["rss"] = resident_megabytes() - before
    player = Player(cluster, subject.index)
    common |= player.play_first(subject.decisions(Settings()))
    rows = []
    for point in load.points:
        if point.measures <= OVER_HTTP:
            continue
        figures = _play_point(point, player, cluster, subject)
        rows.append(Row(load.scenario.name, "process", load.place(point), common | figures))
    return Played(rows, recount(subject.index))


def _play_point(point: Point, player: Player, cluster: SyntheticCluster, subject: Subject) -> Figures:
    decisions, found = subject.decisions(point.settings), Figures()
    if "requests" in point.measures:
        found |= player.play(decisions, point)
    if "control" in point.measures:
        found |= _measure_control(point, player, cluster.load, decisions)
    if "events" in point.measures:
        found |= measure_events(cluster, subject.index)
    if "retries" in point.measures:
        found |= measure_retries(cluster, subject.index, decisions, point.names)
    if "relabel" in point.measures:
        found |= measure_relabel(cluster, subject.index, decisions, point.names)
    if "policies" in point.measures:
        found |= measure_policies(subject, player, point)
    if "gangs" in point.measures:
        found |= measure_gangs(cluster, subject, player, point)
    if "hostile" in point.measures:
        found |= measure_hostile(cluster, subject.index, player, decisions, point)
    if "tenants" in point.measures:
        found |= measure_tenants(cluster, player, decisions, point)
    return found


def _measure_control(point: Point, player: Player, load: Load, decisions: Decisions) -> Figures:
    """Loads the control beside the index that is measured, and plays both in turns."""
    assert load.control is not None
    cluster = SyntheticCluster(Load(load.control, load.pods, load.selectors, load.points))
    subject = Subject(load.control.namespace_limits)
    fill(cluster, subject)
    control = Player(cluster, subject.index)
    return player.play_in_turns(decisions, control, subject.decisions(point.settings), point)


def fill(cluster: SyntheticCluster, subject: Subject) -> Figures:
    """Decodes and applies all objects in the order of the service. The time to create the lines does not count."""
    lasted = 0
    for kind, lines in _initial(cluster):
        while batch := list(islice(lines, _BATCH)):
            started = perf_counter_ns()
            for line in batch:
                apply(subject.index, kind.decode_event(line))
            lasted += perf_counter_ns() - started
    started = perf_counter_ns()
    freeze_gc()
    return {"load": (lasted + perf_counter_ns() - started) / 1e9}


def _initial(cluster: SyntheticCluster) -> Iterator[tuple[Kind[Any], Iterator[bytes]]]:
    yield NAMESPACES, cluster.namespace_lines()
    yield NODES, cluster.node_lines()
    yield REPLICA_SETS, cluster.replica_set_lines()
    yield PODS, cluster.pod_lines()
