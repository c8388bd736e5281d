"""Holds a pod to the scheduling policies that select it where it lacks what they direct for nodes.

A pod may lack it because it was created before the policy, or while the admission webhook was down. What it is held to
is part of the signature of the effective pod (`verbs/effective_pod.py`), so the rule selects no policy itself and costs
other pods nothing. Directives for other pods and for spread are part of the effective pod's own constraints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.matches import NodeMatches
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.policies import Enforced
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import MAX_SCORE, SKIP, SUCCESS, Pods, Rule, Status
from extender.settings.rules import Rules

_NAME = "SchedulingPolicy"


@dataclass(frozen=True, slots=True)
class PolicyFilter:
    """The nodes that the policies leave to the pod; none where a policy refuses the pod."""

    enforced: Enforced
    required: NodeMatches | None
    frame: Frame

    @property
    def status(self) -> Status:
        """Unresolvable for a refused pod, Skip where every node passes."""
        if self.enforced.refused_for is not None:
            return Status(Code.UNRESOLVABLE, self.enforced.refused_for.text)
        return SKIP if self.required is None else SUCCESS

    @property
    def rejects_all(self) -> Rejection | None:
        """The conflict or the failure, if there is one."""
        return None if self.enforced.refused_for is None else self._rejection(self.enforced.refused_for)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those that the policies admit. O(nodes)."""
        if self.enforced.refused_for is not None:
            return []
        if self.required is None:
            return nodes
        admitted = self.frame.admitted(self.required, nodes)
        return [node for node in nodes if admitted[node]]

    def reason(self, node: int) -> Reason | None:
        """Why a node is rejected. O(1)."""
        if self.enforced.refused_for is not None:
            return self.enforced.refused_for
        return None if self.passing((node,)) else Reason.POLICY

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that the policies do not admit. O(nodes)."""
        if self.enforced.refused_for is not None:
            yield self.enforced.refused_for, nodes
        elif self.required is not None:
            admitted = self.frame.admitted(self.required, nodes)
            yield Reason.POLICY, [node for node in nodes if not admitted[node]]

    def rejection(self, node: int, _view: ClusterView) -> Rejection | None:
        """Names the policies."""
        reason = self.reason(node)
        return None if reason is None else self._rejection(reason)

    def _rejection(self, reason: Reason) -> Rejection:
        return Rejection(_NAME, reason, blamed=tuple(map(str, self.enforced.policies)))


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """The weights of the policies' preferred terms that each node matches, as the in-tree plugin NodeAffinity adds them."""

    weights: tuple[int, ...]
    status: Status = SUCCESS

    def raw(self) -> list[int]:
        """The sums of the weights."""
        return list(self.weights)

    def normalized(self) -> list[int]:
        """In proportion to the greatest."""
        most = max(self.weights, default=0)
        return [MAX_SCORE * weight // most if most else 0 for weight in self.weights]


class ScheduledPolicies(Rule):
    """The rule, for policies with ``when: Scheduling``."""

    name = _NAME
    applies_to = Pods.ENFORCED

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """For an effective pod that policies hold to something."""
        return compiled.signature.enforced is not None

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: ClusterView, frame: Frame
    ) -> PolicyFilter:
        """The filter. O(1)."""
        assert compiled.signature.enforced is not None  # noqa: S101 (for the type checker: the rule is active)
        return PolicyFilter(compiled.signature.enforced, compiled.required_nodes, frame)

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """Of the policies, and of the namespaces whose labels select them; 0 for as long as there was no policy."""
        policies = view.policies.version
        return policies + view.namespaces_version if policies else 0

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of policies and of namespaces, and the counts of existing pods that follow these."""
        return (view.policies.changes, view.namespace_changes, view.policies.recounted)

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Where a policy prefers some nodes."""
        return bool(compiled.preferred_nodes)

    def prepare_score(
        self, compiled: CompiledConstraints, _view: ClusterView, frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> PolicyScore:
        """The score of these nodes. O(nodes × terms)."""
        weights = [0] * len(nodes)
        for weight, preferred in compiled.preferred_nodes:
            admitted = frame.admitted(preferred, nodes)
            weights = [total + weight if admitted[node] else total for total, node in zip(weights, nodes, strict=True)]
        return PolicyScore(tuple(weights))
