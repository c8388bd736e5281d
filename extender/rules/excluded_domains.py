"""Topology domains that a spread constraint leaves out, by the directive `spread` of a policy.

1. An excluded domain takes no pod of the constraint. It does not count for the minimum that skew is measured against,
   nor for minDomains. An operator excludes it, or none of its nodes has taken pods for the time in the policy
   (`index/availability.py`).
2. With `fullDomains: Exclude` a domain does not count for the minimum of one decision if the pod fits on none of its
   nodes: by cordon, taints, node affinity, requests, and the number of pods, beside the pods that are on them or
   assumed.
3. `minDomains: Declared` requires as many domains as are declared for the topology key, without domains that the pod
   cannot use by its node affinity. Declared domains are known before any of their nodes exists.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from typing import Final

import msgspec

from extender.index.availability import DomainExclusion
from extender.index.counts.groups import SpreadGroupView
from extender.index.nodes.columns import Column, NodeNumber
from extender.index.nodes.domains import KeyView
from extender.index.view import ClusterView
from extender.model.answers.explanations import DomainState, LeftOutDomain
from extender.model.constraints.spread import SpreadConstraint
from extender.model.objects import Node, Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.model.resources import PODS, Resources
from extender.model.units import rfc3339
from extender.rules.frames import Frame
from extender.rules.free_resources import static_rejection

_MOST_DOMAINS: Final = 64  # for one kind of pods, with the node that has room
_NO_DOMAINS: Final[Mapping[str, DomainExclusion]] = {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a constraint leaves out for one pod."""

    # Excluded domains by value. Excluded domains with nodes, by number.
    excluded: Mapping[str, DomainExclusion] = field(default_factory=dict)
    numbers: Mapping[int, str] = field(default_factory=dict)
    # Excluded domains without an eligible node: no node exists, or the inclusion policies admit none; domains that the
    # pod cannot use by its node affinity are not listed.
    ineligible: Sequence[str] = ()
    # Whether the pod fits on no node of a domain; None if full domains are not excluded.
    is_full: Fullness | None = None

    def keeps(self, domain: int) -> bool:
        """Whether a domain counts for the minimum: it is neither excluded nor full."""
        return domain not in self.numbers and (self.is_full is None or not self.is_full(domain))

    def possible(self, group: SpreadGroupView) -> Collection[int]:
        """A copy of the eligible domains that are not known to be full. O(their number)."""
        return tuple(group.column.domains if self.is_full is None else self.is_full.left)

    def still_needed(self, needed: Collection[str] | int) -> int:
        """How many eligible domains minDomains requires. O(excluded domains).

        Excluded domains with an eligible node are included among the eligible domains, so only ``ineligible`` is
        subtracted.
        """
        if isinstance(needed, int):
            return needed - len(self.ineligible)
        return len(needed) - sum(domain in needed for domain in self.ineligible)

    def judged(self, state: DomainState) -> DomainState:
        """The state of a domain for an explanation: an excluded domain does not pass, whatever it counts."""
        return msgspec.structs.replace(state, passes=False) if state.domain in self.excluded else state

    def described(self, group: SpreadGroupView, most: int) -> Iterator[LeftOutDomain]:
        """The first domains that are left out, and why. O(domains) if full domains are excluded."""
        for domain, why in islice(self.excluded.items(), most):
            yield LeftOutDomain(domain=domain, why=why_excluded(why))
        if self.is_full is None:
            return
        others = (domain for domain in group.column.domains if domain not in self.numbers)
        for number in islice(filter(self.is_full, islice(others, _MOST_DOMAINS)), most):
            yield LeftOutDomain(domain=group.key.value(number), why="no node has room for the pod")


NOTHING_LEFT_OUT: Final = LeftOut()


