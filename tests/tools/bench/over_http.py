"""Measures one load over loopback HTTP: simulated API server, service and client are three processes.

Pods are created and deleted meanwhile at a given rate. Then the service answers in turns with a bare echo. With a very large
cluster: pauses during disturbances, memory, the audit and a takeover. A pause is how long the event loop was held, limited by
its processor time. `NAME.max` is that of a disturbance, `NAMEGc.max` the longest collection of the garbage collector meanwhile,
and `NAME.filter99` the answers beside it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from extender.settings.configuration import Settings
from tests.process_memory import peak_megabytes, processor_seconds, reset_peak, resident_megabytes
from tests.tools.bench.api_server import run_api_server
from tests.tools.bench.bare_echo import bare_echo_running
from tests.tools.bench.child_process import Child, ChildError, child_running
from tests.tools.bench.cluster import RequestMaker, SyntheticCluster
from tests.tools.bench.http_connection import BadAnswer, Connection
from tests.tools.bench.http_player import RemotePlayer
from tests.tools.bench.results import Audit, Figures, Played, Row
from tests.tools.bench.scenario import Load, Point
from tests.tools.bench.service import run_service

_FLOOD: Final = 15_000
_MOVES: Final = 6
_MANY_PODS: Final = 100_000
_REQUESTS_AFTER_MOVE: Final = 60


def play_over_http(load: Load) -> Iterator[Played]:
    """Measures the points that need a service, with a new service for each form of answers."""
    points = sorted((point for point in load.points if "service" in point.measures), key=lambda point: point.answer)
    if not points:
        return
    with child_running(run_api_server, load) as api_server:
        api_url = str(api_server.receive())
        for _, group in groupby(points, key=lambda point: point.answer):
            yield _play_answer(load, list(group), api_server, api_url)


def _play_answer(load: Load, points: list[Point], api_server: Child, api_url: str) -> Played:
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
        with bare_echo_running() as echo:
            found = [(point, figures | player.play_beside(point, echo)) for point, figures in found]
        if any("events" in point.measures for point in points):
            common |= _flood(player, api_server, service) | _relist(player, api_server, service)
        common["rssPeak"] = peak_megabytes(service.pid)
        if any("scale" in point.measures for point in points):
            common |= measure_scale(load, points[0], player, api_server, service)
        audit: Audit = service.call("audit", within=within)
    if any("standby" in point.measures for point in points):
        common |= measure_takeover(load, points[0], api_server, api_url)
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


_WAIT_SECONDS: Final = 60.0
_PODS_A_SECOND: Final = 500  # of a list, at least: on a machine that others keep busy
_RELABELLED: Final = 10_000
_CHURN: Final = 100.0  # nodes a second that come or go
_CHURN_SECONDS: Final = (1.0, 5.0)  # in a small cluster, and in one whose figures count
_SCRAPES: Final = 5
_ZONES: Final = ("taintZones", "loseZones", "returnZones")
_PAUSES: Final = ("relabelPods", "restorePods", *_ZONES, "churn", "relist", "scrape", "auditStep")
_REQUESTED: Final = 100  # requests beside a disturbance


def ready_within(load: Load) -> float:
    """How many seconds a service with that cluster may take to list it."""
    return _WAIT_SECONDS + load.pods / _PODS_A_SECOND


def measure_scale(load: Load, point: Point, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Everything but the takeover; the cluster is as it was at the end. `longestPause` is that of all, in milliseconds."""
    found = (
        _relabel_pods(point, player, api_server, service)
        | _zones(point, player, api_server, service)
        | _churn(point, player, api_server, service)
        | _relist_pods(load, player, api_server, service)
        | _scrape(player, service)
        | _audit(load, service)
    )
    return found | {"longestPause": max(found[f"{name}.max"] for name in _PAUSES)}


