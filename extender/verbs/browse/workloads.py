"""The workloads of the cluster: pods with equal labels, how many of them wait, and what constraints they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from extender.index.view import ClusterView
from extender.model.answers.pages import PageOf, WorkloadPage, WorkloadRow
from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.selectors import Requirement, selector
from extender.model.objects import PodSignature
from extender.rules.constraint_states import Steps
from extender.verbs.browse.paging import Page, in_steps
from extender.verbs.browse.single_pods import example_pods

_SIGNATURES_A_STEP: Final = 60  # at 3 µs
_ROWS_A_STEP: Final = 12  # at 15 µs
_SETS: Final = 64
_MOST_SIGNATURES: Final = 8  # of a workload, whose constraints are looked at
_PODS_A_STEP: Final = 1000  # at 0.15 µs

# Labels that controllers give to the pods of one revision, of one run, or to one pod.
# https://kubernetes.io/docs/reference/labels-annotations-taints/
_OWN: Final = frozenset(
    {
        *("pod-template-hash", "controller-revision-hash", "pod-template-generation", "rollouts-pod-template-hash"),
        *("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"),
        *("batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid", "controller-uid"),
    }
)


class _Workload:
    """Pods with equal labels. ``signatures`` are the first of theirs, with different constraints perhaps."""

    __slots__ = ("labels", "pending", "pods", "signatures", "waiting")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.signatures: list[PodSignature] = []
        self.pods = self.pending = 0
        self.waiting = ""


def workload_page(asked: PageOf, view: ClusterView) -> Steps[WorkloadPage]:
    """The page. O(signatures + pods without a node)."""
    waiting = yield from _waiting(view)
    page: Page[_Workload] = Page(asked.after, asked.limit)
    # Hashes of positions: there may be a workload for each pod, and one large set would take milliseconds to grow.
    seen: list[set[int]] = [set() for _ in range(_SETS)]
    for signatures in in_steps(list(view.pods_of), _SIGNATURES_A_STEP):
        for signature in signatures:
            pods = view.pods_of.get(signature)  # none where the last one has been deleted since
            if pods and asked.namespace in ("", signature.namespace):
                _add(signature, pods, waiting.get(signature), page, seen)
        yield
    shown = page.rows()
    yield
    named = yield from example_pods({each.signatures[0] for each in shown if not each.waiting}, view)
    rows = []
    for some in in_steps(shown, _ROWS_A_STEP):
        rows += [_row(each, each.waiting or named.get(each.signatures[0], "")) for each in some]
        yield
    return WorkloadPage(workloads=tuple(rows), more=page.more, next=page.next)


def _add(
    signature: PodSignature, pods: int, waiting: tuple[int, str] | None, page: Page[_Workload], seen: list[set[int]]
) -> None:
    """Adds the pods of a signature to their workload. O(labels)."""
    labels = signature.labels
    if not _OWN.isdisjoint(labels):
        labels = {key: value for key, value in labels.items() if key not in _OWN}
    position = f"{signature.namespace}/{','.join(sorted([f'{key}={labels[key]}' for key in labels]))}"
    found = page.find(position)
    if found is None:
        known = seen[hash(position) % _SETS]
        if hash(position) in known:
            return  # on another page
        known.add(hash(position))
        found = _Workload(labels)
        page.add(position, found)
    found.pods += pods
    if len(found.signatures) < _MOST_SIGNATURES:
        found.signatures.append(signature)
    if waiting is not None:
        pending, found.waiting = waiting
        found.pending += pending


def _waiting(view: ClusterView) -> Steps[Mapping[PodSignature, tuple[int, str]]]:
    """By signature how many of its pods have no node, and the name of one of them. O(pods without a node)."""
    found: dict[PodSignature, tuple[int, str]] = {}
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        for pod in piece:
            count, name = found.get(pod.signature, (0, pod.name))
            found[pod.signature] = count + 1, name
        yield
    return found


def _row(workload: _Workload, example: str) -> WorkloadRow:
    pairs = (Requirement(key, Operator.IN, (value,)) for key, value in workload.labels.items())
    constraints: dict[str, int] = {}
    for signature in workload.signatures:
        for kind, count in _constraints(signature):
            constraints[kind] = max(count, constraints.get(kind, 0))
    return WorkloadRow(
        namespace=workload.signatures[0].namespace,
        labels=workload.labels,
        selector=str(selector(pairs)) if workload.labels else "",
        pods=workload.pods,
        pending=workload.pending,
        constraints=constraints,
        example_pod=example,
    )


def _constraints(signature: PodSignature) -> Iterator[tuple[str, int]]:
    """How many constraints of each kind there are."""
    affinity, spread = signature.affinity, signature.spread
    kinds = (
        ("podAffinity", affinity.required),
        ("podAntiAffinity", affinity.required_anti),
        ("preferredPodAffinity", affinity.preferred),
        ("preferredPodAntiAffinity", affinity.preferred_anti),
        ("topologySpread", spread.hard),
        ("preferredTopologySpread", spread.soft),
    )
    return ((kind, len(constraints)) for kind, constraints in kinds if constraints)