def left_out(
    pod: Pod,
    signature: PodSignature,
    constraint: SpreadConstraint,
    group: SpreadGroupView,
    view: ClusterView,
    frame: Frame,
) -> LeftOut:
    """The domains that a constraint leaves out for a pod. O(excluded domains)."""
    rules, key = constraint.domains, group.key
    if rules is None or not group.key.key:
        return NOTHING_LEFT_OUT
    excluded: Mapping[str, DomainExclusion] = _NO_DOMAINS
    if rules.excludes_after is not None:
        # An operator's exclusion holds in any case. An unavailable domain becomes available by an available node in the
        # request.
        excluded = view.domains.excluded(constraint.topology_key, rules.excludes_after)
        if not frame.numbers_nodes:  # a node in the request may make a domain available
            excluded = {
                domain: why
                for domain, why in excluded.items()
                if why.by or not _has_available(frame.brought(key, domain))
            }
    numbers = {number: domain for domain in excluded if (number := key.number_of.get(domain)) is not None}
    ineligible = _ineligible(excluded, constraint, signature, group) if excluded else ()
    is_full = Fullness(pod, signature, group, view, frame) if rules.excludes_full else None
    return LeftOut(excluded, numbers, ineligible, is_full)


def _ineligible(
    excluded: Iterable[str], constraint: SpreadConstraint, signature: PodSignature, group: SpreadGroupView
) -> Sequence[str]:
    """Excluded domains without an eligible node that the pod may use. Otherwise minDomains would require them."""
    usable, number_of = _usable_domains(constraint, signature), group.key.number_of
    return [
        domain
        for domain in excluded
        if (usable is None or domain in usable) and not group.is_eligible_domain(number_of.get(domain, 0))
    ]


def _usable_domains(constraint: SpreadConstraint, signature: PodSignature) -> Collection[str] | None:
    """The domains that the pod may use by its node affinity; None for any domain."""
    return signature.node_affinity.values_of(constraint.topology_key) if constraint.honor_affinity else None


def _has_available(nodes: Iterable[Node]) -> bool:
    return any(node.unavailable_at is None for node in nodes)


def needed_domains(constraint: SpreadConstraint, signature: PodSignature, view: ClusterView) -> Collection[str] | int:
    """What minDomains requires: the declared domains if policies say so, else a number. O(declared domains)."""
    if constraint.domains is None or not constraint.domains.declared:
        return constraint.min_domains
    declared = view.domains.declared(constraint.topology_key)
    usable = _usable_domains(constraint, signature)
    return declared if usable is None else declared.intersection(usable)


_KEEPS: Final = 10
"""What a look-up of a domain's room counts in ``KeptCounts.reads``."""


