"""How many pods have no node, by reason and scheduler, and since when the oldest waits; for metrics.

Read from existing tables, so no event of a pod costs more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.rejections import Reason
from extender.model.units import read_time
from extender.verbs.browse.pods import in_steps, state_of

OTHERS: Final = "(others)"
_ALWAYS: Final = ("not_tried", OTHERS)
_MOST_SCHEDULERS: Final = 32  # any pod may name another scheduler
_PODS_A_STEP: Final = 100  # at 0.7 µs, or 10 µs for a text that no other pod has
# What kube-scheduler says of a node, with the reason of the extender where both have one.
_IN_TREE: Final = {
    "Insufficient ": Reason.NO_ROOM.label,
    "Too many pods": Reason.NO_ROOM.label,
    "node(s) had untolerated taint": Reason.TAINT.label,
    "node(s) didn't have free ports": Reason.HOST_PORTS.label,
    "node(s) had volume node affinity conflict": "volumes",
    "node(s) didn't find available persistent volumes to bind": "volumes",
    "node(s) exceed max volume count": "volumes",
}
_LABELS: Final = {**_IN_TREE, **{reason.text: reason.label for reason in Reason}}
# The longest first: one text may begin with another.
_COUNTED: Final = re.compile(rf"(\d+) ({'|'.join(map(re.escape, sorted(_LABELS, key=len, reverse=True)))})")
_FAILED: Final = "SchedulerError: "


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Pods without a node by (reason, scheduler), and when the oldest of them was created, in Unix seconds.

    One pair is always there, so that no pending pods and no measurement are different things.
    """

    counts: Mapping[tuple[str, str], int] = field(default_factory=lambda: {_ALWAYS: 0})
    oldest: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def ages(self, now: float) -> Mapping[tuple[str, str], float]:
        """How old the oldest pods are, in seconds."""
        return {_ALWAYS: 0.0} | {labels: max(0.0, now - created) for labels, created in self.oldest.items()}


def measure_pending(view: ClusterView, assumed: Container[str]) -> Steps[PendingPods]:
    """Returns it after short steps. O(pods without a node). ``assumed``: the UIDs of assumed pods."""
    counts, created, reasons = Counter[tuple[str, str]](), dict[tuple[str, str], str](), dict[str, str]()
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        for pod in piece:
            reason = state_of(pod, view, assumed)
            if reason == "pending":
                # Replicas of a workload have one text.
                reason = reasons.get(pod.rejection) or reasons.setdefault(pod.rejection, reason_of(pod.rejection))
            labels = reason, pod.scheduler
            counts[labels] += 1
            # Times of the API server are texts of one form, in the order of time.
            if pod.created and not created.get(labels, "~") < pod.created:
                created[labels] = pod.created
        yield
    shown = _most_used(counts)
    pods, oldest = Counter({_ALWAYS: 0}), dict[tuple[str, str], float]()
    for (reason, scheduler), count in counts.items():
        labels = reason, scheduler if scheduler in shown else OTHERS
        pods[labels] += count
        if (since := read_time(created.get((reason, scheduler)))) is not None:
            oldest[labels] = min(since.timestamp(), oldest.get(labels, since.timestamp()))
    return PendingPods(pods, oldest)


def reason_of(rejection: str) -> str:
    """The reason for most nodes in what a scheduler says of a pod: a closed set of values."""
    if not rejection:
        return "not_tried"
    # What follows is about preemption, with counts of its own.
    said = rejection.partition(" preemption: ")[0]
    found = Counter[str]()
    for count, text in _COUNTED.findall(said):
        found[_LABELS[text]] += int(count[:9])
    if found:
        return found.most_common(1)[0][0]
    return "scheduler_error" if said.startswith(_FAILED) else "other"


def _most_used(counts: Mapping[tuple[str, str], int]) -> Container[str]:
    """The schedulers with most pods."""
    pods = Counter[str]()
    for (_, scheduler), count in counts.items():
        pods[scheduler] += count
    return {scheduler for scheduler, _ in pods.most_common(_MOST_SCHEDULERS)}
