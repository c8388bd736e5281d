"""Pages of pods: workloads (pods with equal labels), single pods by name, and pods without a node. And how rows become pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.answers.pages import (
    MOST_ROWS,
    ConstraintsPage,
    PageOf,
    WorkloadPage,
    WorkloadRow,
)
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.selectors import Requirement, selector
from extender.model.objects import Pod, PodSignature
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.request import worst_case

_SIGNATURES_A_STEP: Final = 60  # at 3 µs
_ROWS_A_STEP: Final = 12  # at 15 µs
_SETS: Final = 64
_MOST_SIGNATURES: Final = 8  # signatures of one workload whose constraints are shown
_WAITING_A_STEP: Final = 1000  # at 0.15 µs

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
    """Pods with equal labels. ``signatures``: the first few of them; their constraints may differ."""

    __slots__ = ("labels", "pending", "pods", "signatures", "waiting")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.signatures: list[PodSignature] = []
        self.pods = self.pending = 0
        self.waiting = ""


def workload_page(page_of: PageOf, view: ClusterView) -> Steps[WorkloadPage]:
    """The page. O(signatures + pods without a node)."""
    waiting = yield from _waiting(view)
    page: FirstRows[_Workload] = FirstRows(page_of.after, page_of.limit)
    # Hashes of positions, in several sets: there may be a workload for each pod, and a large set takes milliseconds when it grows.
    seen: list[set[int]] = [set() for _ in range(_SETS)]
    for signatures in in_steps(list(view.pods_of), _SIGNATURES_A_STEP):
        for signature in signatures:
            pods = view.pods_of.get(signature)  # none where the last one has been deleted since
            if pods and page_of.namespace in ("", signature.namespace):
                _add(signature, pods, waiting.get(signature), page, seen)
        yield
    shown = page.rows()
    yield
    named = yield from example_pods({workload.signatures[0] for workload in shown if not workload.waiting}, view)
    rows = []
    for piece in in_steps(shown, _ROWS_A_STEP):
        rows += [_row(workload, workload.waiting or named.get(workload.signatures[0], "")) for workload in piece]
        yield
    return WorkloadPage(workloads=tuple(rows), more=page.more, next=page.next)


def _add(
    signature: PodSignature,
    pods: int,
    waiting: tuple[int, str] | None,
    page: FirstRows[_Workload],
    seen: list[set[int]],
) -> None:
    """Adds the pods of a signature to their workload. O(labels)."""
    labels, position = workload_of(signature)
    workload = page.find(position)
    if workload is None:
        known = seen[hash(position) % _SETS]
        if hash(position) in known:
            return  # on another page
        known.add(hash(position))
        workload = _Workload(labels)
        page.add(position, workload)
    workload.pods += pods
    if len(workload.signatures) < _MOST_SIGNATURES:
        workload.signatures.append(signature)
    if waiting is not None:
        pending, workload.waiting = waiting
        workload.pending += pending


def workload_of(signature: PodSignature) -> tuple[Labels, str]:
    """The labels that the pods of its workload have in common, and a text for its namespace and these labels. O(labels)."""
    labels = signature.labels
    if not _OWN.isdisjoint(labels):
        labels = {key: value for key, value in labels.items() if key not in _OWN}
    return labels, f"{signature.namespace}/{','.join(sorted([f'{key}={labels[key]}' for key in labels]))}"


def _waiting(view: ClusterView) -> Steps[Mapping[PodSignature, tuple[int, str]]]:
    """By signature the number of its pods without a node, and the name of one of them. O(pods without a node)."""
    waiting: dict[PodSignature, tuple[int, str]] = {}
    for piece in in_steps(list(view.unplaced.values()), _WAITING_A_STEP):
        for pod in piece:
            count, name = waiting.get(pod.signature, (0, pod.name))
            waiting[pod.signature] = count + 1, name
        yield
    return waiting


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


# -- single pods ------------------------------------------------------------------------------------------------------

# Single pods: by name, an example of each signature, and the counts of a pod's hard constraints for one more pod like it.

MOST_DOMAINS: Final = 200
_REMEMBERED: Final = 256
_FINDS_A_STEP: Final = 600  # at 0.3 µs, because the objects are scattered in memory


def constraints_page(pod: Pod, view: ClusterView, settings: Settings) -> Steps[ConstraintsPage]:
    """The page, also of a pod that has a node. O(domains + nodes with a counted pod) for each constraint."""
    replica = effective_pod(pod.recreated(), view, settings)
    compiled = view.compiled(replica.signature)
    frame = worst_case(IndexFrame(), compiled, view)
    before = catalog.dependencies(replica, compiled, view)
    yield
    states: list[ConstraintState] = []
    for rule, part in catalog.active(compiled, view):
        states += yield from rule.constraint_states(replica, part, view, frame, MOST_DOMAINS)
    enforced = replica.signature.enforced
    return ConstraintsPage(
        pod=pod.full_name,
        node=pod.node,
        constraints=tuple(states),
        policies=() if enforced is None else tuple(map(str, enforced.every_policy)),
        is_changed=catalog.dependencies(replica, compiled, view) != before,
    )


class PodFinder:
    """Finds pods by their names. It remembers the last ones, because a user who looks at a pod mostly looks again."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._uids: dict[tuple[str, str], str] = {}

    def find(self, namespace: str, name: str) -> Steps[Pod | None]:
        """The pod of a name, None where there is none. O(1) where it was found before, else O(pods)."""
        known = self._view.pod(self._uids.pop((namespace, name), ""))
        if known is None or known.terminating:
            known = yield from find_pod(namespace, name, self._view)
        if known is not None:
            self._uids[namespace, name] = known.uid
            if len(self._uids) > _REMEMBERED:
                del self._uids[next(iter(self._uids))]
        return known


