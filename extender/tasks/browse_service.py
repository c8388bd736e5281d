"""Computes explanations and pages of the cluster for people.

The work is cut into slices, so that an answer to the scheduler waits for one slice at most. Each explanation and page has a
budget of time, and few may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec.structs import replace

from extender.features.execution.plan import state_of_running
from extender.index.cluster import ClusterIndex
from extender.index.gated import GatedGroup, GatedPodState
from extender.index.view import ClusterView
from extender.kube.timing import Clock
from extender.model.answers.explanations import Asked, Explanation, NoAnswerCause, NotExplained
from extender.model.answers.pages import (
    ClusterFigures,
    ConstraintsPage,
    GroupPage,
    GroupRow,
    KeySummary,
    PageOf,
    PendingPage,
    PendingQuestion,
    PolicyPage,
    PreemptionPage,
    PreemptionRow,
    TopologyPage,
    TopologyQuestion,
    WorkloadPage,
)
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.model.policies import JsonObject
from extender.model.release import GroupKey
from extender.settings.configuration import Settings
from extender.tasks.preemption.manager import PreemptionRecord
from extender.tasks.release.groups import group_state
from extender.tasks.sliced_work import Places, SlicedWork
from extender.verbs.browse.in_flight import group_row, held_group, large_group_overview, policy_page, preemption_row
from extender.verbs.browse.manifests import manifest_of
from extender.verbs.browse.pending import pending_page
from extender.verbs.browse.pods import (
    FirstRows,
    PodFinder,
    constraints_page,
    count_states,
    in_steps,
    workload_page,
)
from extender.verbs.browse.topology import topology_keys, topology_page
from extender.verbs.effective_pod import known_effective_pod
from extender.verbs.explain.explaining import explain
from extender.verbs.release.choice import narrowed
from extender.verbs.release.progress import GroupOverview, group_overview

T = TypeVar("T")

MOST_EXPLANATIONS: Final = 4
_MOST_EXPLAINING: Final = 1.0  # of slices; an explanation at 5,000 nodes and 150,000 pods takes 0.04


class ExplainService:
    """The explain verb with its budget.

    ``nodes_of``: the nodes that a pod is assumed on, by its UID.
    ``work``: the queue of work for people; by default explanations have one of their own.
    ``group_of``: the group of a gated pod, by its UID.
    ``asked_about``: whether a scheduler looks at a pending pod; None where that is not known.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        clock: Clock,
        nodes_of: Callable[[str], Sequence[str]] = lambda _uid: (),
        work: SlicedWork | None = None,
        group_of: Callable[[str], GroupOverview | None] = lambda _uid: None,
        asked_about: Callable[[Pod], Asked | None] = lambda _pod: None,
    ) -> None:
        self._group_of = group_of
        self._asked_about = asked_about
        self._view = view
        self._finder = PodFinder(view)
        self._settings = settings
        self._nodes_of = nodes_of
        self._work = work or SlicedWork(clock)
        self._places = Places(MOST_EXPLANATIONS, "explanation", self._work)

    async def explain(self, namespace: str, name: str, node: str = "") -> Explanation:
        """Explains a pod that exists. Raises NotExplained."""
        return await self._in_turn(self._of_name(namespace, name, node))

    async def explain_given(self, pod: Pod, node: str = "") -> Explanation:
        """Explains a pod that does not exist yet. Raises NotExplained."""
        return await self._in_turn(self._of_given(pod, node))

    async def rejection(self, uid: str) -> Explanation:
        """What rejects a pending pod now, without changes that would help. For tasks: waits for its turn. Raises NotExplained."""
        return await self._work.run(self._of_rejected(uid), _MOST_EXPLAINING, "event")

    async def _in_turn(self, work: Steps[T]) -> T:
        with self._places:
            return await self._work.run(work, _MOST_EXPLAINING, "explanation")

    def _of_name(self, namespace: str, name: str, node: str) -> Steps[Explanation]:
        self._check_node(node)
        pod = yield from self._finder.find(namespace, name)
        if pod is None:
            raise NotExplained(NoAnswerCause.UNKNOWN, f"pod {namespace}/{name} is not known, or it has finished")
        explanation = yield from self._of_pod(pod, node, offers_changes=True)
        return replace(explanation, asked=self._asked_about(pod)) if explanation.state == "pending" else explanation

    def _of_pod(self, pod: Pod, node: str, *, offers_changes: bool) -> Steps[Explanation]:
        state = self._state(pod)
        if state:
            runs = pod.node and not pod.terminating
            broken, move = (yield from state_of_running(pod, self._view, self._settings)) if runs else ((), "")
            nodes = len(self._view.known)
            return Explanation(
                pod=pod.full_name, state=state, nodes=nodes, passing=0, fitting=0, broken=broken, move=move
            )
        if pod.gated:
            return (yield from self._of_gated(pod, node, offers_changes=offers_changes))
        return (yield from explain(pod, self._view, self._settings, node, offers_changes=offers_changes))

    def _of_gated(self, pod: Pod, node: str, *, offers_changes: bool) -> Steps[Explanation]:
        """Explains the pod as it will be after its release: pinned to the domain of its group, if the group has one."""
        group = self._group_of(pod.uid)
        levels = () if group is None else group.levels
        asked = replace(pod, signature=narrowed(pod.signature, levels)) if levels else pod
        try:
            explanation = yield from explain(asked, self._view, self._settings, node, offers_changes=offers_changes)
        finally:
            # The narrowed signature exists for this explanation only, so what was compiled for it is freed at once.
            for compiled in (asked, known_effective_pod(asked, self._view)) if levels else ():
                self._view.release_compiled(compiled.signature)
        return replace(explanation, gates=() if pod.gating is None else pod.gating.gates, group=held_group(group))

    def _of_rejected(self, uid: str) -> Steps[Explanation]:
        pod = self._view.pod(uid)
        if pod is None:
            raise NotExplained(NoAnswerCause.UNKNOWN, f"pod {uid} is not known, or it has finished")
        return (yield from self._of_pod(pod, "", offers_changes=False))

    def _of_given(self, pod: Pod, node: str) -> Steps[Explanation]:
        self._check_node(node)
        try:
            return (yield from explain(pod, self._view, self._settings, node, state="does not exist"))
        finally:
            for compiled in (pod, known_effective_pod(pod, self._view)):
                self._view.release_compiled(compiled.signature)

    def _check_node(self, node: str) -> None:
        if node and node not in self._view.known:
            raise NotExplained(NoAnswerCause.UNKNOWN, f"node {node} is not known")

    def _state(self, pod: Pod) -> str:
        """Why there is nothing to explain: the pod is placed, assumed or terminating. Empty for a pending pod."""
        if pod.node:
            return f"on node {pod.node}"
        if pod.terminating:
            return "terminating"
        nodes = self._nodes_of(pod.uid)
        if not nodes:
            return ""
        where = nodes[0] if len(nodes) == 1 else f"one of {len(nodes)} nodes"
        return f"passed filter, and is assumed on {where} until it is bound"


