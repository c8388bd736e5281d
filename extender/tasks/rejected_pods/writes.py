"""What `Nominator` and `Requeuer` share: which rejected pods they may write to, and the count of their writes.

Both write to a pod only while it is unscheduled, ungated and not nominated by another component.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from extender.index.claims.rejected_pods import Grounds, RejectedPods
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, NotFound
from extender.model.objects import Pod
from extender.rules import catalog

_LOG = logging.getLogger(__name__)

# Every pair is there from the start: a rate needs a value from before the first count.
_RESULTS: Final = (
    ("nominate", "done"),
    ("nominate", "failed"),
    ("nominate", "no_node"),
    ("requeue", "done"),
    ("requeue", "failed"),
)

# For a pod: the node to nominate it to, empty where there is none, and whether any node passes the rules.
FindElsewhere = Callable[[Pod], tuple[str, bool]]


class RejectedPodsIndex(Protocol):
    """What the index offers to both."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    @property
    def rejected(self) -> RejectedPods:
        """Pods that the filter rejected; the index removes those that are bound or deleted."""

    @property
    def unwatched_changes(self) -> tuple[Subscribable, ...]:
        """The sources of changes that may help a rejected pod and that kube-scheduler does not watch."""

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """Counts the pod on the node that it is nominated to."""


class RejectedPodWrites:
    """Makes the writes of both and counts them. ``results``: by (action, result)."""

    def __init__(self) -> None:
        self.results: Counter[tuple[str, str]] = Counter(dict.fromkeys(_RESULTS, 0))

    async def write(self, action: str, pod: Pod, call: Awaitable[None]) -> bool:
        """Whether the API server accepted the write. A failure is not retried: the next rejection leads here again."""
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


def is_writable(pod: Pod, view: ClusterView) -> bool:
    """Whether the pod is still unscheduled and has no nomination. A preemptor has one, if only in memory. O(1)."""
    if view.awaited(pod.uid):
        return False
    shown = view.pod(pod.uid)
    return shown is not None and not (shown.node or shown.gated or shown.terminating or shown.nominated_node)


def dependency_version(pod: Pod, view: ClusterView) -> Grounds:
    """The version of everything that the result for the pod depends on; None where it depends on undetermined pods."""
    compiled = view.compiled(pod.signature)
    return None if view.is_pending(compiled) else (compiled.serial, catalog.dependency_version(compiled, view))


def is_unchanged(pod: Pod, version: Grounds, view: ClusterView) -> bool:
    """Whether a result of this dependency version would be the same now."""
    return version is not None and version == dependency_version(pod, view)


def ref(pod: Pod) -> PodRef:
    """Exactly this pod: the UID excludes a later pod of the same name."""
    return PodRef(pod.namespace, pod.name, pod.uid)
