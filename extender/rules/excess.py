"""Rejects a pod that is above a configured limit on every node, with a text that names the limit.

Nothing of what it asks was compiled, so the rules that count pods are inactive for it. In augment mode such a pod never
comes here: its compiled constraints are empty, and the in-tree plugins decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.view import ClusterView, CompiledConstraints
from extender.model.objects import Excess
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import Frame
from extender.rules.rule import Status
from extender.settings import Rules


@dataclass(frozen=True, slots=True)
class ExcessFilter:
    """Rejects every node. No eviction helps, so the scheduler keeps the pod until it or the limits change."""

    excess: Excess

    @property
    def status(self) -> Status:
        """Unresolvable, with the limit and the pod's own number."""
        return Status(Code.UNRESOLVABLE, self.excess.text)

    @property
    def rejects_all(self) -> Rejection:
        """That limit, for every node."""
        return Rejection("Limits", Reason.OVER_LIMIT, self.excess.text, blamed=(self.excess.limit,))

    def passing(self, _nodes: Sequence[int]) -> Sequence[int]:
        """None."""
        return []

    def reason(self, _node: int) -> Reason:
        """That limit, for every node."""
        return Reason.OVER_LIMIT

    def rejection(self, _node: int, _view: ClusterView) -> Rejection:
        """That limit, for every node."""
        return self.rejects_all

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """All of them."""
        yield Reason.OVER_LIMIT, nodes


@dataclass(frozen=True, slots=True)
class Limits:
    """The rule: active for a pod above a limit, whatever happens in the cluster."""

    plugin: str = ""
    ranks_by_counts: bool = False

    def is_enabled(self, _rules: Rules) -> bool:
        """Always."""
        return True

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """For a pod that is to be rejected."""
        return compiled.excess is not None

    def version(self, _compiled: CompiledConstraints, _view: ClusterView) -> int:
        """Depends on the pod alone, and a pod's signature does not change."""
        return 0

    def prepare_filter(self, compiled: CompiledConstraints, _view: ClusterView, _frame: Frame) -> ExcessFilter:
        """The filter of an active rule."""
        assert compiled.excess is not None  # noqa: S101 (for the type checker: the rule is active)
        return ExcessFilter(compiled.excess)

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """All of it: no pod that leaves changes anything."""
        return compiled

    def recounted_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None."""
        return None

    def has_scores(self, _compiled: CompiledConstraints, _rules: Rules) -> bool:
        """No."""
        return False

    def prepare_score(
        self, _compiled: CompiledConstraints, _view: ClusterView, _frame: Frame, _nodes: Sequence[int], _rules: Rules
    ) -> None:
        """None."""
