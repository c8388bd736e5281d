"""The optional bind verb: binds a pod for the scheduler, so that its node is known before the next filter request.

Measured: the bind call comes before the next filter call in 98–99 % of cycles, where the watch event is late in 70–98 %.
The pod is assumed on its node when the call comes in, not when the API server has answered.

The write is made with the service account of the extender. A caller must not gain more by it than it has from the
scheduler: only a pod that the watch shows unscheduled and ungated is bound, and only to a node that this service passed
for it. So without assumed pods (`assumedPods.enabled`) nothing is bound.
"""

from __future__ import annotations

from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.model.objects import Pod
from extender.tasks.filter_service import AssumingIndex
from extender.tasks.ports import Clock, ClusterWriter
from extender.verbs.request import watched_pod
from extender.wire.extender_v1 import BindingArgs


class Binding:
    """Binds pods; ``compose`` gives it to the server."""

    def __init__(self, index: AssumingIndex, writer: ClusterWriter, clock: Clock) -> None:
        self._index = index
        self._writer = writer
        self._clock = clock
        self._under_way: set[str] = set()

    async def bind(self, args: BindingArgs) -> str:
        """Binds exactly this pod. Returns the error, empty on success; the scheduler records it and retries."""
        pod = watched_pod(args.uid, args.namespace, args.name, self._index.view)
        if not isinstance(pod, Pod):
            return f"not bound: {pod.text}"
        if args.uid in self._under_way:
            return "not bound: the pod is being bound already"
        held = self._index.assumed.held.get(args.uid)
        if held is None or args.node not in held.nodes:
            return "not bound: no answer of the extender lets the pod go to this node"
        self._index.assume(pod, (args.node,), self._clock.now())
        self._under_way.add(args.uid)
        try:
            await self._writer.bind(PodRef(args.namespace, args.name, args.uid), args.node)
        except KubeError as error:
            self._index.assumed.forget(args.uid)
            return str(error)
        finally:
            self._under_way.discard(args.uid)
        return ""
