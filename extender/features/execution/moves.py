"""Plans moves: which pod leaves its node so that less is broken, and where its replacement goes.

A move evicts a pod, and its controller makes another one of the same template. A move is allowed only if

1. the pod may be moved (`Movable`), and no policy releases its replacement with a group (`objection_to_gate`);
2. the replacement passes filter and node fit on another node, in a trial in which the pod has left and earlier moves are
   complete;
3. the measure of what is broken falls, and no required constraint of another pod that held is broken afterwards.

So each move lowers a number that is never negative, and moves end while the cluster does not change. Of the allowed
moves the one that lowers the measure most comes first; then `Move.order` decides.

Nodes that count alike for every constraint that the pod touches are tried once: for topology spread only the number of
pods in the domain matters. Among the nodes of the best kind the scores of decisive placement choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import structs

from extender.features.execution.broken import (
    BrokenConstraint,
    Place,
    WatchedPods,
    broken_constraints,
    has_affinity,
    watching_policy,
)
from extender.features.execution.directive import WatchedConstraint, objection_to_gate
from extender.features.execution.schema import Movable
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import PlacedPods, SpreadGroupView
from extender.index.counts.term_counts import TermRole
from extender.index.nodes.columns import NodeNumber
from extender.index.trial import Trial
from extender.index.view import ClusterView
from extender.model.bounded import Steps, at_once
from extender.model.constraints.labels import NO_LABELS
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.spread import SpreadConstraint
from extender.model.objects import Pod, PodSignature
from extender.model.policies import PolicyKey
from extender.rules import catalog
from extender.rules.catalog import NO_FILTERS, PreparedFilters
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import OwnTerms, own_terms
from extender.rules.spread_groups import default_constraints
from extender.rules.topology_spread import conditions, spread_groups
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective, effective_pod
from extender.verbs.kept_nodes import KeptNodes, nodes_with_room
from extender.verbs.request import RequestSearch, requested_nodes, worst_case
from extender.verbs.select_host import select_host
from extender.wire.extender_v1 import ExtenderArgs

_OF_OTHERS: Final = "it is not moved for the anti-affinity of pods of other namespaces"


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that leaves its node, and the node for its replacement.

    - ``broken``: the constraint for which it is moved, with its text.
    - ``lowers``: by how much the measure falls.
    - ``order``: sorts moves.
    """

    pod: Pod
    target: str
    policy: PolicyKey
    place: Place
    broken: str
    lowers: int
    order: tuple[Any, ...]

    @property
    def replacement(self) -> Pod:
        """The pod that the controller will create, as far as it is known, on its node."""
        return structs.replace(replacement_of(self.pod), node=self.target)


@dataclass(frozen=True, slots=True)
class Stuck:
    """A broken constraint without an allowed move: one of its pods, and why."""

    pod: Pod
    policy: PolicyKey
    place: Place
    broken: str
    why: str


def replacement_of(pod: Pod) -> Pod:
    """The pod as its controller would create it anew, under a UID that no pod of the index has."""
    return structs.replace(pod.recreated(), uid=f"{pod.uid}*")


