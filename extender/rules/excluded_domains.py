"""Topology domains that a spread constraint leaves out by the directive `spread` of a policy, and what then is its minimum.

An excluded domain takes no pod of the constraint, is no part of the minimum that skew is measured against, and is not waited
for by minDomains. It is excluded by an operator, or because none of its nodes has taken any pod for the time that the policy
says (`index/availability.py`). With `fullDomains: Exclude` a domain is left out of the minimum of one decision if the
pod fits none of its nodes: by cordon, taints, node affinity, requests, and the number of pods, beside the pods that are on them or assumed there.

`minDomains: Declared` asks for as many domains as are declared for the topology key, of those that the pod may use by its node
affinity, known before any node of them exists.
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

_MOST_DOMAINS: Final = 64  # of a kind of pods, with the node that has room
_FULL: Final = -1
_NO_DOMAINS: Final[Mapping[str, DomainExclusion]] = {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a constraint leaves out for one pod. ``excluded`` are domains by value, ``numbers`` those with nodes by number.

    ``ineligible`` are excluded domains without an eligible node: they have no node, or none that the inclusion policies admit.
    A domain that the pod cannot use by its node affinity is not among them. ``is_full`` tells of a domain that the pod fits
    none of its nodes; None where full domains are kept.
    """

    excluded: Mapping[str, DomainExclusion] = field(default_factory=dict)
    numbers: Mapping[int, str] = field(default_factory=dict)
    ineligible: Sequence[str] = ()
    is_full: Fullness | None = None

    def least(self, group: SpreadGroupView, frame: Frame) -> int:
        """The smallest count over the eligible domains that are left, 0 where none is. O(domains that are left out + counts)."""
        if self.is_full is None and not self.excluded:
            return frame.least(group)
        if frame.eligible_domains(group, self.excluded) > group.domains:
            return 0  # a domain of the request, without a pod
        counts, domains = frame.satisfying(group), group.column.domains
        if self.is_full is not None and frame.numbers_nodes:
            return self.is_full.least(counts, self.numbers)
        if len(domains) > len(counts) and any(self._counts(each) for each in domains if each not in counts):
            return 0
        levels: Iterable[tuple[int, Collection[int]]]
        if counts is group.counts:
            levels = sorted(group.levels.items())
        else:
            levels = sorted((count, (domain,)) for domain, count in counts.items())
        return next((count for count, those in levels if any(self._counts(each) for each in those)), 0)

    def _counts(self, domain: int) -> bool:
        return domain not in self.numbers and (self.is_full is None or not self.is_full(domain))

    def still_needed(self, needed: Collection[str] | int) -> int:
        """How many eligible domains minDomains waits for. O(excluded domains).

        An excluded domain that is eligible is among the eligible ones already.
        """
        if isinstance(needed, int):
            return needed - len(self.ineligible)
        return len(needed) - sum(domain in needed for domain in self.ineligible)

    def judged(self, state: DomainState) -> DomainState:
        """A domain for an explanation: one that is excluded does not pass, whatever it counts."""
        return msgspec.structs.replace(state, passes=False) if state.domain in self.excluded else state

    def described(self, group: SpreadGroupView, most: int) -> Iterator[LeftOutDomain]:
        """The first domains that are left out, and why. O(domains) where full domains are."""
        for domain, why in islice(self.excluded.items(), most):
            yield LeftOutDomain(domain=domain, why=why_excluded(why))
        if self.is_full is None:
            return
        others = (each for each in group.column.domains if each not in self.numbers)
        for each in islice(filter(self.is_full, islice(others, _MOST_DOMAINS)), most):
            yield LeftOutDomain(domain=group.key.value(each), why="no node has room for the pod")


NOTHING_LEFT_OUT: Final = LeftOut()


def left_out(
    pod: Pod,
    signature: PodSignature,
    constraint: SpreadConstraint,
    group: SpreadGroupView,
    view: ClusterView,
    frame: Frame,
) -> LeftOut:
    """What a constraint leaves out for a pod. O(excluded domains)."""
    rules, key = constraint.domains, group.key
    if rules is None or not group.key.key:
        return NOTHING_LEFT_OUT
    found: Mapping[str, DomainExclusion] = _NO_DOMAINS
    if rules.excludes_after is not None:
        found = view.domains.excluded(constraint.topology_key, rules.excludes_after)
        if not frame.numbers_nodes:  # a node that the request brings along may be what makes a domain available
            found = {each: why for each, why in found.items() if why.by or not _has_available(frame.brought(key, each))}
    numbers = {number: each for each in found if (number := key.number_of.get(each)) is not None}
    ineligible = _ineligible(found, constraint, signature, group) if found else ()
    is_full = Fullness(pod, signature, group, view, frame) if rules.excludes_full else None
    return LeftOut(found, numbers, ineligible, is_full)