class KeptCounts:
    """The smallest count over the domains that a constraint keeps, in many trials on one state of the index.

    It reads the counts when it is made, before the first trial. A trial changes the counts of few domains. So a minimum
    costs O(changed domains), beside the first one: O(domains × log). Domains are sorted, and are looked up for room,
    only as far as a minimum needs them.

    ``reads``: how many counts were read, for a caller with a budget.
    """

    __slots__ = ("_ascending", "_counts", "_first", "_out", "reads")

    def __init__(self, group: SpreadGroupView, out: LeftOut) -> None:
        self._out, self._counts = out, group.counts
        domains = out.possible(group)
        self.reads = len(domains)
        # Kept domains from the smallest count on, each with its count before the first trial. `_first`: domains that a
        # minimum has needed so far. `_ascending`: the rest, which are sorted and looked up when they are needed.
        self._first: list[tuple[int, int]] = []
        self._ascending = self._kept(domains, dict(group.counts))

    def least(self, changed: Collection[int]) -> int:
        """The smallest current count; 0 without a kept domain. ``changed``: all domains whose counts may have changed."""
        counts = [self._counts.get(domain, 0) for domain in changed if self._keeps(domain)]
        # The smallest count of a domain that no trial has changed is its count from before the first trial.
        for domain, count in self._in_order():
            if domain not in changed:
                counts.append(count)
                break
        return min(counts, default=0)

    def _in_order(self) -> Iterator[tuple[int, int]]:
        yield from self._first
        for kept in self._ascending:
            self._first.append(kept)
            yield kept

    def _kept(self, domains: Collection[int], counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        # Mostly a domain without a pod is found soon, and nothing is sorted.
        for domain in domains:
            if domain not in counts and self._keeps(domain):
                yield domain, 0
        self.reads += len(domains)
        for domain in sorted([domain for domain in domains if domain in counts], key=counts.__getitem__):
            if self._keeps(domain):
                yield domain, counts[domain]

    def _keeps(self, domain: int) -> bool:
        self.reads += _KEEPS
        return self._out.keeps(domain)


class NotExcluded(msgspec.Struct, frozen=True, gc=False):
    """The condition that a node is in no excluded domain."""

    rule: str
    key: KeyView
    domains: Column
    out: LeftOut
    frame: Frame
    reason: Reason = Reason.DOMAIN_EXCLUDED

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes in other domains. O(nodes)."""
        if self.frame.numbers_nodes:
            domains, numbers = self.domains, self.out.numbers
            return [node for node in nodes if domains[node] not in numbers]
        value, excluded = self.frame.value, self.out.excluded
        return [node for node in nodes if value(self.key, node) not in excluded]

    def rejection(self, position: int) -> Rejection:
        """Names the domain, and since when and why it is excluded."""
        domain = self.frame.value(self.key, position) or ""
        why = why_excluded(self.out.excluded[domain])
        return Rejection(self.rule, self.reason, topology_key=self.key.key, domain=domain, blamed=(f"{domain}: {why}",))


def why_excluded(exclusion: DomainExclusion) -> str:
    """Since when a domain is excluded, and why, for people."""
    since = rfc3339(datetime.fromtimestamp(exclusion.since, UTC))
    if not exclusion.by:
        return f"no node takes pods since {since}"
    until = f" until {rfc3339(datetime.fromtimestamp(exclusion.until, UTC))}" if isfinite(exclusion.until) else ""
    return f"excluded since {since}{until}: {exclusion.by}"


class Fullness:
    """Tells which domains are full for a pod: called with a domain, whether none of its eligible nodes has room.

    A domain is looked up when it is needed. The first look-up is O(its nodes), a later one O(1), because the index
    remembers three things (`index/full_domains.py`):

    1. domains that are full, until room becomes free there;
    2. for other domains the node that had room last: it is tried first;
    3. nodes without room, for the domains of all topology keys.
    """

    __slots__ = ("_frame", "_group", "_known", "_nodes", "_pod", "_view")

    def __init__(
        self, pod: Pod, signature: PodSignature, group: SpreadGroupView, view: ClusterView, frame: Frame
    ) -> None:
        self._pod, self._group, self._view, self._frame = pod, group, view, frame
        kind: Hashable = signature.node_affinity, signature.tolerations, frozenset(pod.requests.items())
        # Nodes without room are the same for each topology key. Domains also depend on which of their nodes are eligible.
        self._nodes = view.domains.full.of(kind)
        self._known = view.domains.full.of((group.key.key, group.column.inclusion, kind))
        total, version = view.domains.freed_total, view.nodes_version
        if self._known.total != total:
            freed = view.domains.freed_since(self._known.total) if self._known.total >= 0 else None
            domains = None if freed is None else self._domains_of(freed)
            self._known.refresh(total, domains, group.column.domains, version)
        if self._nodes.total != total:
            freed = view.domains.freed_since(self._nodes.total) if self._nodes.total >= 0 else None
            self._nodes.refresh(total, freed, {}, version)

    def _domains_of(self, numbers: Iterable[NodeNumber]) -> Iterator[int]:
        column, nodes = self._group.domain_of, len(self._view.node_names)
        return (column[number] for number in numbers if number < nodes)

    @property
    def left(self) -> Collection[int]:
        """The domains that are not known to be full."""
        return self._known.left

    def __call__(self, domain: int) -> bool:
        """Whether the domain is full: neither a node of the index nor a node in the request has room for the pod."""
        return not self._has_room_in(domain) and not any(map(self._takes, self._brought(domain)))

    def least(self, counts: Mapping[int, int], numbers: Container[int]) -> int:
        """The smallest count of a domain that has room and is not in ``numbers``; 0 without such a domain.

        O(domains that are not known to be full + nodes in the request).
        """
        least: int | None = None
        full: list[int] = []
        self._add_crowded_domains()
        for domain in tuple(self._known.left):
            count = counts.get(domain, 0)
            if (least is None or count < least) and domain not in numbers:
                if domain not in self._known.left:
                    continue  # recorded with all others of the crowded domains
                if not self._finds_room(domain):
                    full.append(domain)
                    if len(full) == _MOST_DOMAINS:
                        # A hostname has thousands. All nodes at once take a third of the time of each by itself.
                        self._look_at_every_node()
                        self._add_crowded_domains()
                    continue
                least = count
                if not count:
                    break
        self._view.domains.full.add(self._known, *full)
        # A domain that is full in the index has room if a new node in the request takes the pod.
        key, domains = self._group.key, self._group.column.domains
        for value in self._frame.brought_domains(key):
            domain = key.number_of.get(value, 0)
            count = counts.get(domain, 0)
            is_less = (least is None or count < least) and domain in domains and domain not in numbers
            if is_less and any(map(self._takes, self._brought(domain))):
                least = count
        return least or 0

    def _add_crowded_domains(self) -> None:
        """Records the domains in which every node is known to have no room, if there are many domains. O(nodes)."""
        crowded, known = self._nodes.full, self._known
        if len(known.left) > _MOST_DOMAINS and crowded:
            column = self._group.domain_of
            others = {column[number] for number in self._view.known.values() if number not in crowded}
            self._view.domains.full.add(known, *(known.left - others))

    def _look_at_every_node(self) -> None:
        """Records the nodes without room. O(nodes)."""
        crowded = self._nodes.full
        others = [number for number in self._view.known.values() if number not in crowded]
        self._view.domains.full.add(self._nodes, *[number for number in others if not self._is_free(number)])

    def _has_room_in(self, domain: int) -> bool:
        """Whether a node of the index has room for the pod in a domain. A full domain is remembered until room becomes free."""
        if domain in self._known.full:
            return False
        if self._finds_room(domain):
            return True
        self._view.domains.full.add(self._known, domain)
        return False

    def _finds_room(self, domain: int) -> bool:
        """Whether a node has room in a domain that is not known to be full. The caller records a full domain."""
        known, crowded = self._known, self._nodes.full
        # First the node that had room last: mostly it still has.
        last = known.fitting.get(domain)
        if last is not None and self._fits(domain, last):
            return True
        for number in self._group.key.nodes_in.get(domain, ()):
            if number not in crowded and self._fits(domain, number):
                # Remembered for a few domains only: a topology by hostname has thousands.
                if len(known.fitting) < _MOST_DOMAINS or domain in known.fitting:
                    known.fitting[domain] = number
                return True
        known.fitting.pop(domain, None)
        return False

    def _fits(self, domain: int, number: NodeNumber) -> bool:
        column = self._group.domain_of
        if number in self._nodes.full or number >= len(self._view.node_names) or column[number] != domain:
            return False  # number too large: it was the last node, which is deleted
        if self._is_free(number):
            return True
        self._view.domains.full.add(self._nodes, number)
        return False

    def _is_free(self, number: NodeNumber) -> bool:
        node = self._view.node(number)
        if node is None or node.allocatable.get(PODS, 0) - len(self._view.pods_on(number)) < 1:
            return False
        return self._has_room(node, self._view.requested(number))

    def _has_room(self, node: Node, requested: Resources) -> bool:
        offered = node.allocatable.get
        for name, amount in self._pod.requests.items():
            if amount > 0 and name != PODS and amount > offered(name, 0) - requested.get(name, 0):
                return False
        return static_rejection(self._pod, node) is None

    def _brought(self, domain: int) -> Iterator[Node]:
        key = self._group.key
        yield from () if self._frame.numbers_nodes else self._frame.brought(key, key.value(domain))

    def _takes(self, node: Node) -> bool:
        """For a node in the request. A node that the index knows has been checked already."""
        is_new = node.name not in self._view.known
        return is_new and node.allocatable.get(PODS, 0) > 0 and self._group.admits(node) and self._has_room(node, {})