@dataclass(slots=True)
class _SpreadOfOthers:
    """A hard constraint that counts the pod which is moved, and how many pods have it in each domain.

    - ``carrier``: any pod with the constraint, ``at``: its position among the constraints of that pod
    - ``signatures``: of all pods with it
    - ``watched``: the pods for which a policy watches it
    """

    carrier: Pod
    compiled: CompiledConstraints
    at: int
    group: SpreadGroupView
    selects_itself: bool
    domains: Counter[int] = field(default_factory=Counter)
    watched: Counter[int] = field(default_factory=Counter)
    signatures: dict[PodSignature, bool] = field(default_factory=dict)

    def limit(self, view: ClusterView) -> int:
        """How many pods a domain may have now."""
        condition = conditions(self.carrier, self.compiled, view, IndexFrame())[self.at]
        return condition.min_match + condition.spread.constraint.max_skew

    def carriers(self, shifts: Sequence[_Shift]) -> tuple[Counter[int], Counter[int]]:
        """``domains`` and ``watched`` after some pods have moved. O(domains + moves)."""
        domains, watched, column = self.domains, self.watched, self.group.domain_of
        if own := [shift for shift in shifts if shift.signature in self.signatures]:
            domains, watched = domains.copy(), watched.copy()
            for signature, source, target in own:
                for domain, sign in ((0 if source is None else column[source], -1), (column[target], 1)):
                    domains[domain] += sign
                    watched[domain] += sign * self.signatures[signature]
        return domains, watched

    def above(self, view: ClusterView, shifts: Sequence[_Shift]) -> _Above:
        """The domains above the limit in which pods have the constraint, after some pods have moved. O(domains + moves)."""
        counts, limit, (domains, watched) = self.group.counts, self.limit(view), self.carriers(shifts)
        above = [domain for domain, pods in domains.items() if pods > 0 and domain and counts.get(domain, 0) > limit]
        excess = sum(
            counts[domain] - limit if self.selects_itself else watched[domain]
            for domain in above
            if watched[domain] > 0
        )
        return _Above(frozenset(above), excess)


class _Shift(NamedTuple):
    """A pod that goes to a node. ``source``: the node that it leaves; None if it was evicted, so that it is not counted there."""

    signature: PodSignature
    source: NodeNumber | None
    target: NodeNumber


class _Above(NamedTuple):
    """Domains above the limit, and the part of the measure of those where a policy watches the constraint."""

    domains: frozenset[int]
    excess: int


_Affected: TypeAlias = Sequence[_SpreadOfOthers]
_ByConstraint: TypeAlias = dict[tuple[SpreadGroupView, SpreadConstraint, bool], _SpreadOfOthers]


