"""Rejects a pod that is above a limit of the settings on every node, with a text that names the limit.

The constraints of such a pod are not compiled, so the rules that count pods are inactive for it. In augment mode this
rule is inactive too: the in-tree plugins decide.
"""

from __future__ import annotations

from extender.index.view import CompiledConstraints, IndexReaders
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import Pods, Rule, VerdictOnPod

_NAME = "Limits"


class Limits(Rule):
    """The rule: active for a pod above a limit. It depends on the signature alone, which does not change."""

    name = _NAME
    applies_to = Pods.OVER_LIMIT

    def is_active(self, compiled: CompiledConstraints, _view: IndexReaders) -> bool:
        """For a pod that is to be rejected."""
        return compiled.excess is not None

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: IndexReaders, _frame: Frame
    ) -> VerdictOnPod:
        """Rejects every node. No eviction helps, so the scheduler keeps the pod until it or the limits change."""
        assert compiled.excess is not None  # noqa: S101 (for the type checker: the rule is active)
        limit, text = compiled.excess.limit, compiled.excess.text
        return VerdictOnPod(Rejection(_NAME, Reason.OVER_LIMIT, text, blamed=(limit,)))
