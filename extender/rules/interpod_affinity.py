"""Inter-pod affinity and anti-affinity, as the in-tree plugin InterPodAffinity filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
Clauses of the filter, in this order: own required affinity (with the first-pod rule), own anti-affinity, anti-affinity
of existing pods. One intended difference: a negative namespaceSelector of the incoming pod covers the namespaces that
it selects (KEP-2249), not every namespace as in kube-scheduler since 1.34 (kubernetes#141526).
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
from extender.model.bounded import Steps
from extender.model.constraints.terms import AffinityTerm, by_names
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Code, Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, MOST_TERMS, domain_states, reach_of, text_of
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
# Rejections that can be certain for every node; made once.
_EVERYWHERE = {
    reason: Rejection(_NAME, reason)
    for reason in (Reason.AFFINITY, Reason.ANTI_AFFINITY, Reason.EXISTING_ANTI_AFFINITY)
}


@dataclass(frozen=True, slots=True)
class WeightedGroup:
    """A group that adds ``weight`` points for each pod counted in the node's domain.

    A negative weight subtracts points.
    """

    weight: int
    group: GroupView


@dataclass(frozen=True, slots=True)
class OwnTerms(Counted):
    """The pods that a pod's own terms select.

    An anti-affinity or preferred term over a key that no node has applies to no node, so it gets a group only once a
    node has the key. Required affinity over such a key rejects every node, so it always has its groups.
    """

    # One group per topology key of required affinity. Each counts the pods that match *all* required terms at once.
    affinity: tuple[GroupView, ...] = ()
    affinity_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    # The pod itself matches all required terms: the first-pod rule may apply.
    matches_itself: bool = False
    # One group per distinct required anti-affinity term, with the terms.
    anti: tuple[GroupView, ...] = ()
    anti_terms: tuple[AffinityTerm, ...] = field(default=(), compare=False)
    preferences: tuple[WeightedGroup, ...] = ()
    # Terms that cannot be parsed.
    errors: tuple[str, ...] = ()
    used_fields: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups. O(terms).

        Terms that policies add are counted even without the rule: the in-tree plugin does not know them.
        """
        wanted = signature.affinity
        if wanted.is_empty or not (settings.inter_pod_affinity.enabled or signature.enforced is not None):
            return None
        if not settings.inter_pod_affinity.namespace_selector:
            wanted = by_names(wanted)

        def pods_of(term: AffinityTerm) -> GroupView:
            return counts.pods((pod_selector(term),), term.topology_key)[0]

        # Each required term counts only pods that match all of them, so terms over the same key share one group.
        required = tuple(map(pod_selector, wanted.required))
        affinity = (
            counts.pods(required, *dict.fromkeys(term.topology_key for term in wanted.required)) if required else ()
        )
        # Equal terms reject alike, so each is checked once. Preferred terms are not joined: equal ones add up.
        anti = tuple(dict.fromkeys(term for term in wanted.required_anti if counts.is_carried(term.topology_key)))
        filtering = (*wanted.required, *wanted.required_anti)
        preferences = [(preference.weight, preference.term) for preference in wanted.preferred]
        preferences += [(-preference.weight, preference.term) for preference in wanted.preferred_anti]
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
        """The groups of required terms."""
        return (*self.affinity, *self.anti)

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """The groups of preferred terms."""
        return tuple([preference.group for preference in self.preferences])

    @property
    def filter_key(self) -> object:
        """Everything but the preferences."""
        return self.affinity, self.matches_itself, self.anti, self.errors

    @property
    def error(self) -> str:
        """Parse errors as Kubernetes prints an aggregate of them."""
        return self.errors[0] if len(self.errors) == 1 else f"[{', '.join(self.errors)}]" if self.errors else ""


