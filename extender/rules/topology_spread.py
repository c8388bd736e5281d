"""Topology spread, as the in-tree plugin PodTopologySpread filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ , KEP-3022 (minDomains), KEP-3094
(inclusion policies). Hard constraints filter, soft ones score. A node that an inclusion policy excludes from counting
is not rejected for that; it passes or not by the count of its domain.

A soft constraint with minDomains can come only from a scheduling policy. While fewer than minDomains eligible domains
have matching pods, a node gets a quarter of its score if its domain would exceed maxSkew pods with the pod. So other
domains are preferred more strongly. This applies to normalised scores, because a factor of raw scores cancels out in
normalisation. KEP-3022 considered such a field ("Alternatives: Support minDomains in ScheduleAnyway as well") and
decided against it. It would count existing domains, and most clusters have enough of them. Here a domain counts once it
has a matching pod.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import SpreadGroupView
from extender.index.nodes.columns import Column, NodeNumber
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.bounded import Steps
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.spread import (
    SpreadConstraint,
    round_half_away,
    topology_weight,
)
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, domain_states, own_namespace
from extender.rules.excluded_domains import (
    NOTHING_LEFT_OUT,
    KeptCounts,
    LeftOut,
    NotExcluded,
    left_out,
    needed_domains,
)
from extender.rules.frames import Frame
from extender.rules.rule import (
    MAX_SCORE,
    SKIP,
    SUCCESS,
    ClauseFilter,
    HasKey,
    PreparedFilter,
    PreparedScore,
    RankedGroup,
    Recount,
    Rule,
    RuleCondition,
    RuleStatus,
    VerdictOnPod,
    blamed_pods,
)
from extender.rules.spread_groups import Spread, SpreadGroups
from extender.settings.rules import Rules

_NAME = "PodTopologySpread"
_NO_SPREAD = SpreadGroups()
_SKEW_EVERYWHERE = Rejection(_NAME, Reason.SPREAD_SKEW)
_READS_OF_CONDITION = 15
"""What a condition that is prepared for a trial counts among the reads of a dry run."""


def spread_groups(compiled: CompiledConstraints) -> SpreadGroups:
    """The groups of a pod's spread constraints."""
    return compiled.get(SpreadGroups) or _NO_SPREAD


def most_matching(constraint: SpreadConstraint, self_match: int, min_match: int) -> int:
    """The greatest matchNum of a domain that may take the pod. `WithinSkew` compares each domain's matchNum with it.

    kube-scheduler rejects a node if matchNum + selfMatch - minMatch > maxSkew. Only matchNum depends on the node.
    """
    # match_num + self_match - min_match <= max_skew, solved for match_num.
    return constraint.max_skew - self_match + min_match


def _min_match(spread: Spread, frame: Frame, out: LeftOut, needed: Collection[str] | int) -> int:
    """The global minimum: the smallest count over the eligible domains; 0 below minDomains domains (KEP-3022).

    O(distinct counts), plus O(domains that policies exclude).
    """
    group = spread.group
    if frame.eligible_domains(group, out.excluded) < out.still_needed(needed):
        return 0
    return _smallest_count(group, frame, out)


def _smallest_count(group: SpreadGroupView, frame: Frame, out: LeftOut) -> int:
    """The smallest count over the eligible domains that are not left out; 0 without such a domain.

    O(domains that are left out + distinct counts).
    """
    if out.is_full is None and not out.excluded:
        return frame.least(group)
    # A domain that only nodes of the request are in has no pod.
    if frame.eligible_domains(group, out.excluded) > group.domains:
        return 0
    counts, domains = frame.satisfying(group), group.column.domains
    if out.is_full is not None:
        return out.is_full.least(counts, out.numbers)
    if len(domains) > len(counts) and any(out.keeps(domain) for domain in domains if domain not in counts):
        return 0
    levels: Iterable[tuple[int, Collection[int]]]
    if counts is group.counts:
        levels = sorted(group.levels.items())
    else:
        levels = sorted((count, (domain,)) for domain, count in counts.items())
    return next((count for count, at_level in levels if any(map(out.keeps, at_level))), 0)


