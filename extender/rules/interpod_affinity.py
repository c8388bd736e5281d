"""Inter-pod affinity and anti-affinity, as the in-tree plugin InterPodAffinity filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
Clauses of the filter, in this order: own required affinity (with the first-pod rule), own anti-affinity, anti-affinity
of existing pods. One deliberate difference: a negative namespaceSelector of the incoming pod covers the namespaces that
it selects (KEP-2249), not every one as kube-scheduler 1.36 does (kubernetes#141526).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import msgspec
from msgspec.structs import replace as replaced

from extender.index.counts.compiled_constraints import CompiledConstraints, Counted, Counting
from extender.index.counts.groups import GroupView
from extender.index.counts.selections import pod_selector
from extender.index.counts.term_counts import TermGroupView, TermRole
from extender.index.nodes.columns import Column, DomainNumber, NodeNumber
from extender.index.nodes.domains import KeyView
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState, TermReach
from extender.model.constraints.terms import AffinityTerm, by_names
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, MOST_TERMS, Steps, domain_states, reach_of, text_of
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
from extender.settings.rules import Rules

_NAME = "InterPodAffinity"
# The rejections that can be certain for every node, made once.
_EVERYWHERE = {
    reason: Rejection(_NAME, reason)
    for reason in (Reason.AFFINITY, Reason.ANTI_AFFINITY, Reason.EXISTING_ANTI_AFFINITY)
}


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A group that adds ``weight`` points for each pod counted in the node's domain (negative: takes them away)."""

    weight: int
    group: GroupView


@dataclass(frozen=True, slots=True)
class OwnTerms(Counted):
    """The pods that a pod's own terms select.

    ``affinity``: one group per topology key of required terms, each counting the pods that match *all* required terms
    at once, those of ``affinity_terms``. ``matches_itself``: the pod itself does. ``anti``: one group per distinct required
    anti-affinity term, those of ``anti_terms``. ``errors``: terms that cannot be parsed.

    An anti-affinity or preferred term over a key that no node carries concerns no node, and gets no group before one
    does. Required affinity over such a key rejects every node, so it has all its groups.
    """

    affinity: tuple[GroupView, ...] = ()
    affinity_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    matches_itself: bool = False
    anti: tuple[GroupView, ...] = ()
    anti_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    preferences: tuple[WeightedGroup, ...] = ()
    errors: tuple[str, ...] = ()
    used_fields: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups. What policies direct counts without the rule too, as the in-tree plugin does not know it. O(terms)."""
        wanted = signature.affinity
        if wanted.is_empty or not (settings.inter_pod_affinity.enabled or signature.enforced is not None):
            return None
        if not settings.inter_pod_affinity.namespace_selector:
            wanted = by_names(wanted)

        def pods_of(term: AffinityTerm) -> GroupView:
            return counts.pods((pod_selector(term),), term.topology_key)[0]

        # Every term counts the pods that match all of them, so terms over the same key share one group.
        required = tuple(map(pod_selector, wanted.required))
        affinity = (
            counts.pods(required, *dict.fromkeys(term.topology_key for term in wanted.required)) if required else ()
        )
        anti = tuple(dict.fromkeys(term for term in wanted.required_anti if counts.is_carried(term.topology_key)))
        filtering = (*wanted.required, *wanted.required_anti)
        preferences = [(each.weight, each.term) for each in wanted.preferred]
        preferences += [(-each.weight, each.term) for each in wanted.preferred_anti]
        return cls(
            affinity=tuple(affinity),
            affinity_terms=wanted.required,
            matches_itself=bool(required) and counts.selects_itself(required),
            anti=tuple(map(pods_of, anti)),
            anti_terms=anti,
            preferences=tuple(
                WeightedGroup(weight, pods_of(term))
                for weight, term in preferences
                if counts.is_carried(term.topology_key)
            ),
            errors=wanted.errors,
            used_fields=tuple(["namespaceSelector" for term in filtering if term.namespace_selector is not None]),
        )

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """Those of required terms."""
        return (*self.affinity, *self.anti)

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """Those of preferred terms."""
        return tuple([each.group for each in self.preferences])

    @property
    def filter_key(self) -> object:
        """All but the preferences."""
        return self.affinity, self.matches_itself, self.anti, self.errors

    @property
    def error(self) -> str:
        """Parse errors as Kubernetes prints an aggregate of them."""
        return self.errors[0] if len(self.errors) == 1 else f"[{', '.join(self.errors)}]" if self.errors else ""


@dataclass(frozen=True, slots=True)
class TermsOfOthers(Counted):
    """The existing pods whose terms select a pod.

    ``anti``: required anti-affinity. ``preferences``: preferred terms. ``required``: required affinity terms, which score.
    Without the rule only terms that policies add, which the in-tree plugin does not know.
    """

    anti: tuple[TermGroupView, ...] = ()
    preferences: tuple[WeightedGroup, ...] = ()
    required: tuple[TermGroupView, ...] = ()

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups. O(labels of the pod + terms that may select it)."""
        rule = settings.inter_pod_affinity
        found = counts.terms_that_select(of_policies=not rule.enabled)
        if not found:
            return None
        anti = tuple([each for each in found if each.role is TermRole.REQUIRED_ANTI])
        if not rule.enabled or (
            rule.ignore_preferred_terms_of_existing_pods and not signature.affinity.has_preferences
        ):
            return cls(anti) if anti else None
        signs = {TermRole.PREFERRED: 1, TermRole.PREFERRED_ANTI: -1}
        preferences = [WeightedGroup(signs[each.role] * each.weight, each) for each in found if each.role in signs]
        required = [each for each in found if each.role is TermRole.REQUIRED] if rule.hard_pod_affinity_weight else []
        return cls(anti, tuple(preferences), tuple(required))

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """Those of required anti-affinity."""
        return self.anti

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """Those of preferred terms, and of required affinity where it has a weight."""
        return (*[each.group for each in self.preferences], *self.required)

    @property
    def filter_key(self) -> object:
        """Required anti-affinity, in any order."""
        return frozenset(map(id, self.anti))


