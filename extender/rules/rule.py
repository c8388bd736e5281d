"""What a rule is: prepared once for the constraints of a pod, then applied to many nodes.

A `Rule` is one entry of `catalog.RULES`. It decides as a filter (which nodes pass, and why others do not) and as a
score. Positions are positions of the `Frame` that it was prepared with. No cost here grows with the number of pods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
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
from extender.model.bounded import Steps
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS
from extender.rules.frames import Frame
from extender.rules.free_resources import NodeTrial
from extender.settings.rules import Rules

MAX_SCORE = 100

MOST_BLAMED = 5  # pods that a rejection names: enough for the reader, and the search ends early


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The result of a rule before any node is checked (the scheduler's PreFilter or PreScore)."""

    code: Code
    reason: str = ""


SUCCESS = RuleStatus(Code.SUCCESS)
SKIP = RuleStatus(Code.SKIP)


class PreparedFilter:
    """A rule as a filter. Its verdict on each node determines all other methods; some filters check many nodes faster."""

    __slots__ = ()
    # Success; or Skip, if every node passes; or the code of a rejection of every node in advance.
    status: RuleStatus
    # The rejection of every node, if that is certain in advance, with the parts that all nodes share; never None if
    # ``status`` rejects every node.
    rejects_all: Rejection | None

    def verdict(self, position: int) -> Rejection | None:
        """Why a node is rejected, by its first failed condition, with all parts; None if it passes.

        O(conditions + pods in the domain), because a rule that counts names a few of the pods counted there.
        """
        raise NotImplementedError  # no ABC, because a filter that is a msgspec struct has another metaclass

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The positions that pass, in their order. O(nodes × conditions)."""
        return [node for node in nodes if self.verdict(node) is None]

    def reason(self, position: int) -> Reason | None:
        """The reason of the verdict. O(conditions)."""
        rejection = self.verdict(position)
        return None if rejection is None else rejection.reason

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """The positions that do not pass, by reason. O(nodes × conditions)."""
        positions: dict[Reason, list[int]] = {}
        # Most nodes pass, and `passing` checks many at once. Reasons are looked up for the rest only.
        passing = set(self.passing(nodes))
        for node in nodes:
            if node not in passing and (reason := self.reason(node)) is not None:
                positions.setdefault(reason, []).append(node)
        yield from positions.items()


class RuleCondition(Protocol):
    """One condition of a rule that counts. A node passes it, or is rejected for the condition's only reason."""

    @property
    def reason(self) -> Reason:
        """Why a node is rejected."""

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The positions that pass, in their order. O(nodes)."""

    def rejection(self, position: int) -> Rejection:
        """The rejection of a node that does not pass, with its parts. O(pods in its domain)."""


class HasKey(msgspec.Struct, frozen=True, gc=False):
    """The condition that a node has a topology key."""

    rule: str
    reason: Reason
    key: KeyView
    domains: Column

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes with the key."""
        domains = self.domains
        return [node for node in nodes if domains[node]]

    def rejection(self, _position: int) -> Rejection:
        """Names the key."""
        return Rejection(self.rule, self.reason, topology_key=self.key.key)


class ClauseFilter(PreparedFilter, msgspec.Struct, frozen=True, gc=False):
    """A filter that rejects a node by the first of its conditions that the node does not pass.

    A condition checks all nodes in one pass, because a call for each node and condition would take most of a filter's
    time.
    """

    clauses: tuple[RuleCondition, ...]
    rejects_all: Rejection | None = None
    status: RuleStatus = SUCCESS

    def verdict(self, position: int) -> Rejection | None:
        """The rejection by the first condition that rejects the node."""
        return next((clause.rejection(position) for clause in self.clauses if not clause.passing((position,))), None)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes that pass every condition."""
        for clause in self.clauses:
            nodes = clause.passing(nodes)
        return nodes

    def reason(self, position: int) -> Reason | None:
        """The reason of the verdict, without computing its parts."""
        for clause in self.clauses:
            if not clause.passing((position,)):
                return clause.reason
        return None

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """The positions by the first condition that rejects each."""
        for clause in self.clauses:
            passing = clause.passing(nodes)
            if len(passing) < len(nodes):
                passed = set(passing)
                yield clause.reason, [node for node in nodes if node not in passed]
                nodes = passing


@dataclass(frozen=True, slots=True)
class VerdictOnPod(PreparedFilter):
    """A filter that depends on no node: it rejects every node for one reason, or lets every node pass.

    ``is_error``: kube-scheduler's plugin reports an error for such a pod, not a rejection.
    """

    rejects_all: Rejection | None
    is_error: bool = False

    @property
    def status(self) -> RuleStatus:  # type: ignore[override]  # never set
        """The reason's code with the text of the rejection; Skip without a rejection."""
        rejection = self.rejects_all
        return (
            SKIP
            if rejection is None
            else RuleStatus(Code.ERROR if self.is_error else rejection.reason.code, rejection.text)
        )

    def verdict(self, _position: int) -> Rejection | None:
        """Equal for every node."""
        return self.rejects_all

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """All nodes or none."""
        return nodes if self.rejects_all is None else []


