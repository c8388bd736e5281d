"""The list of all rules, and their results together. To add a rule: its own file, and a line in `RULES`.

Rules about the pod alone come first (limits, quota). Then the order is kube-scheduler's: node affinity (which policies
direct), topology spread, inter-pod affinity. The reason for a node is the reason of the first rule that rejects it;
which nodes pass does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import itemgetter

import msgspec

from extender.features.quotas.rule import CrossNamespaceQuota
from extender.index.counts.compiled_constraints import CompiledConstraints, Counted
from extender.index.nodes.columns import NodeNumber
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.frames import Frame, IndexFrame
from extender.rules.free_resources import NodeTrial
from extender.rules.free_room import FreeRoom
from extender.rules.interpod_affinity import InterPodAffinity
from extender.rules.limits import LimitsRule
from extender.rules.meter import SCORE, Stopwatch, TimedFilter
from extender.rules.node_fit import NodeFit
from extender.rules.policy import ScheduledPolicies
from extender.rules.release_domains import ReleaseDomains
from extender.rules.reserved_room import ReservedRoomRule
from extender.rules.rule import MAX_SCORE, PreparedFilter, PreparedScore, Rule
from extender.rules.topology_spread import TopologySpread
from extender.settings.rules import Rules

RULES: tuple[Rule, ...] = (
    LimitsRule(),
    CrossNamespaceQuota(),
    ScheduledPolicies(),
    ReleaseDomains(),
    TopologySpread(),
    InterPodAffinity(),
    FreeRoom(),
    ReservedRoomRule(),
)

# kube-scheduler applies this rule to the nodes of a request. The extender applies it to other nodes, and where pods are
# nominated to a node.
NODE_FIT: Rule = NodeFit()

# The weight that kube-scheduler gives each of the two plugins.
PLUGIN_WEIGHT = 2


class PreparedFilters(msgspec.Struct, frozen=True, gc=False):
    """All filters that apply to a pod. If one of them rejects every node in advance, it is the only one."""

    filters: tuple[PreparedFilter, ...]

    @property
    def passes_all(self) -> bool:
        """Whether no node can be rejected."""
        return not self.filters

    @property
    def failed(self) -> PreparedFilter | None:
        """The filter that rejects every node in advance; None if no filter does."""
        return self.filters[0] if self.filters and self.filters[0].status.code is not Code.SUCCESS else None

    @property
    def rejects_all(self) -> Rejection | None:
        """The rejection of every node, if that is certain in advance; else None."""
        return self.filters[0].rejects_all if self.filters else None

    @property
    def rejects_every_node(self) -> bool:
        """Whether it is certain in advance that every node is rejected, for one reason or several."""
        return any(prepared.rejects_all is not None for prepared in self.filters)

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The positions that every filter lets pass, in their order."""
        for prepared in self.filters:
            nodes = prepared.passing(nodes)
        return nodes

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """The positions that do not pass, by the first filter's reason; a reason may come repeatedly."""
        for prepared in self.filters:
            # Each filter sees only nodes that passed the filters before it, so the first reason counts.
            gone: set[int] = set()
            for reason, rejected in prepared.rejected(nodes):
                gone.update(rejected)
                yield reason, rejected
            if gone:
                nodes = [node for node in nodes if node not in gone]

    def reason(self, node: int) -> Reason | None:
        """The reason of the first filter that rejects the node; None if it passes."""
        return next((reason for prepared in self.filters if (reason := prepared.reason(node)) is not None), None)

    def verdict(self, node: int) -> Rejection | None:
        """The rejection by the first filter that rejects the node, with its parts; None if it passes."""
        return next((rejection for prepared in self.filters if (rejection := prepared.verdict(node)) is not None), None)


NO_FILTERS = PreparedFilters(())

Parts = Sequence[tuple[Rule, CompiledConstraints]]
"""Active rules, each with the constraints that it applies."""


def prepare(parts: Parts, pod: Pod, view: ClusterView, frame: Frame, watch: Stopwatch | None = None) -> PreparedFilters:
    """Prepares the filters of these rules, except filters that let every node pass. ``watch`` times each rule."""
    if not parts:
        return NO_FILTERS
    if watch is not None:
        return _joined([
            _timed(rule, partial(rule.prepare_filter, pod, part, view, frame), watch) for rule, part in parts
        ])  # fmt: skip
    return _joined([rule.prepare_filter(pod, part, view, frame) for rule, part in parts])


def _timed(rule: Rule, prepare: Callable[[], PreparedFilter], watch: Stopwatch) -> PreparedFilter:
    with watch.inside(rule.name):
        prepared = prepare()
    return TimedFilter(prepared, rule.name, watch)