@dataclass(frozen=True, slots=True)
class TermsOfOthers(Counted):
    """The existing pods whose terms select a pod.

    ``anti``: required anti-affinity. ``preferences``: preferred terms. ``required``: required affinity terms, which
    score. If the rule is disabled: only terms that policies add, because the in-tree plugin does not know them.
    """

    anti: tuple[TermGroupView, ...] = ()
    preferences: tuple[WeightedGroup, ...] = ()
    required: tuple[TermGroupView, ...] = ()

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups. O(labels of the pod + terms that may select it)."""
        rule = settings.inter_pod_affinity
        groups = counts.terms_that_select(of_policies=not rule.enabled)
        if not groups:
            return None
        anti = tuple([group for group in groups if group.role is TermRole.REQUIRED_ANTI])
        # ignorePreferredTermsOfExistingPods: the plugin then scores nothing for a pod without preferred terms of its
        # own.
        if not rule.enabled or (
            rule.ignore_preferred_terms_of_existing_pods and not signature.affinity.has_preferences
        ):
            return cls(anti) if anti else None
        signs = {TermRole.PREFERRED: 1, TermRole.PREFERRED_ANTI: -1}
        preferences = [
            WeightedGroup(signs[group.role] * group.weight, group) for group in groups if group.role in signs
        ]
        required = (
            [group for group in groups if group.role is TermRole.REQUIRED] if rule.hard_pod_affinity_weight else []
        )
        return cls(anti, tuple(preferences), tuple(required))

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """The groups of required anti-affinity."""
        return self.anti

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """The groups of preferred terms, and of required affinity if it has a weight."""
        return (*[preference.group for preference in self.preferences], *self.required)

    @property
    def filter_key(self) -> object:
        """Required anti-affinity, in any order."""
        return frozenset(map(id, self.anti))


_NO_TERMS, _NONE_OF_OTHERS = OwnTerms(), TermsOfOthers()


def own_terms(compiled: CompiledConstraints) -> OwnTerms:
    """The groups of a pod's own terms."""
    return compiled.get(OwnTerms) or _NO_TERMS


def terms_of_others(compiled: CompiledConstraints) -> TermsOfOthers:
    """The groups of existing pods' terms that select the pod."""
    return compiled.get(TermsOfOthers) or _NONE_OF_OTHERS


# -- the filter --------------------------------------------------------------------------------------------------------


class Near(msgspec.Struct, frozen=True, gc=False):
    """The condition that a pod selected by required affinity is in the node's domain."""

    group: GroupView
    domains: Column
    counts: Mapping[int, int]
    frame: Frame
    reason: Reason = Reason.AFFINITY

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes in a domain with such a pod. O(nodes)."""
        domains, counts = self.domains, self.counts
        return [node for node in nodes if domains[node] in counts]

    def rejection(self, position: int) -> Rejection:
        """Names the domain without such a pod."""
        key = self.group.key
        return Rejection(_NAME, self.reason, topology_key=key.key, domain=self.frame.value(key, position))


class Apart(msgspec.Struct, frozen=True, gc=False):
    """The condition that no pod of an anti-affinity term, in either direction, is in the node's domain."""

    reason: Reason
    group: GroupView
    domains: Column
    counts: Mapping[int, int]
    frame: Frame
    view: ClusterView

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes in a domain without such a pod. O(nodes)."""
        domains, counts = self.domains, self.counts
        return [node for node in nodes if domains[node] not in counts] if counts else nodes

    def rejection(self, position: int) -> Rejection:
        """The number of pods in its domain, and the names of some."""
        key, domain = self.group.key, self.domains[position]
        value, count = self.frame.value(key, position), self.counts[domain]
        blamed = blamed_pods(self.group, domain, self.view)
        return Rejection(_NAME, self.reason, topology_key=key.key, domain=value, count=count, limit=0, blamed=blamed)


class AffinityFilter(ClauseFilter, frozen=True, gc=False):
    """The required terms that apply to a pod: affinity, its own anti-affinity, anti-affinity of existing pods."""

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The positions that pass. Many conditions of anti-affinity are joined first. O(nodes × conditions)."""
        # Joining pays only for many conditions. It loses which of them rejects, and `passing` need not know that.
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
    """The rejection of every node, if anti-affinity rejects all and no other condition rejects any. O(terms).

    The reason must be the reason of the first condition that rejects. So existing pods' terms may decide only if the
    pod's own terms count no pod.
    """
    # Required affinity comes first in the plugin, and may reject some nodes for its own reason.
    if own.affinity:
        return None
    if any(map(frame.is_covered_by, own.anti)):
        return _EVERYWHERE[Reason.ANTI_AFFINITY]
    if not any(map(frame.may_count, own.anti)) and any(map(frame.is_covered_by, others.anti)):
        return _EVERYWHERE[Reason.EXISTING_ANTI_AFFINITY]
    return None


# -- many small groups, read as one ------------------------------------------------------------------------------------

# A tenant may have hundreds of terms that select all pods. Each has its own group, and most groups count few pods. One
# by one they would cost a request nodes × groups: 12 ms for 390 groups and 500 nodes. Joined by their key they cost
# groups + nodes × keys. Nothing is kept: the counts are read when they are joined.
MANY: Final = 4  # up to so many groups, callers do not join them, because joining costs more
SMALL: Final = 8  # domains with pods; a larger group costs more to copy than to read