def find_pod(namespace: str, name: str, view: ClusterView) -> Steps[Pod | None]:
    """The pod of a name. Where the watch still shows an earlier, terminating pod of the name, the new one. O(pods).

    It reads one node after the other and keeps no list of all pods: the garbage collector would visit such a list again and again.
    """
    named: list[Pod] = []
    for piece in in_steps(list(view.unplaced.values()), _FINDS_A_STEP):
        named += (pod for pod in piece if pod.name == name and pod.signature.namespace == namespace)
        yield
    looked = 0
    for node in range(len(view.node_names)):
        here = view.pods_on(node) if node < len(view.node_names) else {}
        looked += len(here)
        named += [pod for pod in here.values() if pod.name == name and pod.signature.namespace == namespace]
        if looked >= _FINDS_A_STEP:
            looked = 0
            yield
    shown = [
        pod for earlier in named if (pod := view.pod(earlier.uid)) is not None
    ]  # as the watch shows it, not as it is assumed
    return min(shown, key=lambda pod: (pod.terminating, bool(pod.node)), default=None)


def example_pods(signatures: Collection[PodSignature], view: ClusterView) -> Steps[Mapping[PodSignature, str]]:
    """The name of a placed pod of each signature that has one. O(signatures + pods on one node for each of these)."""
    names: dict[PodSignature, str] = {}
    looked = 0
    for placed in view.placed(wanted=signatures.__contains__):
        if placed is None:
            yield
            continue
        for node in placed.nodes:
            here = view.pods_on(node)
            looked += len(here)
            pod = next((pod for pod in here.values() if placed.are(pod)), None)
            if pod is not None:
                names[placed.signature] = pod.name
                break
        if looked >= _FINDS_A_STEP:
            looked = 0
            yield
    return names


# -- pods without a node ----------------------------------------------------------------------------------------------

# The pods without a node: how many are in which state. `pending` has the page of them.

_PODS_A_STEP: Final = 300  # at 0.5 µs


def state_of(pod: Pod, view: ClusterView, assumed: Container[str]) -> str:
    """The state of a pod without a node. ``assumed``: the UIDs of assumed pods. O(victims)."""
    if pod.terminating:
        return "terminating"
    if pod.gated:
        return "gated"
    if pod.uid in assumed:
        return "assumed"
    return "preempting" if view.plan_node(pod.uid) or view.uncleared_node(pod.uid) else "pending"


def count_states(view: ClusterView, assumed: Container[str]) -> Steps[Counter[str]]:
    """How many pods without a node are in each state. O(pods without a node)."""
    counts: Counter[str] = Counter()
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        counts.update(state_of(pod, view, assumed) for pod in piece)
        yield
    return counts


# -- pages ------------------------------------------------------------------------------------------------------------

# Pages of rows in the order of their positions, without sorting all rows; and lists in steps.

T = TypeVar("T")

_KEPT: Final = 500  # rows beside a page; sorting twice as many takes a quarter of a millisecond


class FirstRows(Generic[T]):
    """Keeps the ``limit`` rows with the lowest positions after ``after``. Positions are unique texts.

    O(1) for each row, amortised, and O(limit) in memory.
    """

    def __init__(self, after: str, limit: int) -> None:
        self._after = after
        self._limit = min(limit, MOST_ROWS)
        self._bound: str | None = None
        self._rows: dict[str, T] = {}
        self._added = 0

    def add(self, position: str, row: T) -> None:
        """Adds a row, unless it is on an earlier page."""
        if position <= self._after and self._after:  # an earlier page
            return
        self._added += 1
        if self._bound is not None and position > self._bound:  # a later page: only counted, for `more`
            return
        self._rows[position] = row
        if len(self._rows) >= self._limit + _KEPT:
            self._cut()

    def find(self, position: str) -> T | None:
        """A row that was added and may be on the page."""
        return self._rows.get(position)

    def _cut(self) -> None:
        # A full page: rows beyond its last position cannot come back, so later rows are compared with that position alone.
        positions = sorted(self._rows)[: self._limit]
        self._rows = {position: self._rows[position] for position in positions}
        if len(positions) == self._limit:
            self._bound = positions[-1]

    def rows(self) -> list[T]:
        """The rows of the page, in order."""
        self._cut()
        return list(self._rows.values())

    @property
    def more(self) -> int:
        """How many rows come after the page. Read it after `rows`."""
        return self._added - len(self._rows)

    @property
    def next(self) -> str:
        """The position after which the next page begins; empty on the last page. Read it after `rows`."""
        return next(reversed(self._rows), "") if self.more else ""


def in_steps(items: Iterable[T], a_step: int) -> Iterator[list[T]]:
    """The items in pieces of ``a_step``. The caller yields after each piece."""
    iterator = iter(items)
    while piece := list(islice(iterator, a_step)):
        yield piece
