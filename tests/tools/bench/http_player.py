"""Sends requests over HTTP one after the other, each also to the echo of the same server. Called by `over_http.py`.

The pod of a request is created some requests earlier, so that the watch has shown it. After the answer the API server
binds the pod to the first node of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.tools.bench.child_process import Child
from tests.tools.bench.cluster import PodId, RequestMaker, SyntheticCluster
from tests.tools.bench.results import Figures, Times, milliseconds
from tests.tools.bench.scenario import Point

_WARM_UP: Final = 50
_NOTHING: Final = b"[]"
_AHEAD: Final = 20  # pods that are created before the request for them


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
        settings, times = self.cluster.load.scenario.requests, Times()
        requests = RequestMaker(self.cluster, point.names, self.cluster.load.scenario.seed + self.requested)
        due = time.perf_counter()
        for _ in range(count):
            self._request(requests, times)
            # At most a second is caught up, so that a slow phase is not followed by a burst.
            due = max(due + (1 / settings.per_second if settings.per_second else 0.0), time.perf_counter() - 1)
            time.sleep(max(0.0, due - time.perf_counter()))
        return times

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


_CHUNK: Final = 1 << 18
_OK: Final = b"HTTP/1.1 200"
_TIMEOUT_SECONDS: Final = 60.0


class BadAnswer(Exception):  # noqa: N818 (names what came)
    """Raised for an answer that is not 200 or not complete."""


class Connection:
    """A connection to the base URL of a service."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._host = f"{parts.hostname}:{parts.port}"
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, path: str) -> bytes:
        """The body of the answer to a GET."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        return self._receive()

    def post(self, path: str, body: bytes) -> tuple[bytes, int]:
        """The body of the answer to a POST, and the nanoseconds from the first byte sent to the last byte received."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        request = head.encode() + body
        started = perf_counter_ns()
        self._socket.sendall(request)
        answer = self._receive()
        return answer, perf_counter_ns() - started

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        received = self._more(b"")
        while (end := received.find(b"\r\n\r\n")) < 0:
            received = self._more(received)
        head = received[:end].lower()
        if not received.startswith(_OK):
            raise BadAnswer(received.decode(errors="replace"))
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        whole = end + 4 + length
        while len(received) < whole:
            received = self._more(received)
        return received[end + 4 :]

    def _more(self, received: bytes) -> bytes:
        chunk = self._socket.recv(_CHUNK)
        if not chunk:
            raise BadAnswer(f"the connection was closed after {len(received)} bytes of an answer")
        return received + chunk
