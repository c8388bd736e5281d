"""The choice of a domain for a pod group: the first domain, in the order of the policy's strategy, that holds all of its pods.

1. The search goes from the coarsest topology key to finer ones. Where a finer domain holds the group too, it is taken.
2. Domains that are equal to the strategy are ordered by the pods' preferences, then by name, so the choice is deterministic.
3. Domains that are single nodes are slots: `Strategy.BEST_FIT` orders them by filter's own score.
4. Within the domain the pods are placed by filter's own score (`verbs/release/scoring.py`).
5. The room is free when the last step ends. The caller reserves it before it awaits anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from types import MappingProxyType
from typing import Final, TypeAlias

from extender.index.nodes.columns import NodeNumber
from extender.index.trial import TrialSteps
from extender.index.view import ClusterView
from extender.model.bounded import at_once
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.node_affinity import node_selector
from extender.model.constraints.taints import Toleration
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason
from extender.model.release import (
    GroupKey,
    Level,
    NoRoom,
    Proposal,
    RejectedDomain,
    ReleaseSpec,
    Slot,
    Strategy,
)
from extender.rules.topology_spread import spread_groups
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.release.scoring import Scoring, best_nodes, preference_of
from extender.verbs.release.victims import MOST_DOMAINS, GroupDryRun, GroupRemoval, may_preempt
from extender.verbs.slots.placing import (
    NODES_A_STEP,
    Capacity,
    NodeRoom,
    RuleChecks,
    SlotAssignment,
    SlotSearch,
    VisitBudget,
    is_alone_on_its_node,
    is_unconstrained,
    kinds_of,
    most_frequent,
    place_equal,
    tolerations_of,
)

_MOST_TRIES: Final = 3  # tries of one proposal, where other pods took the room between its steps
MOST_REJECTED: Final = 16
"""How many rejected domains a proposal names, the domains that hold most first. A topology by hostname has thousands."""

Rooms: TypeAlias = Mapping[Hashable, Sequence[NodeRoom]]
"""By kind of pod the nodes of a domain, also nodes that hold no such pod."""


def _no_quota(_: Sequence[Level]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Rest:
    """The pods of a pod group that have no node yet and get one together.

    - ``siblings``: pods of the group that were released before.
    - ``levels``: the decided domain; None where it has to be chosen. With siblings it is the siblings' domain.
    - ``taken``: the domains of the policy's other groups, where each group gets a domain of its own.
    - ``excess``: a text about what would be above the quota of a domain of the first key; empty where nothing is.
    - ``preempts``: pods of lower priority may be removed where no domain holds the pods.
    """

    key: GroupKey
    release: ReleaseSpec
    pods: Sequence[Pod]
    siblings: Sequence[Pod] = ()
    levels: Sequence[Level] | None = None
    taken: Sequence[tuple[GroupKey, Sequence[Level]]] = ()
    excess: Callable[[Sequence[Level]], str] = _no_quota
    preempts: bool = False


def propose(rest: Rest, view: ClusterView, settings: Settings) -> Proposal:
    """As `propose_in_steps`, in one step.

    O(nodes × (terms + resources)) for equal pods without constraints; else also the search in each domain that is tried.
    """
    return at_once(propose_in_steps(rest, view, settings))


def propose_in_steps(rest: Rest, view: ClusterView, settings: Settings) -> TrialSteps[Proposal]:
    """Where the pods may go together, and why other domains do not hold them, in steps.

    The proposed slots have room at the end, whatever happened between the steps. Constraints were checked when each pod was tried;
    filter checks them again when the pod is scheduled.
    """
    if not rest.pods:
        return Proposal(tuple(rest.levels or ()))
    for _ in range(_MOST_TRIES):
        choice = _Choice(rest, view, settings)
        yield from choice.prepare()
        proposal = yield from (
            choice.in_decided(tuple(rest.levels)) if rest.levels is not None else choice.any_domain()
        )
        # Other pods may have taken the room between the steps. With victims the room is not free yet, so nothing can be
        # checked.
        if not proposal.slots or proposal.victims or choice.still_fit(proposal.slots):
            return proposal
    return Proposal(tuple(rest.levels or ()))


def _brought(rest: Rest) -> dict[str, tuple[Toleration, ...]]:
    """By value of a domain the tolerations that its pods get: as decided, else from the policy. O(values)."""
    release = rest.release
    levels = rest.levels[:1] if rest.levels is not None else map(release.level_of, release.domains)
    return {value: tolerations_of((level,)) for level in levels if level.tolerations for value in level.admitted}


class _Choice:
    def __init__(self, rest: Rest, view: ClusterView, settings: Settings) -> None:
        self._rest = rest
        self._view = view
        self._settings = settings
        self._pods: list[Pod] = []
        self._kinds: Mapping[str, Hashable] = {}
        self._counts: Mapping[Hashable, int] = {}
        self._examples: dict[Hashable, Pod] = {}
        self._brought = _brought(rest)
        self._capacity = self._capacity_of({pod.uid for pod in rest.pods})
        self._is_free = False
        self._budget = VisitBudget()
        self._rejected: list[RejectedDomain] = []

    def _capacity_of(self, own: Collection[str]) -> Capacity:
        return Capacity(self._view, own, self._rest.release.topology[0], self._brought)

    def prepare(self) -> TrialSteps[None]:
        """Finds the kinds of pods. O(pods + signatures × (policies + terms))."""
        for pod in self._rest.pods:
            self._pods.append(effective_pod(pod, self._view, self._settings))
            yield True
        self._kinds = yield from kinds_of(self._pods, self._view)
        self._counts = Counter(self._kinds.values())
        for pod in self._pods:
            self._examples.setdefault(self._kinds[pod.uid], pod)
        self._is_free = all(is_unconstrained(pod, self._view) for pod in self._examples.values())

    def still_fit(self, slots: Sequence[Slot]) -> bool:
        """Whether all slots still have room. O(slots + nodes × claims)."""
        by_node: dict[str, list[Pod]] = {}
        by_uid = {pod.uid: pod for pod in self._pods}
        for slot in slots:
            by_node.setdefault(slot.node, []).append(by_uid[slot.pod])
        capacity = self._capacity_of(by_uid.keys())
        return all(capacity.holds(name, pods) for name, pods in by_node.items())

    def in_decided(self, levels: tuple[Level, ...]) -> TrialSteps[Proposal]:
        """Slots in the decided domain, or why it does not hold the pods any more."""
        rooms = yield from self._all_rooms(levels)
        placed = yield from self._place(rooms, levels)
        if placed.slots or not levels:
            return Proposal(levels, (yield from self._by_score(placed, rooms, levels)))
        return Proposal(levels, rejected=(self._rejection(levels[-1], rooms, placed.most, placed.reasons),))

    def any_domain(self) -> TrialSteps[Proposal]:
        """The best domain that holds all pods; else what is possible without one."""
        # 1. A domain with room. The siblings' domain (``prefix``) is the only one if there are siblings; None: they share none.
        rooms, prefix = (yield from self._all_rooms()), self._siblings_domain()
        best = None
        if prefix is not None:
            best = yield from self._best((), rooms, self._rest.release.topology, prefix)
        yield True
        rejected = tuple(nsmallest(MOST_REJECTED, self._rejected, key=lambda domain: (-domain.holds, domain.domain)))
        if best is not None:
            return Proposal(best[0], best[1], rejected)
        # 2. What the policy says of a group without room, in its order.
        for action, _ in self._rest.release.no_room:
            if (proposal := (yield from self._without_room(action, rooms, prefix, rejected))) is not None:
                return proposal
        return Proposal(rejected=rejected)

    def _without_room(
        self, action: NoRoom, rooms: Rooms, prefix: Sequence[Level] | None, rejected: tuple[RejectedDomain, ...]
    ) -> TrialSteps[Proposal | None]:
        """What an action proposes; None if nothing."""
        match action:
            case NoRoom.GROWING_DOMAIN if prefix is not None and (growing := self._growing(prefix)) is not None:
                # Without slots, as the nodes do not exist yet.
                return Proposal((growing,), (), rejected)
            case NoRoom.PREEMPT if self._rest.preempts and prefix is not None:
                # The domain is decided later, when the victims have left.
                removal = yield from self._removal(rooms, prefix)
                if removal is not None:
                    victims = tuple(victim.uid for victim in removal.victims)
                    return Proposal((), removal.slots, rejected, victims)
            case NoRoom.SEVERAL_DOMAINS if not prefix:
                placed = yield from self._place(rooms, ())
                if placed.slots:
                    return Proposal((), (yield from self._by_score(placed, rooms, ())), rejected)
        return None

    def _best(
        self, path: tuple[Level, ...], rooms: Rooms, keys: Sequence[str], prefix: Sequence[Level]
    ) -> TrialSteps[tuple[tuple[Level, ...], tuple[Slot, ...]] | None]:
        """The first domain by the strategy that holds all pods: of the first key, or a finer one in it. None without any."""
        if not keys:
            return None
        # The first domain in order that passes three tests: the siblings are there; no other group has it, and its quota is not used
        # up; the pods fit. Then a finer domain in it is taken if one passes the same tests, else the domain itself.
        domains = self._holding_all(keys[0], rooms) if path else rooms
        yield True
        ordered = yield from self._ordered(keys[0], domains, is_first=not path)
        for level, there in ordered:
            yield True
            here = (*path, level)
            if prefix and prefix[0] != level:
                continue
            if (closed := self._closed(here)) is not None:
                self._reject(here, closed)
                continue
            # First the coarse domain as a whole: if the pods do not fit there, they fit in no part of it.
            placed = yield from self._place(there, here)
            if not placed.slots:
                if not path:
                    self._rejected.append(self._rejection(level, there, placed.most, placed.reasons))
                continue
            finer = yield from self._best(here, there, keys[1:], prefix[1:])
            if finer is not None:
                return finer
            # Siblings are in a finer domain of this one, and that domain has no room.
            if prefix[1:]:
                self._reject(here, self._rejection(level, there, 0, ()))
            elif (owner := self._taken(here, whole=True)) is not None:
                self._reject(here, RejectedDomain(level, len(self._pods), taken_by=str(owner)))
            else:
                return here, (yield from self._by_score(placed, there, here))
        return None

    def _removal(self, rooms: Rooms, prefix: Sequence[Level]) -> TrialSteps[GroupRemoval | None]:
        """The least important victims whose removal makes room for all pods in one domain. Only the first domains are tried."""
        if not may_preempt(self._pods, self._view, self._settings):
            return None
        key, removals = self._rest.release.topology[0], list[GroupRemoval]()
        ordered = yield from self._ordered(key, rooms, is_first=True)
        open_ = [
            (level, there)
            for level, there in ordered
            if (not prefix or prefix[0] == level)
            and self._closed((level,)) is None
            and self._taken((level,), whole=True) is None
        ]
        for level, there in open_[:MOST_DOMAINS]:
            checks = None if self._is_free else RuleChecks(self._view, self._narrowed((level,)))
            trial = GroupDryRun(self._view, self._settings, self._pods, self._kinds, checks)
            removal = yield from trial.in_domain(there)
            removals += [] if removal is None else [removal]
        return min(removals, key=lambda removal: removal.rank, default=None)

    def _closed(self, path: Sequence[Level]) -> RejectedDomain | None:
        """Why the group may not have a domain, whatever room it has: another group has it, or its quota is used up."""
        if (owner := self._taken(path, whole=False)) is not None:
            return RejectedDomain(path[-1], len(self._pods), taken_by=str(owner))
        excess = self._rest.excess(path) if len(path) == 1 else ""
        return RejectedDomain(path[-1], len(self._pods), excess=excess) if excess else None

    def _growing(self, prefix: Sequence[Level]) -> Level | None:
        """The policy's first domain to which nodes may be added and that the pods' node affinity admits. O(domains × values)."""
        release = self._rest.release
        affinities = [pod.signature.node_affinity for pod in self._examples.values()]
        admitted = [affinity.values_of(release.topology[0]) for affinity in affinities]
        for domain in release.domains:
            level = release.level_of(domain)
            is_open = domain.may_grow and (not prefix or prefix[0] == level) and self._closed((level,)) is None
            is_free = is_open and self._taken((level,), whole=True) is None
            if is_free and all(values is None or values & level.admitted for values in admitted):
                return level
        return None

    def _holding_all(self, key: str, rooms: Rooms) -> Rooms:
        """The nodes of a key's domains, without domains that have too little room for all pods. O(nodes).

        Used for finer keys only. For the coarsest key every domain is tried, because the proposal names the rejected domains.
        """
        common: set[str] | None = None
        for kind, kind_rooms in rooms.items():
            holds: dict[str, int] = {}
            for room in kind_rooms:
                node = self._view.node(room.number) if room.holds else None
                value = None if node is None else node.labels.get(key)
                if value is not None:
                    holds[value] = holds.get(value, 0) + room.holds
            enough = {value for value, most in holds.items() if most >= self._counts[kind]}
            # A domain must have room for each kind of pods. Kinds may compete for the same room, which `_place` finds
            # out.
            common = enough if common is None else common & enough
        if not common:
            return {}
        return {
            kind: [room for room in kind_rooms if self._value(room, key) in common]
            for kind, kind_rooms in rooms.items()
        }

    def _value(self, room: NodeRoom, key: str) -> str | None:
        node = self._view.node(room.number)
        return None if node is None else node.labels.get(key)

    def _ordered(self, key: str, rooms: Rooms, *, is_first: bool) -> TrialSteps[list[tuple[Level, Rooms]]]:
        """The domains of a key in the order of the strategy. If the policy lists domains, the first key has only these. O(nodes)."""
        release = self._rest.release
        listed = [release.level_of(domain) for domain in release.domains] if is_first else []
        level_of = {value: level for level in listed for value in level.admitted}
        domains: dict[Level, dict[Hashable, list[NodeRoom]]] = {level: {} for level in listed}
        # Nodes are grouped by value first, then values by level, because a level may have several values. Two plain loops: a topology by
        # hostname has as many values as nodes.
        for kind, kind_rooms in rooms.items():
            of_value: dict[str, list[NodeRoom]] = {}
            for at, room in enumerate(kind_rooms, start=1):
                if not at % NODES_A_STEP:
                    yield True
                node = self._view.node(room.number)
                value = None if node is None else node.labels.get(key)
                if value is None:
                    continue
                there = of_value.get(value)
                if there is None:
                    of_value[value] = [room]
                else:
                    there.append(room)
            for at, (value, nodes) in enumerate(of_value.items(), start=1):
                if not at % NODES_A_STEP:
                    yield True
                level = level_of.get(value) if listed else Level(key, value)
                if level is not None:
                    domains.setdefault(level, {}).setdefault(kind, []).extend(nodes)
        if listed and release.strategy is Strategy.IN_ORDER:
            return [(level, domains[level]) for level in listed]
        ranks = yield from (self._ranks_of_nodes(domains) if key == HOSTNAME else self._ranks(domains))
        items = list(domains.items())
        names = [level.value for level, _ in items]
        # Two sorts in two steps, because a topology by hostname has thousands of domains.
        order = sorted(range(len(items)), key=names.__getitem__)
        yield True
        order.sort(key=ranks.__getitem__)  # stable: equal domains stay in the order of their names
        yield True
        return [items[at] for at in order]

    def _ranks(self, domains: Mapping[Level, Rooms]) -> TrialSteps[list[tuple[float, float]]]:
        """The rank of each domain, the best first: the strategy's number, then the negative preference of the pods. O(nodes)."""
        strategy, ranks = self._rest.release.strategy, list[tuple[float, float]]()
        has_preferences = bool(self._view.soft_taints) or any(
            pod.signature.preferred_nodes for pod in self._examples.values()
        )
        for there in domains.values():
            if strategy in {Strategy.BEST_FIT, Strategy.IN_ORDER}:
                rank = self._times(there)
            else:
                share = self._free_share(there)
                rank = -share if strategy is Strategy.MOST_FREE else share
            yield True
            preferred = (yield from self._preference(there)) if has_preferences else 0.0
            ranks.append((rank, -preferred))
        return ranks

    def _preference(self, rooms: Rooms) -> TrialSteps[float]:
        """How much the pods prefer a domain."""
        total = 0.0
        for kind, count in self._counts.items():
            preference = yield from preference_of(self._examples[kind], count, rooms.get(kind, ()), self._view)
            total += preference * count
        return total

    def _ranks_of_nodes(self, domains: Mapping[Level, Rooms]) -> TrialSteps[list[tuple[float, float]]]:
        """The ranks of domains that are single nodes. `Strategy.BEST_FIT` orders them by filter's own score, because they are slots."""
        if self._rest.release.strategy is not Strategy.BEST_FIT:
            return (yield from self._ranks(domains))
        ranks = []
        rooms: dict[str, NodeRoom] = {}
        for there in domains.values():
            times = self._times(there)
            # Nodes that hold the group get rank 0 and their place by score below. The rest stay behind them, the
            # fullest first.
            ranks.append((1.0, times))
            if times >= 1:
                room = next(iter(there.values()))[0]
                rooms[room.name] = room
            yield True
        best = yield from best_nodes(self._pods, list(rooms.values()), self._view, self._settings)
        places = {name: place for place, name in enumerate(best)}
        for at, there in enumerate(domains.values()):
            first_rooms = next(iter(there.values()), ())
            if first_rooms and first_rooms[0].name in places:
                ranks[at] = (0.0, places[first_rooms[0].name])
        return ranks

    def _times(self, rooms: Rooms, lost: Mapping[Hashable, int] = MappingProxyType({})) -> float:
        """How many times the room of the domain is enough for all pods. The kind of pod with the least room counts.

        ``lost``: by kind, how many pods fewer the domain holds because of pods in doubt. Example: 8 workers need room and the domain
        holds 12 of them, 2 are lost: 1.25.
        """
        holds = {kind: sum(room.holds for room in rooms.get(kind, ())) - lost.get(kind, 0) for kind in self._counts}
        return min(holds[kind] / count for kind, count in self._counts.items())

    def _free_share(self, rooms: Rooms) -> float:
        return min(self._capacity.free_share(rooms.get(kind, ()), pod) for kind, pod in self._examples.items())

    def _all_rooms(self, levels: Sequence[Level] = ()) -> TrialSteps[Rooms]:
        rooms = {}
        for kind, pod in self._examples.items():
            rooms[kind] = yield from self._capacity.over(pod, levels)
            yield True
        return rooms

    def _place(self, rooms: Rooms, path: Sequence[Level]) -> TrialSteps[SlotAssignment]:
        """All pods on the nodes of a domain, if they fit there."""
        lost = {kind: self._capacity.lost_to_doubted(rooms.get(kind, ()), pod) for kind, pod in self._examples.items()}
        most = int(self._times(rooms, lost) * len(self._pods))
        # Arithmetic ends the search in most full domains: the rules are not asked.
        if most < len(self._pods):
            return SlotAssignment((), most)
        if self._is_free and len(self._examples) == 1:
            (only,) = rooms.values()
            return place_equal(self._pods, only)
        open_ = {kind: [room for room in kind_rooms if room.holds] for kind, kind_rooms in rooms.items()}
        checks = None if self._is_free else RuleChecks(self._view, self._narrowed(path))
        return (yield from SlotSearch(self._pods, self._kinds, open_, self._capacity, checks, self._budget).run())

    def _by_score(self, placed: SlotAssignment, rooms: Rooms, path: Sequence[Level]) -> TrialSteps[tuple[Slot, ...]]:
        """The slots by filter's own score. Where the pods do not fit that way, the slots as they were placed."""
        by_uid = {pod.uid: pod for pod in self._pods}
        pods = [by_uid[slot.pod] for slot in placed.slots]  # in the order of the search
        if not pods:
            return ()
        checks = None if self._is_free else RuleChecks(self._view, self._narrowed(path))
        scoring = Scoring(self._view, self._settings, pods, self._kinds, self._capacity, checks)
        return tuple((yield from scoring.run(rooms, path))) or placed.slots

    def _narrowed(self, path: Sequence[Level]) -> Mapping[PodSignature, PodSignature]:
        """By signature of a pod with spread constraints: its signature after the release into the domain."""
        signatures = [pod.signature for pod in self._examples.values()]
        return {
            signature: narrowed(signature, path)
            for signature in signatures
            if spread_groups(self._view.compiled(signature)).hard
        }

    def _taken(self, path: Sequence[Level], *, whole: bool) -> GroupKey | None:
        """The other group that has this domain or a coarser one; with ``whole`` the group that has this domain or a finer one in it."""
        if not self._rest.release.exclusive:
            return None
        for key, levels in self._rest.taken:
            # Example: another group has zone-a/rack-1. Then zone-a/rack-1 is taken, and so is zone-a as a whole;
            # zone-a/rack-2 is not.
            inner, outer = (levels, path) if whole else (path, levels)
            is_inside = len(inner) >= len(outer) > 0 and all(map(Level.meets, inner, outer))
            if key != self._rest.key and is_inside:
                return key
        return None

    def _siblings_domain(self) -> tuple[Level, ...] | None:
        """The levels that all released siblings share. Empty without siblings, None where they do not share the first level."""
        if not self._rest.siblings:
            return ()
        paths = [self._domain_of(pod) for pod in self._rest.siblings]
        shared: list[Level] = []
        # The common beginning of all paths. Siblings in rack-1 and rack-2 of zone-a share zone-a.
        for levels in zip(*paths, strict=False):
            if len(set(levels)) > 1:
                break
            shared.append(levels[0])
        return tuple(shared) or (None if any(paths) else ())

    def _domain_of(self, pod: Pod) -> list[Level]:
        """The levels to which a released pod is narrowed. Without any: the coarsest domain of its node."""
        release, nodes = self._rest.release, pod.signature.node_affinity
        number = self._view.known.get(pod.node)
        node = None if number is None else self._view.node(number)
        here = None if node is None else node.labels.get(release.topology[0])
        # As `release_patch` wrote it: a level of one value is in the node selector, several values are in the node affinity. A pod that
        # was released before its policy had a topology has neither, so its node counts.
        pinned = dict(nodes.node_selector)
        levels: list[Level] = []
        if release.domains:
            values = nodes.values_of(release.topology[0]) or (frozenset((here,)) if here is not None else frozenset())
            levels += [level for level in map(release.level_of, release.domains) if values and values <= level.admitted]
            pinned |= {} if levels or not values else {release.topology[0]: min(values)}
        for key in release.topology[len(levels) :]:
            if key not in pinned:
                break
            levels.append(Level(key, pinned[key]))
        if not levels and here is not None:
            levels.append(Level(release.topology[0], here))
        return levels

    def _reject(self, path: Sequence[Level], rejected: RejectedDomain) -> None:
        if len(path) == 1:
            self._rejected.append(rejected)

    def _rejection(self, domain: Level, rooms: Rooms, most: int, reasons: Sequence[tuple[str, int]]) -> RejectedDomain:
        """Why the domain does not hold the pods. ``reasons``: from a search; without one the reasons of the nodes are counted."""
        if not reasons:
            rejects: dict[NodeNumber, Reason] = {}  # each node once, by the first kind of pods that it rejects
            for kind, kind_rooms in rooms.items():
                if is_alone_on_its_node(self._examples[kind], self._view):
                    rejects = {room.number: room.reason or Reason.ANTI_AFFINITY for room in kind_rooms} | rejects
                else:
                    rejects = {room.number: room.reason for room in kind_rooms if room.reason is not None} | rejects
            reasons = most_frequent(Counter(reason.text for reason in rejects.values()))
        return RejectedDomain(domain, len(self._pods), most, tuple(reasons))


def narrowed(signature: PodSignature, levels: Sequence[Level]) -> PodSignature:
    """The signature after a release: bound to the levels by node selector or node affinity, with the tolerations of the levels.

    Examples: the level zone=a becomes the node selector `zone: a`. The level zone in (a, b) becomes a requirement of each term of the
    required node affinity, because a node selector has one value for a key.
    """
    nodes = signature.node_affinity
    # The pod's own node selector wins: it has the same value, because other domains have no room for the pod.
    pinned = {level.key: level.value for level in levels if not level.values} | dict(nodes.node_selector)
    for level in levels:
        nodes = nodes.within(level.key, level.values) if level.values else nodes
    more = tolerations_of(levels)
    made = replace(signature, node_affinity=replace(nodes, node_selector=node_selector(pinned)))
    return replace(made, tolerations=(*signature.tolerations, *more)) if more else made
