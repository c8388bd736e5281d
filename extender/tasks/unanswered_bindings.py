"""Bindings that were sent and got no answer: whether they were carried out is learned from the watch, or else asked.

A time limit that ends a call, or a lost connection, does not tell what the API server did with it. The scheduler is told of
a failure and tries the pod again, but the room must not be given away: the pod may be on its node. So it stays assumed
there, and every filter request about it gets an error, until one of these tells: an event of the watch, a read of the
pod, or the end of `assumedPods.expiry`.

Cost: nothing while every binding is answered; else one read for each such pod and round.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.tasks.filter_service import AssumingIndex
from extender.tasks.ports import Clock

_LOG = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.5
# Before the first read: the API server gives up a call whose connection ends, but not at the same moment.
_OPEN_SECONDS: Final = 1.0


class PodReader(Protocol):
    """Implemented by `kube.writer`."""

    async def node_of(self, pod: PodRef) -> str:
        """The node of this pod, empty where it has none. Raises ``NotFound`` where the pod does not exist, or ``KubeError``."""


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    pod: PodRef
    node: str
    since: float


class UnansweredBindings:
    """These bindings by the UID of their pod, until `run` or an event has found the result of each."""

    def __init__(self, index: AssumingIndex, reader: PodReader, clock: Clock) -> None:
        self._index = index
        self._reader = reader
        self._clock = clock
        self._held: dict[str, _Binding] = {}
        self._added = asyncio.Event()

    def add(self, pod: PodRef, node: str) -> None:
        """Records a binding that may have been carried out. O(1)."""
        self._held[pod.uid] = _Binding(pod, node, self._clock.now())
        self._added.set()

    def discard(self, uid: str) -> None:
        """Drops what is recorded of a pod that is bound again. O(1)."""
        self._held.pop(uid, None)

    async def run(self) -> None:
        """Asks about each in rounds, until cancelled, but not before it can no longer be carried out. Waits without a timer while there are none."""
        while True:
            while not self._held:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(_ROUND_SECONDS)
            until = self._clock.now() - _OPEN_SECONDS
            for binding in [each for each in self._held.values() if each.since <= until]:
                await self._ask(binding)

    async def _ask(self, binding: _Binding) -> None:
        """Reads the pod, unless its result is known by now. An error leaves the question to the next round."""
        uid, assumed = binding.pod.uid, self._index.assumed
        if not assumed.is_binding(uid):
            self.discard(uid)
            return
        try:
            node = await self._reader.node_of(binding.pod)
        except NotFound:
            node = ""
        except KubeError as error:
            _LOG.debug(
                "binding unknown", extra={"pod": f"{binding.pod.namespace}/{binding.pod.name}", "error": str(error)}
            )
            return
        if self._held.get(uid) is not binding or not assumed.is_binding(uid):
            return
        self.discard(uid)
        held = assumed.held.get(uid)
        if node and held is not None and held.nodes != (node,):  # another client has bound it meanwhile
            self._index.assume(held.pod, (node,), self._clock.now())
        assumed.end_binding(uid, failed=not node)
