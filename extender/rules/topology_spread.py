"""Topology spread, as the in-tree plugin PodTopologySpread filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ , KEP-3022 (minDomains), KEP-3094
(inclusion policies). Hard constraints filter, soft ones score. A node that an inclusion policy excludes from counting is
not rejected for that; it passes or not by the count of its domain.

A soft constraint with minDomains is a wish that only a scheduling policy can have. While fewer than minDomains eligible domains
have matching pods, nodes in domains that the pod would take above maxSkew pods get a quarter of their score, so that other domains
are preferred more strongly. That is done to normalised scores: what raw scores are multiplied by cancels in them.
KEP-3022 considered such a field ("Alternatives: Support minDomains in ScheduleAnyway as well") and decided against it. It would
count the domains that exist, which are enough in most clusters; here a domain counts once it has a matching pod.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Self

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints, Counted, Counting
from extender.index.counts.groups import GroupView, SpreadGroupView
from extender.index.counts.selections import PodSelector
from extender.index.nodes.columns import Column
from extender.index.nodes.domains import Inclusion
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.selectors import NOTHING
from extender.model.constraints.spread import (
    SYSTEM_DEFAULTS,
    SpreadConstraint,
    SpreadConstraints,
    round_half_away,
    topology_weight,
)
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, Steps, domain_states, own_namespace
from extender.rules.excluded_domains import (
    NOTHING_LEFT_OUT,
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
    Rule,
    RuleCondition,
    RuleStatus,
    VerdictOnPod,
    blamed_pods,
)
from extender.settings.rules import Rules, TopologySpreadSettings

_NAME = "PodTopologySpread"
_SKEW_EVERYWHERE = Rejection(_NAME, Reason.SPREAD_SKEW)


@dataclass(frozen=True, slots=True)
class Spread:
    """A constraint with its group; ``self_match`` is 1 where the constraint selects the incoming pod itself."""

    constraint: SpreadConstraint
    group: SpreadGroupView
    self_match: int


@dataclass(frozen=True, slots=True)
class SpreadGroups(Counted):
    """The pods that a pod's constraints count: by constraint, its own ones or else default constraints.

    ``reads_domains``: policies say something of domains, ``reads_room``: they exclude full ones.
    """

    hard: tuple[Spread, ...] = ()
    soft: tuple[Spread, ...] = ()
    soft_needs_all_keys: bool = True
    hard_error: str = ""
    soft_error: str = ""
    reads_domains: bool = False
    reads_room: bool = False

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups. What policies direct counts without the rule too, as the in-tree plugin does not know it."""
        if not (settings.topology_spread.enabled or signature.enforced is not None):
            return None
        found, needs_all = _in_force(signature, counts, settings)
        if not (found.hard or found.soft or found.hard_error or found.soft_error):
            return None
        if not settings.topology_spread.min_domains:
            found = replace(found, hard=tuple(map(without_min_domains, found.hard)))
        hard_keys, soft_keys = (_keys_of(tuple(c.topology_key for c in some)) for some in (found.hard, found.soft))
        return cls(
            tuple([_counted(signature, each, counts, hard_keys) for each in found.hard]),
            tuple([_counted(signature, each, counts, soft_keys if needs_all else None) for each in found.soft]),
            needs_all,
            found.hard_error,
            found.soft_error,
            any(each.domains is not None for each in found.hard),
            any(each.domains is not None and each.domains.excludes_full for each in found.hard),
        )

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """Those of the hard constraints."""
        return tuple([each.group for each in self.hard])

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """Those of the soft constraints."""
        return tuple([each.group for each in self.soft])

    @property
    def filter_key(self) -> object:
        """The hard constraints."""
        return self.hard, self.hard_error

    @property
    def used_fields(self) -> tuple[str, ...]:
        """Each hard constraint with minDomains (KEP-3022); 1 is what a constraint without it has."""
        return tuple(["minDomains" for each in self.hard if each.constraint.min_domains > 1])

    @property
    def error(self) -> str:
        """What is wrong with the hard constraints."""
        return self.hard_error


def without_min_domains(constraint: SpreadConstraint) -> SpreadConstraint:
    """The constraint where its field minDomains, and what policies say of it, is ignored."""
    rules = None if constraint.domains is None else replace(constraint.domains, declared=False)
    return replace(constraint, min_domains=1, domains=rules)


_NO_SPREAD = SpreadGroups()


def spread_groups(compiled: CompiledConstraints) -> SpreadGroups:
    """What is counted for a pod's spread constraints."""
    return compiled.get(SpreadGroups) or _NO_SPREAD


