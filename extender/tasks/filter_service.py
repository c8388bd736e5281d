"""The filter verb with its effects: waits for assumed pods, asks the verb, assumes what it answered, submits its plan.

The pod that is decided on is the one that the watch shows (`watched_pods.py`). A request that brings nodes which do not
exist is a what-if: it is answered as it stands, also for a pod that does not exist, and changes nothing here.

The scheduler asks for the next pod before the watch shows the last one, so an answer counts from the moment it is
given. A question whose answer depends on pods whose node is undetermined waits until enough of them have settled, at most
``wait`` seconds; then the verb counts them wherever it is worst. Other questions never wait.
Given to the server by ``compose``; decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Final, Protocol

from extender.index.claims.assumed import Assumed, AssumedPods, Limits
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.tasks.ports import Clock, PlanTarget
from extender.tasks.watched_pods import WatchedPods
from extender.verbs.filter.pipeline import FilterVerb
from extender.verbs.watched_pod import Unconfirmed
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_REVIEW_SECONDS: Final = 0.25
_SUSPENDED_SECONDS: Final = (
    1.0  # a sleep that lasted so much longer was not ours: the process or the machine stood still
)

Answered = Callable[[ExtenderArgs, FilterResult], None]


class AssumingIndex(Protocol):
    """What the filter service needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def assumed(self) -> AssumedPods:
        """The assumed pods."""

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """Counts a pod as standing on one of the nodes from now on, or nowhere where it is in doubt."""


@dataclass(frozen=True, slots=True)
class AssumedPodOptions:
    """Whether pods are assumed; in seconds, until that expires, a question gives up, a report of failure is believed.

    ``doubt``: seconds after which a pod that no binding has confirmed may stand nowhere as well.
    """

    enabled: bool = True
    expiry: float = 120.0
    wait: float = 1.0
    failure_grace: float = 2.0
    doubt: float = 5.0


class FilterService:
    """The filter verb with its effect on the assumed pods.

    ``asked`` counts questions, ``waits`` and ``given_up`` those that waited, ``waited`` the seconds that they did.
    """

    def __init__(
        self,
        index: AssumingIndex,
        pods: WatchedPods,
        clock: Clock,
        options: AssumedPodOptions,
        verb: FilterVerb,
        rng: Random,
        plans: PlanTarget,
        answered: Answered,
        known_until: Callable[[], float] = lambda: inf,
    ) -> None:
        """``known_until``: the time up to which everything that the API server told of pods has been read."""
        self.asked = 0
        self.waits = 0
        self.waited = 0.0
        self.given_up = 0
        self._index = index
        self._pods = pods
        self._clock = clock
        self._options = options
        self._verb = verb
        self._rng = rng
        self._plans = plans
        self._answered = answered
        self._known_until = known_until
        self._settled = asyncio.Event()
        index.assumed.on_settled = self._settled.set

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Decides a question. The pod's own earlier assumption ends first: a new question means that it failed."""
        self.asked += 1
        if self._is_what_if(args) and not isinstance(self._pods.look_up(args.pod), Pod):
            return self._decide(args)
        previous = self._end_assumption(args.pod)
        pod = await self._pods.find(args.pod)
        if not isinstance(pod, Pod):
            return _refused_for_now(pod)
        args = replace(args, pod=pod)
        if self._may_wait(args):
            await self._wait(args)
            pod = self._pods.look_up(pod)
            if not isinstance(pod, Pod):
                return _refused_for_now(pod)
            args = replace(args, pod=pod)
        previous = self._index.assumed.settle(pod.uid) or previous
        return self._answer(args, previous)

    def _decide(self, args: ExtenderArgs, avoid: str = "") -> FilterResult:
        """The verb's answer; its plan is submitted before the answer is given."""
        decision = self._verb.decide(args, self._rng.getrandbits(32), avoid)
        if decision.plan is not None:
            self._plans.submit(decision.plan)
        return decision.result

    def _answer(self, args: ExtenderArgs, previous: Assumed | None) -> FilterResult:
        """Decides now, and notes what follows. ``previous`` is what was assumed of the pod before."""
        avoid = previous.nodes[0] if previous is not None and len(previous.nodes) == 1 else ""
        result = self._decide(args, avoid)
        known = self._index.view.known
        if args.nodes is not None and not all(name in known for name in result.passed):
            if previous is not None:  # a what-if about a pod that is on its way
                self._index.assume(args.pod, previous.nodes, previous.since, doubted=previous.doubted)
            return result
        if result.passed and self._options.enabled:
            self._index.assume(args.pod, result.passed, self._clock.now())
        self._answered(args, result)
        return result

    def attempt_failed(self, asked: Pod) -> None:
        """A question for the pod came and cannot be answered; it tells all the same that the last attempt failed."""
        self._end_assumption(asked)

    def _end_assumption(self, asked: Pod) -> Assumed | None:
        """Ends what is assumed of the pod of a question, if it is a pod that the scheduler can ask about."""
        found = self._pods.look_up(asked)
        return self._index.assumed.settle(found.uid) if isinstance(found, Pod) else None

    def _is_what_if(self, args: ExtenderArgs) -> bool:
        """Whether any node of the request does not exist, as far as the watch shows. O(nodes) for whole nodes."""
        known = self._index.view.known
        return args.nodes is not None and not all(node.name in known for node in args.nodes)

    def _may_wait(self, args: ExtenderArgs) -> bool:
        return self._index.assumed.several > 0 and self._verb.should_wait(args)

    async def _wait(self, args: ExtenderArgs) -> None:
        self.waits += 1
        begun = self._clock.now()
        try:
            await self._wait_until(args, begun + self._options.wait)
        finally:
            self.waited += self._clock.now() - begun

    async def _wait_until(self, args: ExtenderArgs, deadline: float) -> None:
        while self._may_wait(args):
            left = deadline - self._clock.now()
            if left <= 0:
                self.given_up += 1
                return
            self._settled.clear()
            try:
                async with asyncio.timeout(left):
                    await self._settled.wait()
            except TimeoutError:
                continue

    async def run(self) -> None:
        """Ends assumptions that expired or failed and doubts those that nothing confirms, until cancelled.

        Time in which we stood still does not count: what the scheduler did meanwhile has not been read yet.
        """
        options = self._options
        limits = Limits(options.expiry, options.failure_grace, options.doubt)
        known = self._known_until()
        while True:
            begun, known_before = self._clock.now(), known
            await self._clock.sleep(_REVIEW_SECONDS)
            now = self._clock.now()
            if (lost := now - begun - _REVIEW_SECONDS) >= _SUSPENDED_SECONDS:
                self._index.assumed.excuse(lost)
            known = self._known_until()
            self._index.assumed.review(now, limits, known_before=known_before, known_until=known)


def _refused_for_now(why: Unconfirmed) -> FilterResult:
    """An error, as the scheduler asks again after one by its back-off, whatever happens in the cluster meanwhile."""
    return FilterResult((), error=f"cannot decide: {why.text}")
