"""Rejects a pod that is above a limit of the settings on every node, with a text that names the limit.

The constraints of such a pod are not compiled, so the rules that count pods are inactive for it. In augment mode this
rule is inactive too: the in-tree plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.view import CompiledConstraints, IndexReaders
from extender.model.objects import Excess, Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import Pods, Rule, Status

_NAME = "Limits"


@dataclass(frozen=True, slots=True)
class ExcessFilter:
    """Rejects every node. No eviction helps, so the scheduler keeps the pod until it or the limits change."""

    excess: Excess

    @property
    def status(self) -> Status:
        """Unresolvable, with the limit and the number of the pod."""
        return Status(Code.UNRESOLVABLE, self.excess.text)

    @property
    def rejects_all(self) -> Rejection:
        """That limit, for every node."""
        return Rejection(_NAME, Reason.OVER_LIMIT, self.excess.text, blamed=(self.excess.limit,))

    def passing(self, _nodes: Sequence[int]) -> Sequence[int]:
        """None."""
        return []

    def reason(self, _node: int) -> Reason:
        """That limit, for every node."""
        return Reason.OVER_LIMIT

    def rejection(self, _node: int, _view: IndexReaders) -> Rejection:
        """That limit, for every node."""
        return self.rejects_all

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """All of them."""
        yield Reason.OVER_LIMIT, nodes


class Limits(Rule):
    """The rule: active for a pod above a limit. It depends on the signature alone, which does not change."""

    name = _NAME
    applies_to = Pods.OVER_LIMIT

    def is_active(self, compiled: CompiledConstraints, _view: IndexReaders) -> bool:
        """For a pod that is to be rejected."""
        return compiled.excess is not None

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: IndexReaders, _frame: Frame
    ) -> ExcessFilter:
        """The filter of an active rule."""
        assert compiled.excess is not None  # noqa: S101 (for the type checker: the rule is active)
        return ExcessFilter(compiled.excess)