def _in_force(signature: PodSignature, counts: Counting, settings: Rules) -> tuple[SpreadConstraints, bool]:
    """The constraints in force, and whether scoring ignores nodes that lack a key (not under System defaults)."""
    if signature.spread.own or not settings.topology_spread.enabled:
        return signature.spread, True
    defaults = default_constraints(settings.topology_spread)
    if not defaults:
        return signature.spread, True
    selector = counts.deduced_selector()
    if selector is None:
        return SpreadConstraints(), True
    made = [replace(constraint, selector=selector) for constraint in defaults]
    hard, soft = tuple(c for c in made if c.hard), tuple(c for c in made if not c.hard)
    return SpreadConstraints(hard, soft), settings.topology_spread.defaulting_type != "System"


@cache
def default_constraints(settings: TopologySpreadSettings) -> tuple[SpreadConstraint, ...]:
    """The constraints for pods without any of their own, which count nothing before a selector is deduced."""
    if settings.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return tuple(
        SpreadConstraint(
            max_skew=c.max_skew,
            topology_key=str(c.topology_key),
            hard=c.when_unsatisfiable == "DoNotSchedule",
            min_domains=1 if c.min_domains is None else c.min_domains,
            honor_affinity=c.node_affinity_policy != "Ignore",
            honor_taints=c.node_taints_policy == "Honor",
        )
        for c in settings.default_constraints
    )


@lru_cache(maxsize=256)
def _keys_of(topology_keys: tuple[str, ...]) -> frozenset[str]:
    """One set for all templates with the same keys: each spread group has it in its identity."""
    return frozenset(topology_keys)


def _counted(
    signature: PodSignature, constraint: SpreadConstraint, counts: Counting, keys: frozenset[str] | None
) -> Spread:
    """Counts the pods of the namespace that the constraint selects; the empty selector counts none.

    ``keys``: those that a node must have to count; None where a node without the key counts as having the value "".
    For ScheduleAnyway over hostname each node counts by itself, whatever the policies.
    """
    topology_key, inclusion = "", Inclusion()
    if constraint.hard or constraint.topology_key != HOSTNAME:
        honors_affinity = constraint.honor_affinity and not signature.node_affinity.admits_all
        topology_key = constraint.topology_key
        inclusion = Inclusion(
            keys=keys or frozenset(),
            affinity=signature.node_affinity if honors_affinity else None,
            tolerations=signature.tolerations if constraint.honor_taints else None,
            missing_as_empty=keys is None,
        )
    selector = NOTHING if constraint.selector.is_empty else constraint.selector
    group = counts.living_pods(PodSelector(selector, (signature.namespace,)), topology_key, inclusion)
    return Spread(constraint, group, int(constraint.selector.matches(signature.labels)))


def most_matching(constraint: SpreadConstraint, self_match: int, min_match: int) -> int:
    """The greatest matchNum of a domain that may take the pod; `WithinSkew` compares the counts with it.

    kube-scheduler rejects a node if matchNum + selfMatch - minMatch > maxSkew.
    """
    return constraint.max_skew - self_match + min_match


def _min_match(spread: Spread, frame: Frame, out: LeftOut, needed: Collection[str] | int) -> int:
    """The global minimum: the smallest count over the eligible domains, 0 while these are fewer than minDomains (KEP-3022).

    O(distinct counts), and O(domains that policies exclude).
    """
    group = spread.group
    if frame.eligible_domains(group, out.excluded) < out.still_needed(needed):
        return 0
    return out.least(group, frame)


class WithinSkew(msgspec.Struct, frozen=True, gc=False):
    """The clause that the pod keeps the skew of a node's domain within maxSkew."""

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
        """Those whose domain counts at most ``most`` pods. O(nodes)."""
        domains, match_num, most = self.domains, self.match_num.get, self.most
        return [node for node in nodes if match_num(domains[node], 0) <= most]

    def rejection(self, position: int) -> Rejection:
        """The count, the limit, the minimum and some of the pods counted."""
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
    group, constraint = spread.group, spread.constraint
    out, needed = NOTHING_LEFT_OUT, constraint.min_domains
    if constraint.domains is None:
        min_match = _min_match(spread, frame, out, needed)
    else:
        out = left_out(pod, signature, constraint, group, view, frame)
        min_match = _min_match(spread, frame, out, needed_domains(constraint, signature, view))
    most = most_matching(constraint, spread.self_match, min_match)
    return WithinSkew(spread, frame.domains(group.key), frame.conflicting(group), min_match, most, frame, view, out)


