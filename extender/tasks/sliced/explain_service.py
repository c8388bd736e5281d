"""Explains pods on request, in slices, so that an answer to the scheduler waits for little of it.

Each request has a budget of time, and few may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from extender.index.view import ClusterView
from extender.model.answers.explanations import Cause, Explanation, NotExplained
from extender.model.objects import Pod
from extender.rules.constraint_states import Steps
from extender.settings.configuration import Settings
from extender.tasks.ports import Clock
from extender.tasks.sliced.sliced_work import Places, SlicedWork
from extender.verbs.browse.pods import PodFinder
from extender.verbs.effective_pod import known_effective_pod
from extender.verbs.explain.explaining import explain

T = TypeVar("T")

MOST_WAITING: Final = 4
MOST_SECONDS: Final = 1.0  # of slices; an explanation at 5,000 nodes and 150,000 pods takes 0.04


class ExplainService:
    """The explain verb with its budget. ``nodes_of`` returns the nodes that a pod is assumed on, by UID.

    ``work`` is shared with other work for people; without it explanations are all of it.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        clock: Clock,
        nodes_of: Callable[[str], Sequence[str]] = lambda _uid: (),
        work: SlicedWork | None = None,
    ) -> None:
        self._view = view
        self._finder = PodFinder(view)
        self._settings = settings
        self._nodes_of = nodes_of
        self._work = work or SlicedWork(clock)
        self._places = Places(MOST_WAITING, "explanation", self._work)

    async def explain(self, namespace: str, name: str, node: str = "") -> Explanation:
        """Explains a pod that exists. Raises NotExplained."""
        return await self._in_turn(self._of_name(namespace, name, node))

    async def explain_given(self, pod: Pod, node: str = "") -> Explanation:
        """Explains a pod that does not exist yet. Raises NotExplained."""
        return await self._in_turn(self._of_given(pod, node))

    async def rejection(self, uid: str) -> Explanation:
        """What rejects a pending pod now, without changes that would help. For tasks: waits for its turn. Raises NotExplained."""
        return await self._work.run(self._of_rejected(uid), MOST_SECONDS, "event")

    async def _in_turn(self, work: Steps[T]) -> T:
        with self._places:
            return await self._work.run(work, MOST_SECONDS, "explanation")

    def _of_name(self, namespace: str, name: str, node: str) -> Steps[Explanation]:
        self._check_node(node)
        pod = yield from self._finder.find(namespace, name)
        if pod is None:
            raise NotExplained(Cause.UNKNOWN, f"pod {namespace}/{name} is not known, or it has finished")
        return (yield from self._of_pod(pod, node, offers_changes=True))

    def _of_pod(self, pod: Pod, node: str, *, offers_changes: bool) -> Steps[Explanation]:
        state = self._state(pod)
        if state:
            return Explanation(pod=pod.full_name, state=state, nodes=len(self._view.known), passing=0, fitting=0)
        return (yield from explain(pod, self._view, self._settings, node, offers_changes=offers_changes))

    def _of_rejected(self, uid: str) -> Steps[Explanation]:
        pod = self._view.pod(uid)
        if pod is None:
            raise NotExplained(Cause.UNKNOWN, f"pod {uid} is not known, or it has finished")
        return (yield from self._of_pod(pod, "", offers_changes=False))

    def _of_given(self, pod: Pod, node: str) -> Steps[Explanation]:
        self._check_node(node)
        try:
            return (yield from explain(pod, self._view, self._settings, node, state="does not exist"))
        finally:
            for each in (pod, known_effective_pod(pod, self._view)):
                self._view.release_compiled(each.signature)

    def _check_node(self, node: str) -> None:
        if node and node not in self._view.known:
            raise NotExplained(Cause.UNKNOWN, f"node {node} is not known")

    def _state(self, pod: Pod) -> str:
        """Why the pod is not to be explained, as it is placed or leaving; else empty."""
        if pod.node:
            return f"on node {pod.node}"
        if pod.terminating:
            return "terminating"
        nodes = self._nodes_of(pod.uid)
        if not nodes:
            return ""
        where = nodes[0] if len(nodes) == 1 else f"one of {len(nodes)} nodes"
        return f"passed filter, and is assumed on {where} until it is bound"
