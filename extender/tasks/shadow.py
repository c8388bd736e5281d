"""Compares decisions of kube-scheduler's own plugins with the decisions that offload would make.

With `shadow: true` the scheduler's plugins decide. Each filter request, and each condition of an unschedulable pod, is judged
as offload would decide it (`verbs/shadow.py`). The judgement follows the answer: one between two requests, in at most a tenth
of the loop's time. What exceeds that is skipped and counted.

When does a rejected node differ? The scheduler decided by the state that it had seen when it began with the pod. The index has
another state, because its watches lag or lead. So a node that our rules reject is judged again:

1. in the states of the two seconds before, by undoing the changes since then;
2. in the states that follow, until a second after the outcome is seen. The events that the scheduler knew were written before
   the outcome, so all of them are shown by then;
3. if the node passes in any of these states, a late watch explains the difference;
4. nodes, namespaces and workloads have watches of their own: a change in that time explains the difference too, if the rules
   of the pod may depend on it.

A condition is written again only if it changes. So a condition that our rules count otherwise is compared again after each
change. It differs if it still does after a while without changes.

What proves a difference? A request is only a claim of its sender:

1. A request counts as compared when the API server shows an outcome: the pod bound, or its condition changed.
2. A difference is confirmed only by the outcome, because the scheduler wrote it with its own credentials: the pod is bound to
   a node that we reject, or the condition counts otherwise.
3. A difference that only a request shows is unproven, and listed as unproven.
4. If a request of a pod was skipped, the pod counts only if it differs: the skipped request may have been the scheduler's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.kube.timing import Clock
from extender.model.answers.shadow import (
    COMPARED,
    DIFFERING,
    RESULTS,
    Result,
    RuleFigures,
    ShadowDifference,
    ShadowPage,
    Source,
)
from extender.model.objects import Namespace, Node, Object, Pod, Workload
from extender.model.rejections import Reason, Rejection
from extender.rules.catalog import dependencies, replaced_plugins
from extender.tasks.reflectors import ObjectIndex
from extender.tasks.sliced_work import Traffic
from extender.verbs.shadow import (
    LIMITS,
    RULE_OF_REASON,
    Compared,
    PodChange,
    ReasonFrequency,
    Said,
    is_comparable,
    judge_message,
    judge_request,
    read_message,
    rejected_before,
    shadow_compiled,
    still_rejected,
)
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

MOST_DIFFERENCES: Final = 200
_MOST_REQUESTS: Final = 16  # that wait to be judged; the newest first, by the state that it was decided in
_MOST_WAITING_CONDITIONS: Final = 1_000
_MOST_OPEN: Final = 10_000
_MOST_PLACES: Final = 10_000  # of undetermined pods: 10 ms
_MOST_CHANGES: Final = 4_096
_LONGEST_QUEUE: Final = 0.25  # seconds that a request waits; later the state would be another one
_EARLIER: Final = 2.0
_GRACE: Final = 1.0  # after the outcome, for the other watches
_OUTCOME_WITHIN: Final = 60.0
_PAUSE: Final = 0.01
_TICK: Final = 0.1
_PAUSES: Final = 9  # times as long as a judgement took
_QUIET: Final = 15.0  # longer than the scheduler's longest back-off
_CONDITION_WITHIN: Final = 600.0
_LONGEST_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that is to be judged, with the bytes of no name kept for longer."""

    time: float
    uid: str
    names: list[str]


@dataclass(slots=True)
class _Open:
    """A request that is judged and has no outcome yet. ``rejected``: nodes that differ in every state so far."""

    pod: Pod
    time: float
    wall: float
    rules: tuple[str, ...]
    rejected: dict[str, Rejection]
    more: int
    result: Result
    version: object = None
    requests: int = 1
    seen: float | None = None  # when the outcome was
    node: str = ""


@dataclass(slots=True)
class _Condition:
    """A condition that our rules count otherwise. ``since``: when what it depends on changed last."""

    pod: Pod
    said: Said
    time: float
    wall: float
    rules: tuple[str, ...] = ()
    differing: tuple[ReasonFrequency, ...] = ()
    version: object = None
    since: float = 0.0


