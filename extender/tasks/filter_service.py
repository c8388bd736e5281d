"""The filter service: waits for the assumed pods that a request depends on, calls the verb, assumes the pod, submits the plan.

The decision is about the pod as the watch shows it (`WatchedPods`). A request with whole nodes comes from a scheduler, whose
newest node the watch may not show yet, or from a tool such as an autoscaler, which invents nodes. Three cases:

1. The watch shows the pod and some of the nodes: a scheduler. The nodes count as the watch shows them. A node that it does
   not show yet is rejected, because no other pod would count a pod on it.
2. The watch shows the pod and none of the nodes: a tool that tries a node for a pending pod. The nodes count as they were
   sent. A scheduler sends this too, for a pod whose affinity names a new node. So the pod is assumed on the single node that
   passed, and counts there as soon as the watch shows the node.
3. The watch does not show the pod, nor some node: a what-if. It is decided as it was sent and changes nothing here.

Assumed pods:

1. A pod that passed is assumed at once, because the scheduler sends the next pod before the watch shows this one bound.
2. A second request for an assumed pod may be forged while the pod is on its way to the node of the first answer. So the answer
   is the same node again. If the request does not name that node, the pod counts on the old and on the new nodes. It leaves a
   node only when the node is rejected now.
3. A result may depend on assumed pods whose node is undetermined. The request waits until enough of them are bound or
   forgotten, at most ``wait`` seconds. After that the verb counts each of them on the node where it does most harm.
4. Scores may depend on such pods too. The request waits until they are bound, or until `_SCORED_SECONDS` after their answer.
   Without this wait the replicas of a Service would land in the same zone.
5. All other requests never wait.

``compose`` gives the service to the server; the decision itself is the verb's.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from random import Random
from typing import Final, Protocol

from msgspec.structs import replace

from extender.index.claims.assumed import Assumed, AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.kube.timing import Clock
from extender.model.objects import ON_ITS_WAY, Pod, PodSignature
from extender.model.policies import PolicyKey
from extender.model.preemption import PreemptionPlan
from extender.verbs.filter import FilterVerb
from extender.verbs.request import Unconfirmed, has_same_constraints, watched_pod
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_MOST_FAILED: Final = 10_000
_MOST_DIFFERENCES: Final = 32  # few, as each keeps the constraints of a request, which can be large


class WatchedPods:
    """Finds the pod of a request as the watch shows it, and waits a short time for a pod that the watch does not show yet.

    1. The watch does not show the pod: the watches of the scheduler and of the extender deliver a new pod at about the same
       time, in either order. The request waits, then gets an error, because a request alone does not prove that a pod exists.
    2. The watch shows the pod with other constraints: one of the two lags by an update. The request waits for the watch, then
       the watched pod is used. A pair of constraints for which a request waited in vain is not waited for again: the sender
       omits fields that it does not know, or the request is the older one.

    ``waits`` counts requests that waited. At most ``most_waiting`` requests wait at a time. Further requests get an error at
    once, so that requests for pods that do not exist cannot occupy all requests in flight.
    """

    def __init__(self, index: ClusterIndex, clock: Clock, wait: float, most_waiting: int) -> None:
        self.waits = 0
        self._rejections: Counter[Unconfirmed] = Counter(dict.fromkeys(Unconfirmed, 0))
        self._index = index
        self._clock = clock
        self._wait = wait
        self._most_waiting = most_waiting
        self._waiting = 0
        self._waited_in_vain: dict[tuple[PodSignature, PodSignature], None] = {}

    async def find(self, requested: Pod) -> Pod | Unconfirmed:
        """The pod of a request as the watch shows it, or why it is rejected. Waits if the next event may change the result."""
        shown = self.look_up(requested)
        if self._may_change(requested, shown) and self._waiting < self._most_waiting:
            await self._wait_for(requested)
            shown = self.look_up(requested)
            if isinstance(shown, Pod) and not has_same_constraints(requested.signature, shown.signature):
                self._remember(requested.signature, shown.signature)
        if isinstance(shown, Unconfirmed):
            self._rejections[shown] += 1
        return shown

    def look_up(self, requested: Pod) -> Pod | Unconfirmed:
        """As `find`, but does not wait and does not count. O(1)."""
        return watched_pod(requested.uid, requested.namespace, requested.name, self._index.view)

    def rejected(self) -> dict[str, float]:
        """How many requests were rejected, by reason."""
        return {why.name.lower(): count for why, count in self._rejections.items()}

    def _may_change(self, requested: Pod, shown: Pod | Unconfirmed) -> bool:
        if isinstance(shown, Unconfirmed):
            return shown.may_pass
        return (
            not has_same_constraints(requested.signature, shown.signature)
            and (requested.signature, shown.signature) not in self._waited_in_vain
        )

    def _remember(self, requested: PodSignature, shown: PodSignature) -> None:
        self._waited_in_vain[requested, shown] = None
        if len(self._waited_in_vain) > _MOST_DIFFERENCES:
            del self._waited_in_vain[next(iter(self._waited_in_vain))]

    async def _wait_for(self, requested: Pod) -> None:
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        deadline = self._clock.now() + self._wait
        self.waits += 1
        self._waiting += 1
        self._index.pod_changes.subscribe(requested.uid, wake)
        try:
            while self._may_change(requested, self.look_up(requested)) and (left := deadline - self._clock.now()) > 0:
                changed.clear()
                async with asyncio.timeout(left):
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._index.pod_changes.unsubscribe(requested.uid, wake)
            self._waiting -= 1


_REVIEW_SECONDS: Final = 0.25
_MOST_SCHEDULERS: Final = 32  # names that have a count of their own: pods may name any
OTHERS: Final = "(others)"
_MOST_PLACES: Final = 100  # nodes that a pod of several answers may be on; each keeps room for it
# A score that counts a pod answered so recently waits for its node: most bindings are seen within 10 ms. One that takes longer
# (a volume) is waited for once, and not by each request.
_SCORED_SECONDS: Final = 0.05
# A sleep that lasts so much longer than requested: the process or the machine was suspended.
_SUSPENDED_SECONDS: Final = 1.0

# An error: the scheduler retries with its back-off. To decide the pod elsewhere would give its room away while it may be bound.
_BEING_BOUND: Final = FilterResult((), error="cannot decide: the pod is being bound, or may be bound already")

# An error too: it is reported in the pod's condition, which shows that it was the scheduler that asked, and its attempt has failed.
_ON_ITS_WAY: Final = FilterResult((), error=f"cannot decide: {ON_ITS_WAY}")


class PlanTarget(Protocol):
    """Executes the plans that the verbs make: the manager of preemptions, or nothing."""

    def submit(self, plan: PreemptionPlan) -> bool:
        """Accepts a plan; False where one for the same pod is being executed."""

    def requeue(self, pod: Pod, node: str) -> None:
        """Requeues a pod for which no plan was possible, after a while."""


OnRejection = Callable[[ExtenderArgs], None]
OnMissed = Callable[[Pod, Sequence[PolicyKey]], None]


class SchedulerCounts:
    """Decisions by the name of the pod's scheduler and result. A name that comes after `_MOST_SCHEDULERS` others counts as (others).

    ``last``: by that name when the last decision was made, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.last: dict[str, float] = {}

    def asks(self, scheduler: str) -> bool:
        """Whether a scheduler has sent a request, as far as names are kept. O(1)."""
        return scheduler in self.last or OTHERS in self.last

    def record(self, scheduler: str, result: FilterResult, now: float) -> None:
        """Counts a decision. O(1)."""
        if scheduler not in self.last and len(self.last) >= _MOST_SCHEDULERS:
            scheduler = OTHERS
        self.last[scheduler] = now
        self.counts[scheduler, "error" if result.error else "passed" if result.passed else "rejected"] += 1


