"""Node fit: whether a node by itself could take a pod: cordon, taints, node affinity, free resources and host ports.

kube-scheduler checks this for every node of a request. We need it in two cases: for nodes that are not in the request,
while a preemption is planned or a pod is nominated elsewhere; and for the resources that pods nominated by us will
take, before the scheduler knows of them. So the rule is not part of `catalog.RULES`.

Not checked, because the index does not hold them: volumes and devices. A pod that needs such things has
`Pod.has_unseen_needs`, and is not nominated to a node on the strength of this module alone.
https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/ (NodeUnschedulable, TaintToleration,
NodeAffinity, NodeResourcesFit, NodePorts)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.host_ports import UsedPorts
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.free_resources import (
    NodeTrial,
    claims_on,
    free_resources_on,
    room_rejection,
    static_rejection,
)
from extender.rules.rule import SUCCESS, PreparedFilter, Rule, RuleStatus

_NAME = "NodeFit"
_UNKNOWN_NODE = Rejection(_NAME, Reason.UNKNOWN_NODE)


@dataclass(frozen=True, slots=True)
class NodeFitFilter(PreparedFilter):
    """Node fit of a pod beside conflicting nominated pods. Positions are node numbers: only for nodes of the index."""

    pod: Pod
    view: ClusterView
    wanted: UsedPorts
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def verdict(self, position: int) -> Rejection | None:
        """The first obstacle: cordon, taint, node affinity, a resource with its amounts, or a port."""
        there, view = self.view.node(position), self.view
        if there is None:
            return _UNKNOWN_NODE
        rejection = static_rejection(self.pod, there)
        if rejection is not None:
            return rejection
        free = free_resources_on(view, position, there, claims_on(there.name, self.pod, view))
        return room_rejection(_NAME, self.pod.requests, self.wanted, free)


class NodeFit(Rule):
    """The rule. Taints and node affinity depend on nodes, free resources on the pods on them."""

    name = _NAME

    def is_active(self, _compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """For every pod."""
        return True

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """The version of the pods on nodes and of the pods that claim room there."""
        return view.placement_version + view.claims_version + (0 if view.room is None else view.room.version)

    def pod_key(self, pod: Pod, _view: ClusterView) -> Hashable:
        """Beside the signature: requests, host ports, and the priority (compared with nominated pods)."""
        return pod.priority, frozenset(pod.requests.items()), pod.host_ports

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, _frame: Frame
    ) -> NodeFitFilter:
        """The filter over the nodes of the index. O(host ports)."""
        return NodeFitFilter(pod, view, UsedPorts(pod.host_ports))

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None, because `on_node` is its part."""
        return None

    def on_node(self, pod: Pod, view: ClusterView, node: NodeNumber, others: Sequence[Pod]) -> NodeTrial | None:
        """The free resources of the node beside the ``others``; None for a node that does not exist."""
        there = view.node(node)
        if there is None:
            return None
        free = free_resources_on(view, node, there, claims_on(there.name, pod, view, others))
        # A taint or a label does not change when pods leave, so it is looked up once for the whole trial.
        can_pass = static_rejection(pod, there) is None
        return NodeTrial(free.free, free.slots, free.ports, pod.requests, UsedPorts(pod.host_ports), can_pass)
