"""Which required constraints of running pods are broken, by the counts that filter reads.

A policy with `when: [Execution]` watches pods. All pods of one signature have the same constraints, so they are judged
together, domain by domain. What is broken of each kind of constraint:

1. NodeAffinity: the labels of the pod's node no longer match.
2. PodAffinity: no other pod that the terms select is in the domain of the node. If the pod matches its own terms and no
   other pod does, nothing is broken (the first-pod rule).
3. PodAntiAffinity: another pod that a term of the pod selects is in the domain, or another pod whose term selects it. No pod
   is moved for terms of pods of other namespaces, because a tenant could move the pods of others by them.
4. TopologySpread: the domain has more pods than the minimum + maxSkew.

So a pod is broken if filter would reject its node today, as if the pod came anew. Each finding has an ``excess``: the
pods above the limit of a domain, the pairs, or the unsatisfied pods. The sum is the measure that each move lowers.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.features.execution.directive import ExecutionMode, ExecutionSpec, WatchedConstraint
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import GroupView, PlacedPods
from extender.index.counts.term_counts import TermGroupView
from extender.index.nodes.columns import Column, NodeNumber
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels
from extender.model.objects import Pod, PodSignature
from extender.model.policies import JsonObject, Mode, Moment, Policy
from extender.model.units import counted
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import OwnTerms, own_terms, terms_of_others
from extender.rules.spread_groups import SpreadGroups
from extender.rules.topology_spread import conditions
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod

# -- which policy watches a pod


def watching_policy(signature: PodSignature, view: ClusterView, settings: Settings) -> Policy | None:
    """The policy that watches pods of a signature: the first that selects them. O(policies that may select the pods)."""
    if signature.excess is not None or settings.policies.exempt.covers(signature.namespace, signature.labels):
        return None
    subject = signature.subject(view.namespace_labels(signature.namespace))
    policies = view.policies.select(subject, Moment.EXECUTION)
    return next((policy for policy in policies if policy.is_for(signature.owner_kind)), None)


def is_evicting(policy: Policy, spec: ExecutionSpec) -> bool:
    """Whether the policy moves pods, beside showing what is broken."""
    return policy.mode is Mode.ENFORCE and spec.mode is ExecutionMode.EVICT


def watching_document(signature: PodSignature, view: ClusterView, settings: Settings) -> JsonObject | None:
    """What a policy will watch of pods of a signature while they run, as a document for scripts; None without a policy."""
    policy = watching_policy(signature, view, settings)
    if policy is None or policy.execution is None:
        return None
    mode = ExecutionMode.EVICT if is_evicting(policy, policy.execution) else ExecutionMode.REPORT
    return {"policy": str(policy.key), "mode": str(mode), "constraints": sorted(map(str, policy.execution.constraints))}


# -- the constraints of one signature


class Place(NamedTuple):
    """A constraint in a domain; what is broken there is broken since a moment."""

    kind: WatchedConstraint
    topology_key: str
    domain: str


@dataclass(frozen=True, slots=True)
class BrokenConstraint:
    """A constraint of the pods of one signature that is broken in one domain.

    - ``nodes``: the nodes of these pods.
    - ``count``: the pods that are counted in the domain, ``limit``: how many there may be.
    - ``excess``: its part of the measure. ``shared``: equal for findings that count the same pods, whose excess is one.
    - ``of_others``: terms of pods of other namespaces exclude the pods. These are not moved for it.
    """

    place: Place
    nodes: tuple[NodeNumber, ...]
    count: int
    limit: int
    excess: int
    shared: Hashable = None
    of_others: bool = False

    @property
    def text(self) -> str:
        """For users."""
        kind, key, domain = self.place
        match kind:
            case WatchedConstraint.NODE_AFFINITY:
                return f"required node affinity does not match node {domain}"
            case WatchedConstraint.POD_AFFINITY:
                return f"required affinity selects no pod in {key}={domain}"
            case WatchedConstraint.POD_ANTI_AFFINITY if self.of_others:
                return (
                    f"anti-affinity of {counted(self.count, 'pod')} of other namespaces excludes it in {key}={domain}"
                )
            case WatchedConstraint.POD_ANTI_AFFINITY:
                return f"anti-affinity excludes {counted(self.count, 'pod')} in {key}={domain}"
            case WatchedConstraint.TOPOLOGY_SPREAD:
                return f"{key}={domain} has {counted(self.count, 'pod')}, at most {self.limit} keep the spread"


def measure(found: Iterable[BrokenConstraint]) -> int:
    """The measure of findings. O(findings)."""
    findings = list(found)
    shared = {finding.shared: finding.excess for finding in findings if finding.shared is not None}
    return sum(finding.excess for finding in findings if finding.shared is None) + sum(shared.values())


class _Judged:
    """The pods of one signature on their nodes, while their constraints are judged.

    ``shown``: one of the pods as the watch shows it, ``pod``: with the directives of policies.
    """

    def __init__(self, nodes: Mapping[NodeNumber, int], shown: Pod, pod: Pod, view: ClusterView) -> None:
        self.nodes, self.shown, self.pod, self.view = nodes, shown, pod, view
        self.compiled = view.compiled(pod.signature)
        self._by_column: dict[int, Mapping[int, list[NodeNumber]]] = {}

    def by_domain(self, column: Column) -> Mapping[int, list[NodeNumber]]:
        """The nodes of the pods by domain; under 0 those without a domain. O(nodes), once for each column."""
        known = self._by_column.get(id(column))
        if known is None:
            made: dict[int, list[NodeNumber]] = {}
            known_nodes = len(self.view.node_names)  # a node may be deleted between two steps
            for number in self.nodes:
                made.setdefault(column[number] if number < known_nodes else 0, []).append(number)
            known = self._by_column[id(column)] = made
        return known

    def pods_on(self, nodes: Iterable[NodeNumber]) -> int:
        """How many of the pods are on these nodes."""
        return sum(self.nodes[number] for number in nodes)


def broken_constraints(
    nodes: Mapping[NodeNumber, int],
    shown: Pod,
    view: ClusterView,
    settings: Settings,
    kinds: Collection[WatchedConstraint],
) -> Steps[tuple[BrokenConstraint, ...]]:
    """What is broken of the pods of one signature, in steps. ``shown``: one of these pods.

    O(nodes of the pods × clauses of node affinity + constraints × (domains of the pods + distinct counts)).
    """
    existing = {number: pods for number, pods in nodes.items() if view.node(number) is not None}
    judged = _Judged(existing, shown, effective_pod(shown, view, settings), view)
    found: list[BrokenConstraint] = []
    for kind in WatchedConstraint:
        if kind in kinds:
            for finding in _JUDGES[kind](judged):
                if finding is None:
                    yield
                else:
                    found.append(finding)
    return tuple(found)


def _node_affinity(judged: _Judged) -> Iterator[BrokenConstraint | None]:
    signature = judged.pod.signature
    required = [signature.node_affinity, *([] if signature.enforced is None else [signature.enforced.nodes])]
    required = [affinity for affinity in required if not affinity.admits_all]
    for number, pods in judged.nodes.items() if required else ():
        node = judged.view.node(number)
        if node is not None and not all(affinity.matches(node.name, node.labels) for affinity in required):
            place = Place(WatchedConstraint.NODE_AFFINITY, "", node.name)
            yield BrokenConstraint(place, (number,), count=pods, limit=0, excess=pods)


def _pod_affinity(judged: _Judged) -> Iterator[BrokenConstraint | None]:
    own, view = own_terms(judged.compiled), judged.view
    # All groups count the pods that match every term, each over another key. So the pod itself counts in all or in none.
    itself = view.times_counted(judged.shown, own.affinity[0]) if own.affinity else 0
    seen: set[NodeNumber] = set()  # a pod counts once, also where several keys have no such pod
    for group in own.affinity:
        for domain, nodes in judged.by_domain(group.domain_of).items():
            if domain and group.counts.get(domain, 0) > itself:
                continue
            left = [number for number in nodes if number not in seen]
            unsatisfied = tuple(number for number in left if not has_affinity(own, number, itself))
            seen.update(unsatisfied)
            if unsatisfied:
                place = Place(WatchedConstraint.POD_AFFINITY, group.key.key, group.key.value(domain) if domain else "")
                yield BrokenConstraint(place, unsatisfied, count=0, limit=1, excess=judged.pods_on(unsatisfied))
        yield None


def has_affinity(own: OwnTerms, number: NodeNumber, itself: int) -> bool:
    """Whether the required affinity of a pod holds on its node. ``itself``: how often each group counts the pod. O(groups)."""
    domains = [group.domain_of[number] for group in own.affinity]
    if not all(domains):
        return False
    counts = [group.counts.get(domain, 0) for group, domain in zip(own.affinity, domains, strict=True)]
    if all(count > itself for count in counts):
        return True
    # The first-pod rule: the pod matches its own terms, and no other pod does.
    totals = [sum(group.counts.values()) if len(group.counts) <= 1 else itself + 1 for group in own.affinity]
    return own.matches_itself and max(totals) <= itself


def _pod_anti_affinity(judged: _Judged) -> Iterator[BrokenConstraint | None]:
    view, pairs = judged.view, _Pairs()
    for group in own_terms(judged.compiled).anti:
        for domain, here, count in _excluding(group, judged):
            pairs.add(group, domain, here, count, judged)
        yield None
    for group in terms_of_others(judged.compiled).anti:
        excluding = list(_excluding(group, judged))
        inside = (yield from _owners(group, judged)) if excluding else {}
        for domain, here, count in excluding:
            of_namespace = min(max(inside.get(domain, 0) - view.times_counted(judged.shown, group), 0), count)
            pairs.add(group, domain, here, of_namespace, judged)
            pairs.add(group, domain, here, count - of_namespace, judged, of_others=True)
        yield None
    yield from pairs.findings()


def _excluding(group: GroupView, judged: _Judged) -> Iterator[tuple[int, list[NodeNumber], int]]:
    """The domains of the pods with pods that a group counts beside them: the nodes, and how many others it counts."""
    if group.counts:
        itself, here = judged.view.times_counted(judged.shown, group), judged.by_domain(group.domain_of)
        for domain in group.counts.keys() & here.keys():
            if (count := group.counts[domain] - itself) > 0:
                yield domain, here[domain], count


def _owners(group: TermGroupView, judged: _Judged) -> Generator[None, None, dict[int, int]]:
    """How many pods of the namespace have a term, by domain. O(signatures)."""
    view, namespace, column = judged.view, judged.shown.namespace, group.domain_of
    inside = dict[int, int]()
    for placed in view.placed(group, lambda signature: signature.namespace == namespace):
        if placed is None:
            yield
            continue
        for number, pods in placed.nodes.items():
            if number < len(view.node_names):
                inside[column[number]] = inside.get(column[number], 0) + pods
    return inside


class _Pairs:
    """Pairs of pods, where one excludes the other one, by place: the greatest count, the excess and the nodes."""

    def __init__(self) -> None:
        self._found: dict[tuple[Place, bool], tuple[int, int, set[NodeNumber]]] = {}

    def add(
        self,
        group: GroupView,
        domain: int,
        here: list[NodeNumber],
        count: int,
        judged: _Judged,
        *,
        of_others: bool = False,
    ) -> None:
        """``count`` pods exclude each of the pods on nodes of a domain."""
        if count:
            key = Place(WatchedConstraint.POD_ANTI_AFFINITY, group.key.key, group.key.value(domain)), of_others
            most, excess, nodes = self._found.get(key, (0, 0, set()))
            self._found[key] = max(most, count), excess + count * judged.pods_on(here), nodes | set(here)

    def findings(self) -> Iterator[BrokenConstraint]:
        """A finding for each place."""
        for (place, of_others), (most, excess, nodes) in self._found.items():
            yield BrokenConstraint(place, tuple(sorted(nodes)), count=most, limit=0, excess=excess, of_others=of_others)


def _topology_spread(judged: _Judged) -> Iterator[BrokenConstraint | None]:
    for condition in conditions(judged.pod, judged.compiled, judged.view, IndexFrame()):
        spread = condition.spread
        group, limit = spread.group, condition.min_match + spread.constraint.max_skew
        # Mostly nothing is broken, which the distinct counts show without a look at the nodes.
        if group.greatest() <= limit:
            continue
        here = judged.by_domain(group.domain_of)
        for domain in group.counts.keys() & here.keys():
            count = group.counts[domain]
            if count <= limit:
                continue
            place = Place(WatchedConstraint.TOPOLOGY_SPREAD, group.key.key, group.key.value(domain))
            nodes = tuple(here[domain])
            if spread.self_match:
                yield BrokenConstraint(place, nodes, count, limit, count - limit, (group, spread.constraint, domain))
            else:  # the pods do not count themselves, so they are unsatisfied as with affinity
                yield BrokenConstraint(place, nodes, count, limit, judged.pods_on(nodes))
        yield None


_JUDGES: Final = {
    WatchedConstraint.NODE_AFFINITY: _node_affinity,
    WatchedConstraint.POD_AFFINITY: _pod_affinity,
    WatchedConstraint.POD_ANTI_AFFINITY: _pod_anti_affinity,
    WatchedConstraint.TOPOLOGY_SPREAD: _topology_spread,
}


# -- all signatures, kept up to date


@dataclass(frozen=True, slots=True)
class WatchedPods:
    """The pods of one signature. At least one of their constraints is broken."""

    signature: PodSignature
    policy: Policy
    spec: ExecutionSpec
    found: tuple[BrokenConstraint, ...]


class _Known:
    """What was found out about a signature, and from what."""

    __slots__ = ("labels", "placed", "policies", "policy", "seen", "selections", "state")

    def __init__(self, policies: int, labels: Labels | None, policy: Policy | None) -> None:
        self.policies, self.labels, self.policy = policies, labels, policy
        self.state: Hashable = None
        self.selections: Hashable = None
        # The last rounds that found the signature at all, and found living pods of it on nodes.
        self.seen = 0
        self.placed = 0


class BrokenConstraints:
    """What is broken, kept up to date by rounds.

    Events of pods and nodes do no work here. They change the versions of the counts that they concern anyway. A round
    compares these versions for each watched signature, and judges the signatures whose versions have changed.

    - ``found``: by signature, where anything is broken.
    - ``since``: by signature and place, the time of the round that found it broken first.
    """

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self.found: dict[PodSignature, WatchedPods] = {}
        self.since: dict[PodSignature, dict[Place, float]] = {}
        self.judged = 0  # signatures that were judged so far
        self._view = view
        self._settings = settings
        self._known: dict[PodSignature, _Known] = {}
        self._round = 0
        self._versions: Hashable = None
        self._selections: Hashable = None

    @property
    def measure(self) -> int:
        """The sum of what is broken. O(what is broken)."""
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, int]:
        """The measure by kind of constraint. O(what is broken)."""
        found: dict[WatchedConstraint, list[BrokenConstraint]] = {kind: [] for kind in WatchedConstraint}
        for watched in self.found.values():
            for finding in watched.found:
                found[finding.place.kind].append(finding)
        return {str(kind): measure(findings) for kind, findings in found.items()}

    def round(self, now: float) -> Steps[None]:
        """Compares every signature once, in steps. O(1) if nothing has changed, or no policy watches pods.

        O(signatures + nodes of watched pods), and the cost of `broken_constraints` for each signature that changed.
        """
        view = self._view
        if not any(policy.execution is not None for policy in view.policies):
            for table in (self.found, self.since, self._known):
                table.clear()
            self._versions = None
            return
        of_objects = view.placement_version, view.nodes_version, view.namespaces_version
        versions = *of_objects, view.policies.version, view.domains.version
        if versions == self._versions:
            return
        self._round += 1
        # The same object while no selection of pods can have changed: then each signature costs one look.
        selections = view.policies.version, view.namespaces_version
        self._selections = self._selections if self._selections == selections else selections
        for placed in view.placed(None, self._is_watched):
            if placed is not None and not placed.terminating:
                yield from self._judge(placed, now)
            else:
                yield
        for signature in list(self.found):
            if self._known[signature].placed != self._round:
                self._known[signature].state = None
                self._drop(signature)
        for signature in [signature for signature, known in self._known.items() if known.seen != self._round]:
            del self._known[signature]
        # By the versions at the beginning: what has changed since then is compared in the next round.
        self._versions = versions

    def _is_watched(self, signature: PodSignature) -> bool:
        known = self._known.get(signature)
        if known is None or known.selections is not self._selections:
            known = self._select(signature, known)
        known.seen = self._round
        return known.policy is not None

    def _select(self, signature: PodSignature, known: _Known | None) -> _Known:
        """Finds the policy of a signature, unless its namespace and all policies are as before."""
        view = self._view
        labels, policies = view.namespace_labels(signature.namespace), view.policies.version
        if known is None or known.policies != policies or known.labels is not labels:
            policy = watching_policy(signature, view, self._settings)
            known = self._known[signature] = _Known(policies, labels, policy)
            if policy is None:
                self._drop(signature)
        known.selections = self._selections
        return known

    def _judge(self, placed: PlacedPods, now: float) -> Steps[None]:
        """Judges the pods of a signature, if anything that the result depends on has changed."""
        view, signature = self._view, placed.signature
        known = self._known[signature]
        policy = known.policy
        there = (pod for number in placed.nodes for pod in view.pods_on(number).values())
        shown = next(filter(placed.are, there), None)
        if policy is None or policy.execution is None or shown is None:
            yield
            return
        compiled = view.compiled(effective_pod(shown, view, self._settings).signature)
        state = self._state(compiled, placed)
        known.placed = self._round
        if state == known.state:
            yield
            return
        found = yield from broken_constraints(placed.nodes, shown, view, self._settings, policy.execution.constraints)
        known.state = state
        self.judged += 1
        if not found:
            self._drop(signature)
            return
        before = self.since.get(signature, {})
        self.since[signature] = {finding.place: before.get(finding.place, now) for finding in found}
        self.found[signature] = WatchedPods(signature, policy, policy.execution, found)

    def _state(self, compiled: CompiledConstraints, placed: PlacedPods) -> Hashable:
        """Equal while the result is the same. O(groups + nodes)."""
        view, spread = self._view, compiled.get(SpreadGroups)
        domains = view.domains.version if spread is not None and spread.reads_domains else 0
        room = view.placement_version if spread is not None and spread.reads_room else 0
        return compiled.serial, view.dependency_version(compiled), domains, room, hash(frozenset(placed.nodes.items()))

    def _drop(self, signature: PodSignature) -> None:
        self.found.pop(signature, None)
        self.since.pop(signature, None)