def skews(
    pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
) -> Iterator[tuple[SpreadConstraint, int]]:
    """Each hard constraint with its skew: the pods of the fullest domain that is not excluded, less the minimum.

    ``pod``: any of those that have the constraints. O(constraints × (distinct counts + domains that are left out)).
    """
    for each in spread_groups(compiled).hard:
        clause = _within_skew(each, pod, compiled.signature, frame, view)
        excluded, levels = clause.out.numbers, each.group.levels
        held = (count for count in sorted(levels, reverse=True) if any(one not in excluded for one in levels[count]))
        yield each.constraint, max(next(held, 0) - clause.min_match, 0)


def _rejects_all(clauses: Sequence[WithinSkew], frame: Frame) -> Rejection | None:
    """Skew, where one constraint rejects every domain and no node lacks a key. O(constraints × distinct counts)."""
    if any(each.out.excluded for each in clauses):
        return None
    groups = [each.spread.group for each in clauses]
    full = (frame.is_covered_by(g) and g.smallest() > c.most for g, c in zip(groups, clauses, strict=True))
    if any(full) and not any(group.key.lacking for group in groups):
        return _SKEW_EVERYWHERE
    return None


@dataclass(frozen=True, slots=True)
class SoftClause:
    """One ScheduleAnyway constraint over the scored nodes.

    ``has_key`` is by the label. ``domains`` is not over hostname, where every node is a domain of its own.
    ``limit``: a domain with a greater count is not one that minDomains waits for; None where minDomains is met or 1.
    """

    domains: Column
    has_key: Column
    counts: Mapping[int, int]
    max_skew: int
    weight: float
    limit: int | None = None

    def is_above(self, node: int) -> bool:
        """Whether the pod would take the domain of the node above maxSkew pods while minDomains is not met. O(1)."""
        return self.limit is not None and self.counts.get(self.domains[node], 0) > self.limit


