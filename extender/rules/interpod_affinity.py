"""Inter-pod affinity and anti-affinity, as the in-tree plugin InterPodAffinity filters and scores.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
Clauses of the filter, in this order: own required affinity (with the first-pod rule), own anti-affinity, anti-affinity
of existing pods. One deliberate difference: a negative namespaceSelector of the incoming pod covers the namespaces that
it selects (KEP-2249), not every one as kube-scheduler 1.36 does (kubernetes#141526).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs
from msgspec.structs import replace as replaced

from extender.index.counts.compiled_constraints import CompiledConstraints, WeightedGroup
from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import Column, NodeNumber
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState, Reach
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.rules import joined_groups
from extender.rules.constraint_states import MOST_DOMAINS, MOST_TERMS, Steps, domain_states, reach_of, text_of
from extender.rules.frames import Frame
from extender.rules.rule import MAX_SCORE, SKIP, SUCCESS, Pods, RankedGroup, Rule, Status, blamed_pods
from extender.settings.rules import Rules

_NAME = "InterPodAffinity"
# The rejections that can be certain for every node, made once.
_EVERYWHERE = {
    reason: Rejection(_NAME, reason)
    for reason in (Reason.AFFINITY, Reason.ANTI_AFFINITY, Reason.EXISTING_ANTI_AFFINITY)
}


class Clause(msgspec.Struct, frozen=True, gc=False):
    """One group, with the domains of its key and the pods counted in each."""

    group: GroupView
    domains: Column
    counts: Mapping[int, int]


class AffinityFilter(msgspec.Struct, frozen=True, gc=False):
    """The required terms that apply to a pod, counted in ``frame``.

    ``first_pod``: no pod matches yet and this one matches itself, so any domain of the keys will do.
    """

    status: Status
    frame: Frame
    affinity: tuple[Clause, ...] = ()
    first_pod: bool = False
    anti: tuple[Clause, ...] = ()
    inverse: tuple[Clause, ...] = ()
    rejects_all: Rejection | None = None

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those of the positions that pass. O(nodes × clauses)."""
        if self.status.code is Code.UNRESOLVABLE:
            return []
        for clause in self.affinity:
            domains, counts = clause.domains, clause.counts
            if self.first_pod:
                nodes = [node for node in nodes if domains[node]]
            else:
                nodes = [node for node in nodes if domains[node] in counts]
        against = [(clause.domains, clause.counts) for clause in (*self.anti, *self.inverse) if clause.counts]
        for domains, closed in joined_groups.join_closed(against) if len(against) > joined_groups.MANY else against:
            nodes = [node for node in nodes if domains[node] not in closed]
        return nodes

    def rejected(self, nodes: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
        """Those of the positions that do not pass, by the first clause that rejects them. O(nodes × clauses)."""
        if self.status.code is Code.UNRESOLVABLE:
            yield Reason.MALFORMED_POD, nodes
            return
        left = list(structs.replace(self, anti=(), inverse=()).passing(nodes))
        yield from _removed(Reason.AFFINITY, nodes, left)
        for reason, clauses in ((Reason.ANTI_AFFINITY, self.anti), (Reason.EXISTING_ANTI_AFFINITY, self.inverse)):
            for clause in clauses:
                domains, counts = clause.domains, clause.counts
                yield reason, [node for node in left if domains[node] in counts]
                left = [node for node in left if domains[node] not in counts]

    def reason(self, node: int) -> Reason | None:
        """Why the node is rejected, None where it passes."""
        if self.status.code is Code.UNRESOLVABLE:
            return Reason.MALFORMED_POD
        if not all(clause.domains[node] for clause in self.affinity):
            return Reason.AFFINITY
        if not self.first_pod and not all(clause.domains[node] in clause.counts for clause in self.affinity):
            return Reason.AFFINITY
        if any(clause.domains[node] in clause.counts for clause in self.anti):
            return Reason.ANTI_AFFINITY
        if any(clause.domains[node] in clause.counts for clause in self.inverse):
            return Reason.EXISTING_ANTI_AFFINITY
        return None

    def rejection(self, node: int, view: ClusterView) -> Rejection | None:
        """The first term that rejects the node, with the pods counted in its domain and the names of some."""
        if self.status.code is Code.UNRESOLVABLE:
            return self.rejects_all
        for clause in self.affinity:
            domain = clause.domains[node]
            if not domain or (not self.first_pod and domain not in clause.counts):
                key = clause.group.key
                return Rejection(_NAME, Reason.AFFINITY, topology_key=key.key, domain=self.frame.value(key, node))
        for reason, clauses in ((Reason.ANTI_AFFINITY, self.anti), (Reason.EXISTING_ANTI_AFFINITY, self.inverse)):
            for clause in clauses:
                key, domain = clause.group.key, clause.domains[node]
                if domain in clause.counts:
                    value, count = self.frame.value(key, node), clause.counts[domain]
                    blamed = blamed_pods(clause.group, domain, view)
                    return Rejection(
                        _NAME, reason, topology_key=key.key, domain=value, count=count, limit=0, blamed=blamed
                    )
        return None


def _removed(reason: Reason, before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[Reason, Sequence[int]]]:
    """The positions that did not pass."""
    if len(after) < len(before):
        passed = set(after)
        yield reason, [node for node in before if node not in passed]


def _full(compiled: CompiledConstraints, frame: Frame) -> Rejection | None:
    """The rejection of every node where anti-affinity leaves none, and no other clause rejects any. O(terms)."""
    if compiled.affinity:
        return None
    if any(map(frame.is_covered_by, compiled.anti)):
        return _EVERYWHERE[Reason.ANTI_AFFINITY]
    if not any(map(frame.may_count, compiled.anti)) and any(map(frame.is_covered_by, compiled.inverse)):
        return _EVERYWHERE[Reason.EXISTING_ANTI_AFFINITY]
    return None


def _joined(errors: Sequence[str]) -> str:
    """Parse errors as Kubernetes prints an aggregate of them."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


@dataclass(frozen=True, slots=True)
class AffinityScore:
    """Points for each node: the weights of all (pod, term) pairs counted in its domains."""

    status: Status
    nodes: Sequence[int]
    parts: tuple[tuple[int, Clause], ...] = ()

    def raw(self) -> list[int]:
        """Sum over the parts of weight × pods in the node's domain; may be negative. O(nodes × parts)."""
        totals = [0] * len(self.nodes)
        for weight, clause in self.parts:
            domains, counts = clause.domains, clause.counts
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
        reach=Reach(why=""),
        lacking=key.lacking,
        domains=domains,
        more_domains=more,
    )


