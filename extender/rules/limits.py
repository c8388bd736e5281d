"""Rejects a pod that is above a limit of the settings on every node, with a text that names the limit.

The limit applies to one pod, or to all pods of a namespace: its budget (`index/counts/namespace_budgets.py`). The
constraints of such a pod are not compiled, so the rules that count pods are inactive for it. In augment mode this rule
is inactive too, and the in-tree plugins decide.
"""

from __future__ import annotations

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import Rule, VerdictOnPod

_NAME = "Limits"


class LimitsRule(Rule):
    """The rule, active for a pod above a limit. It depends on the signature and on the compiled constraints.

    When the budget of a namespace has room again, the constraints are compiled with a new serial number. So the rule
    needs no version.
    """

    name = _NAME
    needs_constraints = True

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """Active for a pod to be rejected."""
        return compiled.excess is not None

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Budget that becomes free, because kube-scheduler does not retry a pod when another pending pod is deleted."""
        return (view.budget_changes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: ClusterView, _frame: Frame
    ) -> VerdictOnPod:
        """Rejects every node.

        No eviction helps, so the scheduler retries only when the pod, the limits or the budget change.
        """
        assert compiled.excess is not None  # noqa: S101 (for the type checker: the rule is active)
        excess = compiled.excess
        reason = Reason.OVER_BUDGET if excess.namespace else Reason.OVER_LIMIT
        return VerdictOnPod(Rejection(_NAME, reason, excess.text, blamed=(excess.limit,)))
