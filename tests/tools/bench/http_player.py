"""Sends requests over HTTP one after the other, each also to the echo of the same server. Called by `over_http.py`.

The pod of a request is created some requests earlier, so that the watch has shown it. After the answer the API server
binds the pod to the first node of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tests.tools.bench.bare_echo import BareEcho
from tests.tools.bench.child_process import Child
from tests.tools.bench.cluster import PodId, RequestMaker, SyntheticCluster
from tests.tools.bench.http_connection import Connection
from tests.tools.bench.results import Figures, Times, milliseconds
from tests.tools.bench.scenario import Point

_WARM_UP: Final = 50
_NOTHING: Final = b"[]"
_AHEAD: Final = 20  # pods that are created before the request for them
_BESIDE: Final = 500  # requests beside the bare echo, at most
_QUIET_SECONDS: Final = 0.05


@dataclass(slots=True)
class RemotePlayer:
    """Sends requests to the service's three addresses: the real one, the echo of as many names, the echo of all."""

    cluster: SyntheticCluster
    api_server: Child
    service: Child
    real: Connection
    echo: Connection
    echo_all: Connection
    requested: int = 0
    created: int = 0
    echo_counts: tuple[int, int] = (-1, -1)

    @classmethod
    @contextmanager
    def connected(
        cls, cluster: SyntheticCluster, api_server: Child, service: Child, addresses: Mapping[str, str]
    ) -> Iterator[RemotePlayer]:
        """A player with connections to the addresses `real`, `echo` and `echoAll`."""
        with ExitStack() as stack:
            real, echo, echo_all = (
                stack.enter_context(closing(Connection(addresses[name]))) for name in ("real", "echo", "echoAll")
            )
            yield cls(cluster, api_server, service, real, echo, echo_all)

    def play(self, point: Point) -> Figures:
        """Sends as many requests as the scenario has, after a few that do not count."""
        self.request(point, _WARM_UP)
        return self.request(point, self.cluster.load.scenario.requests.count).figures()

    def request(self, point: Point, count: int) -> Times:
        """Sends so many requests, at most at the scenario's rate per second."""
        times = Times()
        for requests in self._paced(point, count):
            self._request(requests, times)
        return times

    def play_beside(self, point: Point, echo: BareEcho) -> Figures:
        """Sends requests for filter to the service and to the bare echo, in turns and without other events.

        `pod.cpu` is the processor time of the service for one pod: the answer, and the events of creating it, of binding it and
        of deleting an older one (and 200 beats of the bench a second). `bareEcho.cpu` is that of the echo for the same request.
        `toWin.cpu` is the difference.
        """
        count = min(self.cluster.load.scenario.requests.count, _BESIDE)
        times, echoed, kinds = list[int](), list[int](), list[int]()
        names = 1
        self._await_events()
        used, used_by_echo = self.service.call("processor"), echo.process.call("processor")
        for number, requests in enumerate(self._paced(point, count)):
            pod = self._next_pod()
            body = requests.filter_body(pod)
            # The first of the two in one request and in the next: the first request after a pause is slow.
            if number % 2:
                echoed.append(echo.post(body, names))
            answer, took = self.real.post("/filter", body)
            passed: list[str] = orjson.loads(answer)["NodeNames"] or []
            names = len(passed)
            times.append(took)
            kinds.append(names)
            if not number % 2:
                echoed.append(echo.post(body, names))
            if passed:
                self.api_server.notify("place", pod, passed[0])
            else:
                self.api_server.notify("drop", pod)
        self._await_events()
        cpu = (self.service.call("processor") - used) / count * 1000
        echo_cpu = (echo.process.call("processor") - used_by_echo) / count * 1000
        found = milliseconds(times, "beside") | milliseconds(echoed, "bareEcho")
        found |= {"pod.cpu": cpu, "bareEcho.cpu": echo_cpu, "toWin.cpu": cpu - echo_cpu}
        return found | {"oneNameShare": kinds.count(1) / count}

    def _paced(self, point: Point, count: int) -> Iterator[RequestMaker]:
        """Yields the maker of requests so many times, at most at the scenario's rate per second."""
        per_second = self.cluster.load.scenario.requests.per_second
        requests = RequestMaker(self.cluster, point.names, self.cluster.load.scenario.seed + self.requested)
        due = time.perf_counter()
        for _ in range(count):
            yield requests
            # At most a second is caught up, so that a slow phase is not followed by a burst.
            due = max(due + (1 / per_second if per_second else 0.0), time.perf_counter() - 1)
            time.sleep(max(0.0, due - time.perf_counter()))

    def _await_events(self) -> None:
        """Waits until the service has handled each event of a pod so far."""
        seen, before = self.events(), -1
        while seen != before:
            time.sleep(_QUIET_SECONDS)
            seen, before = self.events(), seen

    def play_first(self, point: Point) -> Figures:
        """Sends one request for each selector, which measures requests with new constraints."""
        load = self.cluster.load
        requests, times = RequestMaker(self.cluster, point.names, load.scenario.seed), Times()
        for _ in range(max(load.selectors, load.scenario.template.turns)):
            self._request(requests, times)
        return milliseconds([*times.filter, *times.rejected], "first")

    def events(self, kind: str = "pods") -> int:
        """How many events of a kind the service has handled."""
        return int(self.service.call("watched", kind)[0])

    def relists(self) -> int:
        """How many later lists of pods the service has made."""
        return int(self.service.call("watched", "pods")[1])

    def _request(self, requests: RequestMaker, times: Times) -> None:
        """One request and its echoes. The pod is bound afterwards, because its events would delay the next request."""
        pod = self._next_pod()
        body = requests.filter_body(pod)
        self.echo_all.post("/filter", body)  # the first request after a pause is slow, also without a decision
        answer, took = self.real.post("/filter", body)
        names: list[str] = orjson.loads(answer)["NodeNames"] or []
        if not names:
            times.rejected.append(took)
            self.api_server.notify("drop", pod)
            return
        times.filter.append(took)
        times.bytes_in += len(body)
        times.bytes_out += len(answer)
        self._set_echo(len(names), self._prioritize(requests, pod, names, times))
        times.echo.append(self.echo.post("/filter", body)[1])
        times.echo_all.append(self.echo_all.post("/filter", body)[1])
        self.api_server.notify("place", pod, names[0])

    def prepare(self, count: int) -> None:
        """Creates the pods of so many requests: the watch would show later ones after a burst only.

        Neither does kube-scheduler ask for a pod before its own watch shows it.
        """
        while self.created <= self.requested + count:
            self.api_server.notify("create", self.cluster.incoming_pod(self.created))
            self.created += 1

    def _next_pod(self) -> PodId:
        """The next incoming pod. Creates those after it."""
        self.prepare(_AHEAD)
        self.requested += 1
        return self.cluster.incoming_pod(self.requested - 1)

    def _prioritize(self, requests: RequestMaker, pod: PodId, names: list[str], times: Times) -> int:
        """Calls prioritize if several nodes passed, as the scheduler does. Returns the number of scores."""
        if len(names) == 1:
            return 0
        body = requests.prioritize_body(pod, names)
        answer, took = self.real.post("/prioritize", body)
        scores: list[Any] = [] if answer == _NOTHING else orjson.loads(answer)
        self._set_echo(len(names), len(scores))
        times.prioritize.append(took)
        times.prioritize_echo.append(self.echo.post("/prioritize", body)[1])
        return len(scores)

    def _set_echo(self, names: int, scores: int) -> None:
        """Lets the echo answer as many nodes as the real answer; calls the service only if that changes."""
        if self.echo_counts != (names, scores):
            self.echo_counts = (names, scores)
            self.service.call("echo", names, scores)