def weighted_groups(compiled: CompiledConstraints, hard_weight: int) -> Sequence[WeightedGroup]:
    """Every group that adds to the score, with its weight; those that count no pod are left out. Many are joined by key."""
    required = (WeightedGroup(hard_weight, group) for group in compiled.inverse_required)
    every = (*compiled.preferences, *compiled.inverse_preferences, *required)
    parts = [part for part in every if part.group.counts]
    return joined_groups.join_weighted(parts) if len(parts) > joined_groups.MANY else parts


class InterPodAffinity(Rule):
    """The rule. Its filter depends on nodes and groups; which pods a group counts depends on namespaces too."""

    name = plugin = _NAME
    counts_by_domain = True
    applies_to = Pods.CONSTRAINED

    def is_enabled(self, rules: Rules) -> bool:
        """By `rules.interPodAffinity.enabled`."""
        return rules.inter_pod_affinity.enabled

    def is_active(self, compiled: CompiledConstraints, _view: ClusterView) -> bool:
        """For a pod with required terms, and for a pod that required anti-affinity of existing pods selects."""
        return bool(compiled.affinity or compiled.anti or compiled.inverse or compiled.affinity_errors)

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of namespaces: namespaceSelectors select them by their labels (KEP-2249)."""
        return (view.namespace_changes,)

    def prepare_filter(
        self, _pod: Pod, compiled: CompiledConstraints, _view: ClusterView, frame: Frame
    ) -> AffinityFilter:
        """The required terms with their counts. O(terms)."""
        if compiled.affinity_errors:
            text = f"parsing pod: {_joined(compiled.affinity_errors)}"
            malformed = Rejection(_NAME, Reason.MALFORMED_POD, text)
            return AffinityFilter(Status(Code.UNRESOLVABLE, text), frame, rejects_all=malformed)
        inverse = [group for group in compiled.inverse if frame.may_count(group)]
        # Own anti-affinity over a key that no node carries has no group. The plugin does not skip for it, and passes.
        if not (compiled.affinity or compiled.signature.affinity.required_anti or inverse):
            return AffinityFilter(SKIP, frame)

        def clause_for(group: GroupView) -> Clause:
            return Clause(group, frame.domains(group.key), frame.satisfying(group))

        def clause_against(group: GroupView) -> Clause:
            return Clause(group, frame.domains(group.key), frame.conflicting(group))

        first_pod = compiled.matches_itself and not any(map(frame.may_count, compiled.affinity))
        affinity = tuple(map(clause_for, compiled.affinity))
        nowhere = not first_pod and not all(clause.counts for clause in affinity)
        return AffinityFilter(
            SUCCESS,
            frame,
            affinity=affinity,
            first_pod=first_pod,
            anti=tuple(map(clause_against, compiled.anti)),
            inverse=tuple(map(clause_against, inverse)),
            rejects_all=_EVERYWHERE[Reason.AFFINITY] if nowhere else _full(compiled, frame),
        )

    def constraint_states(
        self, compiled: CompiledConstraints, view: ClusterView, frame: Frame, most_domains: int = MOST_DOMAINS
    ) -> Steps[Sequence[ConstraintState]]:
        """One for each topology key of required affinity, for each anti-affinity term, and for the terms of existing pods with most domains."""
        signature, found = compiled.signature, list[ConstraintState]()
        required = signature.affinity.required
        first_pod = compiled.matches_itself and not any(map(frame.may_count, compiled.affinity))
        for group in compiled.affinity:
            reach = yield from reach_of(required, signature.namespace, view)
            state = yield from _state(
                group, frame.satisfying(group), view, lambda count: first_pod or count > 0, most_domains
            )
            pods = text_of(each.selector for each in required)
            found.append(replaced(state, kind="podAffinity", pods=pods, reach=reach, is_first_pod=first_pod))
        for group, term in zip(compiled.anti, compiled.anti_terms, strict=True):
            reach = yield from reach_of((term,), signature.namespace, view)
            state = yield from _state(group, frame.conflicting(group), view, lambda count: not count, most_domains)
            found.append(replaced(state, kind="podAntiAffinity", pods=str(term.selector), reach=reach, limit=0))
        inverse = sorted(filter(frame.may_count, compiled.inverse), key=lambda group: -len(group.counts))
        for group in inverse[:MOST_TERMS]:
            term = view.term_of(group)
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
        return replace(compiled, affinity=())

    def recounted_part(self, compiled: CompiledConstraints) -> CompiledConstraints | None:
        """Required affinity: the first-pod rule depends on all counts together."""
        return replace(compiled, anti=(), inverse=()) if compiled.affinity or compiled.affinity_errors else None

    def other_nodes(self, compiled: CompiledConstraints, node: NodeNumber) -> Iterable[NodeNumber]:
        """The other nodes in the domains where anti-affinity in either direction rejects the node."""
        rejecting = [group for group in (*compiled.anti, *compiled.inverse) if group.key.of_node[node] in group.counts]
        keys = {group.key for group in rejecting}
        found = set[NodeNumber]().union(*(key.nodes_in.get(key.of_node[node], ()) for key in keys))
        return found - {node}

    def has_scores(self, compiled: CompiledConstraints, _rules: Rules) -> bool:
        """Where any (pod, term) pair is counted; as `weighted_groups`, up to the first one."""
        for part in compiled.preferences:  # called for every answer: loops, as generators cost twice as much here
            if part.group.counts:
                return True
        for part in compiled.inverse_preferences:
            if part.group.counts:
                return True
        for group in compiled.inverse_required:  # noqa: SIM110 (as above)
            if group.counts:
                return True
        return False

    def prepare_score(
        self, compiled: CompiledConstraints, _view: ClusterView, frame: Frame, nodes: Sequence[int], rules: Rules
    ) -> AffinityScore:
        """The score over these nodes; Skip where no (pod, term) pair adds anything. O(terms)."""
        errors = compiled.affinity_errors
        if errors:
            return AffinityScore(Status(Code.ERROR, f"failed to parse pod: {_joined(errors)}"), nodes)
        parts = tuple(
            (part.weight, Clause(part.group, frame.domains(part.group.key), part.group.counts))
            for part in weighted_groups(compiled, rules.inter_pod_affinity.hard_pod_affinity_weight)
        )
        return AffinityScore(SUCCESS if parts else SKIP, nodes, parts)

    def ranked_groups(
        self, compiled: CompiledConstraints, _view: ClusterView, _nodes: int, rules: Rules
    ) -> Sequence[RankedGroup]:
        """More points rank higher. O(terms)."""
        weight = rules.inter_pod_affinity.hard_pod_affinity_weight
        return [RankedGroup(part.weight, part.group) for part in weighted_groups(compiled, weight)]
