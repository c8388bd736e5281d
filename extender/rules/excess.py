"""A pod that asks for more than the configured limits allow: every node refuses it, and the text names the limit.

Nothing of what it asks was compiled, so no other rule is asked. In augment mode such a pod never comes here: its
question is empty, and the in-tree plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.model.objects import Excess
from extender.model.rejections import Code, Reason
from extender.rules.rule import Status


@dataclass(frozen=True, slots=True)
class ExcessFilter:
    """Refuses every node. No eviction helps, so the scheduler keeps the pod until it or the limits change."""

    excess: Excess

    @property
    def status(self) -> Status:
        """Unresolvable, with the limit and the pod's own number."""
        return Status(Code.UNRESOLVABLE, self.excess.text)

    @property
    def rejects_all(self) -> Reason:
        """That limit, whatever the node."""
        return Reason.OVER_LIMIT

    def passing(self, _nodes: Sequence[int]) -> Sequence[int]:
        """None."""
        return []

    def rejection(self, _node: int) -> Reason:
        """That limit, whatever the node."""
        return Reason.OVER_LIMIT

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """All of them."""
        yield Reason.OVER_LIMIT, nodes
