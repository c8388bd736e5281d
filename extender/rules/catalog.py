"""The rules in the scheduler's order, put together: topology spread first, then inter-pod affinity.

The first rule that refuses a node gives the reason; which nodes pass does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.view import ClusterView, CompiledConstraints
from extender.model.rejections import Code, Reason
from extender.rules import interpod_affinity, topology_spread
from extender.rules.excess import ExcessFilter
from extender.rules.frames import Frame
from extender.rules.rule import PreparedFilter, PreparedScore, Status

# The weight that kube-scheduler gives to each of the two plugins.
PLUGIN_WEIGHT = 2


@dataclass(frozen=True, slots=True)
class PreparedFilters:
    """All filters of one question; only those that have something to say."""

    filters: tuple[PreparedFilter, ...]

    @property
    def passes_all(self) -> bool:
        """Whether no node can be refused."""
        return not self.filters

    @property
    def failure(self) -> Status | None:
        """The status of a filter that refuses every node before looking at one, None where there is none."""
        bad = (Code.ERROR, Code.UNRESOLVABLE)
        return next((each.status for each in self.filters if each.status.code in bad), None)

    @property
    def rejects_all(self) -> Reason | None:
        """The one reason against every node, where that is certain without a look at any; None where it is not."""
        return self.filters[0].rejects_all if self.filters else None

    @property
    def rejects_every_node(self) -> bool:
        """Whether it is certain without a look at any node that each is refused, for whatever reasons."""
        return any(each.rejects_all for each in self.filters)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that every filter lets pass, in their order."""
        for each in self.filters:
            nodes = each.passing(nodes)
        return nodes

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by the first filter's reason; a reason may come more than once."""
        for each in self.filters:
            yield from each.rejected(nodes)
            nodes = each.passing(nodes)

    def rejection(self, node: int) -> Reason | None:
        """The first filter's reason against a node, None where it passes."""
        return next((reason for each in self.filters if (reason := each.rejection(node)) is not None), None)


def prepare_filters(compiled: CompiledConstraints, frame: Frame) -> PreparedFilters:
    """Prepares every rule's filter; a rule that is switched off asks nothing, so it skips."""
    if compiled.excess is not None:
        return PreparedFilters((ExcessFilter(compiled.excess),))
    every: tuple[PreparedFilter, ...] = (
        topology_spread.prepare_filter(compiled, frame),
        interpod_affinity.prepare_filter(compiled, frame),
    )
    return PreparedFilters(tuple(each for each in every if each.status.code is not Code.SKIP))


def prepare_scores(
    compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], hard_weight: int
) -> list[PreparedScore]:
    """Every rule's score over these nodes, without those that have nothing to add or cannot be computed."""
    every: tuple[PreparedScore, ...] = (
        topology_spread.prepare_score(compiled, view, frame, nodes),
        interpod_affinity.prepare_score(compiled, frame, nodes, hard_weight),
    )
    return [each for each in every if each.status.code is Code.SUCCESS]
