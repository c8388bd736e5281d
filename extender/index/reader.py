"""The implementation of `ClusterView`: each reader is a method of the room that holds the answer, bound once.

A call through the view therefore costs one function call, not two. Rooms keep their identity for as long as the index
lives, also across a recount, so that nothing that is bound here goes stale.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet

from extender.index.claims.assumed import AssumedPods
from extender.index.claims.nominations import Nominations
from extender.index.claims.reserved import Reservations
from extender.index.counts.counts import Counts
from extender.index.counts.namespace_budgets import NamespaceBudgets
from extender.index.counts.what_if import CountTrials
from extender.index.nodes.requested_shares import RequestedShares
from extender.index.nodes.room import RoomTable
from extender.index.nodes.topology import NodePods, Topology
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.workloads import Budgets, Workloads
from extender.index.policies import PolicyTable
from extender.index.quotas_view import QuotasView
from extender.index.table_views import PoliciesView, ReservedView, RoomView, SharesView, Subscribable
from extender.index.usage import QuotaTable
from extender.model.constraints.taints import Taint
from extender.model.objects import Namespace, Pod, PodSignature
from extender.model.resources import Resources


class IndexReader:
    """What rules, verbs and tasks read, by the Protocols of `view`."""

    def __init__(
        self,
        pods: Mapping[str, Pod],
        unplaced: Mapping[str, Pod],
        deleted: Container[str],
        namespaces: Namespaces,
        workloads: Workloads,
        budgets: Budgets,
        policies: PolicyTable,
        quotas: QuotaTable,
        namespace_budgets: NamespaceBudgets,
        topology: Topology,
        nodes: NodePods,
        counts: Counts,
        assumed: AssumedPods,
        nominations: Nominations,
        reserved: Reservations,
        room: RoomTable | None,
        shares: RequestedShares,
    ) -> None:
        self._nodes = nodes
        self._budgets = budgets
        self._nominations = nominations
        self._namespaces = namespaces
        self.policies: PoliciesView = policies
        self.quotas: QuotasView = quotas
        self.quota_changes: Subscribable = quotas.changes
        self.budget_changes: Subscribable = namespace_budgets.changes
        self.pod = pods.get
        self.pods = pods
        self.unplaced = unplaced
        self.pods_of: Mapping[PodSignature, int] = counts.compiler.pods
        self._topology = topology
        self.namespaces: Mapping[str, Namespace] = namespaces.objects
        self.deleted = deleted
        self.namespace_labels = namespaces.labels
        self.namespace_changes: Subscribable = namespaces.changes
        self.workload_changes: Subscribable = workloads.changes
        self.budgets_in = budgets.of
        self.known: Mapping[str, int] = topology.known
        self.node_names = topology.names
        self.offered: Resources = topology.offered
        self.node = topology.node
        self.soft_taints: Mapping[tuple[Taint, ...], AbstractSet[int]] = topology.soft_taints
        self.key = topology.key
        self.pods_on = nodes.pods_on
        self.requested = nodes.requested
        self.ports_on = nodes.ports_on
        self.room: RoomView | None = room
        self.shares: SharesView = shares
        self.has_below = nodes.has_below
        self.compiled = counts.compiler.find
        self.dependency_version = counts.dependency_version
        self.is_touched = counts.is_touched
        self.is_counted = counts.is_counted
        self.term_of = counts.term_of
        self.placed = counts.placed
        self.release_compiled = counts.compiler.release
        self.is_undetermined = assumed.is_undetermined
        self.expected = assumed.expected
        self.undetermined = assumed.undetermined
        self.given_back: Subscribable = assumed.given_back
        self.reserved: ReservedView = reserved
        self.nominated: Mapping[str, Mapping[str, Pod]] = nominations.by_node
        self.uncleared_node = nominations.uncleared_node
        self.plan_node = nominations.plan_node
        self.leaving = nominations.leaving
        trials = CountTrials(pods, topology, counts)
        self.what_if = trials.what_if
        self.without = trials.without

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