MOST_PAGES: Final = 8  # a page that is opened asks for several
MOST_PAGE_SECONDS: Final = 2.0  # of slices; at 5,000 nodes and 150,000 pods no page takes more than 0.1
_GROUPS_A_STEP: Final = 300
_MOST_GROUPED: Final = 500  # pods of a group whose next step is looked for
_RECORDS_A_STEP: Final = 200
_ROWS_A_STEP: Final = 4  # with up to 50 victims each
_IN_FLIGHT: Final = (GatedPodState.READY, GatedPodState.BLOCKED, GatedPodState.RELEASED)


def overview_of(index: ClusterIndex, group: GatedGroup) -> GroupOverview:
    """How far a group is, and why it waits. O(its pods).

    A group with more than `_MOST_GROUPED` pods costs O(1): the overview repeats what the leader wrote into its status.
    """
    placement = index.placements.of(group.key)
    state = group_state(group.key, index) if len(group.roles) <= _MOST_GROUPED else None
    if state is not None:
        return group_overview(state, placement)
    pods = len(group.roles) - group.counts[GatedPodState.LEAVING]
    return large_group_overview(group.key, group.size, pods, group.placed, group.counts[GatedPodState.BOUND], placement)


class BrowseService:
    """The pages.

    ``preemptions``: the preemptions in flight.
    ``freshness``: the age of the oldest kind in the index, in seconds.
    ``unasked``: a sentence where no scheduler looks at a pending pod, else empty.
    """

    def __init__(
        self,
        index: ClusterIndex,
        settings: Settings,
        work: SlicedWork,
        clock: Clock,
        utc_now: Callable[[], datetime],
        preemptions: Callable[[], Sequence[PreemptionRecord]] = lambda: (),
        freshness: Callable[[], float | None] = lambda: None,
        unasked: Callable[[Pod], str] = lambda _pod: "",
    ) -> None:
        self._index = index
        self._finder = PodFinder(index.view)
        self._settings = settings
        self._work = work
        self._clock = clock
        self._utc_now = utc_now
        self._preemptions = preemptions
        self._unasked = unasked
        self.freshness = freshness
        self._places = Places(MOST_PAGES, "page", work)
        self._overviews = Places(MOST_PAGES, "page", work)
        self._keys: tuple[int, tuple[KeySummary, ...], int] = (-1, (), 0)

    async def figures(self) -> ClusterFigures:
        """How many objects there are. Raises NotExplained, as all methods here."""
        with self._overviews:  # never refused because of pages
            return await self._work.run(self._figures(), MOST_PAGE_SECONDS, "page")

    async def topology(self, asked: TopologyQuestion) -> TopologyPage:
        """The domains of a label key, or the nodes of one domain."""
        return await self._run(topology_page(asked, self._index.view))

    async def manifest(self, kind: str, name: str) -> JsonObject:
        """A node or a namespace, in the form that a what-if takes. Raises NotExplained also where there is none."""
        manifest = manifest_of(kind, name, self._index.view)
        if manifest is None:
            raise NotExplained(NoAnswerCause.UNKNOWN, f"{kind} {name} is not known")
        return manifest

    async def pending(self, asked: PendingQuestion) -> PendingPage:
        """The pods without a node. The answers of filter about them are not added here."""
        return await self._run(pending_page(asked, self._index.view, self._index.assumed.held, self._unasked))

    async def workloads(self, asked: PageOf) -> WorkloadPage:
        """Pods by namespace and labels."""
        return await self._run(workload_page(asked, self._index.view))

    async def constraints(self, namespace: str, name: str) -> ConstraintsPage:
        """What the constraints of a pod count. Raises NotExplained also where it is not known."""
        return await self._run(self._constraints(namespace, name))

    async def preemptions(self, asked: PageOf) -> PreemptionPage:
        """The preemptions in flight."""
        return await self._run(self._preemption_page(asked))

    async def groups(self, asked: PageOf) -> GroupPage:
        """The groups of gated pods with a pod that has no node."""
        return await self._run(self._group_page(asked))

    async def policies(self, asked: PageOf) -> PolicyPage:
        """The scheduling policies."""
        return await self._run(
            policy_page(asked, self._index.view, self._settings.policies.exempt, self._index.gated.charges.uses)
        )

    async def _run(self, work: Steps[T]) -> T:
        with self._places:
            return await self._work.run(work, MOST_PAGE_SECONDS, "page")

    def _constraints(self, namespace: str, name: str) -> Steps[ConstraintsPage]:
        pod = yield from self._finder.find(namespace, name)
        if pod is None:
            raise NotExplained(NoAnswerCause.UNKNOWN, f"pod {namespace}/{name} is not known, or it has finished")
        return (yield from constraints_page(pod, self._index.view, self._settings))

    def _preemption_page(self, asked: PageOf) -> Steps[PreemptionPage]:
        page: FirstRows[PreemptionRecord] = FirstRows(asked.after, asked.limit)
        for piece in in_steps(self._preemptions(), _RECORDS_A_STEP):
            for record in piece:
                preemptor = record.plan.preemptor
                if asked.namespace in ("", preemptor.namespace):
                    # Padded with zeros, so that the texts sort as the times do.
                    page.add(f"{record.begun:020.6f} {preemptor.uid}", record)
            yield
        rows: list[PreemptionRow] = []
        for records in in_steps(page.rows(), _ROWS_A_STEP):
            now, utc = self._clock.now(), self._utc_now()
            rows += [
                preemption_row(record.plan, record.phase.value, now - record.begun, utc, self._index.view)
                for record in records
            ]
            yield
        return PreemptionPage(preemptions=tuple(rows), more=page.more, next=page.next)

    def _group_page(self, asked: PageOf) -> Steps[GroupPage]:
        page: FirstRows[GroupKey] = FirstRows(asked.after, asked.limit)
        for piece in in_steps(list(self._index.gated), _GROUPS_A_STEP):
            for group in piece:
                if asked.namespace in ("", group.key.namespace) and any(group.counts[role] for role in _IN_FLIGHT):
                    page.add("/".join(group.key), group.key)
            yield
        rows: list[GroupRow] = []
        for key in page.rows():
            shown = self._index.gated.groups.get(key)
            if shown is not None:  # else its last pod has been deleted since
                rows.append(group_row(overview_of(self._index, shown)))
            yield
        return GroupPage(groups=tuple(rows), more=page.more, next=page.next)

    def _figures(self) -> Steps[ClusterFigures]:
        index, view = self._index, self._index.view
        states = yield from count_states(view, index.assumed.held)
        groups = 0
        for piece in in_steps(list(index.gated), _GROUPS_A_STEP):
            groups += sum(any(group.counts[role] for role in _IN_FLIGHT) for group in piece)
            yield
        if self._keys[0] != view.nodes_version:
            # Read before the first step: if nodes change during the count, the next call counts again.
            version = view.nodes_version
            keys, more = yield from topology_keys(view)
            self._keys = version, keys, more
        _, keys, more = self._keys
        return ClusterFigures(
            nodes=len(view.known),
            pods=len(view.pods),
            namespaces=len(view.namespaces),
            pending=states["pending"] + states["preempting"],
            gated=states["gated"],
            assumed=len(index.assumed.held),
            preemptions_in_flight=len(self._preemptions()),
            groups_in_flight=groups,
            policies=len(index.policies),
            invalid_policies=len(index.policies.invalid()),
            rebuilds=index.drifts,
            topology_keys=keys,
            more_keys=more,
        )