class PreparedScore(ABC):
    """A rule as a score, over exactly the nodes that it was prepared for.

    ``status``: success; or Skip, if the rule adds nothing; or Error.
    """

    __slots__ = ()
    status: RuleStatus

    @abstractmethod
    def raw(self) -> list[int]:
        """The raw score of each node, in order."""

    @abstractmethod
    def normalized(self) -> list[int]:
        """The scores scaled to 0–100 over the nodes, as NormalizeScore does."""


class RankedGroup(NamedTuple):
    """A group's share of a node's rank: ``weight`` for each pod counted in the node's domain.

    ``required``: nodes without this key rank last. If it is None, they rank like nodes without a counted pod.
    """

    weight: float
    group: GroupView
    required: KeyView | None = None


class Recount(ABC):
    """The filter of a rule's recounted part in one dry run, for each trial of it.

    It is made before the first trial. What no trial changes is read once.
    """

    __slots__ = ()

    @abstractmethod
    def filter(self, changed: Collection[NodeNumber]) -> PreparedFilter:
        """The filter by the current counts. ``changed``: all nodes on which a trial changes what is counted."""

    def taken_reads(self) -> int:
        """How many counts were read since the last call, beside one for each group. For a caller with a budget."""
        return 0


@dataclass(frozen=True, slots=True)
class PreparedAgain(Recount):
    """A filter that is prepared again in full. For a rule whose filter costs O(1) for each group."""

    rule: Rule
    pod: Pod
    compiled: CompiledConstraints
    view: ClusterView
    frame: Frame

    def filter(self, _changed: Collection[NodeNumber]) -> PreparedFilter:
        """The rule's filter."""
        return self.rule.prepare_filter(self.pod, self.compiled, self.view, self.frame)


