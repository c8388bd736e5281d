"""The optional bind verb: binds a pod for the scheduler, and so knows its node before the next question.

Measured: the bind call comes before the next filter call in 98–99 % of cycles, where the watch event is late in 70–98 %.
The pod is assumed on its node when the call comes in, not when the API server has answered.
"""

from __future__ import annotations

import msgspec

from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.tasks.ports import Clock, ClusterWriter
from extender.tasks.settling import AssumingIndex
from extender.wire.extender_v1 import BindingArgs


class Binding:
    """Binds pods; given to the server by ``compose``."""

    def __init__(self, index: AssumingIndex, writer: ClusterWriter, clock: Clock, *, assumes: bool = True) -> None:
        self._index = index
        self._writer = writer
        self._clock = clock
        self._assumes = assumes

    async def bind(self, args: BindingArgs) -> str:
        """Binds exactly this pod. Returns what went wrong, empty where nothing did: the scheduler shows it and retries."""
        self._assume(args)
        try:
            await self._writer.bind(PodRef(args.namespace, args.name, args.uid), args.node)
        except KubeError as error:
            self._index.assumed.settle(args.uid)
            return str(error)
        return ""

    def _assume(self, args: BindingArgs) -> None:
        held = self._index.assumed.held.get(args.uid)
        pod = held.pod if held is not None else self._index.view.pod(args.uid)
        if pod is not None and self._assumes:
            self._index.assume(msgspec.structs.replace(pod, node=""), (args.node,), self._clock.now())