class JoinedGroup(GroupView):
    """The pods that several groups of one key count at this moment, each group multiplied by its weight."""

    __slots__ = ()
    counts: dict[DomainNumber, int]

    def add(self, counts: Mapping[DomainNumber, int], weight: int) -> None:
        """Adds the counts of one group. O(its domains)."""
        here = self.counts
        for domain, pods in counts.items():
            here[domain] = here.get(domain, 0) + weight * pods


def join_weighted(parts: Sequence[WeightedGroup]) -> Sequence[WeightedGroup]:
    """Fewer parts that give each node the same sum: small groups are joined by key and by the sign of their weight.

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
"""The column of a node's domain, and the domains that are closed."""


def join_closed(clauses: Sequence[tuple[Column, Mapping[DomainNumber, int]]]) -> Sequence[Closing]:
    """The domains that the conditions close. Small conditions are joined by column. O(conditions)."""
    kept: list[Closing] = []
    joined: dict[int, tuple[Column, set[DomainNumber]]] = {}
    for column, counts in clauses:
        if len(counts) > SMALL:
            kept.append((column, counts))
        elif counts:
            joined.setdefault(id(column), (column, set()))[1].update(counts)
    return [*kept, *joined.values()]


# -- the score ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffinityScore(PreparedScore):
    """Points for each node: the weights of all (pod, term) pairs counted in its domains."""

    status: RuleStatus
    nodes: Sequence[int]
    parts: tuple[tuple[int, Column, Mapping[int, int]], ...] = ()

    def raw(self) -> list[int]:
        """Sum over the parts of weight × pods in the node's domain; may be negative. O(nodes × parts)."""
        totals = [0] * len(self.nodes)
        # Part by part over all nodes: one look-up for each node, without a call.
        for weight, domains, counts in self.parts:
            totals = [
                total + weight * counts.get(domains[node], 0) for total, node in zip(totals, self.nodes, strict=True)
            ]
        return totals

    def normalized(self) -> list[int]:
        """Scaled to 0–100 between the least and the greatest. Divided, multiplied by 100 and truncated, in doubles."""
        raw = self.raw()
        # Scores may be negative, because preferred anti-affinity subtracts. The least is 0 points, whatever its sign.
        least, most = min(raw, default=0), max(raw, default=0)
        if least == most:
            return [0] * len(raw)
        # The order of the operations is the plugin's, because it decides how doubles round.
        return [int(MAX_SCORE * ((score - least) / (most - least))) for score in raw]


def _state(
    group: GroupView, counts: Mapping[int, int], view: ClusterView, passes: Callable[[int], bool], most: int
) -> Steps[ConstraintState]:
    """The counts by domain; the caller adds the parts that depend on the term."""
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
    """Every group that adds to the score, with its weight.

    Groups that count no pod are left out; many are joined by key.
    """
    own, others = own_terms(compiled), terms_of_others(compiled)
    required = (WeightedGroup(hard_weight, group) for group in others.required)
    parts = [part for part in (*own.preferences, *others.preferences, *required) if part.group.counts]
    return join_weighted(parts) if len(parts) > MANY else parts