class Rule(ABC):
    """One scheduling rule: everything that the verbs, their caches and the requeue know of it.

    One instance, in `catalog`.

    The defaults fit a rule without scores whose filter reads no counts of pods. What a rule counts it declares in
    ``counted``: for each signature the index makes these parts of `CompiledConstraints`, and updates their groups with
    every change. Changes of these groups and of nodes invalidate every cache automatically. Whatever else a rule reads
    must be in `version`.
    """

    name: str
    plugin: str = ""
    """The in-tree plugin that the rule replaces in offload mode; empty for none."""

    counts_by_domain: bool = False
    """Whether `constraint_states` shows the parts of the rule's rejections for all domains."""

    counted: tuple[type[Counted], ...] = ()
    """What the rule counts. The index makes each part from a pod's signature."""

    needs_constraints: bool = False
    """Whether the rule neither rejects a node nor scores for a pod without constraints. So it is not asked about such pods."""

    counts_room: bool = False
    """Whether the rule counts free resources like node fit, so that a caller that applies node fit can skip it."""

    def is_enabled(self, _rules: Rules) -> bool:
        """Whether by the settings the extender decides the rule.

        Then the generated configuration disables the plugin.
        """
        return True

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """Whether the rule may reject a node for such a pod. By default: whether something that it counts may. O(1).

        Called for every rule, several times for each request.
        """
        return not compiled.filtering.isdisjoint(self.counted)

    @abstractmethod
    def prepare_filter(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The filter for the incoming pod. It reads the pod's signature, and the parts of the pod in `pod_key`."""

    # -- what the result of the filter depends on ----------------------------------------------------------------------

    def version(self, _compiled: CompiledConstraints, _view: ClusterView) -> int:
        """A growing number for all that the result depends on beside nodes and groups; 0 for nothing. O(1).

        Called for inactive rules too, because a change may make the rule active.
        """
        return 0

    def pod_key(self, _pod: Pod, _view: ClusterView) -> Hashable:
        """The parts of the pod that the filter's result depends on, beside its signature, for example requests.

        Or None.
        """
        return None

    def unwatched_changes(self, _view: ClusterView) -> tuple[Subscribable, ...]:
        """Where to subscribe to changes that may let a rejected pod pass and that kube-scheduler does not watch.

        After such a change, each rejected pod whose dependency version has changed is reviewed, and requeued if a node
        passes.
        """
        return ()

    # -- explanations --------------------------------------------------------------------------------------------------

    def constraint_states(
        self,
        _pod: Pod,
        _compiled: CompiledConstraints,
        _view: ClusterView,
        _frame: Frame,
        _most_domains: int = MOST_DOMAINS,
    ) -> Steps[Sequence[ConstraintState]]:
        """The state of each constraint in at most so many domains; for a rule that counts by domain.

        Computed in steps, and only when it is read.
        """
        yield from ()
        return ()

    def shared_places(self, _pod: Pod, _view: ClusterView) -> Iterable[tuple[Hashable, int]]:
        """For each of the pod's groups with shared places: the group, and how many more pods can pass.

        At most so many rejected pods of the group are requeued at a time, because all others would be rejected again.
        """
        return ()

    # -- the dry run of a preemption -----------------------------------------------------------------------------------

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """The constraints whose filter stays right while pods come and go; None without any.

        Such a filter reads current counts for each node. It uses no sum or minimum that was computed when it was
        prepared.
        """
        return compiled

    def recounted_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """The other constraints: their filter is prepared again after each change; None without any."""
        return None

    def recount(self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> Recount:
        """The filter of the recounted part, for a dry run. ``frame``: the nodes of the index without undetermined pods."""
        return PreparedAgain(self, pod, compiled, view, frame)

    def on_node(self, _pod: Pod, _view: ClusterView, _node: NodeNumber, _others: Sequence[Pod]) -> NodeTrial | None:
        """The part that depends on the pods of a node: the pods on it and the ``others``; None without such a part."""
        return None

    def other_nodes(self, _compiled: CompiledConstraints, _node: NodeNumber) -> Iterable[NodeNumber]:
        """Other nodes whose pods may cause the rule to reject a node: victims may be there (`preemption.crossNode`)."""
        return ()

    # -- scores --------------------------------------------------------------------------------------------------------

    def has_scores(self, _compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Whether the rule adds to the nodes' scores. O(terms)."""
        return False

    def prepare_score(
        self, _compiled: CompiledConstraints, _view: ClusterView, _frame: Frame, _nodes: Sequence[int], _rules: Rules
    ) -> PreparedScore | None:
        """The score over these nodes; None for a rule without scores."""
        return None

    def ranked_groups(
        self, _compiled: CompiledConstraints, _view: ClusterView, _nodes: int, _rules: Rules
    ) -> Sequence[RankedGroup] | None:
        """Groups that order so many nodes like the score, without computing each score.

        None: scores do not come from counts.
        """
        return None


def blamed_pods(group: GroupView, domain: int, view: ClusterView) -> tuple[str, ...]:
    """Up to `MOST_BLAMED` pods that the group counts in a domain, as ``namespace/name``.

    At worst O(pods in the domain).

    Fewer than are counted, if the node of some pods is undetermined.
    """
    names: list[str] = []
    groups, known = frozenset((group,)), dict[tuple[PodSignature, bool], bool]()
    # Sorted, so that all replicas and replays name equal pods.
    for node in sorted(group.key.nodes_in.get(domain, ())):
        for pod in view.pods_on(node).values() if group.domain_of[node] else ():
            kind = (pod.signature, pod.terminating)
            # Pods of one signature are counted alike, so the groups are looked up once for each kind.
            is_counted = known.get(kind)
            if is_counted is None:
                is_counted = known[kind] = view.is_counted(pod, groups)
            if is_counted:
                names.append(pod.full_name)
                if len(names) >= MOST_BLAMED:
                    return tuple(names)
    return tuple(names)