class WithinSkew(msgspec.Struct, frozen=True, gc=False):
    """The condition that a node's domain stays within maxSkew with the pod: matchNum is at most ``most``."""

    spread: Spread
    domains: Column
    match_num: Mapping[int, int]
    min_match: int
    most: int
    frame: Frame
    view: ClusterView
    out: LeftOut = NOTHING_LEFT_OUT
    reason: Reason = Reason.SPREAD_SKEW

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes whose domain counts at most ``most`` pods. O(nodes)."""
        # The skew's inequality, see `most_matching`. Runs once for each node and constraint of a request, so names are
        # local.
        domains, match_num, most = self.domains, self.match_num.get, self.most
        return [node for node in nodes if match_num(domains[node], 0) <= most]

    def rejection(self, position: int) -> Rejection:
        """The count, the limit, the minimum, and some of the counted pods."""
        key, domain = self.spread.group.key, self.domains[position]
        return Rejection(
            _NAME,
            self.reason,
            topology_key=key.key,
            domain=self.frame.value(key, position),
            count=self.match_num.get(domain, 0),
            limit=self.most,
            minimum=self.min_match,
            max_skew=self.spread.constraint.max_skew,
            blamed=blamed_pods(self.spread.group, domain, self.view),
        )


def _within_skew(spread: Spread, pod: Pod, signature: PodSignature, frame: Frame, view: ClusterView) -> WithinSkew:
    constraint = spread.constraint
    out, needed = NOTHING_LEFT_OUT, constraint.min_domains
    if constraint.domains is None:
        return _condition(spread, _min_match(spread, frame, out, needed), frame, view, out)
    out = left_out(pod, signature, constraint, spread.group, view, frame)
    min_match = _min_match(spread, frame, out, needed_domains(constraint, signature, view))
    return _condition(spread, min_match, frame, view, out)


def _condition(spread: Spread, min_match: int, frame: Frame, view: ClusterView, out: LeftOut) -> WithinSkew:
    group = spread.group
    most = most_matching(spread.constraint, spread.self_match, min_match)
    return WithinSkew(spread, frame.domains(group.key), frame.conflicting(group), min_match, most, frame, view, out)


def _filter_of(within: Sequence[WithinSkew], frame: Frame) -> ClauseFilter:
    """The filter of conditions of skew, with the conditions that a node has the keys and is in no excluded domain."""
    clauses: list[RuleCondition] = []
    for clause in within:
        key = clause.spread.group.key
        if key.lacking or not frame.numbers_nodes:
            clauses.append(HasKey(_NAME, Reason.SPREAD_LABEL_MISSING, key, clause.domains))
        if clause.out.excluded:
            clauses.append(NotExcluded(_NAME, key, clause.domains, clause.out, frame))
        clauses.append(clause)
    return ClauseFilter(tuple(clauses), _rejects_all(within, frame))


@dataclass(frozen=True, slots=True)
class _SpreadInTrials:
    """A hard constraint in the trials of a dry run.

    - ``out``: the domains that it leaves out. No trial changes them, because a trial changes the counts alone.
    - ``kept``: the counts of the other domains. None where all domains count, or where the minimum is always 0.
    - ``is_short``: there are fewer eligible domains than minDomains, so the minimum is 0.
    """

    spread: Spread
    out: LeftOut
    kept: KeptCounts | None
    is_short: bool

    @classmethod
    def of(cls, spread: Spread, pod: Pod, signature: PodSignature, frame: Frame, view: ClusterView) -> Self:
        """Reads the domains. O(domains) if some may be left out."""
        constraint, group = spread.constraint, spread.group
        out = left_out(pod, signature, constraint, group, view, frame)
        needed = needed_domains(constraint, signature, view)
        is_short = frame.eligible_domains(group, out.excluded) < out.still_needed(needed)
        leaves_out = out.is_full is not None or out.excluded
        return cls(spread, out, KeptCounts(group, out) if leaves_out and not is_short else None, is_short)

    def min_match(self, changed: Collection[NodeNumber]) -> int:
        """The global minimum. O(changed nodes), or O(distinct counts) where no domain is left out."""
        group = self.spread.group
        if self.is_short:
            return 0
        if self.kept is None:
            return group.least()
        column = group.domain_of
        return self.kept.least({domain for node in changed if (domain := column[node])})


class _SpreadRecount(Recount):
    """The hard constraints in the trials of a dry run."""

    __slots__ = ("_constraints", "_frame", "_reads", "_view")

    def __init__(
        self, hard: Sequence[Spread], pod: Pod, signature: PodSignature, view: ClusterView, frame: Frame
    ) -> None:
        self._view, self._frame = view, frame
        self._constraints = [_SpreadInTrials.of(spread, pod, signature, frame, view) for spread in hard]
        self._reads = 0

    def filter(self, changed: Collection[NodeNumber]) -> PreparedFilter:
        """The filter of the hard constraints. O(constraints × changed nodes)."""
        frame, view = self._frame, self._view
        self._reads += _READS_OF_CONDITION * len(self._constraints)
        within = [_condition(c.spread, c.min_match(changed), frame, view, c.out) for c in self._constraints]
        return _filter_of(within, frame)

    def taken_reads(self) -> int:
        """Reads of conditions that were prepared, and of counts of domains."""
        reads, self._reads = self._reads, 0
        for constraint in self._constraints:
            if constraint.kept is not None:
                reads += constraint.kept.reads
                constraint.kept.reads = 0
        return reads


def conditions(pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> Sequence[WithinSkew]:
    """The condition of each hard constraint of a pod. O(constraints × (distinct counts + domains that are left out))."""
    return [_within_skew(hard, pod, compiled.signature, frame, view) for hard in spread_groups(compiled).hard]


def skews(
    pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
) -> Iterator[tuple[SpreadConstraint, int]]:
    """Each hard constraint with its skew: the count of the fullest domain that is not excluded, minus the minimum.

    ``pod``: any pod with these constraints. O(constraints × (distinct counts + domains that are left out)).
    """
    for clause in conditions(pod, compiled, view, frame):
        excluded, levels = clause.out.numbers, clause.spread.group.levels
        held = (
            count for count in sorted(levels, reverse=True) if any(domain not in excluded for domain in levels[count])
        )
        yield clause.spread.constraint, max(next(held, 0) - clause.min_match, 0)


def _rejects_all(clauses: Sequence[WithinSkew], frame: Frame) -> Rejection | None:
    """The rejection by skew, if one constraint rejects every domain and no node lacks a key.

    O(constraints × distinct counts).
    """
    # Nodes in excluded domains are rejected for another reason.
    if any(clause.out.excluded for clause in clauses):
        return None
    groups = [clause.spread.group for clause in clauses]
    full = (frame.is_covered_by(g) and g.smallest() > c.most for g, c in zip(groups, clauses, strict=True))
    if any(full) and not any(group.key.lacking for group in groups):
        return _SKEW_EVERYWHERE
    return None


@dataclass(frozen=True, slots=True)
class SoftClause:
    """One ScheduleAnyway constraint over the scored nodes."""

    # For hostname each node is its own domain, so ``has_key`` differs from it.
    domains: Column
    # Whether the node has the label.
    has_key: Column
    counts: Mapping[int, int]
    max_skew: int
    weight: float
    # A greater count exceeds maxSkew while minDomains is not met; None if minDomains is met or 1.
    limit: int | None = None

    def is_above(self, node: int) -> bool:
        """Whether the pod would raise the node's domain above maxSkew pods while minDomains is not met. O(1)."""
        return self.limit is not None and self.counts.get(self.domains[node], 0) > self.limit


