"""One question after the other, in process: bytes in, decoded, decided, encoded, each part timed; and its echo.

The echo decodes the same bytes and answers without deciding: what remains of a real answer is our decision. Around
each question stand the watch events that it has in life: the pod is created, then bound to the node that the answer
named first, and another pod of the bench goes. So the counts change between any two questions.
"""

from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns, thread_time_ns

from extender.index.cluster import ClusterIndex
from extender.simulator.bench.measurement.service_probes import echo_filter, echo_scores
from extender.simulator.bench.measurement.subject import Decisions, apply
from extender.simulator.bench.reporting.figures import Figures, Times, milliseconds
from extender.simulator.bench.workload.cluster import SyntheticCluster
from extender.simulator.bench.workload.pods import PodId
from extender.simulator.bench.workload.scenario import Point
from extender.simulator.bench.workload.traffic import RequestMaker
from extender.wire.extender_v1 import decode_args, encode_filter, encode_priorities
from extender.wire.kinds import PODS

_WARM_UP = 50
_ALIVE = 200  # so many placed pods of the bench stand at a time


class Player:
    """Plays the questions of points against one loaded index."""

    def __init__(self, cluster: SyntheticCluster, index: ClusterIndex) -> None:
        self._cluster = cluster
        self._index = index
        self._asked = 0
        self._alive: deque[tuple[PodId, str, str]] = deque()

    def play(self, decisions: Decisions, point: Point) -> Figures:
        """Ask as many questions of one point as the scenario wants, after a few that are not counted."""
        scenario = self._cluster.load.scenario
        questions = RequestMaker(self._cluster, point.names, scenario.seed)
        for _ in range(_WARM_UP):
            self._ask(decisions, questions, Times())
        times = Times()
        for _ in range(scenario.asking.questions):
            self._ask(decisions, questions, times)
        return times.figures()

    def ask_first(self, decisions: Decisions) -> Figures:
        """Ask once for each selector: what a question costs that has never been asked before."""
        load = self._cluster.load
        questions, times = (
            RequestMaker(self._cluster, min(500, len(self._cluster.nodes)), load.scenario.seed),
            Times(),
        )
        for _ in range(max(load.selectors, load.scenario.template.turns)):
            self._ask(decisions, questions, times)
        return milliseconds([*times.filter, *times.rejected], "first")

    def _next_asker(self) -> PodId:
        self._asked += 1
        return self._cluster.incoming_pod(self._asked)

    def _ask(self, decisions: Decisions, questions: RequestMaker, times: Times) -> None:
        pod = self._next_asker()
        self._apply(self._cluster.writer.line("ADDED", "pending", pod), times)
        body = questions.filter_body(pod)
        passed = self._filter(decisions, body, times)
        if not passed:
            return
        self._echo(body, len(passed), times.echo)
        self._echo(body, None, times.echo_all)
        if len(passed) > 1:  # the scheduler does not ask where there is no choice
            self._prioritize(decisions, questions.prioritize_body(pod, passed), times)
        self._place(pod, passed[0], times)

    @staticmethod
    def _filter(decisions: Decisions, body: bytes, times: Times) -> Sequence[str]:
        used, started = thread_time_ns(), perf_counter_ns()
        args = decode_args(body)
        decoded = perf_counter_ns()
        result = decisions.filter(args)
        decided = perf_counter_ns()
        answer = encode_filter(result)
        encoded, own = perf_counter_ns(), thread_time_ns() - used
        if not result.passed:
            times.rejected.append(encoded - started)
            return ()
        times.decode.append(decoded - started)
        times.decide.append(decided - decoded)
        times.encode.append(encoded - decided)
        times.filter.append(encoded - started)
        times.own.append(own)
        times.bytes_in += len(body)
        times.bytes_out += len(answer)
        return result.passed

    @staticmethod
    def _echo(body: bytes, count: int | None, into: list[int]) -> None:
        """The same request answered with its first names, or with all of them."""
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
        """The pod is bound, and the oldest one of ours goes."""
        writer, zone = self._cluster.writer, self._cluster.zone_named(node)
        self._apply(writer.line("MODIFIED", "bound", pod, node, zone), times)
        self._alive.append((pod, node, zone))
        if len(self._alive) > _ALIVE:
            self._apply(writer.line("DELETED", "ending", *self._alive.popleft()), times)

    def _apply(self, line: bytes, times: Times) -> None:
        """One watch line decoded and applied."""
        started = perf_counter_ns()
        apply(self._index, PODS.decode_event(line))
        times.event.append(perf_counter_ns() - started)
