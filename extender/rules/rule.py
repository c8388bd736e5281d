"""The protocol of a rule: prepared once for the constraints of a pod, then applied to many nodes.

A `Rule` is one entry of `catalog.RULES`. It decides as a filter (which nodes pass, and why one does not) and as a score.
Positions are those of the `Frame` that it was prepared with. Nothing here costs more when there are more pods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import NodeNumber
from extender.index.nodes.domains import KeyView
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, Steps
from extender.rules.frames import Frame
from extender.settings.rules import Rules

MAX_SCORE = 100

MOST_BLAMED = 5  # pods that a rejection names: enough to see which are in the way, and the search ends early


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


@dataclass(frozen=True, slots=True)
class VerdictOnPod:
    """A filter that looks at no node: it rejects every node for one reason, or lets every node pass."""

    rejects_all: Rejection | None

    @property
    def status(self) -> Status:
        """The code of the reason with the text of the rejection; Skip without one."""
        found = self.rejects_all
        return SKIP if found is None else Status(found.reason.code, found.text)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """All of them or none."""
        return nodes if self.rejects_all is None else []

    def reason(self, _node: int) -> Reason | None:
        """The same for every node."""
        return None if self.rejects_all is None else self.rejects_all.reason

    def rejection(self, _node: int, _view: ClusterView) -> Rejection | None:
        """The same for every node."""
        return self.rejects_all

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """All of them or none."""
        if self.rejects_all is not None:
            yield self.rejects_all.reason, nodes


class PreparedScore(Protocol):
    """A rule as a score over exactly the nodes that it was prepared for."""

    @property
    def status(self) -> Status:
        """Success, or Skip where the rule has nothing to add, or Error."""

    def raw(self) -> list[int]:
        """The raw score of each node, in order."""

    def normalized(self) -> list[int]:
        """The scores brought to 0–100 over the nodes, as NormalizeScore does."""


class Pods(Enum):
    """Kinds of pods, told apart before any rule is called, mostly by their compiled constraints."""

    ALL = "all"
    CONSTRAINED = "constrained"
    OVER_LIMIT = "over a limit"
    ENFORCED = "held to something by scheduling policies"
    WHILE_RESERVED = "all, while room is reserved"
    SHARED_NODES = "all, where several schedulers share the nodes"
    CROSS_NAMESPACE = "with affinity that names namespaces"


class RankedGroup(NamedTuple):
    """A group's share of the rank of a node: ``weight`` for each pod counted in the node's domain.

    ``required``: nodes that lack this key rank last. Without it they rank as nodes without a pod.
    """

    weight: float
    group: GroupView
    required: KeyView | None = None


class NodeTrial(Protocol):
    """A rule's part in the dry run of a preemption on one node, for what depends on the pods of this node alone."""

    @property
    def can_pass(self) -> bool:
        """Whether the pod may pass here once pods have left."""

    def count(self, pod: Pod, sign: int) -> None:
        """A pod is on the node (``sign`` 1), or no longer is (-1)."""

    def passes(self) -> bool:
        """Whether the pod passes now."""


