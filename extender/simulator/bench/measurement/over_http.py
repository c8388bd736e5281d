"""Measures one load over loopback HTTP: simulated API server, service and client are three processes.

The caller composes the service as `extender serve` does, and passes the function of its process. Pods are created and
deleted meanwhile at a given rate. Called by the command line.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Final

from extender.simulator.bench.measurement.apiserver_process import run_api_server
from extender.simulator.bench.measurement.at_scale import (
    measure_scale,
    measure_takeover,
    ready_within,
    renamed,
    wait_for,
)
from extender.simulator.bench.measurement.child_process import Child, RunService, child_running
from extender.simulator.bench.measurement.http_player import RemotePlayer
from extender.simulator.bench.reporting.figures import Figures
from extender.simulator.bench.reporting.runs import Audit, Played, Row
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.scenario import Load, Point
from extender.simulator.process_usage import peak_megabytes, processor_seconds, resident_megabytes

_FLOOD: Final = 15_000
_MOVES: Final = 6
_MANY_PODS: Final = 100_000
_REQUESTS_AFTER_MOVE: Final = 60


def play_over_http(load: Load, run_service: RunService) -> Iterator[Played]:
    """Measures the points that need a service, with a new service for each form of answers."""
    points = sorted((point for point in load.points if "service" in point.measures), key=lambda point: point.answer)
    if not points:
        return
    with child_running(run_api_server, load) as api_server:
        api_url = str(api_server.receive())
        for _, group in groupby(points, key=lambda point: point.answer):
            yield _play_answer(load, list(group), api_server, api_url, run_service)


def _play_answer(load: Load, points: list[Point], api_server: Child, api_url: str, run_service: RunService) -> Played:
    """Measures the points of one service, from its start to its audit."""
    started, within = time.perf_counter(), ready_within(load)
    with child_running(run_service, api_url, points[0].settings, within) as service, ExitStack() as stack:
        addresses = service.receive(within)
        common = {"ready": time.perf_counter() - started, "rssReady": resident_megabytes(service.pid)}
        common["readyCpu"] = processor_seconds(service.pid)
        if load.pods >= _MANY_PODS:  # with fewer the start of the process takes longer than the list
            common["readyPer100kPods"] = common["ready"] / load.pods * _MANY_PODS
        common |= renamed(service.call("pause"), "listPause")
        player = stack.enter_context(RemotePlayer.connected(SyntheticCluster(load), api_server, service, addresses))
        common |= player.play_first(points[0])
        api_server.notify("rate", load.rate)
        found = [(point, _play_point(point, player, service)) for point in points]
        common["rss"] = resident_megabytes(service.pid)
        if any("relabel" in point.measures for point in points):
            common |= _relabel(load, points[0], player, api_server, service)
        api_server.notify("rate", 0.0)
        if any("events" in point.measures for point in points):
            common |= _flood(player, api_server, service) | _relist(player, api_server, service)
        common["rssPeak"] = peak_megabytes(service.pid)
        if any("scale" in point.measures for point in points):
            common |= measure_scale(load, points[0], player, api_server, service)
        audit: Audit = service.call("audit", within=within)
    if any("standby" in point.measures for point in points):
        common |= measure_takeover(load, points[0], api_server, api_url, run_service)
    rows = [Row(load.scenario.name, "http", load.place(point), figures | common) for point, figures in found]
    return Played(rows, audit)


def _play_point(point: Point, player: RemotePlayer, service: Child) -> Figures:
    """Sends the requests of one point, and measures the pauses of the service's event loop."""
    service.call("pause")
    used, started = processor_seconds(service.pid), time.perf_counter()
    figures = player.play(point)
    busy = (processor_seconds(service.pid) - used) / (time.perf_counter() - started)
    pause: Figures = service.call("pause")
    return figures | pause | {"busyShare": busy}


def _relabel(load: Load, point: Point, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Removes and restores the label of a namespace between requests."""
    service.call("pause")
    for number in range(_MOVES):
        api_server.call("relabel", "ns-1", {} if number % 2 == 0 else load.scenario.cluster.namespace_labels)
        player.request(point, _REQUESTS_AFTER_MOVE)
    return renamed(service.call("pause"), "relabelPause")


def _flood(player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Many pod events at once: measures events per second of processor time, including reading and decoding."""
    seen, used = player.events(), processor_seconds(service.pid)
    service.call("pause")
    api_server.call("flood", _FLOOD)
    wait_for(lambda: player.events() >= seen + _FLOOD)
    spent = processor_seconds(service.pid) - used
    rate = {"watch.eventsPerSecond": _FLOOD / spent} if spent else {}
    return rate | renamed(service.call("pause"), "floodPause")


def _relist(player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Expires the watch of pods, so that the service lists them again."""
    before = player.relists()
    service.call("pause")
    api_server.call("compact")
    wait_for(lambda: player.relists() > before, ready_within(player.cluster.load))
    return renamed(service.call("pause"), "relistPause")
