"""Runs requests in process one after the other, each also as an echo, and times decoding, decision and encoding.

The echo decodes the same bytes and answers without a decision, so the difference is the cost of the decision. The watch
events of a real cluster come with each request: the pod is created, then bound to the first node of the answer, and an
older pod is deleted. So the counts change between two requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns, thread_time_ns

from extender.index.cluster import ClusterIndex
from extender.wire.extender_v1 import decode_args, encode_filter, encode_priorities
from extender.wire.objects.kinds import PODS
from tests.tools.bench.cluster import PodId, RequestMaker, SyntheticCluster
from tests.tools.bench.results import Figures, Times, milliseconds, quantile
from tests.tools.bench.scenario import Point
from tests.tools.bench.subject import Decisions, apply, echo_filter, echo_scores

_WARM_UP = 50
_ALIVE = 200  # placed pods that exist at a time


class Player:
    """Runs the requests of points on one loaded index."""

    def __init__(self, cluster: SyntheticCluster, index: ClusterIndex) -> None:
        self._cluster = cluster
        self.index = index
        self._requested = 0
        self._alive: deque[tuple[PodId, str, str]] = deque()

    def play(self, decisions: Decisions, point: Point) -> Figures:
        """Runs as many requests of one point as the scenario has, after a few that do not count."""
        requests, times = self._requests(point), Times()
        for _ in range(_WARM_UP):
            self._request(decisions, requests, Times())
        for _ in range(self._cluster.load.scenario.requests.count):
            self._request(decisions, requests, times)
        return times.figures()

    def play_in_turns(self, decisions: Decisions, control: Player, its: Decisions, point: Point) -> Figures:
        """Runs the requests in turns with those of a control: `ofControl.x` is how many times its median of `x` this one's is.

        In turns, as a machine that others use is twice as slow in one second as in the next, by processor time too.
        """
        mine, other = self._requests(point), control._requests(point)
        times, its_times = Times(), Times()
        for number in range(_WARM_UP + self._cluster.load.scenario.requests.count):
            is_warm = number >= _WARM_UP
            self._request(decisions, mine, times if is_warm else Times())
            control._request(its, other, its_times if is_warm else Times())
        parts = {"cpu", "filter", "decide", "event"}
        return {f"ofControl.{each}": _median(times, each) / _median(its_times, each) for each in sorted(parts)}

    def _requests(self, point: Point) -> RequestMaker:
        return RequestMaker(self._cluster, point.names, self._cluster.load.scenario.seed)

    def play_first(self, decisions: Decisions) -> Figures:
        """Runs one request for each selector, which measures requests with new constraints."""
        load = self._cluster.load
        requests, times = (
            RequestMaker(self._cluster, min(500, len(self._cluster.nodes)), load.scenario.seed),
            Times(),
        )
        for _ in range(max(load.selectors, load.scenario.template.turns)):
            self._request(decisions, requests, times)
        return milliseconds([*times.filter, *times.rejected], "first")

    def _next_pod(self) -> PodId:
        self._requested += 1
        return self._cluster.incoming_pod(self._requested)

    def _request(self, decisions: Decisions, requests: RequestMaker, times: Times) -> None:
        pod = self._next_pod()
        self._apply(self._cluster.writer.line("ADDED", "pending", pod), times)
        body = requests.filter_body(pod)
        passed = self._filter(decisions, body, times)
        if not passed:
            return
        self._echo(body, len(passed), times.echo)
        self._echo(body, None, times.echo_all)
        # A request for scores follows only where it would in a cluster.
        if len(passed) > 1:  # as the scheduler, which does not score a single node
            self._prioritize(decisions, requests.prioritize_body(pod, passed), times)
        self._place(pod, passed[0], times)

    @staticmethod
    def _filter(decisions: Decisions, body: bytes, times: Times) -> Sequence[str]:
        cpu_before, started = thread_time_ns(), perf_counter_ns()
        args = decode_args(body)
        decoded = perf_counter_ns()
        result = decisions.filter(args)
        decided = perf_counter_ns()
        answer = encode_filter(result)
        encoded, used = perf_counter_ns(), thread_time_ns() - cpu_before
        if not result.passed:
            times.rejected.append(encoded - started)
            return ()
        times.decode.append(decoded - started)
        times.decide.append(decided - decoded)
        times.encode.append(encoded - decided)
        times.filter.append(encoded - started)
        times.cpu.append(used)
        times.bytes_in += len(body)
        times.bytes_out += len(answer)
        return result.passed

    @staticmethod
    def _echo(body: bytes, count: int | None, into: list[int]) -> None:
        """Answers the request with its first names, or with all of them, without a decision."""
        started = perf_counter_ns()
        encode_filter(echo_filter(decode_args(body), count))
        into.append(perf_counter_ns() - started)

    @staticmethod
    def _prioritize(decisions: Decisions, body: bytes, times: Times) -> None:
        started = perf_counter_ns()
        scores = decisions.prioritize(decode_args(body))
        encode_priorities(scores)
        answered = perf_counter_ns()
        encode_priorities(echo_scores(decode_args(body), len(scores)))
        times.prioritize_echo.append(perf_counter_ns() - answered)
        times.prioritize.append(answered - started)

    def _place(self, pod: PodId, node: str, times: Times) -> None:
        """Binds the pod, and deletes the oldest placed pod."""
        writer, zone = self._cluster.writer, self._cluster.zone_named(node)
        self._apply(writer.line("MODIFIED", "bound", pod, node, zone), times)
        self._alive.append((pod, node, zone))
        if len(self._alive) > _ALIVE:
            self._apply(writer.line("DELETED", "terminating", *self._alive.popleft()), times)

    def _apply(self, line: bytes, times: Times) -> None:
        """Decodes and applies a watch line."""
        started = perf_counter_ns()
        apply(self.index, PODS.decode_event(line))
        times.event.append(perf_counter_ns() - started)


def _median(times: Times, name: str) -> int:
    found: list[int] = getattr(times, name)
    return quantile(found, 0.5)