@dataclass(slots=True)
class Shadow:
    """The shadow decisions of one service. It gets each object before the index, and each request with its answer.

    ``decisions`` counts by source and result, ``rules`` by rule and result. ``seconds``: used of the event loop.
    """

    index: ClusterIndex
    sink: ObjectIndex
    clock: Clock
    now: Callable[[], float]
    traffic: Traffic
    decisions: Counter[tuple[str, str]] = field(init=False)
    rules: Counter[tuple[str, str]] = field(init=False)
    seconds: float = 0.0
    _differences: deque[ShadowDifference] = field(default_factory=lambda: deque(maxlen=MOST_DIFFERENCES))
    _requests: deque[_Asked] = field(default_factory=deque)
    _said: deque[_Condition] = field(default_factory=deque)
    _open: dict[str, _Open] = field(default_factory=dict)
    _skipped: dict[str, None] = field(default_factory=dict)
    _conditions: dict[str, _Condition] = field(default_factory=dict)
    _changes: deque[PodChange] = field(default_factory=lambda: deque(maxlen=_MOST_CHANGES))
    _others: deque[tuple[float, Object | None, Object]] = field(default_factory=lambda: deque(maxlen=_MOST_CHANGES))
    _is_running: bool = False

    def __post_init__(self) -> None:
        sources: tuple[Source, ...] = ("request", "condition")
        self.decisions = Counter(dict.fromkeys(((source, result) for source in sources for result in RESULTS), 0))
        self.rules = Counter(dict.fromkeys(((rule, result) for rule in _RULES for result in COMPARED), 0))

    # -- what is noted, in O(1) ------------------------------------------------------------------------------------------

    def note_request(self, args: ExtenderArgs, result: FilterResult) -> None:
        """Records an answered request. A request without a decision shows nothing."""
        if result.error or not self._is_running:
            return
        names = args.node_names if args.nodes is None else [node.name for node in args.nodes]
        if names:
            if len(self._requests) >= _MOST_REQUESTS:
                self._skip(self._requests.popleft())
            self._requests.append(_Asked(self.clock.now(), args.pod.uid, names))

    def _skip(self, asked: _Asked) -> None:
        self._count("request", "skipped")
        self._skipped[asked.uid] = None
        if len(self._skipped) > _MOST_OPEN:
            del self._skipped[next(iter(self._skipped))]

    def beside(
        self, decide: Callable[[ExtenderArgs], Awaitable[FilterResult]]
    ) -> Callable[[ExtenderArgs], Awaitable[FilterResult]]:
        """Wraps a filter: the same answers, and each request is recorded."""

        async def noted(args: ExtenderArgs) -> FilterResult:
            result = await decide(args)
            self.note_request(args, result)
            return result

        return noted

    def upsert(self, obj: Object) -> bool:
        """Passes an object on, and records the change if decisions depend on it."""
        if not isinstance(obj, Pod):
            return self._pass_on(self.sink.upsert, obj)
        # Read before the change, which replaces the pod and may end its assumption.
        old, assumed = self.index.pods.get(obj.uid), self.index.assumed.held.get(obj.uid)
        changed = self.sink.upsert(obj)
        if changed and self._is_running:
            answered = inf if assumed is None or not assumed.answered else assumed.since
            self._note_pod(old, None if obj.finished else obj, answered)
        return changed

    def delete(self, obj: Object) -> bool:
        """As `upsert`, for a deletion."""
        if not isinstance(obj, Pod):
            return self._pass_on(self.sink.delete, obj)
        old = self.index.pods.get(obj.uid)
        changed = self.sink.delete(obj)
        if changed and self._is_running:
            self._note_pod(old, None, inf)
        return changed

    def _pass_on(self, change: Callable[[Object], bool], obj: Object) -> bool:
        view = self.index.view
        old: Object | None = None
        if isinstance(obj, Node) and (number := view.known.get(obj.name)) is not None:
            old = view.node(number)
        elif isinstance(obj, Namespace):
            old = view.namespaces.get(obj.name)
        changed = change(obj)
        if changed and self._is_running and isinstance(obj, Node | Namespace | Workload):
            self._others.append((self.clock.now(), old, obj))
        return changed

    def _note_pod(self, old: Pod | None, new: Pod | None, answered: float) -> None:
        before, after = (None if pod is None or not pod.node else pod for pod in (old, new))
        if before is not after and (before is None or after is None or _counts_otherwise(before, after)):
            self._changes.append(PodChange(self.clock.now(), before, after, answered))
        if new is None or new.node or old is None or new.rejection == old.rejection:
            return
        said = read_message(new.rejection)
        if said is not None:
            if len(self._said) >= _MOST_WAITING_CONDITIONS:
                self._said.popleft()
                self._count("condition", "skipped")
            self._said.append(_Condition(new, said, self.clock.now(), self.now()))

    # -- what is judged, later -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Judges until cancelled. What is open then is forgotten."""
        self._is_running = True
        reviewed = self.clock.now()
        try:
            while True:
                await self.clock.sleep(_PAUSE)
                await self._judge_waiting()
                if self.clock.now() - reviewed >= _TICK:
                    await self._review_requests()
                    await self._review_conditions()
                    reviewed = self.clock.now()
        finally:
            self._is_running = False
            noted = (self._requests, self._said, self._changes, self._others)
            for held in (*noted, self._open, self._conditions, self._skipped):
                held.clear()

    async def _judge_waiting(self) -> None:
        """Judges the requests that wait now, and one condition. Requests that come meanwhile are left to the next call."""
        for _ in range(_MOST_REQUESTS):
            if not self._requests:
                break
            await self.traffic.gap()
            asked = self._requests.pop()
            if self.clock.now() - asked.time > _LONGEST_QUEUE:
                self._skip(asked)
            else:
                await self._timed(partial(self._judge, asked))
        if self._said:
            condition = self._said.popleft()
            self._conditions.pop(condition.pod.uid, None)  # what the scheduler said before is not true any more
            await self._compare(condition, is_first=True)

    async def _timed(self, step: Callable[[], None]) -> None:
        """Does a step, and leaves the loop to others for nine times as long."""
        begun = self.clock.now()
        step()
        used = self.clock.now() - begun
        self.seconds += used
        await self.clock.sleep(used * _PAUSES)

    def _judge(self, asked: _Asked) -> None:
        pod = self.index.pods.get(asked.uid)
        if pod is None:
            self._count("request", "unconfirmed")
            return
        if not self._may_judge(pod):
            self._skip(asked)
            return
        with self._apart(pod):
            judged = judge_request(pod, asked.names, self.index.view)
            if not judged.rules:
                self._count("request", "unconstrained")
                return
            # Among assumed pods that count, the order in which the scheduler placed them is not certain either.
            left = set() if judged.is_assumed else set(judged.rejected)
            if left and LIMITS not in judged.rules:
                left = rejected_before(pod, left, self._unknown_to_scheduler(pod, asked.time), self.index.view)
        is_late = len(left) < len(judged.rejected)
        result: Result = "assumed" if judged.is_assumed else "late" if is_late else "agreed"
        rejected = {name: judged.rejected[name] for name in judged.rejected if name in left}
        request = _Open(pod, asked.time, self.now(), judged.rules, rejected, judged.more if left else 0, result)
        before = self._open.pop(asked.uid, None)
        if before is not None and before.seen is None:  # one outcome will follow for both requests
            request.requests += before.requests
            request.rejected = before.rejected | request.rejected
        self._open[asked.uid] = request
        if len(self._open) > _MOST_OPEN:
            self._close(next(iter(self._open)), "unconfirmed")

    def _unknown_to_scheduler(self, pod: Pod, asked: float) -> Iterator[PodChange]:
        """The changes that the scheduler may not have seen when it began with a pod, the last one first.

        A pod that the same scheduler had asked about before was in its cache, also before it was bound. A pod that counts on
        a node since a later answer was not, although the watch has not shown it bound yet.
        """
        for held in self.index.assumed.held.values():
            is_later = held.since >= asked or (held.pod.scheduler != pod.scheduler and held.since >= asked - _EARLIER)
            if held.pod.node and is_later:
                yield PodChange(held.since, None, held.pod, held.since)
        for change in reversed(self._changes):
            if change.time < asked - _EARLIER:
                return
            if change.answered >= asked or change.new is None or change.new.scheduler != pod.scheduler:
                yield change

    def _may_judge(self, pod: Pod) -> bool:
        """Whether the pod is comparable, its judgement is short, and it is not being bound right now. O(assumed pods)."""
        assumed = self.index.assumed
        places = 0
        if assumed.several or assumed.doubted:  # each judgement looks at all nodes that they may be on
            places = sum([len(held.nodes) for held in assumed.held.values() if not held.pod.node])
        if places > _MOST_PLACES or pod.uid in assumed.binding:
            return False
        return is_comparable(pod, self.index.view, has_policy_terms=self.index.counts.has_policy_terms)

    @contextmanager
    def _apart(self, pod: Pod) -> Iterator[None]:
        """Inside the block the pod itself does not count: not on its node, and not on nodes where it is assumed."""
        view, assumed = self.index.view, self.index.assumed
        shadow_compiled(pod, view)
        held = assumed.held.get(pod.uid)
        counted = pod if held is None else held.pod
        if held is not None and not counted.node:
            # It may be on several nodes. A trial cannot take such a pod, so results that were cached before end.
            with assumed.apart(pod.uid):
                yield
        else:
            with view.trial() as trial:
                if counted.node:
                    trial.take(counted)
                yield

    async def _review_requests(self) -> None:
        """Looks for outcomes, and judges differing requests again. O(open requests), and a judgement for each differing one."""
        now = self.clock.now()
        for uid, request in list(self._open.items()):
            pod = self.index.pods.get(uid)
            if request.seen is None:
                if pod is None or pod.terminating:
                    self._close(uid, "unconfirmed")
                    continue
                if pod.node or pod.rejection != request.pod.rejection:
                    request.seen, request.node = now, pod.node
                elif now - request.time > _OUTCOME_WITHIN:
                    self._close(uid, "unproven" if request.rejected else "unconfirmed")
                    continue
            if request.rejected and pod is not None:
                await self._timed(partial(self._judge_again, request))
            if request.seen is not None and (not request.rejected or pod is None or now - request.seen >= _GRACE):
                self._close(uid)

    def _judge_again(self, request: _Open) -> None:
        pod = self.index.pods.get(request.pod.uid)
        version = self._version(request.pod), self.index.assumed.several
        if pod is None or version == request.version or not self._may_judge(pod) or LIMITS in request.rules:
            return
        request.version = version
        with self._apart(pod):
            if (
                request.more and pod.node and pod.node not in request.rejected
            ):  # perhaps rejected, beyond the followed nodes
                request.rejected |= judge_request(request.pod, (pod.node,), self.index.view).rejected
                request.more = 0
            left = still_rejected(request.pod, request.rejected, self.index.view)
        if len(left) < len(request.rejected):
            request.rejected = {name: why for name, why in request.rejected.items() if name in left}
            request.result = "late"

    def _version(self, pod: Pod) -> object:
        view = self.index.view
        return dependencies(pod, shadow_compiled(pod, view), view)

    def _close(self, uid: str, result: Result | None = None) -> None:
        """Counts a request by its outcome."""
        request = self._open.pop(uid)
        if result is None and request.rejected:
            since = request.time - _EARLIER
            is_explained = any(time >= since and _may_explain(request, old, new) for time, old, new in self._others)
            result = "late" if is_explained else "differed" if request.node in request.rejected else "unproven"
        result = result or request.result
        if uid in self._skipped:
            del self._skipped[uid]
            result = result if result in DIFFERING else "unconfirmed"
        self._count("request", result)
        if result not in COMPARED:
            return
        blamed = {rejection.rule for rejection in request.rejected.values()} if result in DIFFERING else set()
        # With a blamed rule all other rules agreed; without one every rule has the result.
        for rule in request.rules:
            self.rules[rule, result if rule in blamed or not blamed else "agreed"] += 1
        if blamed:
            # The node that the pod was bound to proves most, so it is listed if it was rejected.
            names = sorted(request.rejected, key=lambda name: name != request.node)
            for name in names[:1]:
                self._differences.append(
                    _difference(request, name, request.rejected[name], confirmed=result == "differed")
                )

    async def _compare(self, condition: _Condition, *, is_first: bool = False, is_last: bool = False) -> None:
        """Compares a condition with our counts of now, in slices. ``is_last``: nothing has changed for long."""
        pod = condition.pod
        if pod.signature.excess is not None or not self._may_judge(pod):
            self._count("condition", "skipped")
            return
        condition.version, condition.since = self._version(pod), self.clock.now()
        compared = None
        if condition.said.nodes == len(self.index.view.known) and pod.uid not in self.index.assumed.held:
            compared = await self._count_nodes(condition)
        if compared is None:
            condition.version = None  # soon again
        else:
            condition.rules, condition.differing = compared
            if not condition.rules:
                self._count("condition", "unconstrained")
                return
            if not condition.differing:
                self._count_condition(condition, "agreed" if is_first else "late")
                return
            if is_last:
                self._count_condition(condition, "differed")
                return
        if self._says_so(condition):
            self._conditions[pod.uid] = condition
            if len(self._conditions) > _MOST_OPEN:
                del self._conditions[next(iter(self._conditions))]
                self._count("condition", "unconfirmed")
        else:
            self._count("condition", "unconfirmed")

    async def _count_nodes(self, condition: _Condition) -> Compared:
        work = judge_message(condition.pod, condition.said, self.index.view)
        try:
            while True:
                begun = self.clock.now()
                try:
                    next(work)
                finally:
                    used = self.clock.now() - begun
                    self.seconds += used
                await self.clock.sleep(used * _PAUSES)
        except StopIteration as end:
            compared: Compared = end.value
            return compared

    def _says_so(self, condition: _Condition) -> bool:
        """Whether the watch still shows the condition, of a pod without a node."""
        pod = self.index.pods.get(condition.pod.uid)
        return pod is not None and not pod.node and pod.rejection == condition.pod.rejection

    async def _review_conditions(self) -> None:
        now = self.clock.now()
        for uid, condition in list(self._conditions.items()):
            if not self._says_so(condition) or now - condition.time >= _CONDITION_WITHIN:
                del self._conditions[uid]
                self._count("condition", "unconfirmed")
            elif self._version(condition.pod) != condition.version:
                del self._conditions[uid]
                await self._compare(condition)
            elif now - condition.since >= _QUIET and condition.differing:
                del self._conditions[uid]
                await self._compare(condition, is_last=True)

    def _count_condition(self, condition: _Condition, result: Result) -> None:
        self._count("condition", result)
        blamed = (
            {RULE_OF_REASON[differing.reason] for differing in condition.differing} if result == "differed" else set()
        )
        for rule in dict.fromkeys((*condition.rules, *blamed)):
            self.rules[rule, result if rule in blamed or not blamed else "agreed"] += 1
        for differing in condition.differing if blamed else ():
            self._differences.append(_miscounted(condition, differing))

    def _count(self, source: Source, result: Result) -> None:
        self.decisions[source, result] += 1

    def page(self, limit: int) -> ShadowPage:
        """The figures, and the last differences, the latest first. O(differences)."""
        rules = tuple(
            RuleFigures(rule=rule, **{result: self.rules[rule, result] for result in COMPARED}) for rule in _RULES
        )
        of_result: dict[str, int] = {
            result: sum(self.decisions[source, result] for source in _SOURCES) for result in RESULTS
        }
        return ShadowPage(
            compared=sum(of_result[result] for result in COMPARED),
            differ=of_result["differed"] + of_result["unproven"],
            open=len(self._open) + len(self._conditions) + len(self._requests) + len(self._said),
            decisions=of_result,
            rules=rules,
            differences=tuple(list(reversed(self._differences))[:limit]),
        )