class Neighbours:
    """The pods whose required constraints a move may break, collected once for many moves. O(signatures).

    ``spread``: by namespace the pods with hard spread constraints, their own or default ones, with what these select there.
    """

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self.spread: dict[str, list[tuple[tuple[LabelSelector, ...], PlacedPods]]] = {}
        self.affinity: list[PlacedPods] = []
        self._view = view
        self._settings = settings
        self._affected: dict[PodSignature, _Affected] = {}
        rule = settings.rules.topology_spread
        self._has_defaults = rule.enabled and any(constraint.hard for constraint in default_constraints(rule))

    def collect(self, under_way: Sequence[Move] = ()) -> Steps[None]:
        """Reads the signatures, in steps. ``under_way``: moves whose replacements come, perhaps as the only pods of a signature."""
        self._coming = {move.pod.signature: move.pod for move in under_way}
        coming = (PlacedPods(signature, terminating=False, nodes={}) for signature in self._coming)
        for placed in chain(coming, self._view.placed(None, self._has_constraints)):
            if placed is not None and not placed.terminating:
                signature = self._effective(placed.signature)
                if selectors := self._spread_over(signature):
                    self.spread.setdefault(signature.namespace, []).append((selectors, placed))
                if signature.affinity.required:
                    self.affinity.append(placed)
            yield

    def _effective(self, signature: PodSignature) -> PodSignature:
        if not self._settings.policies.enabled:
            return signature
        return effective(signature, self._view, self._settings).signature or signature

    def _has_constraints(self, signature: PodSignature) -> bool:
        signature = self._effective(signature)
        return bool(signature.spread.hard or signature.affinity.required or self._gets_defaults(signature))

    def _gets_defaults(self, signature: PodSignature) -> bool:
        return self._has_defaults and not signature.spread.own

    def _spread_over(self, signature: PodSignature) -> tuple[LabelSelector, ...]:
        """The pods that each hard spread constraint counts. Selectors of default constraints are deduced when they are compiled."""
        if not self._gets_defaults(signature):
            return tuple(constraint.selector for constraint in signature.spread.hard)
        return tuple(spread.constraint.selector for spread in spread_groups(self._view.compiled(signature)).hard)

    def shown(self, placed: PlacedPods) -> Pod | None:
        """One of these pods, if any is left."""
        numbers = (number for number in placed.nodes if number < len(self._view.node_names))
        there = (pod for number in numbers for pod in self._view.pods_on(number).values())
        return next(filter(placed.are, there), self._coming.get(placed.signature))

    def spread_counting(self, pod: Pod) -> _Affected:
        """The hard constraints that count pods of the pod's signature. O(pods with constraints in its namespace)."""
        known = self._affected.get(pod.signature)
        if known is None:
            made: _ByConstraint = {}
            for selectors, placed in self.spread.get(pod.namespace, ()):
                if any(selector.matches(pod.signature.labels) for selector in selectors):
                    self._add(placed, pod, made)
            known = self._affected[pod.signature] = list(made.values())
        return known

    def _add(self, placed: PlacedPods, pod: Pod, made: _ByConstraint) -> None:
        view, shown = self._view, self.shown(placed)
        if shown is None:
            return
        carrier = effective_pod(shown, view, self._settings)
        compiled, is_watched = view.compiled(carrier.signature), self._is_watched(placed.signature)
        for at, spread in enumerate(spread_groups(compiled).hard):
            if not view.times_counted(pod, spread.group):
                continue
            key = spread.group, spread.constraint, bool(spread.self_match)
            affected = made.get(key)
            if affected is None:
                affected = made[key] = _SpreadOfOthers(carrier, compiled, at, spread.group, bool(spread.self_match))
            column = spread.group.domain_of
            affected.signatures[placed.signature] = is_watched
            for number, pods in placed.nodes.items():
                if number < len(view.node_names):
                    affected.domains[column[number]] += pods
                    affected.watched[column[number]] += pods * is_watched

    def _is_watched(self, signature: PodSignature) -> bool:
        policy = watching_policy(signature, self._view, self._settings)
        spec = None if policy is None else policy.execution
        return spec is not None and WatchedConstraint.TOPOLOGY_SPREAD in spec.constraints

    def relying_on(self, pod: Pod, number: NodeNumber, shifts: Sequence[_Shift]) -> Sequence[_Relying]:
        """The pods whose required affinity selects pods like this one, in a domain of its node. O(pods with affinity).

        Mostly no term selects it, which takes O(terms that may). ``shifts``: moves under way.
        """
        view = self._view
        terms = view.terms_selecting(pod.signature, view.namespace_labels(pod.namespace) or NO_LABELS)
        columns = [(term.counts, term.domain_of) for term in terms if term.role is TermRole.REQUIRED]
        coming = any(column[shift.target] == column[number] for _, column in columns for shift in shifts)
        if not coming and not any(counts.get(column[number]) for counts, column in columns):
            return ()
        found = [self._relying(placed, pod, number, shifts) for placed in self.affinity]
        return [relying for relying in found if relying is not None]

    def _relying(self, placed: PlacedPods, pod: Pod, number: NodeNumber, shifts: Sequence[_Shift]) -> _Relying | None:
        view, shown = self._view, self.shown(placed)
        if shown is None:
            return None
        own = own_terms(view.compiled(effective_pod(shown, view, self._settings).signature))
        if not own.affinity or not view.times_counted(pod, own.affinity[0]):
            return None
        columns = [group.domain_of for group in own.affinity]
        here = [column[number] for column in columns]
        near: dict[tuple[int, ...], NodeNumber] = {}  # one node of each combination of domains
        coming = [(shift.target, 2) for shift in shifts if shift.signature is placed.signature]  # not the pod alone
        for other, pods in [*placed.nodes.items(), *coming]:
            is_alone = other == number and pods == 1 and placed.are(pod)
            if other < len(view.node_names) and not is_alone:
                there = tuple(column[other] for column in columns)
                if any(one and one == domain for one, domain in zip(there, here, strict=True)):
                    near[there] = other
        return _Relying(own, int(own.matches_itself), tuple(near.values())) if near else None


