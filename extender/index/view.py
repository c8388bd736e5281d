"""What rules, verbs and the server see of the index: a Protocol of readers per room, and trials on the counts.

A view is live: between two awaits it does not change, so a verb, which is one synchronous function, always sees one
consistent state. The one exception is a trial (`Trials`), which changes counts inside its block.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from extender.index.quotas_view import QuotasView
from extender.index.table_views import (
    ByNumber,
    Expected,
    NodeMatchesView,
    PoliciesView,
    ReservedView,
    RoomView,
    SharesView,
    Subscribable,
)
from extender.model.constraints.spread import SpreadConstraint
from extender.model.constraints.taints import Taint
from extender.model.constraints.terms import AffinityTerm
from extender.model.host_ports import UsedPorts
from extender.model.objects import DisruptionBudget, Excess, Node, Pod, PodSignature
from extender.model.resources import Resources

NodeNumber = int
DomainNumber = int
Column = ByNumber[DomainNumber]
"""A domain number for each node number: 0 for a node that is in no domain."""


class KeyView(Protocol):
    """The domains of one topology key.

    Nodes and domains are numbered; ``of_node[node]`` is the node's domain, 0 where the node lacks the key.
    """

    @property
    def key(self) -> str:
        """The topology key."""

    @property
    def of_node(self) -> Column:
        """Domain number by node number."""

    @property
    def number_of(self) -> Mapping[str, DomainNumber]:
        """Domain number by the label's value."""

    @property
    def nodes_in(self) -> Mapping[DomainNumber, Collection[NodeNumber]]:
        """The nodes of a domain: one of a hostname, thousands of a zone."""

    @property
    def filled(self) -> int:
        """How many nodes have the key."""

    @property
    def lacking(self) -> int:
        """How many nodes do not have the key."""

    def value(self, domain: DomainNumber) -> str:
        """The label's value of a domain."""

    def value_on(self, node: Node) -> str | None:
        """The node's value for this key, also of a node that the index does not know; None where it lacks the key."""


class GroupView(Protocol):
    """The running counts of one term or constraint: pods per domain; a domain without pods has no entry."""

    @property
    def key(self) -> KeyView:
        """Where the group counts."""

    @property
    def domain_of(self) -> Column:
        """In which domain a node's pods count: 0 where they do not."""

    @property
    def counts(self) -> Mapping[DomainNumber, int]:
        """Pods by domain number, never zero."""

    @property
    def users(self) -> int:
        """How many compiled constraints share the group."""

    @property
    def version(self) -> int:
        """Grows with every change of the counts."""

    @property
    def undetermined(self) -> int:
        """How many pods would count here whose node is not known yet."""

    @property
    def levels(self) -> Mapping[int, AbstractSet[DomainNumber]]:
        """The domains by their count; none for zero."""

    def greatest(self) -> int:
        """The largest count of a domain; 0 where no pod is counted. O(distinct counts)."""

    def smallest(self) -> int:
        """The smallest count over all domains of the key, those without a pod included. O(distinct counts)."""


class SpreadGroupView(GroupView, Protocol):
    """A group of a spread constraint: counts over eligible nodes, with what skew is measured against."""

    @property
    def domains(self) -> int:
        """How many eligible domains there are."""

    def least(self) -> int:
        """The smallest count over the eligible domains; 0 where there is none. O(distinct counts)."""

    def is_eligible_domain(self, domain: DomainNumber) -> bool:
        """Whether an eligible node is in the domain."""

    def admits(self, node: Node) -> bool:
        """Whether the node would count under the constraint's inclusion policies and keys."""


@dataclass(frozen=True, slots=True)
class CompiledSpread:
    """A constraint with its group; ``self_match`` is 1 where the constraint selects the incoming pod itself."""

    constraint: SpreadConstraint
    group: SpreadGroupView
    self_match: int


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A group that adds ``weight`` points for each pod counted in the node's domain (negative: takes them away)."""

    weight: int
    group: GroupView


