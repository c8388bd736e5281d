"""Applies scheduling policies to a pod that lacks what they direct about nodes.

A pod may lack it because it was created before the policy, or while the admission webhook was down. The directives are
part of the signature of the effective pod (`verbs/effective_pod.py`), so the rule selects no policy itself and costs
other pods nothing. Directives about other pods and about spread become constraints of the effective pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from extender.index.counts.compiled_constraints import CompiledConstraints, Counted, Counting
from extender.index.nodes.domains import NodeMatches
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import MAX_SCORE, SUCCESS, PreparedFilter, PreparedScore, Rule, RuleStatus, VerdictOnPod
from extender.settings.rules import Rules

_NAME = "SchedulingPolicy"


@dataclass(frozen=True, slots=True)
class DirectedNodes(Counted):
    """The nodes that policies require, and by weight prefer, for pods that lack these directives. None: any node."""

    required: NodeMatches | None = None
    preferred: tuple[tuple[int, NodeMatches], ...] = ()

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, _settings: Rules) -> Self | None:
        """Requests the nodes of an effective pod. O(terms)."""
        enforced, of = signature.enforced, counts.nodes_matching
        if enforced is None:
            return None
        required = None if enforced.nodes.admits_all else of(enforced.nodes)
        return cls(
            required,
            tuple((preference.weight, of(NodeAffinity(terms=(preference.term,)))) for preference in enforced.preferred),
        )

    @property
    def filters(self) -> bool:
        """True, because a policy may require nodes or refuse the pod."""
        return True


_ANY_NODE = DirectedNodes()


@dataclass(frozen=True, slots=True)
class PolicyFilter(PreparedFilter):
    """The nodes that the policies allow for the pod."""

    required: NodeMatches
    frame: Frame
    rejected_with: Rejection
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def verdict(self, position: int) -> Rejection | None:
        """Names the policies. O(1)."""
        return None if self.passing((position,)) else self.rejected_with

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes that the policies allow. O(nodes)."""
        admitted = self.frame.admitted(self.required, nodes)
        return [node for node in nodes if admitted[node]]


@dataclass(frozen=True, slots=True)
class PolicyScore(PreparedScore):
    """For each node the sum of the policies' preferred terms that match it, as the plugin NodeAffinity adds."""

    weights: tuple[int, ...]
    status: RuleStatus = SUCCESS

    def raw(self) -> list[int]:
        """The sums of the weights."""
        return list(self.weights)

    def normalized(self) -> list[int]:
        """In proportion to the greatest sum."""
        most = max(self.weights, default=0)
        # As DefaultNormalizeScore of kube-scheduler: whole numbers, rounded down.
        return [MAX_SCORE * weight // most if most else 0 for weight in self.weights]


class ScheduledPolicies(Rule):
    """The rule, for policies with ``when: Scheduling``."""

    name = _NAME
    needs_constraints = True
    counted = (DirectedNodes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The nodes that the policies require; no node if a policy refuses the pod. O(1)."""
        enforced, required = compiled.signature.enforced, (compiled.get(DirectedNodes) or _ANY_NODE).required
        assert enforced is not None  # noqa: S101 (for the type checker: the rule is active)
        blamed = tuple(map(str, enforced.policies))
        # No node can help: the pod conflicts with a policy that rejects such pods, or a policy with failurePolicy Fail
        # cannot be applied to it.
        if enforced.refused_for is not None:
            return VerdictOnPod(Rejection(_NAME, enforced.refused_for, blamed=blamed))
        if required is None:
            return VerdictOnPod(None)
        return PolicyFilter(required, frame, Rejection(_NAME, Reason.POLICY, blamed=blamed))

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """The version of policies and namespaces; 0 as long as there was no policy."""
        # Which policies select the pod depends on labels of its namespace too.
        policies = view.policies.version
        return policies + view.namespaces_version if policies else 0

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of policies and namespaces, and the counts of existing pods that change with them."""
        return (view.policies.changes, view.namespace_changes, view.policies.recounted)

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Whether a policy prefers some nodes."""
        directed = compiled.get(DirectedNodes)
        return directed is not None and bool(directed.preferred)

    def prepare_score(
        self, compiled: CompiledConstraints, _view: ClusterView, frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> PolicyScore:
        """The score of these nodes. O(nodes × terms)."""
        weights = [0] * len(nodes)
        for weight, preferred in (compiled.get(DirectedNodes) or _ANY_NODE).preferred:
            admitted = frame.admitted(preferred, nodes)
            weights = [total + weight if admitted[node] else total for total, node in zip(weights, nodes, strict=True)]
        return PolicyScore(tuple(weights))
