"""What `Nominator`, `Requeuer` and `Rechecker` share: whether a rejection still holds, the search for a node, and the counted writes.

They write to a pod only while it is unscheduled, ungated and not nominated by another component.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from extender.index.claims.assumed import AssumedPods, DependencyVersion, RejectedPods
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.model.objects import Pod
from extender.rules import catalog
from extender.tasks.ports import ClusterWriter
from extender.verbs.effective_pod import known_effective_pod

_LOG = logging.getLogger(__name__)

REQUEUE_ANNOTATION: Final = "placement.extender.dev/requeued"

# Every pair is there from the start: a rate needs a value from before the first count.
_RESULTS: Final = (
    ("nominate", "done"),
    ("nominate", "failed"),
    ("nominate", "no_node"),
    ("requeue", "done"),
    ("requeue", "failed"),
    ("recheck", "passes"),
    ("recheck", "rejected"),
)

# For a pod: the node to nominate it to, empty where there is none, and whether any node passes the rules.
FindElsewhere = Callable[[Pod], tuple[str, bool]]


class RejectedPodsIndex(Protocol):
    """What the index offers to them."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def assumed(self) -> AssumedPods:
        """The assumed pods."""

    @property
    def rejected(self) -> RejectedPods:
        """Pods that the filter rejected; the index removes those that are bound or deleted."""

    @property
    def unwatched_changes(self) -> tuple[Subscribable, ...]:
        """The sources of changes of claims that may help a rejected pod and that kube-scheduler does not watch."""

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """Counts the pod on the node that it is nominated to."""


class RejectedPodWriter:
    """Writes to rejected pods. ``results``: by (action, result). ``find`` searches all nodes: O(cluster)."""

    def __init__(self, index: RejectedPodsIndex, writer: ClusterWriter, find: FindElsewhere) -> None:
        self.results: Counter[tuple[str, str]] = Counter(dict.fromkeys(_RESULTS, 0))
        self.index = index
        self.find = find
        self._writer = writer

    def is_writable(self, pod: Pod) -> bool:
        """Whether the pod is still unscheduled and has no nomination. A preemptor has one, if only in memory. O(1)."""
        view = self.index.view
        if view.uncleared_node(pod.uid):
            return False
        shown = view.pod(pod.uid)
        return shown is not None and not (shown.node or shown.gated or shown.terminating or shown.nominated_node)

    async def nominate(self, pod: Pod, node: str) -> bool:
        """Whether the API server accepted the nomination."""
        return await self._write("nominate", pod, self._writer.nominate(PodRef.of(pod), node))

    async def requeue(self, pod: Pod, stamp: str) -> bool:
        """Whether the API server accepted the annotation, an update after which the scheduler tries the pod again."""
        return await self._write("requeue", pod, self._writer.annotate(PodRef.of(pod), REQUEUE_ANNOTATION, stamp))

    async def _write(self, action: str, pod: Pod, call: Awaitable[None]) -> bool:
        """A failure is not retried: the next rejection leads here again."""
        try:
            await call
        except KubeError as error:
            self.results[action, "failed"] += 1
            # A pod that was deleted meanwhile needs no write.
            level = logging.DEBUG if isinstance(error, NotFound) else logging.WARNING
            _LOG.log(level, "%s failed", action, extra={"pod": pod.full_name, "error": str(error)})
            return False
        self.results[action, "done"] += 1
        return True


def dependency_version(pod: Pod, view: ClusterView) -> DependencyVersion:
    """The version of everything that the result for the pod depends on; None where it depends on undetermined pods."""
    pod = known_effective_pod(pod, view)
    compiled = view.compiled(pod.signature)
    return None if view.is_undetermined(compiled) else catalog.dependencies(pod, compiled, view)


def is_unchanged(pod: Pod, version: DependencyVersion, view: ClusterView) -> bool:
    """Whether a result of this dependency version would be the same now."""
    return version is not None and version == dependency_version(pod, view)