_NO_TERMS, _NONE_OF_OTHERS = OwnTerms(), TermsOfOthers()


def own_terms(compiled: CompiledConstraints) -> OwnTerms:
    """What is counted for a pod's own terms."""
    return compiled.get(OwnTerms) or _NO_TERMS


def terms_of_others(compiled: CompiledConstraints) -> TermsOfOthers:
    """What is counted for the terms of existing pods that select the pod."""
    return compiled.get(TermsOfOthers) or _NONE_OF_OTHERS


# -- the filter ---------------------------------------------------------------------------------------------------------


class Near(msgspec.Struct, frozen=True, gc=False):
    """The clause that a pod which required affinity selects is in the node's domain."""

    group: GroupView
    domains: Column
    counts: Mapping[int, int]
    frame: Frame
    reason: Reason = Reason.AFFINITY

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those in a domain with such a pod. O(nodes)."""
        domains, counts = self.domains, self.counts
        return [node for node in nodes if domains[node] in counts]

    def rejection(self, position: int) -> Rejection:
        """Names the domain that lacks one."""
        key = self.group.key
        return Rejection(_NAME, self.reason, topology_key=key.key, domain=self.frame.value(key, position))


class Apart(msgspec.Struct, frozen=True, gc=False):
    """The clause that no pod of anti-affinity, in either direction, is in the node's domain."""

    reason: Reason
    group: GroupView
    domains: Column
    counts: Mapping[int, int]
    frame: Frame
    view: ClusterView

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those in a domain without such a pod. O(nodes)."""
        domains, counts = self.domains, self.counts
        return [node for node in nodes if domains[node] not in counts] if counts else nodes

    def rejection(self, position: int) -> Rejection:
        """The pods counted in its domain and the names of some."""
        key, domain = self.group.key, self.domains[position]
        value, count = self.frame.value(key, position), self.counts[domain]
        blamed = blamed_pods(self.group, domain, self.view)
        return Rejection(_NAME, self.reason, topology_key=key.key, domain=value, count=count, limit=0, blamed=blamed)


class AffinityFilter(ClauseFilter, frozen=True, gc=False):
    """The required terms that apply to a pod: affinity, own anti-affinity, that of existing pods."""

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass; many clauses of anti-affinity are joined. O(nodes × clauses)."""
        if len(self.clauses) <= MANY:
            return ClauseFilter.passing(self, nodes)
        against = []
        for clause in self.clauses:
            if isinstance(clause, Apart):
                against.append((clause.domains, clause.counts))
            else:
                nodes = clause.passing(nodes)
        for domains, closed in join_closed(against):
            nodes = [node for node in nodes if domains[node] not in closed]
        return nodes


