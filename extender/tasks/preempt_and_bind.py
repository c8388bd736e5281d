"""The preempt and bind verbs with their effects: a plan that is submitted, a binding that is written.

``compose`` gives both to the server. The decision about a preemption is the verb's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound, may_be_made
from extender.kube.timing import Clock
from extender.kube.writer import Writer
from extender.model.objects import Pod
from extender.model.preemption import Candidate
from extender.rules.meter import RuleMeter
from extender.settings.configuration import Settings
from extender.tasks.filter_service import PlanTarget
from extender.telemetry.logs import RepeatedWarnings
from extender.verbs.preempt import LeftBecause, PreemptionDecision, decide_preemption
from extender.verbs.request import Unconfirmed, watched_pod
from extender.wire.extender_v1 import BindingArgs, PreemptionArgs

_LOG = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.5
# Before the first read: the API server gives up a call whose connection ends, but not at the same moment.
_OPEN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    pod: PodRef
    node: str
    since: float


class UnansweredBindings:
    """Bindings that were sent and got no answer, by UID. The watch or a read shows whether the API server carried them out.

    A lost connection does not show what the API server did, so the pod may be on its node, and its room must not be given
    away. The pod stays assumed there, and filter requests about it get an error. This ends with an event or a read of the pod,
    or after `assumedPods.expiry`. Cost: one read for each such pod and round.
    """

    def __init__(self, index: ClusterIndex, reader: Writer, clock: Clock) -> None:
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
        """Forgets the earlier binding of a pod that is bound again. O(1)."""
        self._held.pop(uid, None)

    async def run(self) -> None:
        """Reads the pods in rounds, until cancelled. A read comes only when the API server can no longer carry out the binding.

        Sleeps without a timer while there is no such binding.
        """
        while True:
            while not self._held:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(_ROUND_SECONDS)
            until = self._clock.now() - _OPEN_SECONDS
            for binding in [binding for binding in self._held.values() if binding.since <= until]:
                await self._ask(binding)

    async def _ask(self, binding: _Binding) -> None:
        """Reads the pod, unless the result is known by now. After an error the next round reads it again."""
        uid, assumed = binding.pod.uid, self._index.assumed
        if uid not in assumed.binding:
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
        # During the read an event may have shown the result, or the scheduler may have begun another binding of the pod.
        if self._held.get(uid) is not binding or uid not in assumed.binding:
            return
        self.discard(uid)
        held = assumed.held.get(uid)
        if node and held is not None and held.nodes != (node,):  # another client has bound it meanwhile
            self._index.assume(held.pod, (node,), self._clock.now())
        assumed.end_binding(uid, failed=not node)


FindPod = Callable[[Pod], Awaitable[Pod | Unconfirmed]]
OnPreemption = Callable[[PreemptionArgs, int, PreemptionDecision], None]


@dataclass(eq=False, slots=True)
class PreemptService:
    """The preempt verb, for the pod that ``find`` returns for the pod of the request.

    ``on_decision`` is called with each request as it was decided, the seed and the decision. ``meter`` counts and times rules.

    ``on_unknown`` is called where the watch does not show the pod as pending.
    """

    view: ClusterView
    settings: Settings
    rng: Random
    plans: PlanTarget
    find: FindPod
    on_decision: OnPreemption | None = None
    meter: RuleMeter | None = None
    on_unknown: Callable[[], None] = lambda: None
    _left: Counter[LeftBecause] = field(default_factory=lambda: Counter(dict.fromkeys(LeftBecause, 0)), init=False)
    _warnings: RepeatedWarnings = field(
        default_factory=lambda: RepeatedWarnings(_LOG, "preemption left to the scheduler"), init=False
    )

    def left(self) -> dict[str, float]:
        """How many preemptions went back to the scheduler in mode execute, by reason."""
        return {because.value: count for because, count in self._left.items()}

    async def preempt(self, args: PreemptionArgs) -> Sequence[Candidate]:
        """The candidates that remain. A plan is submitted before the answer is given.

        A pod that the watch does not show as pending gets no candidate. The scheduler tries it again after a change, or when
        `OverlookedPods` requeues it.
        """
        pod = await self.find(args.pod)
        if not isinstance(pod, Pod):
            self.on_unknown()
            return ()
        args = replace(args, pod=pod)
        seed = self.rng.getrandbits(32)
        decision = decide_preemption(args, self.view, self.settings, seed, self.meter)
        if self.on_decision is not None:
            self.on_decision(args, seed, decision)
        if decision.plan is not None:
            self.plans.submit(decision.plan)
        elif decision.requeue:
            self.plans.requeue(pod, args.candidates[0].node)
        if decision.left is not None:
            self._tell_left(pod, decision.candidates[0], decision.left)
        return decision.candidates

    def _tell_left(self, pod: Pod, candidate: Candidate, because: LeftBecause) -> None:
        """Counts a preemption that the scheduler carries out, and logs it at a limited rate: a client may cause any number."""
        self._left[because] += 1
        fields = {"preemptor": pod.full_name, "node": candidate.node, "victims": len(candidate.victims)}
        self._warnings.warn(because, **fields, reason=because.value)


@dataclass(eq=False, slots=True)
class BindService:
    """The optional bind verb: binds a pod for the scheduler, so that its node is known before the next filter request.

    Measured: the bind call comes before the next filter call in 98–99 % of cycles, where the watch event is late in 70–98 %.
    The pod is assumed on its node when the call comes in, not when the API server has answered.

    The write is made with the service account of the extender. A caller must not gain more by it than it has from the
    scheduler: only a pod that the watch shows unscheduled and ungated is bound, and only to a node that this service passed
    for it. So without assumed pods (`assumedPods.enabled`) nothing is bound.

    ``unanswered`` finds out what became of bindings without an answer.
    """

    index: ClusterIndex
    writer: Writer
    clock: Clock
    unanswered: UnansweredBindings

    async def bind(self, args: BindingArgs) -> str:
        """Binds exactly this pod. Returns the error, empty on success; the scheduler records it and retries."""
        # Refused: (1) a pod that the watch does not show as pending and ungated; (2) a pod whose binding is in flight; (3) a
        # node that no answer named. Otherwise a caller could bind any pod to any node with the account of the extender.
        pod = watched_pod(args.uid, args.namespace, args.name, self.index.view)
        if not isinstance(pod, Pod):
            return f"not bound: {pod.text}"
        assumed = self.index.assumed
        if args.uid in assumed.binding:
            return "not bound: the pod is being bound already"
        held = assumed.held.get(args.uid)
        if held is None or args.node not in held.nodes:
            return "not bound: no answer of the extender lets the pod go to this node"
        self.index.assume(pod, (args.node,), self.clock.now())
        assumed.begin_binding(args.uid)
        self.unanswered.discard(args.uid)
        ref, is_answered = PodRef(args.namespace, args.name, args.uid), False
        try:
            await self.writer.bind(ref, args.node)
            is_answered = True
            assumed.end_binding(args.uid, failed=False)
        except KubeError as error:
            is_answered = not may_be_made(error)
            if is_answered:
                assumed.end_binding(args.uid, failed=True)
            return str(error)
        finally:
            if not is_answered:  # also where the time of the request is over, which cancels this
                self.unanswered.add(ref, args.node)
        return ""
