"""Topology spread, as the in-tree plugin PodTopologySpread filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ , KEP-3022 (minDomains), KEP-3094
(inclusion policies). Hard constraints filter, soft ones score. A node that an inclusion policy excludes from counting is
not rejected for that; it passes or not by the count of its domain.

A soft constraint with minDomains, which only a scheduling policy can have, scores as KEP-3022 describes under
"Alternatives: Support minDomains in ScheduleAnyway as well". While fewer than minDomains eligible domains have matching
pods, the global minimum counts as 0, and what the constraint adds to the raw score of a node is doubled where the pod
would take the domain above maxSkew: matching pods + 1 if the pod matches itself > maxSkew. So nodes in other domains are
preferred, also where another constraint or rule prefers this one. The KEP asks for the number of eligible domains, which
is never smaller: here domains without a matching pod do not yet count as spread over. Its reason against this was
the cost of reading all nodes, which counts that are kept do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints, CompiledSpread
from extender.index.nodes.columns import Column
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.spread import SpreadConstraint, round_half_away, topology_weight
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, Steps, domain_states, own_namespace
from extender.rules.frames import Frame
from extender.rules.rule import MAX_SCORE, SKIP, SUCCESS, Pods, RankedGroup, Rule, Status, blamed_pods
from extender.settings.rules import Rules

_NAME = "PodTopologySpread"
_SKEW_EVERYWHERE = Rejection(_NAME, Reason.SPREAD_SKEW)


class HardClause(msgspec.Struct, frozen=True, gc=False):
    """One DoNotSchedule constraint: a domain passes while its count is at most ``limit``."""

    domains: Column
    counts: Mapping[int, int]
    limit: int


class SpreadFilter(msgspec.Struct, frozen=True, gc=False):
    """The hard constraints of a pod in the order of its spec, each with its clause, counted in ``frame``."""

    status: Status
    frame: Frame
    constraints: tuple[CompiledSpread, ...] = ()
    clauses: tuple[HardClause, ...] = ()
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass. O(nodes × constraints)."""
        if self.status.code is Code.ERROR:
            return []
        for clause in self.clauses:
            domains, count_of, limit = clause.domains, clause.counts.get, clause.limit
            nodes = [node for node in nodes if (domain := domains[node]) and count_of(domain, 0) <= limit]
        return nodes

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by the first constraint that rejects them. O(nodes × constraints)."""
        if self.status.code is Code.ERROR:
            yield Reason.MALFORMED_POD, nodes
            return
        for clause in self.clauses:
            domains, count_of, limit = clause.domains, clause.counts.get, clause.limit
            yield Reason.SPREAD_LABEL_MISSING, [node for node in nodes if not domains[node]]
            nodes = [node for node in nodes if domains[node]]
            yield Reason.SPREAD_SKEW, [node for node in nodes if count_of(domains[node], 0) > limit]
            nodes = [node for node in nodes if count_of(domains[node], 0) <= limit]

    def reason(self, node: int) -> Reason | None:
        """Why the node is rejected, by the first constraint that does; None where it passes."""
        if self.status.code is Code.ERROR:
            return Reason.MALFORMED_POD
        for clause in self.clauses:
            domain = clause.domains[node]
            if not domain:
                return Reason.SPREAD_LABEL_MISSING
            if clause.counts.get(domain, 0) > clause.limit:
                return Reason.SPREAD_SKEW
        return None

    def rejection(self, node: int, view: ClusterView) -> Rejection | None:
        """The first constraint that rejects the node, with its count, limit, minimum and some of the pods counted."""
        if self.status.code is Code.ERROR:
            return self.rejects_all
        for compiled, clause in zip(self.constraints, self.clauses, strict=True):
            key, domain = compiled.group.key, clause.domains[node]
            if not domain:
                return Rejection(_NAME, Reason.SPREAD_LABEL_MISSING, topology_key=key.key)
            count = clause.counts.get(domain, 0)
            if count > clause.limit:
                return Rejection(
                    _NAME,
                    Reason.SPREAD_SKEW,
                    topology_key=key.key,
                    domain=self.frame.value(key, node),
                    count=count,
                    limit=clause.limit,
                    minimum=_minimum(compiled, self.frame),
                    max_skew=compiled.constraint.max_skew,
                    blamed=blamed_pods(compiled.group, domain, view),
                )
        return None


def _rejects_all(compiled: CompiledConstraints, clauses: Sequence[HardClause], frame: Frame) -> Rejection | None:
    """Skew, where one constraint rejects every domain and no node lacks a key. O(constraints × distinct counts)."""
    groups = [each.group for each in compiled.hard]
    full = (frame.is_covered_by(g) and g.smallest() > c.limit for g, c in zip(groups, clauses, strict=True))
    if any(full) and not any(group.key.lacking for group in groups):
        return _SKEW_EVERYWHERE
    return None


def global_minimum(least: int, domains: int, min_domains: int) -> int:
    """The count that skew is measured against: zero while there are fewer eligible domains than minDomains."""
    return 0 if domains < min_domains else least


def largest_allowed(constraint: SpreadConstraint, minimum: int, *, matches_itself: bool) -> int:
    """The greatest count a domain may have now so that placing the pod there keeps the skew within maxSkew."""
    return constraint.max_skew + minimum - (1 if matches_itself else 0)


def _minimum(compiled: CompiledSpread, frame: Frame) -> int:
    """The smallest count over the eligible domains, which skew is measured against. O(distinct counts)."""
    group = compiled.group
    added = frame.new_domains(group)
    return global_minimum(0 if added else frame.least(group), group.domains + added, compiled.constraint.min_domains)


def _clause(compiled: CompiledSpread, frame: Frame) -> HardClause:
    group = compiled.group
    limit = largest_allowed(compiled.constraint, _minimum(compiled, frame), matches_itself=bool(compiled.self_match))
    return HardClause(frame.domains(group.key), frame.conflicting(group), limit)


@dataclass(frozen=True, slots=True)
class SoftClause:
    """One ScheduleAnyway constraint over the scored nodes.

    ``has_key`` is by the label. ``domains`` is not over hostname, where every node is a domain of its own.
    ``limit``: a greater count is scored double; None where none is, as minDomains is met or 1.
    """

    domains: Column
    has_key: Column
    counts: Mapping[int, int]
    max_skew: int
    weight: float
    limit: int | None = None

    def addend(self, node: int) -> float:
        """What the constraint adds to the raw score of a node that has the key. O(1)."""
        count = self.counts.get(self.domains[node], 0)
        added = count * self.weight + self.max_skew - 1
        return added if self.limit is None or count <= self.limit else 2 * added


@dataclass(frozen=True, slots=True)
class SpreadScore:
    """Raw scores (fewer pods are better, so less is better) and their inversion to 0–100."""

    status: Status
    nodes: Sequence[int]
    clauses: tuple[SoftClause, ...] = ()
    ignored: frozenset[int] = frozenset()

    def raw(self) -> list[int]:
        """Sum over the constraints whose key the node has of count × weight + maxSkew - 1; 0 for ignored nodes.

        Doubled for a constraint with minDomains, as the module says.
        """
        totals = [0.0] * len(self.nodes)
        for clause in self.clauses:
            if clause.limit is not None:
                totals = [
                    total + clause.addend(node) if clause.has_key[node] else total
                    for total, node in zip(totals, self.nodes, strict=True)
                ]
                continue
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
        """The node with fewest pods gets 100; in whole numbers, as the plugin does it."""
        if self.status.code is not Code.SUCCESS:
            return [0] * len(self.nodes)
        raw, ignored = self.raw(), self.ignored
        scored = [score for node, score in zip(self.nodes, raw, strict=True) if node not in ignored] if ignored else raw
        least, most = min(scored, default=0), max(scored, default=0)
        score_of = {score: MAX_SCORE * (most + least - score) // most if most else MAX_SCORE for score in set(scored)}
        if not ignored:
            return [score_of[score] for score in raw]
        return [0 if node in ignored else score_of[score] for node, score in zip(self.nodes, raw, strict=True)]


def _soft(compiled: CompiledSpread, labelled: Column, frame: Frame, scored: Sequence[int]) -> SoftClause:
    """A clause with its weight, which grows with the number of domains among the scored nodes."""
    group, constraint = compiled.group, compiled.constraint
    if constraint.topology_key == HOSTNAME:
        size = len(scored)
    else:
        unlabelled = group.key.number_of.get("", 0)  # nodes without the key count as one more value, ""
        size = len({labelled[node] or unlabelled for node in scored})
    limit = None
    if _lacks_domains(compiled):
        limit = largest_allowed(constraint, 0, matches_itself=bool(compiled.self_match))
    return SoftClause(
        frame.domains(group.key), labelled, group.counts, constraint.max_skew, topology_weight(size), limit
    )


def _lacks_domains(compiled: CompiledSpread) -> bool:
    """Whether fewer eligible domains than minDomains have matching pods. O(1)."""
    least = compiled.constraint.min_domains
    return least > 1 and len(compiled.group.counts) < least


class TopologySpread(Rule):
    """The rule. Its filter depends on nodes and groups; which groups these are depends on workloads too."""

    name = plugin = _NAME
    counts_by_domain = True
    applies_to = Pods.CONSTRAINED

    def is_enabled(self, rules: Rules) -> bool:
        """By `rules.topologySpread.enabled`."""
        return rules.topology_spread.enabled

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """For a pod with hard constraints."""
        return bool(compiled.hard or compiled.hard_error)

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of workloads, from which default constraints are deduced."""
        return (view.workload_changes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: ClusterView, frame: Frame
    ) -> SpreadFilter:
        """The hard constraints, each with the largest count of a domain that passes. O(constraints × distinct counts)."""
        if compiled.hard_error:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {compiled.hard_error}"
            malformed = Rejection(_NAME, Reason.MALFORMED_POD, text)
            return SpreadFilter(Status(Code.ERROR, text), frame, rejects_all=malformed)
        if not compiled.hard:
            return SpreadFilter(SKIP, frame)
        clauses = tuple([_clause(each, frame) for each in compiled.hard])
        return SpreadFilter(SUCCESS, frame, compiled.hard, clauses, _rejects_all(compiled, clauses, frame))

    def constraint_states(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, most_domains: int = MOST_DOMAINS
    ) -> Steps[Sequence[ConstraintState]]:
        """One for each hard constraint, over its eligible domains."""
        found: list[ConstraintState] = []
        for each in compiled.hard:
            constraint, group, clause = each.constraint, each.group, _clause(each, frame)
            eligible = [domain for domain in group.key.nodes_in if group.is_eligible_domain(domain)]
            yield
            counts, passes = clause.counts, clause.limit.__ge__
            domains, more = yield from domain_states(group, eligible, counts, view, passes, most_domains)
            found.append(
                ConstraintState(
                    rule=_NAME,
                    kind="topologySpread",
                    topology_key=group.key.key,
                    pods=str(constraint.selector),
                    reach=own_namespace(compiled.signature.namespace),
                    limit=clause.limit,
                    max_skew=constraint.max_skew,
                    min_domains=constraint.min_domains,
                    eligible=group.domains,
                    minimum=_minimum(each, frame),
                    lacking=group.key.lacking,
                    domains=domains,
                    more_domains=more,
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
        return bool(compiled.soft)

    def prepare_score(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> SpreadScore:
        """The score of the soft constraints over these nodes. O(nodes × constraints)."""
        if compiled.soft_error:
            text = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {compiled.soft_error}"
            return SpreadScore(Status(Code.ERROR, text), nodes)
        if not compiled.soft:
            return SpreadScore(SKIP, nodes)
        labelled = [frame.domains(view.key(each.constraint.topology_key)) for each in compiled.soft]
        ignored: frozenset[int] = frozenset()
        if compiled.soft_needs_all_keys:
            ignored = frozenset([node for column in labelled for node in nodes if not column[node]])
        scored = [node for node in nodes if node not in ignored] if ignored else nodes
        clauses = [_soft(each, column, frame, scored) for each, column in zip(compiled.soft, labelled, strict=True)]
        return SpreadScore(SUCCESS, nodes, tuple(clauses), ignored)

    def ranked_groups(
        self, compiled: CompiledConstraints, view: ClusterView, nodes: int, _rules: Rules
    ) -> Sequence[RankedGroup] | None:
        """Fewer pods rank higher. The weights are by the domains of the cluster, as the passing nodes are not known yet.

        None while minDomains doubles scores, as a rank is proportional to a count.
        """
        if compiled.soft_error:
            return ()
        if any(map(_lacks_domains, compiled.soft)):
            return None
        found = []
        for each in compiled.soft:
            key = view.key(each.constraint.topology_key)
            size = nodes if each.constraint.topology_key == HOSTNAME else len(key.nodes_in)
            required = key if compiled.soft_needs_all_keys else None
            found.append(RankedGroup(-topology_weight(size), each.group, required))
        return found