def _full(own: OwnTerms, others: TermsOfOthers, frame: Frame) -> Rejection | None:
    """The rejection of every node where anti-affinity leaves none, and no other clause rejects any. O(terms)."""
    if own.affinity:
        return None
    if any(map(frame.is_covered_by, own.anti)):
        return _EVERYWHERE[Reason.ANTI_AFFINITY]
    if not any(map(frame.may_count, own.anti)) and any(map(frame.is_covered_by, others.anti)):
        return _EVERYWHERE[Reason.EXISTING_ANTI_AFFINITY]
    return None


# -- many small groups, read as one -------------------------------------------------------------------------------------

# A tenant may have hundreds of terms that select all pods. Each has a group of its own, most of which count a few pods.
# Evaluated one by one for each node they would cost a request nodes × groups (12 ms for 390 groups and 500 nodes);
# joined by their key they cost groups + nodes × keys. Nothing is kept: the counts are read when they are joined.
MANY: Final = 4  # for callers: up to so many groups cost less one by one
SMALL: Final = 8  # domains with pods; larger groups cost more to copy than to read


class JoinedGroup(GroupView):
    """The pods that several groups of one key count, each as often as its weight says, at that moment."""

    __slots__ = ()
    counts: dict[DomainNumber, int]

    def add(self, counts: Mapping[DomainNumber, int], weight: int) -> None:
        """Adds the counts of one group. O(its domains)."""
        here = self.counts
        for domain, pods in counts.items():
            here[domain] = here.get(domain, 0) + weight * pods


def join_weighted(parts: Sequence[WeightedGroup]) -> Sequence[WeightedGroup]:
    """Parts that give each node the same sum: small groups joined by key, those that add points and those that take any apart.

    O(parts).
    """
    kept: list[WeightedGroup] = []
    joined: dict[tuple[KeyView, bool], JoinedGroup] = {}
    for part in parts:
        group = part.group
        if len(group.counts) > SMALL:
            kept.append(part)
            continue
        adds = part.weight > 0
        into = joined.get((group.key, adds))
        if into is None:
            into = joined[group.key, adds] = JoinedGroup(group.key)
        into.add(group.counts, abs(part.weight))
    return [*kept, *(WeightedGroup(1 if adds else -1, group) for (_, adds), group in joined.items())]


Closing = tuple[Column, Container[DomainNumber]]
"""Where a node's domain is found, and the domains that are closed."""


def join_closed(clauses: Sequence[tuple[Column, Mapping[DomainNumber, int]]]) -> Sequence[Closing]:
    """The domains that each clause closes: those of small clauses joined by column. O(clauses)."""
    kept: list[Closing] = []
    joined: dict[int, tuple[Column, set[DomainNumber]]] = {}
    for column, counts in clauses:
        if len(counts) > SMALL:
            kept.append((column, counts))
        elif counts:
            joined.setdefault(id(column), (column, set()))[1].update(counts)
    return [*kept, *joined.values()]


