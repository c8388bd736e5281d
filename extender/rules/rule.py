"""What a rule is: prepared once for the constraints of a pod, then applied to many nodes.

A `Rule` is one entry of `catalog.RULES`. It decides as a filter (which nodes pass, and why one does not) and as a score.
Positions are those of the `Frame` that it was prepared with. Nothing here costs more when there are more pods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints, Counted
from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import Column, NodeNumber
from extender.index.nodes.domains import KeyView
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, Steps
from extender.rules.frames import Frame
from extender.rules.free_resources import NodeTrial
from extender.settings.rules import Rules

MAX_SCORE = 100

MOST_BLAMED = 5  # pods that a rejection names: enough to see which are in the way, and the search ends early


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """What a rule says before looking at any node (the scheduler's PreFilter or PreScore)."""

    code: Code
    reason: str = ""


SUCCESS = RuleStatus(Code.SUCCESS)
SKIP = RuleStatus(Code.SKIP)


class PreparedFilter:
    """A rule as a filter. All that verbs ask follows from its verdict on each node; some filters look at many nodes faster.

    ``status``: success, or Skip where every node passes, or what rejects every node before one is looked at. ``rejects_all``: the
    rejection of every node where that is certain without a look at any, with the parts that all nodes share; None where it is
    not certain, and never None for a status that rejects every node.
    """

    __slots__ = ()
    status: RuleStatus
    rejects_all: Rejection | None

    def verdict(self, position: int) -> Rejection | None:
        """Why a node is rejected, by the first clause that does, with all its parts; None where it passes.

        O(clauses + pods in the domain), as the parts of a rule that counts name a few of the pods that are counted there.
        """
        raise NotImplementedError  # no ABC: a filter that is a msgspec struct has another metaclass

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass, in their order. O(nodes × clauses)."""
        return [node for node in nodes if self.verdict(node) is None]

    def reason(self, position: int) -> Reason | None:
        """The reason of the verdict. O(clauses)."""
        found = self.verdict(position)
        return None if found is None else found.reason

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by reason. O(nodes × clauses)."""
        found: dict[Reason, list[int]] = {}
        passing = set(self.passing(nodes))
        for node in nodes:
            if node not in passing and (reason := self.reason(node)) is not None:
                found.setdefault(reason, []).append(node)
        yield from found.items()


class RuleCondition(Protocol):
    """One condition of a rule that counts: a node passes it, or is rejected for its one reason."""

    @property
    def reason(self) -> Reason:
        """Why a node is rejected."""

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass, in their order. O(nodes)."""

    def rejection(self, position: int) -> Rejection:
        """The parts for a node that does not pass. O(pods in its domain)."""


class HasKey(msgspec.Struct, frozen=True, gc=False):
    """The clause that a node is in a domain of a topology key."""

    rule: str
    reason: Reason
    key: KeyView
    domains: Column

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those with the key."""
        domains = self.domains
        return [node for node in nodes if domains[node]]

    def rejection(self, _position: int) -> Rejection:
        """Names the key."""
        return Rejection(self.rule, self.reason, topology_key=self.key.key)


class ClauseFilter(PreparedFilter, msgspec.Struct, frozen=True, gc=False):
    """A filter that rejects a node by the first of its clauses that the node does not pass.

    A clause looks at all nodes in one pass: a call for each node and clause would be most of what a filter costs.
    """

    clauses: tuple[RuleCondition, ...]
    rejects_all: Rejection | None = None
    status: RuleStatus = SUCCESS

    def verdict(self, position: int) -> Rejection | None:
        """By the first clause that rejects the node."""
        return next((each.rejection(position) for each in self.clauses if not each.passing((position,))), None)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those that pass every clause."""
        for clause in self.clauses:
            nodes = clause.passing(nodes)
        return nodes

    def reason(self, position: int) -> Reason | None:
        """That of the verdict, without its parts."""
        for clause in self.clauses:
            if not clause.passing((position,)):
                return clause.reason
        return None

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """By the first clause that rejects each."""
        for clause in self.clauses:
            passing = clause.passing(nodes)
            if len(passing) < len(nodes):
                passed = set(passing)
                yield clause.reason, [node for node in nodes if node not in passed]
                nodes = passing


@dataclass(frozen=True, slots=True)
class VerdictOnPod(PreparedFilter):
    """A filter that looks at no node: it rejects every node for one reason, or lets every node pass.

    ``is_error``: kube-scheduler's plugin reports an error for such a pod, not a rejection.
    """

    rejects_all: Rejection | None
    is_error: bool = False

    @property
    def status(self) -> RuleStatus:  # type: ignore[override]  # never set
        """The code of the reason with the text of the rejection; Skip without one."""
        found = self.rejects_all
        return SKIP if found is None else RuleStatus(Code.ERROR if self.is_error else found.reason.code, found.text)

    def verdict(self, _position: int) -> Rejection | None:
        """The same for every node."""
        return self.rejects_all

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """All of them or none."""
        return nodes if self.rejects_all is None else []


class PreparedScore(ABC):
    """A rule as a score over exactly the nodes that it was prepared for.

    ``status``: success, or Skip where the rule has nothing to add, or Error.
    """

    __slots__ = ()
    status: RuleStatus

    @abstractmethod
    def raw(self) -> list[int]:
        """The raw score of each node, in order."""

    @abstractmethod
    def normalized(self) -> list[int]:
        """The scores brought to 0–100 over the nodes, as NormalizeScore does."""


class RankedGroup(NamedTuple):
    """A group's share of the rank of a node: ``weight`` for each pod counted in the node's domain.

    ``required``: nodes that lack this key rank last. Without it they rank as nodes without a pod.
    """

    weight: float
    group: GroupView
    required: KeyView | None = None


class Rule(ABC):
    """One scheduling rule: all that the verbs, their caches and the requeue know of it. One instance, in `catalog`.

    The defaults are those of a rule without scores whose filter reads no counts of pods. What a rule counts it declares in
    ``counted``: for each signature the index makes these parts of `CompiledConstraints`, and keeps their groups true with
    every change. Changes of these groups and of nodes invalidate every cache by themselves; whatever else a rule reads goes
    into `version`.
    """

    name: str
    plugin: str = ""
    """The in-tree plugin in whose place the rule decides in offload mode; empty where there is none."""

    counts_by_domain: bool = False
    """Whether `constraint_states` shows the parts of its rejections for all domains."""

    counted: tuple[type[Counted], ...] = ()
    """What the rule counts, each made by the index from a pod's signature."""

    counts_room: bool = False
    """Whether the rule counts free resources as node fit does, so that who asks node fit need not ask it."""

    def is_enabled(self, _rules: Rules) -> bool:
        """Whether the settings make the rule ours to decide: then the generated configuration disables the plugin."""
        return True

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """Whether the rule may reject a node for such a pod: by default where what it counts may. O(1).

        Asked of every rule, several times for each request.
        """
        return not compiled.filtering.isdisjoint(self.counted)

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
        self,
        _pod: Pod,
        _compiled: CompiledConstraints,
        _view: ClusterView,
        _frame: Frame,
        _most_domains: int = MOST_DOMAINS,
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
