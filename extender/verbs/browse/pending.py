"""Pods without a node: how many, by reason and scheduler, and since when the oldest waits, for metrics; and a page of them.

Read from existing tables, so no event of a pod costs more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.index.view import ClusterView
from extender.model.answers.pages import PendingPage, PendingQuestion, PendingRow
from extender.model.bounded import Steps
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.units import read_time
from extender.verbs.browse.pods import FirstRows, in_steps, state_of, workload_of

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


# -- the page ---------------------------------------------------------------------------------------------------------


class _Waiting:
    """A row: a pod, how many pods it stands for, and its place in the order."""

    __slots__ = ("alike", "pod", "position", "reason")

    def __init__(self, pod: Pod, position: str, reason: str) -> None:
        self.pod = pod
        self.position = position
        self.reason = reason
        self.alike = 1


class _Groups:
    """One row for the pods of a workload with one reason: its oldest pod."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _Waiting] = {}
        self._workloads: dict[PodSignature, str] = {}

    def add(self, row: _Waiting) -> None:
        """O(1), and O(labels) for the first pod of a signature."""
        signature = row.pod.signature
        workload = self._workloads.get(signature)
        if workload is None:
            labels, workload = workload_of(signature)
            # Pods without labels have nothing in common: each has a row of its own.
            if not labels:
                workload = row.pod.uid
            else:
                self._workloads[signature] = workload
        known = self._rows.get((workload, row.reason))
        if known is not None:
            row.alike = known.alike = known.alike + 1
        if known is None or row.position < known.position:
            self._rows[workload, row.reason] = row

    def rows(self) -> list[_Waiting]:
        """The rows, in no order."""
        return list(self._rows.values())


def pending_page(
    asked: PendingQuestion, view: ClusterView, assumed: Container[str], unasked: Callable[[Pod], str]
) -> Steps[PendingPage]:
    """The page, without the last answers about the pods. The pod that waits longest comes first. O(pods without a node).

    ``unasked``: the text about a pod that no scheduler schedules, else empty.
    """
    page: FirstRows[_Waiting] = FirstRows(asked.after, asked.limit)
    reasons, texts, groups = Counter[str](), dict[str, str](), _Groups()
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        for pod in piece:
            if asked.namespace not in ("", pod.signature.namespace):
                continue
            reason = state_of(pod, view, assumed)
            if reason == "pending":
                reason = texts.get(pod.rejection) or texts.setdefault(pod.rejection, reason_of(pod.rejection))
            reasons[reason] += 1
            if asked.reason in ("", reason):
                row = _Waiting(pod, f"{pod.created} {pod.full_name} {pod.uid}", reason)
                groups.add(row) if asked.is_grouped else page.add(row.position, row)
        yield
    for rows in in_steps(groups.rows(), _PODS_A_STEP):
        for row in rows:
            page.add(row.position, row)
        yield
    shown = tuple(_pending_row(row, state_of(row.pod, view, assumed), view, unasked) for row in page.rows())
    return PendingPage(pods=shown, reasons=reasons, more=page.more, next=page.next)


def _pending_row(row: _Waiting, state: str, view: ClusterView, unasked: Callable[[Pod], str]) -> PendingRow:
    pod = row.pod
    return PendingRow(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        state=state,
        since=pod.created,
        priority=pod.priority,
        rejection=pod.rejection,
        nominated_node=view.plan_node(pod.uid) or pod.nominated_node,
        scheduler=pod.scheduler,
        unasked=unasked(pod) if state == "pending" else "",
        reason=row.reason,
        alike=row.alike,
    )