class _Relying(NamedTuple):
    """Pods with required affinity near the pod that is moved: their terms, how often these select one of them, their nodes."""

    own: OwnTerms
    itself: int
    nodes: tuple[NodeNumber, ...]

    def satisfied(self) -> list[NodeNumber]:
        """The nodes on which the affinity holds now. O(nodes × terms)."""
        return [number for number in self.nodes if has_affinity(self.own, number, self.itself)]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Pods that are alike for a move: on nodes where the same constraints are broken, in the order of `Movable`."""

    findings: tuple[BrokenConstraint, ...]
    pods: Sequence[Pod]

    @property
    def most(self) -> int:
        """The greatest count of a domain: the fullest domain loses a pod first."""
        return max(finding.count for finding in self.findings)


_MOST_EXPLAINED: Final = 500  # nodes without room
_MOST_TRIED: Final = 5  # pods on different nodes that are alike: they differ only in what others need of them


class Planner:
    """Finds moves. Valid until the signatures change: then `Neighbours` are collected again."""

    def __init__(self, view: ClusterView, settings: Settings, neighbours: Neighbours) -> None:
        self._view = view
        self._settings = settings
        self._neighbours = neighbours

    def find(
        self, watched: WatchedPods, movable: Movable, under_way: Sequence[Move] = ()
    ) -> Steps[tuple[Move | None, tuple[Stuck, ...]]]:
        """The best move for the pods of one signature, and its broken constraints without a move. A step tries one pod.

        ``under_way``: moves that are not complete. They count as complete.
        """
        moves: list[Move] = []
        stuck: dict[Place, Stuck] = {}
        for candidate in self._candidates(watched, movable):
            why = ""
            for pod in candidate.pods[:_MOST_TRIED]:
                result = self.try_pod(pod, watched, movable, under_way)
                yield
                if isinstance(result, Move):
                    moves.append(result)
                if not isinstance(result, str):
                    break
                why = why or result
            else:
                for finding in candidate.findings:
                    pod = candidate.pods[0]
                    stuck.setdefault(finding.place, Stuck(pod, watched.policy.key, finding.place, finding.text, why))
        mended = {move.place for move in moves}
        left = tuple(found for place, found in stuck.items() if place not in mended)
        return min(moves, key=lambda move: move.order, default=None), left

    def _candidates(self, watched: WatchedPods, movable: Movable) -> list[_Candidate]:
        """The pods with broken constraints by what is broken. O(pods on these nodes)."""
        view = self._view
        on: dict[NodeNumber, list[BrokenConstraint]] = {}
        for finding in watched.found:
            for number in finding.nodes:
                on.setdefault(number, []).append(finding)
        alike: dict[tuple[Place, ...], tuple[tuple[BrokenConstraint, ...], list[Pod]]] = {}
        for number, findings in on.items():
            if number >= len(view.node_names):
                continue
            key = tuple(finding.place for finding in findings)
            pods = alike.setdefault(key, (tuple(findings), []))[1]
            pods += [
                pod
                for pod in view.pods_on(number).values()
                if pod.signature is watched.signature and not pod.terminating
            ]
        made = [
            _Candidate(
                findings, sorted(pods, key=lambda pod: (bool(movable.objection(pod, watched.spec)), movable.order(pod)))
            )
            for findings, pods in alike.values()
            if pods
        ]
        return sorted(made, key=lambda candidate: -candidate.most)

    def _objection_to_gate(self, signature: PodSignature) -> str:
        """Why pods of a signature are not moved because policies release such pods; empty if none does. O(1) for a known signature."""
        policies = map(self._view.policies.get, effective(signature, self._view, self._settings).gating)
        gates = (objection_to_gate(str(policy.key), policy.release) for policy in policies if policy and policy.release)
        return next(gates, "")

    def try_pod(
        self, pod: Pod, watched: WatchedPods, movable: Movable, under_way: Sequence[Move] = ()
    ) -> Move | str | None:
        """The best move of one pod, or why there is none. In one step, because its trial must not be suspended.

        None if nothing is broken of the pod once the moves under way are complete.

        O(nodes × clauses) like a filter request of all nodes.
        """
        view, settings = self._view, self._settings
        if objection := movable.objection(pod, watched.spec, self._objection_to_gate(pod.signature)):
            return objection
        number = view.known.get(pod.node)
        if number is None:
            return "its node does not exist"
        # Everything is compiled before the trial, because a group that is made in it would not count the pods that left.
        compiled = view.compiled(effective_pod(pod, view, settings).signature)
        affected = self._neighbours.spread_counting(pod)
        targets = [(move.pod.signature, view.known.get(move.target)) for move in under_way]
        shifts = [_Shift(signature, None, to) for signature, to in targets if to is not None]
        relying = self._neighbours.relying_on(pod, number, shifts)
        with view.trial() as trial:
            for other in under_way:
                trial.take_bound((other.pod,))
                if other.target in view.known:
                    trial.place(replacement_of(other.pod), view.known[other.target])
            findings = at_once(broken_constraints({number: 1}, pod, view, settings, watched.spec.constraints))
            if not findings:
                return None
            if not (own := tuple(finding for finding in findings if not finding.of_others)):
                return _OF_OTHERS
            attempt = _Attempt(pod, number, watched, view, settings, compiled, affected, relying, shifts, trial)
            return attempt.move(own, movable)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The trial of one pod, after the moves under way.

    ``number``: its node, ``compiled``: its constraints, ``affected`` and ``relying``: of others, compiled before the trial.
    ``shifts``: the moves under way.
    """

    pod: Pod
    number: NodeNumber
    watched: WatchedPods
    view: ClusterView
    settings: Settings
    compiled: CompiledConstraints
    affected: _Affected
    relying: Sequence[_Relying]
    shifts: Sequence[_Shift]
    trial: Trial

    def move(self, findings: Sequence[BrokenConstraint], movable: Movable) -> Move | str:
        """The move to the best target. ``findings``: what is broken of the pod on its node."""
        view, pod = self.view, self.pod
        before = [spread.above(view, self.shifts) for spread in self.affected]
        relied = [relying.satisfied() for relying in self.relying]
        self.trial.take(pod)
        new = effective_pod(replacement_of(pod), view, self.settings)
        frame = worst_case(IndexFrame(), self.compiled, view)
        filters = catalog.prepare_filters(new, self.compiled, view, frame)
        passing = self._passing(new, filters)
        if not passing:
            return self._rejections(new, filters)
        # The excess of shared findings is part of `before`. The other findings are about the pod alone: they end.
        own = sum(finding.excess for finding in findings if finding.shared is None)
        best: tuple[int, int, Sequence[int]] | None = None
        for counts, positions in self._kinds(passing).items():
            change = self._change(before, relied, passing[positions[0]])
            if change is not None and own + change > 0 and (best is None or (-own - change, sum(counts)) < best[:2]):
                best = -own - change, sum(counts), positions
        if best is None:
            return "on each node that takes it, as much would be broken as now, or a constraint of another pod"
        target = self._choose(new, [passing[position] for position in sorted(best[2])])
        finding = max(findings, key=lambda found: found.excess)
        fullest = max(found.count for found in findings)
        order = (best[0], -fullest, *movable.order(pod))
        return Move(pod, target, self.watched.policy.key, finding.place, finding.text, -best[0], order)

    def _passing(self, new: Pod, filters: PreparedFilters) -> Sequence[NodeNumber]:
        """The nodes that pass filter and have room for the replacement, other than the node of the pod."""
        view = self.view
        if filters.rejects_every_node:
            return ()
        fit = catalog.NODE_FIT.prepare_filter(new, self.compiled, view, IndexFrame())
        kept = KeptNodes(new, view, self.settings)
        # The constraints first: mostly they reject most nodes, such as the nodes of the domain that the pod is to leave.
        passing = filters.passing([number for number in view.known.values() if number != self.number])
        # Room is known. The rest of node fit matters for host ports, and where others claim room.
        names, nominated, is_plain = view.node_names, view.nominated, not new.host_ports and view.room is None
        return [
            number
            for number in nodes_with_room(new, view, passing)
            if (is_plain and names[number] not in nominated)
            or (fit.reason(number) is None and names[number] not in kept)
        ]

    def _rejections(self, new: Pod, filters: PreparedFilters) -> str:
        """How many nodes do not pass, by reason."""
        view = self.view
        others = [number for number in view.known.values() if number != self.number]
        fit = catalog.NODE_FIT.prepare_filter(new, self.compiled, view, IndexFrame())
        reasons: Counter[str] = Counter()
        if (rejection := filters.rejects_all) is not None:
            reasons[rejection.reason.text] = len(others)
        else:
            for reason, numbers in filters.rejected(others):
                reasons[reason.text] += len(numbers)
            for number in filters.passing(others)[:_MOST_EXPLAINED]:
                failed = fit.reason(number)
                reasons["node(s) are kept for nominated pods" if failed is None else failed.text] += 1
        texts = ", ".join(f"{count} {text}" for text, count in sorted(reasons.items()))
        return f"no node passes: {texts}" if texts else "there is no other node"

    def _kinds(self, passing: Sequence[NodeNumber]) -> Mapping[tuple[int, ...], list[int]]:
        """The positions of nodes by what a pod there changes: the count and the carriers of the domain for each constraint that counts the pod.

        For affinity of others it matters whether the domain is the one that the pod leaves.
        """
        near = [group.domain_of for relying in self.relying for group in relying.own.affinity]
        columns = [*(spread.group.domain_of for spread in self.affected), *near]
        # By domains first, because there are fewer domains than nodes: the counts are read once for each.
        by_domains: dict[tuple[int, ...], list[int]] = {}
        for position, number in enumerate(passing):
            by_domains.setdefault(tuple([column[number] for column in columns]), []).append(position)
        spreads = [(spread.group.counts, *spread.carriers(self.shifts)) for spread in self.affected]
        left = [column[self.number] for column in near]
        made: dict[tuple[int, ...], list[int]] = {}
        for domains, positions in by_domains.items():
            key = [
                counts.get(domain, 0) * 4 + (carriers[domain] > 0) * 2 + (watched[domain] > 0) if domain else 0
                for domain, (counts, carriers, watched) in zip(domains, spreads, strict=False)
            ]
            key += [-int(domain == here) for domain, here in zip(domains[len(spreads) :], left, strict=True)]
            made.setdefault(tuple(key), []).extend(positions)
        return made

    def _change(
        self, before: Sequence[_Above], relied: Sequence[Collection[NodeNumber]], target: NodeNumber
    ) -> int | None:
        """By how much the spread constraints of all pods lower the measure if the pod goes to a node.

        None if a constraint that held would be broken.
        """
        view, pod = self.view, self.pod
        self.trial.place(replacement_of(pod), target)
        shifts = [*self.shifts, _Shift(pod.signature, self.number, target)]
        now = [spread.above(view, shifts) for spread in self.affected]
        kept = [relying.satisfied() for relying in self.relying]
        self.trial.remove_last()
        if any(after.domains - earlier.domains for after, earlier in zip(now, before, strict=True)):
            return None
        if any(set(was) - set(still) for was, still in zip(relied, kept, strict=True)):
            return None
        return sum(earlier.excess - after.excess for after, earlier in zip(now, before, strict=True))

    def _choose(self, new: Pod, numbers: Sequence[NodeNumber]) -> str:
        """The node that decisive placement would choose among these, which all pass."""
        view = self.view
        names = [view.node_names[number] for number in numbers]
        if len(names) == 1:
            return names[0]
        requested = requested_nodes(ExtenderArgs(new, names), view)
        search = RequestSearch(self.compiled, NO_FILTERS, requested, view, self.settings)
        return requested.names_at(select_host(search, new, 0, ""))[0]