_SOURCES: Final = ("request", "condition")
_AFFINITY: Final = RULE_OF_REASON[Reason.AFFINITY]
_SPREAD: Final = RULE_OF_REASON[Reason.SPREAD_SKEW]
_RULES: Final = (*(name for name, _ in replaced_plugins()), LIMITS)


def _may_explain(request: _Open, old: Object | None, new: Object) -> bool:
    """Whether the rules of the pod may depend on this change of a Node, Namespace or Workload. A new Namespace has no pods."""
    if isinstance(new, Workload):
        is_default = not request.pod.signature.spread.own and _SPREAD in request.rules
        return is_default and new.namespace == request.pod.namespace
    if isinstance(new, Namespace):
        return old is not None and _AFFINITY in request.rules
    if isinstance(old, Node) and isinstance(new, Node):
        return old.labels != new.labels or old.taints != new.taints
    return _SPREAD in request.rules


def _counts_otherwise(before: Pod, after: Pod) -> bool:
    """Whether other groups may count a placed pod after a change of it."""
    return before.signature is not after.signature or before.terminating != after.terminating


def _difference(request: _Open, node: str, why: Rejection, *, confirmed: bool) -> ShadowDifference:
    return ShadowDifference(
        time=round(request.wall, 3),
        source="request",
        namespace=request.pod.namespace,
        pod=request.pod.name,
        uid=request.pod.uid,
        confirmed=confirmed,
        rule=why.rule,
        reason=why.reason.label,
        text=why.text[:_LONGEST_TEXT],
        node=node,
        nodes=len(request.rejected) + request.more,
        bound_to=request.node,
        requests=request.requests,
        topology_key=why.topology_key,
        domain=why.domain,
        count=why.count,
        limit=why.limit,
        minimum=why.minimum,
        max_skew=why.max_skew,
        blamed=why.blamed,
    )


def _miscounted(condition: _Condition, reason: ReasonFrequency) -> ShadowDifference:
    return ShadowDifference(
        time=round(condition.wall, 3),
        source="condition",
        namespace=condition.pod.namespace,
        pod=condition.pod.name,
        uid=condition.pod.uid,
        confirmed=True,
        rule=RULE_OF_REASON[reason.reason],
        reason=reason.reason.label,
        text=reason.reason.text,
        node=reason.nodes[0] if reason.nodes else "",
        nodes=reason.often,
        least=reason.least,
        most=reason.most,
    )