def _relabel_pods(point: Point, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Ten thousand pods get a label, and lose it again."""
    found = Figures()
    for name, restore in (("relabelPods", False), ("restorePods", True)):
        player.prepare(_REQUESTED)
        seen = player.events()
        service.call("pause")
        count = api_server.call("relabelPods", _RELABELLED, restore)
        found |= _beside(point, player, name, service, partial(_has_counted, player, "pods", seen + count))
    return found


def _zones(point: Point, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Two of the zones are tainted, then deleted, then there again."""
    found = Figures()
    for call in _ZONES:
        player.prepare(_REQUESTED)
        seen = player.events("nodes")
        service.call("pause")
        count = api_server.call(call)
        found |= _beside(point, player, call, service, partial(_has_counted, player, "nodes", seen + count))
        found["lostNodes"] = count
    return found


def _churn(point: Point, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """Nodes come and go for some seconds."""
    service.call("pause")
    api_server.call("churn", _CHURN)
    until = time.monotonic() + _CHURN_SECONDS[player.cluster.load.pods >= _MANY_PODS]
    found = _beside(point, player, "churn", service, lambda: time.monotonic() > until)
    return found | {"churned": api_server.call("churn", 0.0)}


def _relist_pods(load: Load, player: RemotePlayer, api_server: Child, service: Child) -> Figures:
    """The watch of pods expires. `relist.peak` is the most memory meanwhile, as a multiple of that before."""
    before, resident = player.relists(), resident_megabytes(service.pid)
    used = processor_seconds(service.pid)
    reset_peak(service.pid)
    service.call("pause")
    api_server.call("compact")
    wait_for(lambda: player.relists() > before, ready_within(load))
    found = renamed(service.call("pause"), "relist")
    found |= {"relist.peak": peak_megabytes(service.pid) / resident, "relist.rss": resident_megabytes(service.pid)}
    return found | {"relist.cpu": processor_seconds(service.pid) - used}


def _scrape(player: RemotePlayer, service: Child) -> Figures:
    """Reads the metrics a few times."""
    service.call("pause")
    with closing(Connection(player.real.url)) as connection:  # the player's was idle for long, and may have been closed
        for _ in range(_SCRAPES):
            connection.get("/metrics")
    return renamed(service.call("pause"), "scrape")


def _audit(load: Load, service: Child) -> Figures:
    """A round of the audit, one step after the other."""
    differences, found = service.call("auditSteps", within=ready_within(load))
    if differences:
        raise ChildError(f"the audit has found {len(differences)} differences, first {differences[0]}")
    figures: Figures = found
    return figures


def _has_counted(player: RemotePlayer, kind: str, goal: int) -> bool:
    return player.events(kind) >= goal


def _beside(point: Point, player: RemotePlayer, name: str, service: Child, is_over: Callable[[], bool]) -> Figures:
    """Sends requests until a disturbance is over, and for a moment after it."""
    times = player.request(point, _REQUESTED)
    deadline = time.monotonic() + _WAIT_SECONDS
    while not is_over():
        if time.monotonic() > deadline:
            raise ChildError(f"{name}: the service has not caught up within {_WAIT_SECONDS:.0f} s")
        more = player.request(point, _REQUESTED)
        times.filter += more.filter
    pause = service.call("pause")
    return renamed(pause, name) | {f"{name}.filter99": times.figures().get("filter.p99", 0.0)}


# -- takeover -----------------------------------------------------------------------------------------------------------


def measure_takeover(load: Load, point: Point, api_server: Child, api_url: str) -> Figures:
    """Kills a leader. `takeover.seconds` until the standby answers, `takeover.lists` how many lists it made for that.

    `takeover.cpu` is the processor time of the standby meanwhile.
    """
    settings, within, cluster = _electing(point.settings), ready_within(load), SyntheticCluster(load)
    with child_running(run_service, api_url, settings, within) as leader, ExitStack() as stack:
        leader.receive(within)
        standby = stack.enter_context(child_running(run_service, api_url, settings, within, True))
        addresses = standby.receive(within)
        player = stack.enter_context(RemotePlayer.connected(cluster, api_server, standby, addresses))
        lists, used = player.relists(), processor_seconds(standby.pid)
        standby.call("pause")
        leader.kill()
        started = time.monotonic()
        body = RequestMaker(cluster, point.names, load.scenario.seed).filter_body(cluster.existing_pod(0)[0])
        wait_for(lambda: _answers(addresses["real"], body), ready_within(load))
        lasted = time.monotonic() - started
        found = renamed(standby.call("pause"), "takeover") | {"takeover.seconds": lasted}
        found |= {"takeover.cpu": processor_seconds(standby.pid) - used}
        return found | {"takeover.lists": player.relists() - lists}


def _electing(settings: Settings) -> Settings:
    election = msgspec.structs.replace(settings.leader_election, enabled=True)
    return msgspec.structs.replace(settings, leader_election=election)


def _answers(url: str, body: bytes) -> bool:
    """Whether the standby answers a request by now; a refusal closes its connection."""
    with closing(Connection(url)) as connection:
        try:
            connection.post("/filter", body)
        except (BadAnswer, OSError):
            return False
    return True


def renamed(pause: Figures, name: str) -> Figures:
    """The pauses by processor time, under another name, and the collections in them."""
    found = {f"{name}.{key.partition('.')[2]}": value for key, value in pause.items() if key.startswith("pause.")}
    return found | {f"{name}.gc": value for key, value in pause.items() if key == "gc.max"}


def wait_for(is_so: Callable[[], bool], within: float = _WAIT_SECONDS) -> None:
    """Waits until something is so. Raises ChildError after so many seconds."""
    deadline = time.monotonic() + within
    while not is_so():
        if time.monotonic() > deadline:
            raise ChildError(f"the service has not caught up within {within:.0f} s")
        time.sleep(0.02)
