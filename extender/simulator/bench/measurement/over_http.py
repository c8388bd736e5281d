"""One load played over loopback HTTP: embedded API server, service and client, each in a process of its own.

The caller composes the service as `extender serve` does and passes the function that its process runs. Pods are created
and deleted meanwhile at a given rate. Called by the command line.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Final

from extender.simulator.bench.measurement.apiserver_process import run_plane
from extender.simulator.bench.measurement.child_process import Child, ChildError, RunService, child_running
from extender.simulator.bench.measurement.http_player import RemotePlayer
from extender.simulator.bench.reporting.figures import Figures
from extender.simulator.bench.reporting.runs import Audit, Played, Row
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.scenario import Load, Point
from extender.simulator.process_usage import peak_megabytes, processor_seconds, resident_megabytes

_FLOOD: Final = 15_000
_WAIT_SECONDS: Final = 60.0
_MOVES: Final = 6
_QUESTIONS_AFTER_MOVE: Final = 60


def play_served(load: Load, run_service: RunService) -> Iterator[Played]:
    """Play the points that want a service, with a service of its own for each way of answering."""
    points = sorted((point for point in load.points if "service" in point.measures), key=lambda point: point.answer)
    if not points:
        return
    with child_running(run_plane, load) as plane:
        api_url = str(plane.receive())
        for _, group in groupby(points, key=lambda point: point.answer):
            yield _play_answer(load, list(group), plane, api_url, run_service)


def _play_answer(load: Load, points: list[Point], plane: Child, api_url: str, run_service: RunService) -> Played:
    """One service from its start to its audit."""
    started = time.perf_counter()
    with child_running(run_service, api_url, points[0].settings) as service, ExitStack() as stack:
        addresses = service.receive()
        common = {"ready": time.perf_counter() - started, "rssReady": resident_megabytes(service.pid)}
        player = stack.enter_context(RemotePlayer.connected(SyntheticCluster(load), plane, service, addresses))
        common |= player.ask_first(points[0])
        plane.tell("rate", load.rate)
        found = [(point, _play_point(point, player, service)) for point in points]
        common["rss"] = resident_megabytes(service.pid)
        if any("relabel" in point.measures for point in points):
            common |= _relabel(load, points[0], player, plane, service)
        plane.tell("rate", 0.0)
        if any("events" in point.measures for point in points):
            common |= _flood(player, plane, service) | _relist(player, plane, service)
        common["rssPeak"] = peak_megabytes(service.pid)
        audit: Audit = service.call("audit")
    rows = [Row(load.scenario.name, "http", load.place(point), figures | common) for point, figures in found]
    return Played(rows, audit)


def _play_point(point: Point, player: RemotePlayer, service: Child) -> Figures:
    """The questions of one point, and how long the service's loop stood still meanwhile."""
    service.call("pause")
    used, started = processor_seconds(service.pid), time.perf_counter()
    figures = player.play(point)
    busy = (processor_seconds(service.pid) - used) / (time.perf_counter() - started)
    pause: Figures = service.call("pause")
    return figures | pause | {"busyShare": busy}


def _relabel(load: Load, point: Point, player: RemotePlayer, plane: Child, service: Child) -> Figures:
    """A namespace loses its label and gets it back while questions are asked."""
    service.call("pause")
    for number in range(_MOVES):
        plane.call("relabel", "ns-1", {} if number % 2 == 0 else load.scenario.cluster.namespace_labels)
        player.ask(point, _QUESTIONS_AFTER_MOVE)
    return _renamed(service.call("pause"), "relabelPause")


def _flood(player: RemotePlayer, plane: Child, service: Child) -> Figures:
    """Many pod events at once: how many of them a second of processor time takes in, reading and decoding included."""
    seen, used = player.counter("watch_events"), processor_seconds(service.pid)
    service.call("pause")
    plane.call("flood", _FLOOD)
    _wait_for(lambda: player.counter("watch_events") >= seen + _FLOOD)
    spent = processor_seconds(service.pid) - used
    rate = {"watch.eventsPerSecond": _FLOOD / spent} if spent else {}
    return rate | _renamed(service.call("pause"), "floodPause")


def _relist(player: RemotePlayer, plane: Child, service: Child) -> Figures:
    """The watch of pods expires and they have to be listed again."""
    before = player.counter("relists")
    service.call("pause")
    plane.call("compact")
    _wait_for(lambda: player.counter("relists") > before)
    return _renamed(service.call("pause"), "relistPause")


def _renamed(pause: Figures, name: str) -> Figures:
    """The figures of our own part of the pauses, under another name."""
    return {f"{name}.{key.partition('.')[2]}": value for key, value in pause.items() if key.startswith("pause.")}


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise ChildError(f"the service has not caught up within {_WAIT_SECONDS:.0f} s")
        time.sleep(0.02)
