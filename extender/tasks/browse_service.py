"""Computes pages of the cluster for people, in slices, so that an answer to the scheduler waits for little of it.

Each page has a budget of time, and few may wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from extender.index.cluster import ClusterIndex
from extender.index.gated import Role
from extender.model.explanations import Cause, NotExplained
from extender.model.overview import ClusterFigures, KeySummary
from extender.model.pages import ConstraintsPage, PageOf, PendingPage, TopologyPage, TopologyQuestion, WorkloadPage
from extender.rules.constraint_states import Steps
from extender.settings.configuration import Settings
from extender.tasks.sliced_work import Places, SlicedWork
from extender.verbs.browse.paging import in_steps
from extender.verbs.browse.pending import count_states, pending_page
from extender.verbs.browse.single_pods import constraints_page, find_pod
from extender.verbs.browse.topology import topology_keys, topology_page
from extender.verbs.browse.workloads import workload_page

T = TypeVar("T")

MOST_WAITING: Final = 8  # a page that is opened asks for several
MOST_SECONDS: Final = 2.0  # of slices; at 5,000 nodes and 150,000 pods no page takes more than 0.1
_GROUPS_A_STEP: Final = 2000
_IN_FLIGHT: Final = (Role.READY, Role.BLOCKED, Role.RELEASED)


class BrowseService:
    """The pages. ``preemptions`` tells how many are in flight, ``freshness`` seconds since the cluster was heard of."""

    def __init__(
        self,
        index: ClusterIndex,
        settings: Settings,
        work: SlicedWork,
        preemptions: Callable[[], int] = lambda: 0,
        freshness: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._index = index
        self._settings = settings
        self._work = work
        self._preemptions = preemptions
        self.freshness = freshness
        self._places = Places(MOST_WAITING, "pages")
        self._keys: tuple[int, tuple[KeySummary, ...], int] = (-1, (), 0)

    async def figures(self) -> ClusterFigures:
        """How many objects there are. Raises NotExplained, as all methods here."""
        return await self._run(self._figures())

    async def topology(self, asked: TopologyQuestion) -> TopologyPage:
        """The domains of a label key, or the nodes of one domain."""
        return await self._run(topology_page(asked, self._index.view))

    async def pending(self, asked: PageOf) -> PendingPage:
        """The pods without a node, without what was answered about them."""
        return await self._run(pending_page(asked, self._index.view, self._assumed_nodes))

    async def workloads(self, asked: PageOf) -> WorkloadPage:
        """Pods by namespace and labels."""
        return await self._run(workload_page(asked, self._index.view))

    async def constraints(self, namespace: str, name: str) -> ConstraintsPage:
        """What the constraints of a pod count. Raises NotExplained also where it is not known."""
        return await self._run(self._constraints(namespace, name))

    async def _run(self, work: Steps[T]) -> T:
        with self._places:
            return await self._work.run(work, MOST_SECONDS, "the page")

    def _assumed_nodes(self, uid: str) -> Sequence[str]:
        held = self._index.assumed.held.get(uid)
        return () if held is None else held.nodes

    def _constraints(self, namespace: str, name: str) -> Steps[ConstraintsPage]:
        view = self._index.view
        pod = yield from find_pod(namespace, name, view)
        if pod is None:
            raise NotExplained(Cause.UNKNOWN, f"pod {namespace}/{name} is not known, or it has finished")
        return (yield from constraints_page(pod, view, self._settings))

    def _figures(self) -> Steps[ClusterFigures]:
        index, view = self._index, self._index.view
        states = yield from count_states(view, self._assumed_nodes)
        groups = 0
        for piece in in_steps(list(index.gated), _GROUPS_A_STEP):
            groups += sum(any(group.counts[role] for role in _IN_FLIGHT) for group in piece)
            yield
        if self._keys[0] != view.nodes_version:
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
            preemptions_in_flight=self._preemptions(),
            groups_in_flight=groups,
            policies=len(index.policies),
            invalid_policies=len(index.policies.invalid()),
            topology_keys=keys,
            more_keys=more,
        )
