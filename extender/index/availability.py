"""Which topology domains are declared, and which are excluded: by an operator, or as none of their nodes takes pods.

1. A domain is unavailable while it has nodes and none of them takes pods (`Node.unavailable_at`: conditions, taints,
   cordons).
2. Each change of a node updates that, for the topology keys that policies direct to exclude (`policy_changed`). It
   costs O(labels of the node that are such keys).
3. Times change only in `step`. A task calls it when `due` says so, with the time. There a newly unavailable domain gets
   its time, and exclusions begin and end.
4. So a step is a change like any other. Recordings note it, and two indexes with the same changes exclude the same
   domains.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from extender.index.full_domains import FullDomainTable
from extender.index.nodes.topology import Topology
from extender.index.objects.changes import ChangeJournal, Subscribable, Subscribers
from extender.model.changes import DomainTimes
from extender.model.objects import MOST_TOPOLOGY_DOMAINS, Node, TopologyDomains
from extender.model.policies import Mode, Moment, Policy

_NO_DOMAINS: Final[frozenset[str]] = frozenset()
_MOST_FREED: Final = 1024  # nodes; a reader that asks less often must look at all nodes
_MOST_KEPT: Final = 256  # results, by topology key and duration


class DomainExclusion(NamedTuple):
    """Since when a domain is excluded, in seconds of the Unix epoch.

    ``by``: the reason; empty for an unavailable domain.

    ``until`` is infinite if no end is known.
    """

    since: float
    by: str = ""
    until: float = inf


Excluded = Mapping[str, DomainExclusion]
_NONE: Final[Excluded] = {}


class DomainsView:
    """What readers see."""

    # Notifies when a domain becomes excluded or returns, and when other domains are declared.
    changes: Subscribable

    def __init__(self) -> None:
        # Grows with whatever may change a result.
        self.version = 0
        # The time of the last step.
        self.now = 0.0
        self._declared: dict[str, frozenset[str]] = {}
        self._by_operator: dict[str, dict[str, DomainExclusion]] = {}
        self._tracked: dict[str, _Tracked] = {}
        self._kept: dict[tuple[str, float], tuple[int, Excluded]] = {}
        # Number of nodes where room may have become free, while a policy excludes full domains.
        self.freed_total = 0
        self._freed: deque[int] = deque(maxlen=_MOST_FREED)
        # What the rule has found out about that room, see `rules/excluded_domains.py`.
        self.full = FullDomainTable()

    def declared(self, topology_key: str) -> frozenset[str]:
        """The domains that are declared for a topology key. O(1)."""
        return self._declared.get(topology_key, _NO_DOMAINS)

    def excluded(self, topology_key: str, after: float) -> Excluded:
        """The domains that an operator excludes, or that have been unavailable for so many seconds.

        O(1) until something changes, then O(excluded domains).
        """
        version, excluded = self._kept.get((topology_key, after), (-1, _NONE))
        if version != self.version:
            excluded = self._find(topology_key, after)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[topology_key, after] = self.version, excluded
        return excluded

    def _find(self, topology_key: str, after: float) -> Excluded:
        tracked, latest = self._tracked.get(topology_key), self.now - after
        lost = {} if tracked is None else {domain: at for domain, at in tracked.since.items() if at <= latest}
        # If both exclude a domain, the operator's entry replaces the other: it has the reason, and perhaps an end.
        return {domain: DomainExclusion(at) for domain, at in lost.items()} | self._by_operator.get(topology_key, {})

    def freed_since(self, total: int) -> Sequence[int] | None:
        """The numbers of the nodes that changed, or that pods left, after ``freed_total`` was ``total``.

        None if forgotten.
        """
        new = self.freed_total - total
        # More nodes than the deque holds: the oldest have fallen out.
        if new > len(self._freed):
            return None
        return list(islice(reversed(self._freed), new)) if new else ()

    def names(self, most: int) -> dict[tuple[str, str], DomainExclusion]:
        """The first excluded domains by (topology key, value); unavailable ones by the shortest time of a policy."""
        exclusions: dict[tuple[str, str], DomainExclusion] = {}
        for key in sorted({*self._tracked, *self._by_operator}):
            after = self._tracked[key].after if key in self._tracked else ()
            for domain, why in self.excluded(key, after[0] if after else inf).items():
                if len(exclusions) == most:
                    return exclusions
                exclusions[key, domain] = why
        return exclusions

    def counts(self) -> dict[str, int]:
        """How many domains are excluded: ``operator``; ``unavailable``: for the shortest time of a policy."""
        by_operator = sum(map(len, self._by_operator.values()))
        lost = sum(
            sum(at + tracked.after[0] <= self.now for at in tracked.since.values())
            for tracked in self._tracked.values()
        )
        return {"unavailable": lost, "operator": by_operator}


class _Tracked:
    """The nodes of one topology key by domain, and how many of them take pods."""

    __slots__ = ("after", "new", "nodes", "since", "usable", "uses")

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()
        self.usable: Counter[str] = Counter()
        # Since when each unavailable domain is unavailable.
        self.since: dict[str, float] = {}
        # Unavailable domains without such a time yet, and whether each was available before.
        self.new: dict[str, bool] = {}
        self.uses: Counter[float] = Counter()
        # The durations in policies, sorted.
        self.after: list[float] = []

    def count(self, domain: str, sign: int, *, is_usable: bool) -> float | None:
        """Adds or removes a node. If that makes its domain available, returns since when it was unavailable. O(1)."""
        was_usable = self.usable[domain] > 0
        self.nodes[domain] += sign
        self.usable[domain] += sign * is_usable
        if self.usable[domain] > 0:
            self.new.pop(domain, None)
            return self.since.pop(domain, None)
        # Without nodes a domain is neither available nor unavailable.
        if self.nodes[domain] <= 0:
            for table in (self.nodes, self.usable, self.new):
                table.pop(domain, None)
            return self.since.pop(domain, None)
        # Newly unavailable: the next step gives it a time.
        if domain not in self.since and domain not in self.new:
            self.new[domain] = was_usable
        return None

    def next_after(self, now: float) -> float:
        """When the next exclusion begins. O(unavailable domains × log(durations))."""
        earliest = inf
        # A set, because the domains of one outage mostly share a time.
        for at in set(self.since.values()):
            # Policies may wait for 60 s and for 300 s. A domain that is lost for 100 s has passed the first, so 300 s
            # is next.
            place = bisect_right(self.after, now - at)
            if place < len(self.after):
                earliest = min(earliest, at + self.after[place])
        return earliest

    def begins(self, before: float, now: float) -> bool:
        """Whether any exclusion begins between these times."""
        return any(
            bisect_right(self.after, now - at) > bisect_right(self.after, before - at)
            for at in set(self.since.values())
        )


class DomainTable(DomainsView):
    """The TopologyDomains, and the domains of the keys that policies direct to exclude. ``objects`` are by name."""

    changes: Subscribers[None]

    def __init__(self, topology: Topology, journal: ChangeJournal) -> None:
        super().__init__()
        self.objects: dict[str, TopologyDomains] = {}
        self.changes = Subscribers()
        self._topology = topology
        self._journal = journal
        self.follows_room = 0  # how many directives exclude full domains
        self._is_unapplied = False  # exclusions of objects that wait for a step
        self._earlier: dict[tuple[str, str], float] = {}  # times from a recording, of keys that are not tracked yet

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self, new: TopologyDomains, *, is_gone: bool) -> bool:
        """Sets or removes an object; False if nothing changed. Its exclusions begin with the next step.

        O(domains of `used`).
        """
        if (None if is_gone else new) == self.objects.get(new.name):
            return False
        if is_gone:
            del self.objects[new.name]
        else:
            self.objects[new.name] = new
        # Several objects may declare domains of one topology key: the key has all of them.
        declared: dict[str, set[str]] = {}
        for obj in self.used():
            declared.setdefault(obj.topology_key, set()).update(obj.domains)
        self._declared = {key: frozenset(domains) for key, domains in declared.items()}
        self._end_exclusions()
        self._is_unapplied = True
        self._changed()
        return True

    def used(self) -> list[TopologyDomains]:
        """The first objects by name. Others are ignored, because each change visits all that are used."""
        return [self.objects[name] for name in sorted(self.objects)[:MOST_TOPOLOGY_DOMAINS]]

    def _end_exclusions(self) -> None:
        """Exclusions that no object has any more end at once."""
        kept = {(obj.topology_key, excluded.domain) for obj in self.used() for excluded in obj.excluded}
        for key, exclusions in list(self._by_operator.items()):
            remaining = {domain: exclusion for domain, exclusion in exclusions.items() if (key, domain) in kept}
            if remaining:
                self._by_operator[key] = remaining
            else:
                del self._by_operator[key]

    def policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        """A policy was added, changed or deleted.

        O(nodes) for the first that excludes domains of a key, else O(directives).
        """
        self._direct(new, 1)  # the new policy first, so that a key of both keeps its times
        self._direct(old, -1)

    def _direct(self, policy: Policy | None, sign: int) -> None:
        if policy is None or policy.mode is not Mode.ENFORCE or not policy.acts(Moment.SCHEDULING):
            return
        for directive in policy.directives.spread:
            self._follow_room(sign * directive.excludes_full)
            if directive.excludes_after is None:
                continue
            tracked = self._tracked.get(directive.topology_key)
            if tracked is None:
                tracked = self._tracked[directive.topology_key] = self._track(directive.topology_key)
            tracked.uses[directive.excludes_after] += sign
            # The first policy with this duration, or the last one.
            if tracked.uses[directive.excludes_after] == sign == 1:
                insort(tracked.after, directive.excludes_after)
            elif not tracked.uses[directive.excludes_after]:
                del tracked.uses[directive.excludes_after]
                tracked.after.remove(directive.excludes_after)
            if not tracked.uses:
                del self._tracked[directive.topology_key]
            self.version += 1

    def _follow_room(self, more: int) -> None:
        self.follows_room += more
        if not self.follows_room:
            self.freed_total += len(self._freed) + 1  # every earlier reader must look at all nodes again
            self._freed.clear()
            self.full.clear()

    def freed(self, number: int) -> None:
        """A node changed, or a pod left it. O(1)."""
        self.freed_total += 1
        self._freed.append(number)

    def _track(self, key: str) -> _Tracked:
        tracked = _Tracked()
        for node in self._topology.nodes:
            if node is not None and (domain := node.labels.get(key)) is not None:
                tracked.count(domain, 1, is_usable=node.unavailable_at is None)
        for domain in [domain for domain in tracked.new if (key, domain) in self._earlier]:
            tracked.since[domain] = self._earlier.pop((key, domain))
            del tracked.new[domain]
        return tracked

    def node_changed(self, number: int, old: Node | None, new: Node | None) -> None:
        """A node was added, changed or deleted, and all else has been updated. O(tracked keys)."""
        if self.follows_room:
            self.freed(number)
        if not self._tracked:
            return
        returned = False
        for key, tracked in self._tracked.items():
            before = None if old is None else old.labels.get(key)
            after = None if new is None else new.labels.get(key)
            usable = [node is not None and node.unavailable_at is None for node in (old, new)]
            # Most changes of a node concern neither its domain nor whether it takes pods.
            if (before, usable[0]) == (after, usable[1]):
                continue
            # The new domain first: relabelled within one domain, its only node would make the domain forgotten.
            if after is not None:
                at = tracked.count(after, 1, is_usable=usable[1])
                returned |= at is not None
            if before is not None:
                at = tracked.count(before, -1, is_usable=usable[0])
                returned |= at is not None
        if returned:
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.changes.notify(None, None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """When `step` must be called next: -inf for now, inf for never. O(unavailable domains + excluded domains)."""
        if self._is_unapplied or any(tracked.new for tracked in self._tracked.values()):
            return -inf
        ends = (exclusion.until for exclusions in self._by_operator.values() for exclusion in exclusions.values())
        return min([inf, *ends, *(tracked.next_after(self.now) for tracked in self._tracked.values())])

    def step(self, now: float, jumped: float = 0.0) -> None:
        """Applies a time, in seconds of the Unix epoch. O(domains), or O(nodes) if new domains were never available.

        ``jumped``: how many seconds of the time since the last step have not really passed, because the clock was set.
        Measured times are moved by as many, so that domains stay unavailable for as long as before. Otherwise time
        never goes back.
        """
        # Without a known jump a clock that goes back is ignored.
        if not jumped:
            now = max(now, self.now)
        # Noted before it is applied: a replay applies the noted step through the same `restore`.
        times = [*(self._moved(jumped) if jumped else ()), *self._times(now)]
        if self._journal.note is not None:
            self._journal.note(DomainTimes(now, tuple(times)))
        self.restore(now, times)

    def _moved(self, seconds: float) -> Iterator[tuple[str, str, float]]:
        for key, tracked in self._tracked.items():
            yield from ((key, domain, at + seconds) for domain, at in tracked.since.items())

    def _times(self, now: float) -> Iterator[tuple[str, str, float]]:
        """Since when each new unavailable domain is unavailable: now, or if it never was available, by its nodes."""
        unknown = {
            key: {domain for domain, was in tracked.new.items() if not was} for key, tracked in self._tracked.items()
        }
        unknown = {key: domains for key, domains in unknown.items() if domains}
        latest: dict[tuple[str, str], float] = {}
        for node in self._topology.nodes if unknown else ():
            if node is None or node.unavailable_at is None:
                continue
            for key, domains in unknown.items():
                domain = node.labels.get(key)
                if domain in domains:
                    # The domain became unavailable with its last node, so the latest time of its nodes counts.
                    latest[key, domain] = max(latest.get((key, domain), 0.0), node.unavailable_at)
        for key, tracked in self._tracked.items():
            # `min`: a cordon has no time (inf), and the clock that wrote a condition may be ahead of this clock.
            yield from ((key, domain, min(now, latest.get((key, domain), now))) for domain in tracked.new)

    def restore(self, now: float, times: Iterable[tuple[str, str, float]]) -> None:
        """Applies a recorded step: (topology key, domain, time) for each domain that became unavailable."""
        before, self.now = self.now, now
        is_changed = any(tracked.begins(before, self.now) for tracked in self._tracked.values())
        for key, domain, at in times:
            tracked = self._tracked.get(key)
            if tracked is None:
                self._earlier[key, domain] = at
            elif tracked.nodes[domain] and not tracked.usable[domain]:
                tracked.new.pop(domain, None)
                tracked.since[domain] = at
                is_changed |= bool(tracked.after) and at + tracked.after[0] <= self.now
        is_changed |= self._apply_exclusions()
        self._is_unapplied = False
        self.version += 1
        if is_changed:
            self.changes.notify(None, None)

    def _apply_exclusions(self) -> bool:
        """Begins and ends exclusions of operators; returns whether any did.

        If two objects exclude one domain, the later end counts.
        """
        exclusions: dict[str, dict[str, DomainExclusion]] = {}
        for obj in self.used():
            for excluded in obj.excluded:
                until = inf if excluded.until is None else excluded.until
                here = exclusions.setdefault(obj.topology_key, {})
                already = here.get(excluded.domain)
                # An exclusion that is over is not entered, so each step also ends exclusions.
                if until > self.now and (already is None or until > already.until):
                    by = excluded.reason or f"TopologyDomains {obj.name}"
                    here[excluded.domain] = DomainExclusion(
                        self.now if excluded.since is None else excluded.since, by, until
                    )
        exclusions = {key: here for key, here in exclusions.items() if here}
        before = {key: here.keys() for key, here in self._by_operator.items()}
        is_changed = before != {key: here.keys() for key, here in exclusions.items()}
        self._by_operator = exclusions
        return is_changed

    def times(self) -> DomainTimes:
        """The state as a change; for a recording."""
        times = ((key, domain, at) for key, tracked in self._tracked.items() for domain, at in tracked.since.items())
        return DomainTimes(self.now, tuple(times))

    def wrong_counts(self) -> list[str]:
        """The differences from a recount; for the audit. O(nodes × tracked keys)."""
        return [
            f"topology key {key}: the nodes of domains, or the usable nodes, are counted wrongly"
            for key, tracked in self._tracked.items()
            # Unary plus drops counts of 0, which the running counters may hold and fresh ones do not.
            if (fresh := self._track(key)).nodes != +tracked.nodes
            or +fresh.usable != +tracked.usable
            or fresh.new.keys() != tracked.new.keys() | tracked.since.keys()
        ]

    def statistics(self) -> dict[str, int]:
        """How many are kept."""
        return {"topology_domains": len(self.objects), "tracked_topology_keys": len(self._tracked)}