def _joined(filters: Sequence[PreparedFilter]) -> PreparedFilters:
    kept = []
    for prepared in filters:
        # Skip: every node passes. Any other code rejects every node, so the other filters do not matter.
        code = prepared.status.code
        if code is Code.SUCCESS:
            kept.append(prepared)
        elif code is not Code.SKIP:
            # The first such rule alone decides: a later rule may reject every node too, with another reason.
            return PreparedFilters((prepared,))
    return PreparedFilters(tuple(kept)) if kept else NO_FILTERS


def counts_of_rules() -> tuple[type[Counted], ...]:
    """What each rule counts; for the index."""
    return tuple([kind for rule in RULES for kind in rule.counted])


def active(compiled: CompiledConstraints, view: ClusterView) -> Parts:
    """The rules that may reject a node for such a pod. For most pods, without constraints, few or none."""
    return [(rule, compiled) for rule in _rules_for(compiled) if rule.is_active(compiled, view)]


def _rules_for(compiled: CompiledConstraints) -> tuple[Rule, ...]:
    """The rules that may be active, or have scores, for such a pod."""
    return _for_plain_pods(RULES) if compiled.is_plain else RULES


@lru_cache(maxsize=4)
def _for_plain_pods(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that are asked about pods without constraints too, because most pods have none."""
    return tuple([rule for rule in rules if not rule.needs_constraints])


def active_in_place_of_plugins(compiled: CompiledConstraints, view: ClusterView) -> Parts:
    """The active rules that decide in place of an in-tree plugin."""
    return [(rule, compiled) for rule in RULES if rule.plugin and rule.is_active(compiled, view)]


def prepare_filters(
    pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame, watch: Stopwatch | None = None
) -> PreparedFilters:
    """Prepares the filter of every active rule. O(terms + constraints × distinct counts)."""
    return prepare(active(compiled, view), pod, view, frame, watch)


def prepare_beside_fit(pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> PreparedFilters:
    """`prepare_filters` without the rule that counts free resources, for a caller that applies node fit too."""
    # Node fit counts the same room: it would be checked twice.
    parts = [part for part in active(compiled, view) if not part[0].counts_room]
    return prepare(parts, pod, view, frame)


# -- the dry run of a preemption ---------------------------------------------------------------------------------------


def lasting_parts(compiled: CompiledConstraints, view: ClusterView) -> Parts:
    """The parts that can be prepared once, because they stay right while pods come and go."""
    # A dry run spares victims one by one, and checks the pod after each. Preparing all filters each time would take
    # most of it.
    parts = [(rule, rule.lasting_part(part)) for rule, part in active(compiled, view)]
    return [(rule, part) for rule, part in parts if part is not None and rule.is_active(part, view)]


def recounted_parts(compiled: CompiledConstraints, view: ClusterView) -> Parts:
    """The parts that must be prepared again after each pod that comes or goes."""
    parts = [(rule, rule.recounted_part(part)) for rule, part in active(compiled, view)]
    return [(rule, part) for rule, part in parts if part is not None and rule.is_active(part, view)]


def counted_parts(compiled: CompiledConstraints, view: ClusterView) -> Parts:
    """All parts that a trial on the counts can change.

    Parts that depend on the pods of one node are in `node_trials`.
    """
    return (*lasting_parts(compiled, view), *recounted_parts(compiled, view))


class Recounts:
    """The recounted parts in one dry run. Parts that depend on the pods of one node are in `node_trials`.

    To be made before the first trial. The filters without any change are prepared once, because most nodes of a dry run
    are checked by these.
    """

    __slots__ = ("_recounts", "_unchanged", "_watch")

    def __init__(self, parts: Parts, pod: Pod, view: ClusterView, watch: Stopwatch | None) -> None:
        frame, self._watch = IndexFrame(), watch
        self._recounts = [(rule, rule.recount(pod, part, view, frame)) for rule, part in parts]
        self._unchanged: PreparedFilters | None = None

    def filters(self, changed: Collection[NodeNumber]) -> PreparedFilters:
        """The filters by the current counts. ``changed``: all nodes on which a trial changes what is counted."""
        if not self._recounts:
            return NO_FILTERS
        if changed:
            return self._prepared(changed)
        if self._unchanged is None:
            self._unchanged = self._prepared(())
        return self._unchanged

    def _prepared(self, changed: Collection[NodeNumber]) -> PreparedFilters:
        watch = self._watch
        if watch is None:
            return _joined([recount.filter(changed) for _, recount in self._recounts])
        return _joined([_timed(rule, partial(recount.filter, changed), watch) for rule, recount in self._recounts])

    def taken_reads(self) -> int:
        """How many counts were read since the last call, beside one for each group of each filter."""
        return sum([recount.taken_reads() for _, recount in self._recounts])


def node_trials(
    pod: Pod,
    view: ClusterView,
    node: NodeNumber,
    others: Sequence[Pod],
    *,
    checks_fit: bool,
    has_rules: bool = True,
) -> Sequence[NodeTrial]:
    """The parts of the rules that depend on the pods of one node. ``checks_fit``: with node fit.

    ``has_rules``: false if node fit applies without any rule.
    """
    rules = (*(RULES if has_rules else ()), *((NODE_FIT,) if checks_fit else ()))
    return [trial for rule in rules if (trial := rule.on_node(pod, view, node, others)) is not None]


def other_nodes(compiled: CompiledConstraints, node: NodeNumber) -> set[NodeNumber]:
    """Other nodes whose pods may be why a rule rejects a node. O(terms + nodes of their domains)."""
    return {number for rule in RULES for number in rule.other_nodes(compiled, node)}


# -- what results depend on --------------------------------------------------------------------------------------------

Dependencies = tuple[int, int, tuple[Hashable, ...]]


def dependencies(pod: Pod, compiled: CompiledConstraints, view: ClusterView) -> Dependencies:
    """Equal while the filter's result for the pod is the same. O(groups).

    Consists of the serial number of the constraints, a sum of versions that only grow, and what rules read of the pod
    beside its signature. Every cache of filter and preemption results compares it, and so does the requeue.
    """
    # Inactive rules too: a change may make one active, and then an old result must not be taken.
    version = view.dependency_version(compiled) + sum([rule.version(compiled, view) for rule in RULES])
    return compiled.serial, version, tuple([rule.pod_key(pod, view) for rule in RULES])


def unwatched_changes(view: ClusterView) -> tuple[Subscribable, ...]:
    """The sources of changes that may let a rejected pod pass and that kube-scheduler does not watch."""
    return tuple([source for rule in RULES for source in rule.unwatched_changes(view)])


def shared_places(pod: Pod, view: ClusterView) -> dict[Hashable, int]:
    """How many more pods can pass, by the group of pods that share these places. Empty for most pods."""
    return dict(places for rule in RULES for places in rule.shared_places(pod, view))


# -- scores ------------------------------------------------------------------------------------------------------------


def scoring_rules(compiled: CompiledConstraints, rules: Rules) -> Sequence[Rule]:
    """The rules that add to the scores of nodes. O(terms)."""
    return [rule for rule in _with_scores(_rules_for(compiled)) if rule.has_scores(compiled, rules)]


@lru_cache(maxsize=4)
def _with_scores(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules with scores, because each answer asks for them."""
    return tuple([rule for rule in rules if type(rule).has_scores is not Rule.has_scores])


def _timed_scores(
    compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules, watch: Stopwatch
) -> list[list[int]]:
    scores: list[list[int]] = []
    for rule in scoring_rules(compiled, rules):
        with watch.inside(rule.name, SCORE):
            score = rule.prepare_score(compiled, view, frame, nodes, rules)
            if score is not None and score.status.code is Code.SUCCESS:
                scores.append(score.normalized())
    return scores


def prepare_scores(
    compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules
) -> list[PreparedScore]:
    """The scores of all rules over these nodes, except scores that add nothing or cannot be computed."""
    every = [rule.prepare_score(compiled, view, frame, nodes, rules) for rule in scoring_rules(compiled, rules)]
    return [score for score in every if score is not None and score.status.code is Code.SUCCESS]


@dataclass(frozen=True, slots=True)
class Points:
    """Points by position, and the most that a node can have. Both are empty if no rule adds points."""

    of: Mapping[int, int] = field(default_factory=dict)
    most: int = 0


def points(
    compiled: CompiledConstraints,
    view: ClusterView,
    frame: Frame,
    nodes: Sequence[int],
    rules: Rules,
    watch: Stopwatch | None = None,
) -> Points:
    """In-tree points of these nodes: the sum over the rules of 0–100 times the plugin's weight."""
    if watch is not None:
        scores = _timed_scores(compiled, view, frame, nodes, rules, watch)
    else:
        scores = [score.normalized() for score in prepare_scores(compiled, view, frame, nodes, rules)]
    if not scores:
        return Points()
    # Each rule is normalized to 0–100 before the sum, as NormalizeScore of each plugin runs before its weight.
    totals = [PLUGIN_WEIGHT * total for total in map(sum, zip(*scores, strict=True))]
    return Points(dict(zip(nodes, totals, strict=True)), PLUGIN_WEIGHT * MAX_SCORE * len(scores))


# -- the generated configuration of kube-scheduler ---------------------------------------------------------------------


def replaced_plugins() -> Sequence[tuple[str, Rule]]:
    """The in-tree plugins that enabled rules replace in offload mode, by name."""
    return sorted([(rule.plugin, rule) for rule in RULES if rule.plugin], key=itemgetter(0))