class ScheduledPods:
    """Reports each pod that passed here and was bound: the seconds since its creation, and the requests that it took.

    A pod is remembered only after a failed attempt. The last `_MOST_FAILED` are kept, because a pod may be deleted unbound.
    ``now``: Unix seconds.
    """

    def __init__(self, report: Callable[[float, int], None], now: Callable[[], float]) -> None:
        self._report = report
        self._now = now
        self._failed: dict[str, int] = {}

    def note_failed(self, uid: str) -> None:
        """An attempt to place the pod has failed. O(1)."""
        self._failed[uid] = self._failed.pop(uid, 0) + 1
        if len(self._failed) > _MOST_FAILED:
            del self._failed[next(iter(self._failed))]

    def take(self, bound: deque[Pod]) -> None:
        """Takes away the pods that were bound since the last call. O(pods)."""
        now = self._now()
        while bound:
            pod = bound.popleft()
            attempts = self._failed.pop(pod.uid, 0) + 1
            with suppress(ValueError):  # a pod without a creation time, or with one that no API server writes
                self._report(max(0.0, now - datetime.fromisoformat(pod.created).timestamp()), attempts)


@dataclass(frozen=True, slots=True)
class AssumedPodOptions:
    """Times in seconds.

    ``expiry``: how long an assumption lasts.
    ``wait``: how long a request waits at most.
    ``failure_grace``: how old an assumption must be before a report of failure ends it.
    ``doubt``: after this time without a confirmed binding the pod may also be on no node.
    """

    enabled: bool = True
    expiry: float = 120.0
    wait: float = 1.0
    failure_grace: float = 2.0
    doubt: float = 5.0


