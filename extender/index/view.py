"""What rules, verbs and the server see of the index: its readers, each bound from the table that has the answer.

A view is live. Between two awaits it does not change, so a verb, which is one synchronous function, sees one consistent
state. The only exception is a trial, which changes counts inside its block (`index/trial.py`). Work in steps copies a
table before it pauses. Tables keep their identity while the index lives, even in a recount. So a reader that is bound
once never goes stale, and costs one function call.

Nothing here, or reachable from here, changes the index: tables are typed by their read side.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from extender.index.availability import DomainsView
from extender.index.charges import ReleaseView
from extender.index.claims.reserved import ReservedView
from extender.index.nodes.columns import NodeNumber
from extender.index.nodes.domains import KeyView
from extender.index.nodes.requested_shares import BalanceView
from extender.index.nodes.room import RoomView
from extender.index.objects.changes import Subscribable
from extender.index.policies import PoliciesView
from extender.index.trial import Trial
from extender.model.constraints.taints import Taint
from extender.model.objects import Namespace, Pod, PodSignature
from extender.model.resources import Resources

if TYPE_CHECKING:
    from extender.index.cluster import ClusterIndex


T = TypeVar("T")


class ClusterView:
    """The readers of an index. Nodes are numbered. A number is valid until the node and its pods are deleted."""

    # Pods as the watch shows them, by UID. `unplaced`: the pods of `pods` without a node.
    pods: Mapping[str, Pod]
    unplaced: Mapping[str, Pod]
    # How many pods each signature has, with or without a node.
    pods_of: Mapping[PodSignature, int]
    # UIDs of the pods that were deleted last: a late request may still name one.
    deleted: Container[str]
    namespaces: Mapping[str, Namespace]
    namespace_changes: Subscribable
    workload_changes: Subscribable
    policies: PoliciesView
    domains: DomainsView
    # Notifies of a namespace with waiting pods whose use of its budget has fallen.
    budget_changes: Subscribable
    # `known`: numbers of existing nodes by name. `node_names`: by number, also names that only pods mention.
    known: Mapping[str, NodeNumber]
    node_names: Sequence[str]
    # The sum of the allocatable resources of all nodes.
    offered: Resources
    # Nodes with taints PreferNoSchedule, by these taints.
    soft_taints: Mapping[tuple[Taint, ...], AbstractSet[NodeNumber]]
    key: Callable[[str], KeyView]
    # None with one scheduler, which counts room itself. Several schedulers do not see each other's pods in time.
    room: RoomView | None
    shares: BalanceView
    # Notifies of each assumption that ended while its pod was not bound where it held room.
    given_back: Subscribable
    reserved: ReservedView
    release: ReleaseView
    # Nominated pods by node name and UID: by `status.nominatedNodeName`, or by a preemption plan.
    nominated: Mapping[str, Mapping[str, Pod]]

    def __init__(self, index: ClusterIndex) -> None:
        # Objects
        self.pod = index.pods.get
        self.pods = index.pods
        self.unplaced = index.unplaced
        self.deleted = index.deleted
        self._namespaces = index.namespaces
        self.namespaces = index.namespaces.objects
        self.namespace_labels = index.namespaces.labels
        self.namespace_changes = index.namespaces.changes
        self.workload_changes = index.workloads.changes
        self._budgets = index.budgets
        self.budgets_protecting = index.budgets.protecting
        self.policies = index.policies
        self._tables = {table.view: table.shown for table in index.tables}
        # Nodes, and what is on them
        self._topology = index.topology
        self.domains = index.domains
        self.known = index.topology.known
        self.node_names = index.topology.names
        self.offered = index.topology.offered
        self.soft_taints, self.is_carried = index.topology.soft_taints, index.topology.is_carried
        self.node = index.topology.node
        self.key = index.topology.key
        self._nodes = index.nodes
        self.pods_on = index.nodes.pods_on
        self.requested = index.nodes.requested
        self.ports_on = index.nodes.ports_on
        self.has_below = index.nodes.has_below
        self.room = index.room
        self.shares = index.shares
        # Counts, and trials on them
        self.pods_of = index.counts.compiler.pods
        self.compiled, self.release_compiled = index.counts.compiler.find, index.counts.compiler.release
        # As if both rules were enabled, for decisions that are only compared; None without them.
        self.shadow_compiled = None if index.counts.shadow is None else index.counts.shadow.find
        self.dependency_version = index.counts.dependency_version
        self.is_touched = index.counts.is_touched
        self.is_counted, self.times_counted = index.counts.is_counted, index.counts.times_counted
        self.groups_that_count = index.counts.groups_that_count
        self.terms_selecting, self.placed = index.counts.terms_selecting, index.counts.placed
        self.budget_changes = index.namespace_budgets.changes
        self.trial = partial(Trial, index.pods, index.topology, index.counts, set[str]())
        # Claims on nodes
        assumed = index.assumed
        self.is_undetermined, self.is_score_undetermined = assumed.is_undetermined, assumed.is_score_undetermined
        self.expected, self.given_back = assumed.expected, assumed.given_back
        self.undetermined = assumed.undetermined
        self.undetermined_on, self._assumed = assumed.undetermined_on, assumed.held
        self.reserved, self.release = index.reserved, index.gated
        self._nominations = index.nominations
        self.nominated = index.nominations.by_node
        self.uncleared_node = index.nominations.uncleared_node
        self.plan_node = index.nominations.plan_node
        self.leaving = index.nominations.leaving

    def table(self, view: type[T]) -> T | None:
        """What a feature shows of its table under this class; None if the index has no such table. O(1)."""
        shown = self._tables.get(view)
        return shown if isinstance(shown, view) else None

    def assumed_nodes(self, uid: str) -> Sequence[str] | None:
        """The nodes that an assumed pod may be on; None if it is not assumed. O(1)."""
        assumed = self._assumed.get(uid)
        return None if assumed is None else assumed.nodes

    def assumed_node(self, uid: str) -> str:
        """The node that an assumed pod counts on; empty if it counts on none, or is not assumed. O(1)."""
        assumed = self._assumed.get(uid)
        return "" if assumed is None else assumed.pod.node

    def assumed_pods(self) -> Iterator[tuple[Pod, Sequence[str]]]:
        """The assumed pods, with the nodes that they may be on. O(assumed pods)."""
        for assumed in self._assumed.values():
            yield assumed.pod, assumed.nodes

    @property
    def placement_version(self) -> int:
        """Grows with every pod that is placed on a node or leaves one."""
        return self._nodes.version

    @property
    def nodes_version(self) -> int:
        """Grows with every change of a node."""
        return self._topology.version

    @property
    def namespaces_version(self) -> int:
        """Grows with every change of Namespace objects."""
        return self._namespaces.version

    @property
    def claims_version(self) -> int:
        """Grows with every change of nominations and disruption budgets."""
        return self._nominations.version + self._budgets.version
