"""The protocol of a rule: prepared once for the constraints of a pod, then applied to many nodes.

A `Rule` is one entry of `catalog.RULES`. It decides as a filter (which nodes pass, and why one does not) and as a score.
Positions are those of the `Frame` that it was prepared with. Nothing here costs more when there are more pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.index.view import ClusterView, CompiledConstraints, GroupView
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import Frame
from extender.settings import Rules

MAX_SCORE = 100

MOST_BLAMED = 5  # pods that a rejection names: enough to see who is in the way, and the search ends early


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
        """Success, or Skip where every node passes, or what rejects every node before one is looked at."""

    @property
    def rejects_all(self) -> Rejection | None:
        """The rejection of every node where that is certain without a look at any, with the parts that all nodes share.

        None where it is not certain; never None for a status that rejects every node.
        """

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass, in their order. O(nodes × clauses)."""

    def reason(self, node: int) -> Reason | None:
        """Why a node is rejected, by the first clause that does; None where it passes. O(clauses)."""

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by reason; as `reason` says of each. O(nodes × clauses)."""

    def rejection(self, node: int, view: ClusterView) -> Rejection | None:
        """The rejection of a node with all its parts, None where it passes. O(clauses + pods in the domain).

        Called only where the parts are read, so it may count again what the filter did not keep.
        """


class PreparedScore(Protocol):
    """A rule as a score over exactly the nodes that it was prepared for."""

    @property
    def status(self) -> Status:
        """Success, or Skip where the rule has nothing to add, or Error."""

    def raw(self) -> list[int]:
        """The raw score of each node, in order."""

    def normalized(self) -> list[int]:
        """The scores brought to 0–100 over the nodes, as NormalizeScore does."""


class Rule(Protocol):
    """One scheduling rule: all that the verbs and their caches have to know of it.

    What a rule counts by pods is compiled by the index into groups of `CompiledConstraints`; changes of these groups
    and of the nodes invalidate every cache by themselves. Whatever else a rule depends on, such as an object that it
    reads through the view, goes into `version`.
    """

    @property
    def plugin(self) -> str:
        """The in-tree plugin in whose place the rule decides in offload mode; empty where there is none."""

    @property
    def ranks_by_counts(self) -> bool:
        """Whether `verbs/search/ranking.py` can rank nodes by the rule's groups, without scoring each of them."""

    def is_enabled(self, rules: Rules) -> bool:
        """Whether the settings make the rule ours to decide."""

    def is_active(self, compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Whether the rule may reject a node for such a pod. O(1)."""

    def version(self, compiled: CompiledConstraints, view: ClusterView) -> int:
        """What the filter's answer depends on besides nodes and groups: a number that only grows, 0 for nothing. O(1).

        It is asked for inactive rules too, as the change may be that the rule becomes active.
        """

    def prepare_filter(self, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> PreparedFilter:
        """The filter for such a pod."""

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """For the dry run: the constraints whose filter stays right while pods come and go; None where there are none.

        Such a filter reads the live counts for each node and rests on no sum or minimum taken when it was prepared.
        """

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """For the dry run: the other constraints, whose filter is prepared again after each change; None without any."""

    def has_scores(self, compiled: CompiledConstraints, rules: Rules) -> bool:
        """Whether the rule has something to add to the nodes' scores. O(terms)."""

    def prepare_score(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules
    ) -> PreparedScore | None:
        """The score over these nodes; None for a rule that never has any."""


def blamed_pods(group: GroupView, domain: int, view: ClusterView) -> tuple[str, ...]:
    """Up to `MOST_BLAMED` pods that the group counts in a domain, as ``namespace/name``. O(pods in the domain) at worst.

    Fewer than are counted where the node of some is undetermined.
    """
    found: list[str] = []
    groups = frozenset((group,))
    for node in sorted(group.key.nodes_in.get(domain, ())):
        for pod in view.pods_on(node).values():
            if group.domain_of[node] and view.is_counted(pod, groups):
                found.append(pod.full_name)
                if len(found) >= MOST_BLAMED:
                    return tuple(found)
    return tuple(found)