@dataclass(frozen=True, slots=True)
class SpreadScore(PreparedScore):
    """Raw scores (fewer pods are better, so less is better) and their inversion to 0–100."""

    status: RuleStatus
    nodes: Sequence[int]
    clauses: tuple[SoftClause, ...] = ()
    ignored: frozenset[int] = frozenset()

    def raw(self) -> list[int]:
        """Sum over the constraints whose key the node has of count × weight + maxSkew - 1; 0 for ignored nodes."""
        totals = [0.0] * len(self.nodes)
        for clause in self.clauses:
            domains, has_key, count_of = clause.domains, clause.has_key, clause.counts.get
            weight, more = clause.weight, clause.max_skew - 1
            totals = [
                total + (count_of(domains[node], 0) * weight + more) if has_key[node] else total
                for total, node in zip(totals, self.nodes, strict=True)
            ]
        rounded = {total: round_half_away(total) for total in set(totals)}  # few, as counts repeat
        if not self.ignored:
            return [rounded[total] for total in totals]
        return [0 if node in self.ignored else rounded[t] for node, t in zip(self.nodes, totals, strict=True)]

    def normalized(self) -> list[int]:
        """The node with fewest pods gets 100; in whole numbers, as the plugin does it. Then minDomains, as the module says."""
        if self.status.code is not Code.SUCCESS:
            return [0] * len(self.nodes)
        raw, ignored = self.raw(), self.ignored
        scored = [score for node, score in zip(self.nodes, raw, strict=True) if node not in ignored] if ignored else raw
        least, most = min(scored, default=0), max(scored, default=0)
        score_of = {score: MAX_SCORE * (most + least - score) // most if most else MAX_SCORE for score in set(scored)}
        if not ignored:
            return self._for_more_domains([score_of[score] for score in raw])
        return self._for_more_domains([
            0 if node in ignored else score_of[score] for node, score in zip(self.nodes, raw, strict=True)
        ])  # fmt: skip

    def _for_more_domains(self, scores: list[int]) -> list[int]:
        """The scores where minDomains is not met, or as they are where no node is in a domain that would help."""
        wishes = [clause for clause in self.clauses if clause.limit is not None]
        if not wishes:
            return scores
        above = {node for node in self.nodes if any(clause.is_above(node) for clause in wishes)}
        if above.issuperset(node for node in self.nodes if node not in self.ignored):
            return scores
        return [score // 4 if node in above else score for node, score in zip(self.nodes, scores, strict=True)]


def _soft(spread: Spread, labelled: Column, frame: Frame, scored: Sequence[int]) -> SoftClause:
    """A clause with its weight, which grows with the number of domains among the scored nodes."""
    group, constraint = spread.group, spread.constraint
    if constraint.topology_key == HOSTNAME:
        size = len(scored)
    else:
        unlabelled = group.key.number_of.get("", 0)  # nodes without the key count as one more value, ""
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
    """The rule. Its filter depends on nodes and groups; which groups these are depends on workloads too."""

    name = plugin = _NAME
    counts_by_domain = True
    counted = (SpreadGroups,)

    def is_enabled(self, rules: Rules) -> bool:
        """By `rules.topologySpread.enabled`."""
        return rules.topology_spread.enabled

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of workloads, from which default constraints are deduced, and of what policies read of domains."""
        return (view.workload_changes, view.domains.changes)

    def version(self, compiled: CompiledConstraints, view: ClusterView) -> int:
        """Of the domains that are declared or excluded, and of the pods on nodes, where policies say something of them."""
        found = compiled.get(SpreadGroups)
        if found is None or not found.reads_domains:
            return 0
        return view.domains.version + (view.placement_version if found.reads_room else 0)

    def pod_key(self, pod: Pod, _view: ClusterView) -> Hashable:
        """Its requests, where full domains are excluded."""
        rules = [each.domains for each in pod.signature.spread.hard if each.domains is not None]
        return frozenset(pod.requests.items()) if any(each.excludes_full for each in rules) else None

    def prepare_filter(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The hard constraints, each with the largest count of a domain that passes. O(constraints × distinct counts)."""
        found = spread_groups(compiled)
        if found.hard_error:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {found.hard_error}"
            return VerdictOnPod(Rejection(_NAME, Reason.MALFORMED_POD, text), is_error=True)
        if not found.hard:
            return VerdictOnPod(None)
        within = [_within_skew(each, pod, compiled.signature, frame, view) for each in found.hard]
        clauses: list[RuleCondition] = []
        for each in within:
            key = each.spread.group.key
            if key.lacking or not frame.numbers_nodes:
                clauses.append(HasKey(_NAME, Reason.SPREAD_LABEL_MISSING, key, each.domains))
            if each.out.excluded:
                clauses.append(NotExcluded(_NAME, key, each.domains, each.out, frame))
            clauses.append(each)
        return ClauseFilter(tuple(clauses), _rejects_all(within, frame))

    def constraint_states(
        self, pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame, most_domains: int = MOST_DOMAINS
    ) -> Steps[Sequence[ConstraintState]]:
        """One for each hard constraint, over its eligible domains."""
        found: list[ConstraintState] = []
        for each in spread_groups(compiled).hard:
            constraint, group, signature = each.constraint, each.group, compiled.signature
            clause = _within_skew(each, pod, signature, frame, view)
            out, needed = clause.out, needed_domains(constraint, signature, view)
            eligible = [domain for domain in group.key.nodes_in if group.is_eligible_domain(domain)]
            yield
            counts, passes = clause.match_num, clause.most.__ge__
            domains, more = yield from domain_states(group, eligible, counts, view, passes, most_domains)
            found.append(
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
                    excludes_itself=not each.self_match,
                )
            )
        return found

    def lasting_part(self, _compiled: CompiledConstraints) -> CompiledConstraints | None:
        """None: skew is measured against the minimum of all domains."""
        return None

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """All of it."""
        return compiled

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Where there are soft constraints."""
        found = compiled.get(SpreadGroups)
        return found is not None and bool(found.soft)

    def prepare_score(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> SpreadScore:
        """The score of the soft constraints over these nodes. O(nodes × constraints)."""
        found = spread_groups(compiled)
        if found.soft_error:
            text = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {found.soft_error}"
            return SpreadScore(RuleStatus(Code.ERROR, text), nodes)
        if not found.soft:
            return SpreadScore(SKIP, nodes)
        labelled = [frame.domains(view.key(each.constraint.topology_key)) for each in found.soft]
        ignored: frozenset[int] = frozenset()
        if found.soft_needs_all_keys:
            ignored = frozenset([node for column in labelled for node in nodes if not column[node]])
        scored = [node for node in nodes if node not in ignored] if ignored else nodes
        clauses = [_soft(each, column, frame, scored) for each, column in zip(found.soft, labelled, strict=True)]
        return SpreadScore(SUCCESS, nodes, tuple(clauses), ignored)

    def ranked_groups(
        self, compiled: CompiledConstraints, view: ClusterView, nodes: int, _rules: Rules
    ) -> Sequence[RankedGroup] | None:
        """Fewer pods rank higher. The weights are by the domains of the cluster, as the passing nodes are not known yet.

        None while minDomains is not met, as a rank is proportional to a count.
        """
        spread = spread_groups(compiled)
        if spread.soft_error:
            return ()
        if any(map(_lacks_domains, spread.soft)):
            return None
        found = []
        for each in spread.soft:
            key = view.key(each.constraint.topology_key)
            size = nodes if each.constraint.topology_key == HOSTNAME else len(key.nodes_in)
            required = key if spread.soft_needs_all_keys else None
            found.append(RankedGroup(-topology_weight(size), each.group, required))
        return found