def _ineligible(
    excluded: Iterable[str], constraint: SpreadConstraint, signature: PodSignature, group: SpreadGroupView
) -> Sequence[str]:
    """Those without an eligible node that the pod may use: minDomains would wait for such a domain."""
    usable, number_of = _usable_domains(constraint, signature), group.key.number_of
    return [
        domain
        for domain in excluded
        if (usable is None or domain in usable) and not group.is_eligible_domain(number_of.get(domain, 0))
    ]


def _usable_domains(constraint: SpreadConstraint, signature: PodSignature) -> Collection[str] | None:
    """The domains that the pod may use by its node affinity, None for any."""
    return signature.node_affinity.values_of(constraint.topology_key) if constraint.honor_affinity else None


def _has_available(nodes: Iterable[Node]) -> bool:
    return any(node.unavailable_at is None for node in nodes)


def needed_domains(constraint: SpreadConstraint, signature: PodSignature, view: ClusterView) -> Collection[str] | int:
    """What minDomains asks for: the declared domains, where policies say so, else a number. O(declared domains)."""
    if constraint.domains is None or not constraint.domains.declared:
        return constraint.min_domains
    declared = view.domains.declared(constraint.topology_key)
    usable = _usable_domains(constraint, signature)
    return declared if usable is None else declared.intersection(usable)


class NotExcluded(msgspec.Struct, frozen=True, gc=False):
    """The clause that a node is in no domain that is excluded."""

    rule: str
    key: KeyView
    domains: Column
    out: LeftOut
    frame: Frame
    reason: Reason = Reason.DOMAIN_EXCLUDED

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """Those in other domains. O(nodes)."""
        if self.frame.numbers_nodes:
            domains, numbers = self.domains, self.out.numbers
            return [node for node in nodes if domains[node] not in numbers]
        value, excluded = self.frame.value, self.out.excluded
        return [node for node in nodes if value(self.key, node) not in excluded]

    def rejection(self, position: int) -> Rejection:
        """Names the domain, since when it is excluded, and why."""
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
    """Whether a pod fits no eligible node of a domain, looked up for each domain that is asked about.

    A node that fits is remembered with the domain, and so is that none does until room becomes free there: see
    `index/full_domains.py`. The first look at a domain is O(its nodes), a later one O(1).
    """

    __slots__ = ("_frame", "_group", "_known", "_nodes", "_pod", "_signature", "_view")

    def __init__(
        self, pod: Pod, signature: PodSignature, group: SpreadGroupView, view: ClusterView, frame: Frame
    ) -> None:
        self._pod, self._signature, self._group, self._view, self._frame = pod, signature, group, view, frame
        kind: Hashable = signature.node_affinity, signature.tolerations, frozenset(pod.requests.items())
        self._nodes = view.domains.full.of(kind)  # which nodes have no room is the same for each topology key
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

    def __call__(self, domain: int) -> bool:
        """Whether it fits none, not even one that the request brings along."""
        return self._lacks_room(domain) and not any(map(self._takes, self._brought(domain)))

    def least(self, counts: Mapping[int, int], numbers: Container[int]) -> int:
        """The smallest count of a domain of the index that has room and is none of ``numbers``, 0 where none has.

        O(domains that are not known to be full).
        """
        least: int | None = None
        for domain in tuple(self._known.left):
            count = counts.get(domain, 0)
            if (least is None or count < least) and domain not in numbers and not self._lacks_room(domain):
                if not count:
                    return 0
                least = count
        return least or 0

    def _lacks_room(self, domain: int) -> bool:
        known = self._known
        if domain in known.full:
            return True
        number = known.fitting.get(domain, _FULL)
        if number != _FULL and self._fits(domain, number):
            return False
        number, crowded = _FULL, self._nodes.full
        for node in self._group.key.nodes_in.get(domain, ()):
            if node not in crowded and self._fits(domain, node):
                number = node
                break
        if number == _FULL:
            known.fitting.pop(domain, None)
            self._view.domains.full.add(known, domain)
        elif len(known.fitting) < _MOST_DOMAINS or domain in known.fitting:
            known.fitting[domain] = number
        return number == _FULL

    def _fits(self, domain: int, number: NodeNumber) -> bool:
        column = self._group.domain_of
        if number in self._nodes.full or number >= len(self._view.node_names) or column[number] != domain:
            return False  # beyond the end: it may have been the last one, and be gone
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
        """Of a node of the request: one that the index knows has been looked at."""
        is_new = node.name not in self._view.known
        return is_new and node.allocatable.get(PODS, 0) > 0 and self._group.admits(node) and self._has_room(node, {})
