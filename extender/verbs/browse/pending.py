"""The pods without a node: how many are in which state, and a page of them, those that wait longest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from extender.index.view import ClusterView
from extender.model.answers.pages import PageOf, PendingPage, PendingRow
from extender.model.objects import Pod
from extender.rules.constraint_states import Steps
from extender.verbs.browse.paging import Page, in_steps

_PODS_A_STEP: Final = 300  # at 0.5 µs


def state_of(pod: Pod, view: ClusterView, assumed: Callable[[str], object]) -> str:
    """The state of a pod without a node. ``assumed`` tells whether the UID is that of an assumed pod. O(victims)."""
    if pod.terminating:
        return "terminating"
    if pod.gated:
        return "gated"
    if assumed(pod.uid):
        return "assumed"
    return "preempting" if view.plan_node(pod.uid) or view.uncleared_node(pod.uid) else "pending"


def count_states(view: ClusterView, assumed: Callable[[str], object]) -> Steps[Counter[str]]:
    """How many pods without a node are in each state. O(pods without a node)."""
    found: Counter[str] = Counter()
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        found.update(state_of(pod, view, assumed) for pod in piece)
        yield
    return found


def pending_page(asked: PageOf, view: ClusterView, assumed: Callable[[str], object]) -> Steps[PendingPage]:
    """The page without what was answered about the pods. O(pods without a node)."""
    page: Page[Pod] = Page(asked.after, asked.limit)
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        for pod in piece:
            if not asked.namespace or pod.signature.namespace == asked.namespace:
                page.add(f"{pod.created} {pod.full_name} {pod.uid}", pod)
        yield
    rows = tuple(_row(pod, state_of(pod, view, assumed), view) for pod in page.rows())
    return PendingPage(pods=rows, more=page.more, next=page.next)


def _row(pod: Pod, state: str, view: ClusterView) -> PendingRow:
    return PendingRow(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        state=state,
        since=pod.created,
        priority=pod.priority,
        rejection=pod.rejection,
        nominated_node=view.plan_node(pod.uid) or pod.nominated_node,
    )