@dataclass(frozen=True, slots=True)
class SpreadScore(PreparedScore):
    """Raw scores (a smaller score is better: fewer pods), and their inversion to 0–100."""

    status: RuleStatus
    nodes: Sequence[int]
    clauses: tuple[SoftClause, ...] = ()
    ignored: frozenset[int] = frozenset()

    def raw(self) -> list[int]:
        """For each node: the sum of count × weight + maxSkew - 1 over the constraints whose key it has; 0 if ignored."""
        totals = [0.0] * len(self.nodes)
        # Constraint by constraint over all nodes, in the plugin's order, because it decides how doubles round.
        for clause in self.clauses:
            domains, has_key, count_of = clause.domains, clause.has_key, clause.counts.get
            weight, more = clause.weight, clause.max_skew - 1
            totals = [
                total + (count_of(domains[node], 0) * weight + more) if has_key[node] else total
                for total, node in zip(totals, self.nodes, strict=True)
            ]
        rounded = {total: round_half_away(total) for total in set(totals)}  # few distinct totals, as counts repeat
        if not self.ignored:
            return [rounded[total] for total in totals]
        return [0 if node in self.ignored else rounded[t] for node, t in zip(self.nodes, totals, strict=True)]

    def normalized(self) -> list[int]:
        """The node with the fewest pods gets 100. In integers, as in the plugin.

        Then minDomains applies, see the module.
        """
        if self.status.code is not Code.SUCCESS:
            return [0] * len(self.nodes)
        raw, ignored = self.raw(), self.ignored
        scored = [score for node, score in zip(self.nodes, raw, strict=True) if node not in ignored] if ignored else raw
        least, most = min(scored, default=0), max(scored, default=0)
        # Counts repeat, so the formula is computed once for each distinct raw score.
        score_of = {score: MAX_SCORE * (most + least - score) // most if most else MAX_SCORE for score in set(scored)}
        if not ignored:
            return self._for_more_domains([score_of[score] for score in raw])
        return self._for_more_domains([
            0 if node in ignored else score_of[score] for node, score in zip(self.nodes, raw, strict=True)
        ])  # fmt: skip

    def _for_more_domains(self, scores: list[int]) -> list[int]:
        """The scores while minDomains is not met. Unchanged if no node is in a domain that would help."""
        wishes = [clause for clause in self.clauses if clause.limit is not None]
        if not wishes:
            return scores
        above = {node for node in self.nodes if any(clause.is_above(node) for clause in wishes)}
        # No node would help, so a lower score for all of them would change nothing but rounding.
        if above.issuperset(node for node in self.nodes if node not in self.ignored):
            return scores
        return [score // 4 if node in above else score for node, score in zip(self.nodes, scores, strict=True)]


def _soft(spread: Spread, labelled: Column, frame: Frame, scored: Sequence[int]) -> SoftClause:
    """A clause with its weight, which grows with the number of domains among the scored nodes."""
    group, constraint = spread.group, spread.constraint
    if constraint.topology_key == HOSTNAME:
        size = len(scored)
    else:
        unlabelled = group.key.number_of.get("", 0)  # nodes without the key count as one more domain, ""
        size = len({labelled[node] or unlabelled for node in scored})
    limit = most_matching(constraint, spread.self_match, 0) if _lacks_domains(spread) else None
    return SoftClause(
        frame.domains(group.key), labelled, group.counts, constraint.max_skew, topology_weight(size), limit
    )


def _lacks_domains(spread: Spread) -> bool:
    """Whether fewer eligible domains than minDomains have matching pods. O(1)."""
    least = spread.constraint.min_domains
    return least > 1 and len(spread.group.counts) < least


class TopologySpread(Rule):
    """The rule. Its filter depends on nodes and groups. Which groups these are depends on workloads too."""

    name = plugin = _NAME
    needs_constraints = True
    counts_by_domain = True
    counted = (SpreadGroups,)

    def is_enabled(self, rules: Rules) -> bool:
        """As `rules.topologySpread.enabled` says."""
        return rules.topology_spread.enabled

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of workloads, from which default constraints are deduced, and of the domains that policies read."""
        return (view.workload_changes, view.domains.changes)

    def version(self, compiled: CompiledConstraints, view: ClusterView) -> int:
        """The version of declared and excluded domains, and of pods on nodes, if policies read them."""
        spread = compiled.get(SpreadGroups)
        if spread is None or not spread.reads_domains:
            return 0
        return view.domains.version + (view.placement_version if spread.reads_room else 0)

    def pod_key(self, pod: Pod, _view: ClusterView) -> Hashable:
        """The pod's requests, if full domains are excluded."""
        rules = [constraint.domains for constraint in pod.signature.spread.hard if constraint.domains is not None]
        return frozenset(pod.requests.items()) if any(rule.excludes_full for rule in rules) else None

    def prepare_filter(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The hard constraints, each with the largest count with which a domain passes.

        O(constraints × distinct counts).
        """
        spread = spread_groups(compiled)
        if spread.hard_error:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {spread.hard_error}"
            return VerdictOnPod(Rejection(_NAME, Reason.MALFORMED_POD, text), is_error=True)
        if not spread.hard:
            return VerdictOnPod(None)
        return _filter_of(conditions(pod, compiled, view, frame), frame)

    def constraint_states(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame, most_domains: int = MOST_DOMAINS
    ) -> Steps[Sequence[ConstraintState]]:
        """A state for each hard constraint, over its eligible domains."""
        states: list[ConstraintState] = []
        for spread in spread_groups(compiled).hard:
            constraint, group, signature = spread.constraint, spread.group, compiled.signature
            clause = _within_skew(spread, pod, signature, frame, view)
            out, needed = clause.out, needed_domains(constraint, signature, view)
            eligible = [domain for domain in group.key.nodes_in if group.is_eligible_domain(domain)]
            yield
            counts, passes = clause.match_num, clause.most.__ge__
            domains, more = yield from domain_states(group, eligible, counts, view, passes, most_domains)
            states.append(
                ConstraintState(
                    rule=_NAME,
                    kind="topologySpread",
                    topology_key=group.key.key,
                    pods=str(constraint.selector),
                    reach=own_namespace(compiled.signature.namespace),
                    limit=clause.most,
                    max_skew=constraint.max_skew,
                    min_domains=out.still_needed(needed),
                    eligible=group.domains,
                    minimum=clause.min_match,
                    lacking=group.key.lacking,
                    rejects_lacking=True,
                    domains=tuple([out.judged(state) for state in domains]),
                    more_domains=more,
                    left_out=tuple(out.described(group, most_domains)),
                    excludes_itself=not spread.self_match,
                )
            )
        return states

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None, because skew is measured against the minimum of all domains."""
        return None

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Everything: see `lasting_part`."""
        return compiled

    def recount(self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> Recount:
        """The constraints, with the domains that they leave out."""
        spread = spread_groups(compiled)
        if spread.hard_error or not spread.hard:
            return Rule.recount(self, pod, compiled, view, frame)
        return _SpreadRecount(spread.hard, pod, compiled.signature, view, frame)

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Whether there are soft constraints."""
        spread = compiled.get(SpreadGroups)
        return spread is not None and bool(spread.soft)

    def prepare_score(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> SpreadScore:
        """The score of the soft constraints over these nodes. O(nodes × constraints)."""
        spread = spread_groups(compiled)
        if spread.soft_error:
            text = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {spread.soft_error}"
            return SpreadScore(RuleStatus(Code.ERROR, text), nodes)
        if not spread.soft:
            return SpreadScore(SKIP, nodes)
        labelled = [frame.domains(view.key(soft.constraint.topology_key)) for soft in spread.soft]
        ignored: frozenset[int] = frozenset()
        # As in the plugin: a node without one of the keys gets no score, except under System defaults.
        if spread.soft_needs_all_keys:
            ignored = frozenset([node for column in labelled for node in nodes if not column[node]])
        scored = [node for node in nodes if node not in ignored] if ignored else nodes
        clauses = [_soft(soft, column, frame, scored) for soft, column in zip(spread.soft, labelled, strict=True)]
        return SpreadScore(SUCCESS, nodes, tuple(clauses), ignored)

    def ranked_groups(
        self, compiled: CompiledConstraints, view: ClusterView, nodes: int, _rules: Rules
    ) -> Sequence[RankedGroup] | None:
        """Fewer pods rank higher. Weights use the domains of the cluster, because the passing nodes are not known yet.

        None while minDomains is not met, because a rank is proportional to a count and the quarter is not.
        """
        spread = spread_groups(compiled)
        if spread.soft_error:
            return ()
        if any(map(_lacks_domains, spread.soft)):
            return None
        ranked = []
        for soft in spread.soft:
            key = view.key(soft.constraint.topology_key)
            size = nodes if soft.constraint.topology_key == HOSTNAME else len(key.nodes_in)
            required = key if spread.soft_needs_all_keys else None
            ranked.append(RankedGroup(-topology_weight(size), soft.group, required))
        return ranked