class Rule(ABC):
    """One scheduling rule: all that the verbs, their caches and the requeue know of it. One instance, in `catalog`.

    The defaults are those of a rule without scores whose filter reads no counts of pods. What a rule counts by pods is
    compiled by the index into groups of `CompiledConstraints`, as counts must be kept true by every change. Changes of
    these groups and of nodes invalidate every cache by themselves; whatever else a rule reads goes into `version`.
    """

    name: str
    plugin: str = ""
    """The in-tree plugin in whose place the rule decides in offload mode; empty where there is none."""

    counts_by_domain: bool = False
    """Whether `constraint_states` shows the parts of its rejections for all domains."""

    applies_to: Pods = Pods.ALL
    """For which pods the rule may reject or score a node; it is not called for others."""

    def is_enabled(self, _rules: Rules) -> bool:
        """Whether the settings make the rule ours to decide: then the generated configuration disables the plugin."""
        return True

    @abstractmethod
    def is_active(self, compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Whether the rule may reject a node for such a pod. O(1)."""

    @abstractmethod
    def prepare_filter(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The filter for the incoming pod. Of the pod it reads its signature, and what `pod_key` tells."""

    # -- what the result of the filter depends on -----------------------------------------------------------------------

    def version(self, _compiled: CompiledConstraints, _view: ClusterView) -> int:
        """What the filter's result depends on besides nodes and groups: a number that only grows, 0 for nothing. O(1).

        Asked for inactive rules too, as the change may be that the rule becomes active.
        """
        return 0

    def pod_key(self, _pod: Pod, _view: ClusterView) -> Hashable:
        """What the filter's result depends on of the pod besides its signature, such as its requests; None for nothing."""
        return None

    def unwatched_changes(self, _view: ClusterView) -> tuple[Subscribable, ...]:
        """Where to subscribe to changes that may let a rejected pod pass and that kube-scheduler does not watch.

        After such a change the rejected pods whose dependency version changed are reviewed, and requeued if a node passes.
        """
        return ()

    # -- explanations ---------------------------------------------------------------------------------------------------

    def constraint_states(
        self, _compiled: CompiledConstraints, _view: ClusterView, _frame: Frame, _most_domains: int = MOST_DOMAINS
    ) -> Steps[Sequence[ConstraintState]]:
        """What each constraint counts now in at most so many domains, for a rule that counts by domain.

        In steps; called only where it is read.
        """
        yield from ()
        return ()

    def shared_places(self, _pod: Pod, _view: ClusterView) -> Iterable[tuple[Hashable, int]]:
        """How many more pods may pass at most, for each group of pods that this one belongs to: the group and the number.

        So many of the rejected pods of a group are requeued at a time, as all others would be rejected again.
        """
        return ()

    # -- the dry run of a preemption ------------------------------------------------------------------------------------

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """The constraints whose filter stays right while pods come and go; None where there are none.

        Such a filter reads the live counts for each node and rests on no sum or minimum taken when it was prepared.
        """
        return compiled

    def recounted_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """The other constraints, whose filter is prepared again after each change; None without any."""
        return None

    def on_node(self, _pod: Pod, _view: ClusterView, _node: NodeNumber, _others: Sequence[Pod]) -> NodeTrial | None:
        """The part that depends on the pods of a node, with ``others`` beside those that are on it; None without any."""
        return None

    def other_nodes(self, _compiled: CompiledConstraints, _node: NodeNumber) -> Iterable[NodeNumber]:
        """Other nodes whose pods may be why the rule rejects a node: victims may be there (`preemption.crossNode`)."""
        return ()

    # -- scores ---------------------------------------------------------------------------------------------------------

    def has_scores(self, _compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Whether the rule has something to add to the nodes' scores. O(terms)."""
        return False

    def prepare_score(
        self, _compiled: CompiledConstraints, _view: ClusterView, _frame: Frame, _nodes: Sequence[int], _rules: Rules
    ) -> PreparedScore | None:
        """The score over these nodes; None for a rule that never has any."""
        return None

    def ranked_groups(
        self, _compiled: CompiledConstraints, _view: ClusterView, _nodes: int, _rules: Rules
    ) -> Sequence[RankedGroup] | None:
        """Groups that order so many nodes as the score does, without a score of each. None: scores come not from counts."""
        return None


def blamed_pods(group: GroupView, domain: int, view: ClusterView) -> tuple[str, ...]:
    """Up to `MOST_BLAMED` pods that the group counts in a domain, as ``namespace/name``. O(pods in the domain) at worst.

    Fewer than are counted where the node of some is undetermined.
    """
    found: list[str] = []
    groups, known = frozenset((group,)), dict[tuple[PodSignature, bool], bool]()
    for node in sorted(group.key.nodes_in.get(domain, ())):
        for pod in view.pods_on(node).values() if group.domain_of[node] else ():
            kind = (pod.signature, pod.terminating)
            is_counted = known.get(kind)
            if is_counted is None:
                is_counted = known[kind] = view.is_counted(pod, groups)
            if is_counted:
                found.append(pod.full_name)
                if len(found) >= MOST_BLAMED:
                    return tuple(found)
    return tuple(found)
