"""The points of nodes: each rule's 0–100 times the weight that kube-scheduler gives its plugin, added up.

Shared by prioritize and by the shortlist of filter, so that both prefer the same nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.index.view import ClusterView, CompiledConstraints
from extender.rules import catalog
from extender.rules.catalog import PLUGIN_WEIGHT
from extender.rules.frames import Frame
from extender.rules.rule import MAX_SCORE
from extender.settings import Settings

# What one rule can give a node at most.
RULE_POINTS = PLUGIN_WEIGHT * MAX_SCORE


@dataclass(frozen=True, slots=True)
class Points:
    """Points by position, and the most that a node could have got; both empty where no rule has anything to add."""

    of: Mapping[int, int] = field(default_factory=dict)
    most: int = 0


def has_points(compiled: CompiledConstraints, settings: Settings) -> bool:
    """Whether any rule has something to add. O(terms)."""
    return bool(catalog.scoring_rules(compiled, settings.rules))


def points(
    compiled: CompiledConstraints, view: ClusterView, settings: Settings, frame: Frame, nodes: Sequence[int]
) -> Points:
    """In-tree points of the nodes among themselves: 0 to 200 for each rule that has something to add."""
    scores = [each.normalized() for each in catalog.prepare_scores(compiled, view, frame, nodes, settings.rules)]
    if not scores:
        return Points()
    totals = [PLUGIN_WEIGHT * total for total in map(sum, zip(*scores, strict=True))]
    return Points(dict(zip(nodes, totals, strict=True)), RULE_POINTS * len(scores))