# -- the score ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffinityScore(PreparedScore):
    """Points for each node: the weights of all (pod, term) pairs counted in its domains."""

    status: RuleStatus
    nodes: Sequence[int]
    parts: tuple[tuple[int, Column, Mapping[int, int]], ...] = ()

    def raw(self) -> list[int]:
        """Sum over the parts of weight × pods in the node's domain; may be negative. O(nodes × parts)."""
        totals = [0] * len(self.nodes)
        for weight, domains, counts in self.parts:
            totals = [
                total + weight * counts.get(domains[node], 0) for total, node in zip(totals, self.nodes, strict=True)
            ]
        return totals

    def normalized(self) -> list[int]:
        """Scaled to 0–100 between the least and the greatest: divided, multiplied by 100 and cut, in doubles."""
        raw = self.raw()
        least, most = min(raw, default=0), max(raw, default=0)
        if least == most:
            return [0] * len(raw)
        return [int(MAX_SCORE * ((score - least) / (most - least))) for score in raw]


def _state(
    group: GroupView, counts: Mapping[int, int], view: ClusterView, passes: Callable[[int], bool], most: int
) -> Steps[ConstraintState]:
    """The counts by domain; the caller adds what the term says."""
    key = group.key
    domains, more = yield from domain_states(group, key.nodes_in, counts, view, passes, most)
    return ConstraintState(
        rule=_NAME,
        kind="",
        topology_key=key.key,
        pods="",
        reach=TermReach(why=""),
        lacking=key.lacking,
        domains=domains,
        more_domains=more,
    )


def weighted_groups(compiled: CompiledConstraints, hard_weight: int) -> Sequence[WeightedGroup]:
    """Every group that adds to the score, with its weight; those that count no pod are left out. Many are joined by key."""
    own, others = own_terms(compiled), terms_of_others(compiled)
    required = (WeightedGroup(hard_weight, group) for group in others.required)
    parts = [part for part in (*own.preferences, *others.preferences, *required) if part.group.counts]
    return join_weighted(parts) if len(parts) > MANY else parts


