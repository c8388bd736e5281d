"""One question after the other over HTTP, each followed by its echo from the same server; figures as in process.

The pod of a question is pending before, as in life; the watch has time to show it. What the answer named first is told
to the plane, which binds the pod there, so that it comes back by the watch.
Called by `serving`.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.simulator.bench.measurement.child_process import Child
from extender.simulator.bench.measurement.http_connection import Connection
from extender.simulator.bench.reporting.figures import Figures, Times, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId
from extender.simulator.bench.workload.scenario import Point
from extender.simulator.bench.workload.traffic import RequestMaker

_WARM_UP: Final = 50
_NOTHING: Final = b"[]"
_AHEAD: Final = 20  # pods that are pending before their question


@dataclass(slots=True)
class RemotePlayer:
    """Asks the service at its three addresses: the real one, the echo of as many names, the echo of all."""

    cluster: SyntheticCluster
    plane: Child
    service: Child
    real: Connection
    echo: Connection
    echo_all: Connection
    asked: int = 0
    created: int = 0
    echo_counts: tuple[int, int] = (-1, -1)

    @classmethod
    @contextmanager
    def connected(
        cls, cluster: SyntheticCluster, plane: Child, service: Child, addresses: Mapping[str, str]
    ) -> Iterator["RemotePlayer"]:
        """With connections to the addresses `real`, `echo` and `echoAll`."""
        with ExitStack() as stack:
            real, echo, echo_all = (
                stack.enter_context(closing(Connection(addresses[name]))) for name in ("real", "echo", "echoAll")
            )
            yield cls(cluster, plane, service, real, echo, echo_all)

    def play(self, point: Point) -> Figures:
        """As many questions as the scenario wants, after a few that are not counted."""
        self.ask(point, _WARM_UP)
        return self.ask(point, self.cluster.load.scenario.asking.questions).figures()

    def ask(self, point: Point, count: int) -> Times:
        """So many questions, at most so many a second as the scenario says."""
        asking, times = self.cluster.load.scenario.asking, Times()
        questions = RequestMaker(self.cluster, point.names, self.cluster.load.scenario.seed + self.asked)
        due = time.perf_counter()
        for _ in range(count):
            self._ask(questions, times)
            due = max(due + (1 / asking.per_second if asking.per_second else 0.0), time.perf_counter() - 1)
            time.sleep(max(0.0, due - time.perf_counter()))
        return times

    def ask_first(self, point: Point) -> Figures:
        """Ask once for each selector: what a question costs that has never been asked before."""
        load = self.cluster.load
        questions, times = RequestMaker(self.cluster, point.names, load.scenario.seed), Times()
        for _ in range(max(load.selectors, load.scenario.template.turns)):
            self._ask(questions, times)
        return milliseconds([*times.filter, *times.rejected], "first")

    def counter(self, name: str) -> int:
        """What the service's metrics say of its feed of pods: `watch_events` or `relists`."""
        start = f'extender_{name}_total{{resource="pods"}} '
        lines = self.real.get("/metrics").decode().splitlines()
        return next((int(float(line.removeprefix(start))) for line in lines if line.startswith(start)), 0)

    def _ask(self, questions: RequestMaker, times: Times) -> None:
        """One question with its echoes. The pod is bound only then, as its events would hold up whatever comes next."""
        pod = self._next_asker()
        body = questions.filter_body(pod)
        self.echo_all.post("/filter", body)  # after a pause the first request is slow, with or without deciding
        answer, took = self.real.post("/filter", body)
        names: list[str] = orjson.loads(answer)["NodeNames"] or []
        if not names:
            times.rejected.append(took)
            self.plane.tell("drop", pod)
            return
        times.filter.append(took)
        times.bytes_in += len(body)
        times.bytes_out += len(answer)
        self._set_echo(len(names), self._prioritize(questions, pod, names, times))
        times.echo.append(self.echo.post("/filter", body)[1])
        times.echo_all.append(self.echo_all.post("/filter", body)[1])
        self.plane.tell("place", pod, names[0])

    def _next_asker(self) -> PodId:
        """The next pod; those after it are created meanwhile."""
        while self.created <= self.asked + _AHEAD:
            self.plane.tell("create", self.cluster.incoming_pod(self.created))
            self.created += 1
        self.asked += 1
        return self.cluster.incoming_pod(self.asked - 1)

    def _prioritize(self, questions: RequestMaker, pod: PodId, names: list[str], times: Times) -> int:
        """Ask for scores if there is a choice, as the scheduler does; gives how many came."""
        if len(names) == 1:
            return 0
        body = questions.prioritize_body(pod, names)
        answer, took = self.real.post("/prioritize", body)
        scores: list[Any] = [] if answer == _NOTHING else orjson.loads(answer)
        self._set_echo(len(names), len(scores))
        times.prioritize.append(took)
        times.prioritize_echo.append(self.echo.post("/prioritize", body)[1])
        return len(scores)

    def _set_echo(self, names: int, scores: int) -> None:
        """The echo names as many nodes as the real answer did; told only when that changes."""
        if self.echo_counts != (names, scores):
            self.echo_counts = (names, scores)
            self.service.call("echo", names, scores)