@dataclass(frozen=True, slots=True)
class CompiledConstraints:
    """All that the rules read for pods of one signature, compiled once; it stays true because its groups do.

    ``serial`` is the same for as long as a filter result depends on the same groups in the same way. A cache keys its
    entries by that number and not by the groups, which are large and must be released with the compiled constraints.

    ``affinity``: one group per topology key of required terms, each counting the pods that match *all* required terms
    at once. ``anti``: one per distinct required anti-affinity term, those of ``anti_terms``. ``inverse``: required anti-affinity of existing
    pods that selects these pods. ``preferences``: own preferred terms; ``inverse_preferences``: existing pods'
    preferred terms; ``inverse_required``: existing pods' required affinity terms, all that select these pods.
    ``excess``: the pod is to be rejected, as it is above a limit; then all groups are empty. ``is_empty``: none of these.
    ``required_nodes`` and ``preferred_nodes`` (with weights) are what scheduling policies add, if they add any.
    """

    signature: PodSignature
    affinity: tuple[GroupView, ...] = ()
    matches_itself: bool = False
    anti: tuple[GroupView, ...] = ()
    inverse: tuple[GroupView, ...] = ()
    preferences: tuple[WeightedGroup, ...] = ()
    inverse_preferences: tuple[WeightedGroup, ...] = ()
    inverse_required: tuple[GroupView, ...] = ()
    hard: tuple[CompiledSpread, ...] = ()
    soft: tuple[CompiledSpread, ...] = ()
    soft_needs_all_keys: bool = True
    affinity_errors: tuple[str, ...] = ()
    hard_error: str = ""
    soft_error: str = ""
    required_nodes: NodeMatchesView | None = None
    preferred_nodes: tuple[tuple[int, NodeMatchesView], ...] = ()
    excess: Excess | None = None
    anti_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    serial: int = field(default=0, compare=False)
    is_empty: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Notes whether there is any constraint, which every request reads."""
        groups = (self.affinity, self.anti, self.inverse, self.inverse_required, self.hard, self.soft)
        preferences = (self.preferences, self.inverse_preferences)
        failures = (self.affinity_errors, self.hard_error, self.soft_error, self.excess)
        object.__setattr__(self, "is_empty", not any((*groups, *preferences, *failures)))

    def filter_groups(self) -> tuple[GroupView, ...]:
        """Every group that a filter result depends on."""
        return (*self.affinity, *self.anti, *self.inverse, *(each.group for each in self.hard))

    def filters_as(self, other: CompiledConstraints) -> bool:
        """Whether a filter result depends on the same groups in the same way; scores may differ. O(groups)."""
        return (
            self.affinity == other.affinity
            and self.matches_itself == other.matches_itself
            and self.anti == other.anti
            and self.hard == other.hard
            and set(map(id, self.inverse)) == set(map(id, other.inverse))
        )


class WhatIfView(Protocol):
    """Changes that are tried out on the counts and undone when the block ends."""

    def take(self, pod: Pod) -> None:
        """The pod, which is on a node, does not count any more. O(groups that count it)."""

    def put_back(self, pod: Pod) -> None:
        """A pod that was taken counts again."""

    def place(self, pod: Pod, node: NodeNumber) -> None:
        """A pod that has no node counts on this one. Compile constraints after it: the terms of the pod may be new."""

    def remove_last(self) -> None:
        """Takes out the pod that `place` placed last."""

    def remove_placed(self) -> None:
        """Takes out all pods that `place` placed."""


class NodesView(Protocol):
    """Nodes and what is on them. Nodes are numbered; a number is valid until the node and its pods are deleted."""

    @property
    def known(self) -> Mapping[str, NodeNumber]:
        """Numbers of the nodes that exist, by name."""

    @property
    def offered(self) -> Resources:
        """What all nodes offer together."""

    @property
    def placement_version(self) -> int:
        """Grows with every pod that is placed on a node or leaves one."""

    @property
    def node_names(self) -> Sequence[str]:
        """Names by node number."""

    def node(self, number: NodeNumber) -> Node | None:
        """The node of a number, None where pods are on a node that does not exist."""

    @property
    def soft_taints(self) -> Mapping[tuple[Taint, ...], AbstractSet[NodeNumber]]:
        """The nodes with taints PreferNoSchedule, by these taints; no empty entry."""

    def key(self, topology_key: str) -> KeyView:
        """The domains of a topology key."""

    def requested(self, number: NodeNumber) -> Resources:
        """What the pods on the node request together."""

    def pods_on(self, number: NodeNumber) -> Mapping[str, Pod]:
        """The pods on the node, by UID."""

    def ports_on(self, number: NodeNumber) -> UsedPorts:
        """The host ports that the pods on the node use; not to be changed."""

    @property
    def room(self) -> RoomView | None:
        """What is free on nodes beside all pods that are or may come there; None with one scheduler, which counts it."""

    @property
    def shares(self) -> SharesView:
        """Which shares of CPU and memory are requested on each node."""

    def has_below(self, priority: int) -> bool:
        """Whether any pod on a node has a lower priority. O(distinct priorities)."""


class CountsView(Protocol):
    """Compiled constraints, and what depends on their groups."""

    def compiled(self, signature: PodSignature) -> CompiledConstraints:
        """The compiled constraints of a pod signature. O(1) where they are kept, else O(pods that they count)."""

    def dependency_version(self, compiled: CompiledConstraints) -> int:
        """The dependency version of a filter result: it changes whenever the result may have changed. O(groups)."""

    @property
    def budget_changes(self) -> Subscribable:
        """What is freed of the budgets of namespaces where pods wait for it."""

    def is_touched(self, signature: PodSignature) -> bool:
        """Whether placing such a pod can change the result for another pod whose constraints are compiled."""

    def is_counted(self, pod: Pod, groups: AbstractSet[GroupView]) -> bool:
        """Whether any of the groups counts this placed pod. O(groups that count it)."""


class ClaimsView(Protocol):
    """Nodes that pods lay claim to before the watch shows them there: assumed and nominated pods, and reserved room."""

    @property
    def reserved(self) -> ReservedView:
        """Room that is reserved."""

    @property
    def given_back(self) -> Subscribable:
        """Assumptions whose pods were not bound where they kept room: kube-scheduler watches nothing that tells of it."""

    def undetermined(self) -> Sequence[tuple[Pod, Sequence[str]]]:
        """The assumed pods that are on none of the nodes in the counts, each with those that it may be on. O(assumed pods)."""

    def is_undetermined(self, compiled: CompiledConstraints) -> bool:
        """Whether the filter result may depend on a pod whose node is not known yet. O(groups)."""

    def expected(self, group: GroupView) -> Expected:
        """Where the pods that the group counts and whose node is not known yet may be.

        O(assumed pods + such pods × their nodes).
        """

    @property
    def nominated(self) -> Mapping[str, Mapping[str, Pod]]:
        """The nominated pods, by their status or by a plan, by node name and UID; no empty entry."""

    def uncleared_node(self, uid: str) -> str:
        """The node of the plan for a pod, while any of its victims exists; else empty. O(victims)."""

    def plan_node(self, uid: str) -> str:
        """The node of the plan for a pod, until the plan is over; else empty."""

    def leaving(self, node: str) -> list[Pod]:
        """The victims of all plans for the node that still exist. O(pods nominated to it + victims)."""

    @property
    def claims_version(self) -> int:
        """Grows with every change of nominations and disruption budgets."""


class ObjectsView(Protocol):
    """Objects as the watch shows them."""

    @property
    def policies(self) -> PoliciesView:
        """Scheduling policies; none unless they are enabled."""

    @property
    def quotas(self) -> QuotasView:
        """Quotas for pods with affinity across namespaces."""

    @property
    def quota_changes(self) -> Subscribable:
        """Changes of quotas, and of what is used of them where it may have become less."""

    @property
    def namespaces_version(self) -> int:
        """Grows with every change of Namespace objects."""

    @property
    def namespace_changes(self) -> Subscribable:
        """Changes of Namespace objects."""

    @property
    def workload_changes(self) -> Subscribable:
        """Changes of Services and of owners of workloads, from which default spread constraints are deduced."""

    def pod(self, uid: str, /) -> Pod | None:
        """A pod by UID."""

    @property
    def deleted(self) -> Container[str]:
        """The UIDs of the pods that were deleted last."""

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of a Namespace object, None where there is none."""

    def budgets_in(self, namespace: str) -> Collection[DisruptionBudget]:
        """The disruption budgets of a namespace."""


class Trials(Protocol):
    """Trials on the running counts: they change what every reader answers, until their block ends."""

    def what_if(self) -> AbstractContextManager[WhatIfView]:
        """Inside the block pods may be removed, put back or placed; all is undone when the block ends."""

    def without(self, pods: Sequence[Pod]) -> AbstractContextManager[None]:
        """Inside the block the pods do not count. Compile constraints before it, as that makes groups."""


class IndexReaders(NodesView, CountsView, ClaimsView, ObjectsView, Protocol):
    """All readers. A function that needs one room takes that room's view."""


class ClusterView(IndexReaders, Trials, Protocol):
    """All that verbs are given: the readers, and trials for the dry run of a preemption."""