class InterPodAffinity(Rule):
    """The rule. Its filter depends on nodes and groups; which pods a group counts depends on namespaces too."""

    name = plugin = _NAME
    counts_by_domain = True
    counted = (OwnTerms, TermsOfOthers)

    def is_enabled(self, rules: Rules) -> bool:
        """By `rules.interPodAffinity.enabled`."""
        return rules.inter_pod_affinity.enabled

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of namespaces: namespaceSelectors select them by their labels (KEP-2249)."""
        return (view.namespace_changes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The required terms with their counts. O(terms)."""
        own, others = own_terms(compiled), terms_of_others(compiled)
        if own.errors:
            return VerdictOnPod(Rejection(_NAME, Reason.MALFORMED_POD, f"parsing pod: {own.error}"))
        inverse = [group for group in others.anti if frame.may_count(group)]
        # Own anti-affinity over a key that no node carries has no group. The plugin does not skip for it, and passes.
        if not (own.affinity or compiled.signature.affinity.required_anti or inverse):
            return VerdictOnPod(None)

        def apart(reason: Reason, group: GroupView) -> Apart:
            return Apart(reason, group, frame.domains(group.key), frame.conflicting(group), frame, view)

        first_pod = own.matches_itself and not any(map(frame.may_count, own.affinity))
        clauses: list[RuleCondition] = []
        for group in own.affinity:
            domains = frame.domains(group.key)
            if first_pod:
                clauses.append(HasKey(_NAME, Reason.AFFINITY, group.key, domains))
            else:
                clauses.append(Near(group, domains, frame.satisfying(group), frame))
        nowhere = not first_pod and not all(map(frame.satisfying, own.affinity))
        clauses += [apart(Reason.ANTI_AFFINITY, group) for group in own.anti]
        clauses += [apart(Reason.EXISTING_ANTI_AFFINITY, group) for group in inverse]
        return AffinityFilter(tuple(clauses), _EVERYWHERE[Reason.AFFINITY] if nowhere else _full(own, others, frame))

    def constraint_states(
        self,
        _pod: Pod,
        compiled: CompiledConstraints,
        view: ClusterView,
        frame: Frame,
        most_domains: int = MOST_DOMAINS,
    ) -> Steps[Sequence[ConstraintState]]:
        """One for each topology key of required affinity, for each anti-affinity term, and for the terms of existing pods with most domains."""
        signature, found = compiled.signature, list[ConstraintState]()
        own, others = own_terms(compiled), terms_of_others(compiled)
        required = own.affinity_terms
        first_pod = own.matches_itself and not any(map(frame.may_count, own.affinity))
        for group in own.affinity:
            reach = yield from reach_of(required, signature.namespace, view)
            state = yield from _state(
                group, frame.satisfying(group), view, lambda count: first_pod or count > 0, most_domains
            )
            pods = text_of(each.selector for each in required)
            found.append(
                replaced(
                    state, kind="podAffinity", pods=pods, reach=reach, is_first_pod=first_pod, rejects_lacking=True
                )
            )
        for group, term in zip(own.anti, own.anti_terms, strict=True):
            reach = yield from reach_of((term,), signature.namespace, view)
            state = yield from _state(group, frame.conflicting(group), view, lambda count: not count, most_domains)
            found.append(replaced(state, kind="podAntiAffinity", pods=str(term.selector), reach=reach, limit=0))
        inverse = sorted(filter(frame.may_count, others.anti), key=lambda group: -len(group.counts))
        for group in inverse[:MOST_TERMS]:
            term = group.term
            reach = yield from reach_of((term,), "", view)
            state = yield from _state(group, frame.conflicting(group), view, lambda count: not count, most_domains)
            carrier = next((name for each in state.domains for name in each.pods), "")
            kind, pods = "existingPodAntiAffinity", str(term.selector)
            found.append(replaced(state, kind=kind, pods=pods, reach=reach, limit=0, carrier=carrier))
        if len(inverse) > MOST_TERMS:
            found[-1] = replaced(found[-1], more_terms=len(inverse) - MOST_TERMS)
        return found

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Anti-affinity in both directions: each node is checked by the counts of the moment."""
        return compiled.put(replace(own_terms(compiled), affinity=()))

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Required affinity: the first-pod rule depends on all counts together."""
        own = own_terms(compiled)
        return compiled.put(replace(own, anti=())).put(_NONE_OF_OTHERS) if own.affinity or own.errors else None

    def other_nodes(self, compiled: CompiledConstraints, node: NodeNumber) -> Iterable[NodeNumber]:
        """The other nodes in the domains where anti-affinity in either direction rejects the node."""
        rejecting = [
            group
            for group in (*own_terms(compiled).anti, *terms_of_others(compiled).anti)
            if group.key.of_node[node] in group.counts
        ]
        keys = {group.key for group in rejecting}
        found = set[NodeNumber]().union(*(key.nodes_in.get(key.of_node[node], ()) for key in keys))
        return found - {node}

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Where any (pod, term) pair is counted; as `weighted_groups`, up to the first one."""
        own, others = compiled.get(OwnTerms), compiled.get(TermsOfOthers)
        for part in (
            own.preferences if own is not None else ()
        ):  # for every answer: loops, as generators cost twice as much
            if part.group.counts:
                return True
        if others is None:
            return False
        for part in others.preferences:
            if part.group.counts:
                return True
        for group in others.required:  # noqa: SIM110 (as above)
            if group.counts:
                return True
        return False

    def prepare_score(
        self, compiled: CompiledConstraints, _view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules
    ) -> AffinityScore:
        """The score over these nodes; Skip where no (pod, term) pair adds anything. O(terms)."""
        own = own_terms(compiled)
        if own.errors:
            return AffinityScore(RuleStatus(Code.ERROR, f"failed to parse pod: {own.error}"), nodes)
        parts = tuple(
            (part.weight, frame.domains(part.group.key), part.group.counts)
            for part in weighted_groups(compiled, rules.inter_pod_affinity.hard_pod_affinity_weight)
        )
        return AffinityScore(SUCCESS if parts else SKIP, nodes, parts)

    def ranked_groups(
        self, compiled: CompiledConstraints, _view: ClusterView, _nodes: int, rules: Rules
    ) -> Sequence[RankedGroup]:
        """More points rank higher. O(terms)."""
        weight = rules.inter_pod_affinity.hard_pod_affinity_weight
        return [RankedGroup(part.weight, part.group) for part in weighted_groups(compiled, weight)]