class InterPodAffinity(Rule):
    """The rule. Its filter depends on nodes and groups. Which pods a group counts depends on namespaces too."""

    name = plugin = _NAME
    needs_constraints = True
    counts_by_domain = True
    counted = (OwnTerms, TermsOfOthers)

    def is_enabled(self, rules: Rules) -> bool:
        """As `rules.interPodAffinity.enabled` says."""
        return rules.inter_pod_affinity.enabled

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of namespaces, because namespaceSelectors select them by their labels (KEP-2249)."""
        return (view.namespace_changes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """The required terms with their counts. O(terms)."""
        own, others = own_terms(compiled), terms_of_others(compiled)
        if own.errors:
            return VerdictOnPod(Rejection(_NAME, Reason.MALFORMED_POD, f"parsing pod: {own.error}"))
        # Terms whose pods are on no node close no domain.
        inverse = [group for group in others.anti if frame.may_count(group)]
        # Own anti-affinity over a key that no node has has no group. The plugin does not skip the check, and lets nodes
        # pass.
        if not (own.affinity or compiled.signature.affinity.required_anti or inverse):
            return VerdictOnPod(None)

        def apart(reason: Reason, group: GroupView) -> Apart:
            return Apart(reason, group, frame.domains(group.key), frame.conflicting(group), frame, view)

        # The first-pod rule: no pod in the cluster matches all terms, but the pod itself does. Then nodes need only the
        # keys.
        first_pod = own.matches_itself and not any(map(frame.may_count, own.affinity))
        clauses: list[RuleCondition] = []
        for group in own.affinity:
            domains = frame.domains(group.key)
            if first_pod:
                clauses.append(HasKey(_NAME, Reason.AFFINITY, group.key, domains))
            else:
                clauses.append(Near(group, domains, frame.satisfying(group), frame))
        # A term that no pod satisfies anywhere rejects every node.
        nowhere = not first_pod and not all(map(frame.satisfying, own.affinity))
        # The order decides the reason: own affinity, own anti-affinity, anti-affinity of existing pods.
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
        """A state for each key of required affinity and for each anti-affinity term of the pod.

        Of the anti-affinity terms of existing pods the terms that close most domains have a state too.
        """
        signature, states = compiled.signature, list[ConstraintState]()
        own, others = own_terms(compiled), terms_of_others(compiled)
        required = own.affinity_terms
        first_pod = own.matches_itself and not any(map(frame.may_count, own.affinity))
        for group in own.affinity:
            reach = yield from reach_of(required, signature.namespace, view)
            state = yield from _state(
                group, frame.satisfying(group), view, lambda count: first_pod or count > 0, most_domains
            )
            pods = text_of(term.selector for term in required)
            states.append(
                replaced(
                    state, kind="podAffinity", pods=pods, reach=reach, is_first_pod=first_pod, rejects_lacking=True
                )
            )
        for group, term in zip(own.anti, own.anti_terms, strict=True):
            reach = yield from reach_of((term,), signature.namespace, view)
            state = yield from _state(group, frame.conflicting(group), view, lambda count: not count, most_domains)
            states.append(replaced(state, kind="podAntiAffinity", pods=str(term.selector), reach=reach, limit=0))
        inverse = sorted(filter(frame.may_count, others.anti), key=lambda group: -len(group.counts))
        for group in inverse[:MOST_TERMS]:
            term = group.term
            reach = yield from reach_of((term,), "", view)
            state = yield from _state(group, frame.conflicting(group), view, lambda count: not count, most_domains)
            carrier = next((name for domain in state.domains for name in domain.pods), "")
            kind, pods = "existingPodAntiAffinity", str(term.selector)
            states.append(replaced(state, kind=kind, pods=pods, reach=reach, limit=0, carrier=carrier))
        if len(inverse) > MOST_TERMS:
            states[-1] = replaced(states[-1], more_terms=len(inverse) - MOST_TERMS)
        return states

    def lasting_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Anti-affinity in both directions, because each node is checked against the current counts."""
        # Each of these clauses looks up one count of the node's domain, and that count follows the trial.
        return compiled.put(replace(own_terms(compiled), affinity=()))

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Required affinity, because the first-pod rule depends on all counts together."""
        own = own_terms(compiled)
        return compiled.put(replace(own, anti=())).put(_NONE_OF_OTHERS) if own.affinity or own.errors else None

    def other_nodes(self, compiled: CompiledConstraints, node: NodeNumber) -> Iterable[NodeNumber]:
        """The other nodes in the domains in which anti-affinity, in either direction, rejects the node."""
        rejecting = [
            group
            for group in (*own_terms(compiled).anti, *terms_of_others(compiled).anti)
            if group.key.of_node[node] in group.counts
        ]
        # By key: terms over one key reject the node for one domain, whose nodes are the same.
        keys = {group.key for group in rejecting}
        nodes = set[NodeNumber]().union(*(key.nodes_in.get(key.of_node[node], ()) for key in keys))
        return nodes - {node}

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Whether any (pod, term) pair is counted. As `weighted_groups`, but stops at the first.

        Loops, because it runs for every answer and generators take twice as long.
        """
        own, others = compiled.get(OwnTerms), compiled.get(TermsOfOthers)
        for part in own.preferences if own is not None else ():
            if part.group.counts:
                return True
        if others is None:
            return False
        for part in others.preferences:
            if part.group.counts:
                return True
        for group in others.required:  # noqa: SIM110 (see the docstring)
            if group.counts:
                return True
        return False

    def prepare_score(
        self, compiled: CompiledConstraints, _view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules
    ) -> AffinityScore:
        """The score over these nodes. Skip if no (pod, term) pair adds points. O(terms)."""
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
