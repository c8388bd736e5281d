"""The shape of a rule: prepared once for a question, then asked for many nodes.

A rule answers twice: as a filter (which nodes pass, and why one does not) and as a score. Positions are those of the
`Frame` that the rule was prepared with. Nothing here costs more when there are more pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.model.rejections import Code, Reason

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Status:
    """What a rule says before looking at any node (the scheduler's PreFilter or PreScore)."""

    code: Code
    reason: str = ""


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


class PreparedFilter(Protocol):
    """A rule as a filter."""

    @property
    def status(self) -> Status:
        """Success, or Skip where every node passes, or what refuses them all."""

    @property
    def rejects_all(self) -> Reason | None:
        """The one reason against every node, where that is certain without a look at any; None where it is not."""

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass, in their order. O(nodes × clauses)."""

    def rejection(self, node: int) -> Reason | None:
        """Why a node is refused, the first clause's reason; None where it passes."""

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by reason; as `rejection` says of each. O(nodes × clauses)."""


class PreparedScore(Protocol):
    """A rule as a score over exactly the nodes that it was prepared for."""

    @property
    def status(self) -> Status:
        """Success, or Skip where the rule has nothing to add, or Error."""

    def raw(self) -> list[int]:
        """The raw score of each node, in order."""

    def normalized(self) -> list[int]:
        """The scores brought to 0–100 over the nodes, as NormalizeScore does."""
