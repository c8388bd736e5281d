"""Questions and assumed pods: lets a question wait for what it hangs on, asks the verb, and assumes what was answered.

The scheduler asks for the next pod before the watch shows the last one, so an answer counts from the moment it is
given. A question whose answer hangs on pods whose node is not known yet waits until enough of them have settled, at most
``wait`` seconds; then the verb counts them wherever it is worst. A question that hangs on nobody never waits.
Given to the server by ``compose``; decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from extender.index.assumed import AssumedPods, Limits
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.tasks.ports import Clock
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_REVIEW_SECONDS: Final = 0.25
_SUSPENDED_SECONDS: Final = (
    1.0  # a sleep that lasted so much longer was not ours: the process or the machine stood still
)

Decide = Callable[[ExtenderArgs, str], FilterResult]
ShouldWait = Callable[[ExtenderArgs], bool]
Answered = Callable[[ExtenderArgs, FilterResult], None]


class AssumingIndex(Protocol):
    """What settling needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def assumed(self) -> AssumedPods:
        """The assumed pods."""

    def assume(self, pod: Pod, nodes: Sequence[str], now: float) -> None:
        """Counts a pod as standing on one of the nodes from now on."""


@dataclass(frozen=True, slots=True)
class SettlingOptions:
    """Whether pods are assumed; in seconds, until that expires, a question gives up, a report of failure is believed.

    ``doubt``: seconds after which a pod that no binding has confirmed may stand nowhere as well.
    """

    enabled: bool = True
    expiry: float = 120.0
    wait: float = 1.0
    distrust: float = 2.0
    doubt: float = 5.0


class Settling:
    """The filter verb with its effect on the assumed pods.

    ``asked`` counts questions, ``waits`` and ``given_up`` those that waited, ``waited`` the seconds that they did.
    """

    def __init__(
        self,
        index: AssumingIndex,
        clock: Clock,
        options: SettlingOptions,
        should_wait: ShouldWait,
        decide: Decide,
        answered: Answered,
        known_until: Callable[[], float] = lambda: inf,
    ) -> None:
        """``known_until``: the time up to which everything that the API server told of pods has been read."""
        self.asked = 0
        self.waits = 0
        self.waited = 0.0
        self.given_up = 0
        self._index = index
        self._clock = clock
        self._options = options
        self._should_wait = should_wait
        self._decide = decide
        self._answered = answered
        self._known_until = known_until
        self._settled = asyncio.Event()
        index.assumed.on_settled = self._settled.set

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Decides a question. The pod's own earlier assumption ends first: a new question means that it failed."""
        self.asked += 1
        previous = self._index.assumed.settle(args.pod.uid)
        if self._hangs(args):
            await self._wait(args)
            previous = self._index.assumed.settle(args.pod.uid) or previous
        avoid = previous.nodes[0] if previous is not None and len(previous.nodes) == 1 else ""
        result = self._decide(args, avoid)
        if result.passed and self._options.enabled:
            self._assume(args, result.passed)
        self._answered(args, result)
        return result

    def attempt_failed(self, uid: str) -> None:
        """A question for the pod came and cannot be answered; it tells all the same that the last attempt failed."""
        self._index.assumed.settle(uid)

    def _assume(self, args: ExtenderArgs, nodes: Sequence[str]) -> None:
        known = self._index.view.known
        if args.nodes is not None and not all(name in known for name in nodes):
            return  # hypothetical nodes: somebody tries what would be, and places nothing
        self._index.assume(args.pod, nodes, self._clock.now())

    def _hangs(self, args: ExtenderArgs) -> bool:
        return self._index.assumed.several > 0 and self._should_wait(args)

    async def _wait(self, args: ExtenderArgs) -> None:
        self.waits += 1
        begun = self._clock.now()
        try:
            await self._wait_until(args, begun + self._options.wait)
        finally:
            self.waited += self._clock.now() - begun

    async def _wait_until(self, args: ExtenderArgs, deadline: float) -> None:
        while self._hangs(args):
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
        limits = Limits(options.expiry, options.distrust, options.doubt)
        known = self._known_until()
        while True:
            begun, known_before = self._clock.now(), known
            await self._clock.sleep(_REVIEW_SECONDS)
            now = self._clock.now()
            if (lost := now - begun - _REVIEW_SECONDS) >= _SUSPENDED_SECONDS:
                self._index.assumed.excuse(lost)
            known = self._known_until()
            self._index.assumed.review(now, limits, known_before=known_before, known_until=known)