@dataclass(eq=False, slots=True)
class FilterService:
    """The filter verb with its effect on the assumed pods.

    Counters: ``requests``; ``waits``, requests that waited; ``given_up``, requests that waited in vain; ``waited``, seconds of
    waiting; ``decisions``, by scheduler.

    ``on_rejection`` is called after each result in which no node passed, ``on_missed`` once for a pod that admission missed.

    ``known_until``: the monotonic time up to which every pod event has been handled.
    """

    index: ClusterIndex
    pods: WatchedPods
    clock: Clock
    options: AssumedPodOptions
    verb: FilterVerb
    rng: Random
    plans: PlanTarget
    on_rejection: Sequence[OnRejection] = ()
    known_until: Callable[[], float] = lambda: inf
    on_missed: OnMissed = lambda _pod, _policies: None
    scheduled: ScheduledPods = field(
        default_factory=lambda: ScheduledPods(lambda _seconds, _attempts: None, lambda: 0.0)
    )
    decisions: SchedulerCounts = field(default_factory=SchedulerCounts)
    requests: int = field(default=0, init=False)
    waits: int = field(default=0, init=False)
    waited: float = field(default=0.0, init=False)
    given_up: int = field(default=0, init=False)

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Decides a request. A pod that is assumed on nodes that still pass gets these nodes again, or an error."""
        # Each await lets watch events and other requests in, so what was known before it is checked again after it.
        self.requests += 1
        pod = self._watched(args.pod)
        # 1. Nodes that the watch does not show (a simulation): no wait, and an existing assumption stays.
        if self._are_all_new(args):
            return self._answer_new_nodes(args, pod)
        # 2. An earlier answer let the pod pass: the same answer again, or an error. Otherwise that assumption ends, because the new
        #    request shows that the attempt failed. It ends before any wait, so that its room is free for other requests meanwhile.
        sent, args, previous = args, args.by_names(), None
        if isinstance(pod, Pod):
            if self.index.reserved.held:
                self.index.reserved.note_request(pod, self.clock.now())
            if (again := self._answer_again(args, pod)) is not None:
                return again
            previous = self.index.assumed.forget(pod.uid)
        # 3. The pod of the watch. Where request and watch differ, the watch may be behind: wait for it.
        if not isinstance(pod, Pod) or not has_same_constraints(args.pod.signature, pod.signature):
            pod = await self.pods.find(args.pod)
        if not isinstance(pod, Pod):
            return self._decide(sent) if self._has_new(sent) else _reject_for_now(pod)
        args = replace(args, pod=pod)
        # 4. Assumed pods whose nodes may change the answer: wait for them. The pod itself may be deleted or bound meanwhile.
        if self._may_wait(args):
            await self._wait(args)
            pod = self._watched(pod)
            if not isinstance(pod, Pod):
                return _reject_for_now(pod)
            args = replace(args, pod=pod)
        # 5. Another request about the pod may have been answered during the waits. From here to the assumption there is no await, so no
        #    other decision comes between.
        if (again := self._answer_again(args, pod)) is not None:
            return again
        previous = self.index.assumed.forget(pod.uid) or previous
        return self._answer(args, previous)

    def _answer_again(self, args: ExtenderArgs, pod: Pod) -> FilterResult | None:
        """The answer about a pod that an earlier answer let pass. None if no answer did, or if its nodes are rejected now.

        O((its nodes + names) × clauses).
        """
        # 1. A binding is in flight: an error, because any other answer could give the room away.
        # 2. No earlier answer, or every node of it is rejected now: None, and the request is decided anew.
        # 3. The request names a node of the earlier answer: the same node again, and the pod counts as before.
        # 4. The assumption is doubted, or the request names none of its nodes: other nodes that pass now. The pod then counts
        #    on the old and the new nodes, because the scheduler may fail on the old ones again and again.
        # 5. No node is left to offer, or the pod would count on more than `_MOST_PLACES` nodes: an error. The scheduler
        #    retries with its back-off, and the room of the pod is kept meanwhile.
        assumed = self.index.assumed
        if pod.uid in assumed.binding:
            return _BEING_BOUND
        held = assumed.held.get(pod.uid)
        if held is None or not held.answered:
            return None
        args = replace(args, pod=pod)
        with assumed.apart(pod.uid):
            left = self.verb.still_passing(ExtenderArgs(pod, list(held.nodes)))
            if not left:
                return None
            requested = set(args.node_names or ())
            result = FilterResult([] if held.doubted else [name for name in left if name in requested])
            others = self.verb.still_passing(args) if not result.passed else ()
            if others:  # else a preemption would be planned for a pod that may be on its way
                result = self._decide(args, left[0] if len(left) == 1 else "")
        if len({*left, *result.passed}) > max(_MOST_PLACES, len(left)) or not result.passed:
            result = _ON_ITS_WAY
        further = result.passed if others else ()
        assumed.note_attempt(pod.uid, self.clock.now(), passed=bool(result.passed), others=further)
        self.scheduled.note_failed(pod.uid)  # else the scheduler would not ask again
        self.decisions.record(pod.scheduler, result, self.clock.now())
        return result

    def _decide(self, args: ExtenderArgs, avoid: str = "") -> FilterResult:
        """The verb's answer; its plan is submitted before the answer is given."""
        decision = self.verb.decide(args, self.rng.getrandbits(32), avoid)
        if decision.plan is not None:
            self.plans.submit(decision.plan)
        if decision.missed and self.index.view.pod(args.pod.uid) is not None:
            self.on_missed(args.pod, decision.missed)
        return decision.result

    def _answer(self, args: ExtenderArgs, previous: Assumed | None) -> FilterResult:
        """Decides now and assumes the pod. ``previous`` is the earlier assumption of this pod."""
        avoid = previous.nodes[0] if previous is not None and len(previous.nodes) == 1 else ""
        result = self._decide(args, avoid)
        self.decisions.record(args.pod.scheduler, result, self.clock.now())
        if previous is not None and previous.answered:
            self.scheduled.note_failed(args.pod.uid)
        if not result.passed:
            self.scheduled.note_failed(args.pod.uid)
        if result.passed or result.error:
            if self.index.rejected.held:
                self.index.rejected.discard(args.pod.uid)
        else:
            self._notify_rejection(args)
        if result.passed and self.options.enabled:
            self.index.assume(args.pod, result.passed, self.clock.now())
        return result

    def _answer_new_nodes(self, args: ExtenderArgs, pod: Pod | Unconfirmed) -> FilterResult:
        """The answer about nodes that the watch does not show: the nodes count as they were sent.

        A pending pod is assumed if exactly one node passes and the pod is not assumed yet. An existing assumption stays, because
        the request of a tool does not prove that the last attempt of the scheduler failed.
        """
        if not isinstance(pod, Pod):
            return self._decide(args)
        result = self._decide(replace(args, pod=pod))
        is_free = pod.uid not in self.index.assumed.held
        if len(result.passed) == 1 and is_free and self.options.enabled:
            self.index.assume(pod, result.passed, self.clock.now())
        return result

    def _notify_rejection(self, args: ExtenderArgs) -> None:
        for call in self.on_rejection:
            call(args)

    def attempt_failed(self, requested: Pod) -> None:
        """Doubts the assumption of a pod whose request cannot be decided: if the scheduler sent it, its last attempt has failed."""
        pod = self._watched(requested)
        if isinstance(pod, Pod) and pod.uid in self.index.assumed.held and pod.uid not in self.index.assumed.binding:
            self.index.assumed.doubt(pod.uid)

    def _watched(self, requested: Pod) -> Pod | Unconfirmed:
        """The pod of a request as the watch shows it now. O(1)."""
        return watched_pod(requested.uid, requested.signature.namespace, requested.name, self.index.view)

    def _are_all_new(self, args: ExtenderArgs) -> bool:
        """Whether the request brings whole nodes, and none that the watch shows. O(nodes) at worst."""
        known = self.index.view.known
        return bool(args.nodes) and not any(node.name in known for node in args.nodes or ())

    def _has_new(self, args: ExtenderArgs) -> bool:
        """Whether the request brings whole nodes, and one that the watch does not show. O(nodes)."""
        known = self.index.view.known
        return args.nodes is not None and not all(node.name in known for node in args.nodes)

    def _may_wait(self, args: ExtenderArgs) -> bool:
        several = self.index.assumed.several > 0
        return several and self.verb.should_wait(args, self.clock.now() - _SCORED_SECONDS)

    async def _wait(self, args: ExtenderArgs) -> None:
        self.waits += 1
        begun, changed = self.clock.now(), asyncio.Event()

        def wake(_change: object) -> None:
            changed.set()

        # Subscribed only while a request waits: otherwise every watch event of an assumed pod would call this.
        self.index.assumed.changes.subscribe(wake)
        try:
            await self._wait_until(args, begun + self.options.wait, changed)
        finally:
            self.index.assumed.changes.unsubscribe(wake)
            self.waited += self.clock.now() - begun

    async def _wait_until(self, args: ExtenderArgs, deadline: float, changed: asyncio.Event) -> None:
        while self._may_wait(args):
            left = deadline - self.clock.now()
            if left <= 0:
                self.given_up += 1
                return
            changed.clear()
            try:
                async with asyncio.timeout(min(left, _SCORED_SECONDS)):
                    await changed.wait()
            except TimeoutError:
                continue

    async def run(self) -> None:
        """Ends assumptions that expired or failed, and doubts assumptions without a confirmed binding, until cancelled.

        Time in which the process was suspended does not count, because events of that time have not been read yet.
        """
        options = self.options
        limits = AssumptionTimeouts(options.expiry, options.failure_grace, options.doubt)
        known = self.known_until()
        while True:
            begun, known_before = self.clock.now(), known
            await self.clock.sleep(_REVIEW_SECONDS)
            now = self.clock.now()
            if (lost := now - begun - _REVIEW_SECONDS) >= _SUSPENDED_SECONDS:
                self.index.assumed.extend(lost)
                self.index.reserved.extend(lost, now)
            known = self.known_until()
            self.scheduled.take(self.index.assumed.bound)
            self.index.assumed.review(now, limits, known_before=known_before, known_until=known)


class WhatIfFilter:
    """The filter verb alone, for a service that follows no cluster: decides each request as it was sent, and changes nothing."""

    def __init__(self, verb: FilterVerb, rng: Random) -> None:
        self._verb = verb
        self._rng = rng

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Decides a request. The decision has no plan, as such a service only advises."""
        return self._verb.decide(args, self._rng.getrandbits(32)).result


def _reject_for_now(why: Unconfirmed) -> FilterResult:
    """An error result: after one the scheduler retries with its back-off, without waiting for a cluster event."""
    return FilterResult((), error=f"cannot decide: {why.text}")
