"""Which topology domains are declared, and which are excluded: by an operator, or because no node of them takes any pod.

A domain is unavailable while it has nodes and none of them takes pods (`Node.unavailable_at`: conditions, taints, cordons). That
is counted with each change of a node, for the topology keys that policies direct to exclude (`policy_changed`): a node costs O(those
of its labels that are such keys). It returns at once. What takes time happens in `step`, which a task calls with the time when
`due` says so, and nowhere else: there a domain that has become unavailable gets its time, and exclusions begin and end. So a
step is a change like any other, which recordings note, and two indexes with the same changes exclude the same.
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
_MOST_FREED: Final = 1024  # nodes; who has not asked for longer looks at all of them
_MOST_KEPT: Final = 256  # answers for a topology key and a duration


class DomainExclusion(NamedTuple):
    """Since when a domain is excluded, in seconds of the Unix epoch. ``by``: who said so; empty where it is unavailable.

    ``until`` is infinite without an end that is known.
    """

    since: float
    by: str = ""
    until: float = inf


Excluded = Mapping[str, DomainExclusion]
_NONE: Final[Excluded] = {}


class DomainsView:
    """What readers see. ``version`` grows with whatever may change an answer, ``now`` is the time of the last step.

    Subscribers of ``changes`` are told when a domain becomes excluded or returns, and when other domains are declared.
    ``freed_total`` counts the nodes on which room may have become free, while a policy excludes full domains. ``full`` has what
    the rule found out about that room, see `rules/excluded_domains.py`.
    """

    changes: Subscribable

    def __init__(self) -> None:
        self.version = 0
        self.now = 0.0
        self._declared: dict[str, frozenset[str]] = {}
        self._by_operator: dict[str, dict[str, DomainExclusion]] = {}
        self._tracked: dict[str, _Tracked] = {}
        self._kept: dict[tuple[str, float], tuple[int, Excluded]] = {}
        self.freed_total = 0
        self._freed: deque[int] = deque(maxlen=_MOST_FREED)
        self.full = FullDomainTable()

    def declared(self, topology_key: str) -> frozenset[str]:
        """The domains that are declared for a topology key. O(1)."""
        return self._declared.get(topology_key, _NO_DOMAINS)

    def excluded(self, topology_key: str, after: float) -> Excluded:
        """The domains that are excluded by an operator, or that have been unavailable for so many seconds.

        O(1) until something changes, then O(excluded domains).
        """
        version, found = self._kept.get((topology_key, after), (-1, _NONE))
        if version != self.version:
            found = self._find(topology_key, after)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[topology_key, after] = self.version, found
        return found

    def _find(self, topology_key: str, after: float) -> Excluded:
        tracked, latest = self._tracked.get(topology_key), self.now - after
        lost = {} if tracked is None else {each: at for each, at in tracked.since.items() if at <= latest}
        return {each: DomainExclusion(at) for each, at in lost.items()} | self._by_operator.get(topology_key, {})

    def freed_since(self, total: int) -> Sequence[int] | None:
        """The numbers of nodes that changed, or that pods have left, since so many had; None where they are no longer known."""
        new = self.freed_total - total
        if new > len(self._freed):
            return None
        return list(islice(reversed(self._freed), new)) if new else ()

    def names(self, most: int) -> dict[tuple[str, str], DomainExclusion]:
        """The first excluded domains by topology key and value: unavailable for the shortest time of any policy, or by an operator."""
        found: dict[tuple[str, str], DomainExclusion] = {}
        for key in sorted({*self._tracked, *self._by_operator}):
            after = self._tracked[key].after if key in self._tracked else ()
            for domain, why in self.excluded(key, after[0] if after else inf).items():
                if len(found) == most:
                    return found
                found[key, domain] = why
        return found

    def counts(self) -> dict[str, int]:
        """How many domains are excluded, by why: ``unavailable`` for the shortest time of any policy, or ``operator``."""
        by_operator = sum(map(len, self._by_operator.values()))
        lost = sum(sum(at + each.after[0] <= self.now for at in each.since.values()) for each in self._tracked.values())
        return {"unavailable": lost, "operator": by_operator}


class _Tracked:
    """The nodes of one topology key by domain, and how many of them take pods.

    ``since`` has the domains that are unavailable with the time from which on, ``new`` those without one yet, and whether one
    was available before. ``after`` has the durations of the policies, sorted.
    """

    __slots__ = ("after", "new", "nodes", "since", "usable", "uses")

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()
        self.usable: Counter[str] = Counter()
        self.since: dict[str, float] = {}
        self.new: dict[str, bool] = {}
        self.uses: Counter[float] = Counter()
        self.after: list[float] = []

    def count(self, domain: str, sign: int, *, is_usable: bool) -> float | None:
        """Adds a node or takes it away; returns since when the domain was unavailable where it is not any more. O(1)."""
        was_usable = self.usable[domain] > 0
        self.nodes[domain] += sign
        self.usable[domain] += sign * is_usable
        if self.usable[domain] > 0:
            self.new.pop(domain, None)
            return self.since.pop(domain, None)
        if self.nodes[domain] <= 0:
            for table in (self.nodes, self.usable, self.new):
                table.pop(domain, None)
            return self.since.pop(domain, None)
        if domain not in self.since and domain not in self.new:
            self.new[domain] = was_usable
        return None

    def next_after(self, now: float) -> float:
        """When the next exclusion begins. O(unavailable domains × log(durations))."""
        found = inf
        for at in set(self.since.values()):
            place = bisect_right(self.after, now - at)
            if place < len(self.after):
                found = min(found, at + self.after[place])
        return found

    def begins(self, before: float, now: float) -> bool:
        """Whether any exclusion begins between two times."""
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

    # -- changes --------------------------------------------------------------------------------------------------------

    def change(self, new: TopologyDomains, *, is_gone: bool) -> bool:
        """Sets or removes an object; False where nothing changed. What it excludes begins with the next step. O(domains of `used`)."""
        if (None if is_gone else new) == self.objects.get(new.name):
            return False
        if is_gone:
            del self.objects[new.name]
        else:
            self.objects[new.name] = new
        declared: dict[str, set[str]] = {}
        for each in self.used():
            declared.setdefault(each.topology_key, set()).update(each.domains)
        self._declared = {key: frozenset(found) for key, found in declared.items()}
        self._end_exclusions()
        self._is_unapplied = True
        self._changed()
        return True

    def used(self) -> list[TopologyDomains]:
        """The first objects by name, which alone are read: each change looks at all of them."""
        return [self.objects[name] for name in sorted(self.objects)[:MOST_TOPOLOGY_DOMAINS]]

    def _end_exclusions(self) -> None:
        """Those that no object has any more end at once."""
        kept = {(each.topology_key, found.domain) for each in self.used() for found in each.excluded}
        for key, found in list(self._by_operator.items()):
            left = {domain: each for domain, each in found.items() if (key, domain) in kept}
            if left:
                self._by_operator[key] = left
            else:
                del self._by_operator[key]

    def policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        """A policy came, changed or went. O(nodes) for the first that excludes domains of a key, else O(its directives)."""
        self._direct(new, 1)  # first: a key that both have keeps its times
        self._direct(old, -1)

    def _direct(self, policy: Policy | None, sign: int) -> None:
        if policy is None or policy.mode is not Mode.ENFORCE or not policy.acts(Moment.SCHEDULING):
            return
        for each in policy.directives.spread:
            self._follow_room(sign * each.excludes_full)
            if each.excludes_after is None:
                continue
            tracked = self._tracked.get(each.topology_key)
            if tracked is None:
                tracked = self._tracked[each.topology_key] = self._track(each.topology_key)
            tracked.uses[each.excludes_after] += sign
            if tracked.uses[each.excludes_after] == sign == 1:
                insort(tracked.after, each.excludes_after)
            elif not tracked.uses[each.excludes_after]:
                del tracked.uses[each.excludes_after]
                tracked.after.remove(each.excludes_after)
            if not tracked.uses:
                del self._tracked[each.topology_key]
            self.version += 1

    def _follow_room(self, more: int) -> None:
        self.follows_room += more
        if not self.follows_room:
            self.freed_total += len(self._freed) + 1  # nothing that was found holds any longer
            self._freed.clear()
            self.full.clear()

    def freed(self, number: int) -> None:
        """A node changed, or a pod has left it. O(1)."""
        self.freed_total += 1
        self._freed.append(number)

    def _track(self, key: str) -> _Tracked:
        found = _Tracked()
        for node in self._topology.nodes:
            if node is not None and (domain := node.labels.get(key)) is not None:
                found.count(domain, 1, is_usable=node.unavailable_at is None)
        found.new = dict.fromkeys(found.new, False)
        for domain in [each for each in found.new if (key, each) in self._earlier]:
            found.since[domain] = self._earlier.pop((key, domain))
            del found.new[domain]
        return found

    def node_changed(self, number: int, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went, after it has been applied to everything else. O(tracked keys)."""
        if self.follows_room:
            self.freed(number)
        if not self._tracked:
            return
        returned = False
        for key, tracked in self._tracked.items():
            before = None if old is None else old.labels.get(key)
            after = None if new is None else new.labels.get(key)
            usable = [each is not None and each.unavailable_at is None for each in (old, new)]
            if (before, usable[0]) == (after, usable[1]):
                continue
            if after is not None:  # first, or a domain with one node that is relabelled in part would be forgotten
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

    # -- time -----------------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """When `step` is to be called next: -inf for at once, inf for never. O(unavailable domains + excluded domains)."""
        if self._is_unapplied or any(each.new for each in self._tracked.values()):
            return -inf
        ends = (each.until for found in self._by_operator.values() for each in found.values())
        return min([inf, *ends, *(each.next_after(self.now) for each in self._tracked.values())])

    def step(self, now: float, jumped: float = 0.0) -> None:
        """Applies a time, in seconds of the Unix epoch. O(nodes) where domains are new that were never available, else O(domains).

        ``jumped``: so many seconds of the time since the last step have not passed, as the clock was set. What has been measured is
        moved by as many, so that domains are unavailable for as long as before. Without it the time never goes back.
        """
        if not jumped:
            now = max(now, self.now)
        times = [*(self._moved(jumped) if jumped else ()), *self._times(now)]
        if self._journal.note is not None:
            self._journal.note(DomainTimes(now, tuple(times)))
        self.restore(now, times)

    def _moved(self, seconds: float) -> Iterator[tuple[str, str, float]]:
        for key, tracked in self._tracked.items():
            yield from ((key, domain, at + seconds) for domain, at in tracked.since.items())

    def _times(self, now: float) -> Iterator[tuple[str, str, float]]:
        """Since when domains are unavailable that have no time yet: those that were available from now on, else by their nodes."""
        unknown = {key: {each for each, was in found.new.items() if not was} for key, found in self._tracked.items()}
        unknown = {key: found for key, found in unknown.items() if found}
        latest: dict[tuple[str, str], float] = {}
        for node in self._topology.nodes if unknown else ():
            if node is None or node.unavailable_at is None:
                continue
            for key, found in unknown.items():
                domain = node.labels.get(key)
                if domain in found:
                    latest[key, domain] = max(latest.get((key, domain), 0.0), node.unavailable_at)
        for key, tracked in self._tracked.items():
            yield from ((key, each, min(now, latest.get((key, each), now))) for each in tracked.new)

    def restore(self, now: float, times: Iterable[tuple[str, str, float]]) -> None:
        """Applies a step that was noted: a topology key, a domain and a time for each domain that is unavailable from then on."""
        before, self.now = self.now, now
        is_changed = any(each.begins(before, self.now) for each in self._tracked.values())
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
        """Begins and ends what operators exclude; whether any did. Of two objects that exclude a domain the later end holds."""
        found: dict[str, dict[str, DomainExclusion]] = {}
        for obj in self.used():
            for each in obj.excluded:
                until = inf if each.until is None else each.until
                here = found.setdefault(obj.topology_key, {})
                already = here.get(each.domain)
                if until > self.now and (already is None or until > already.until):
                    by = each.reason or f"TopologyDomains {obj.name}"
                    here[each.domain] = DomainExclusion(self.now if each.since is None else each.since, by, until)
        found = {key: here for key, here in found.items() if here}
        before = {key: here.keys() for key, here in self._by_operator.items()}
        is_changed = before != {key: here.keys() for key, here in found.items()}
        self._by_operator = found
        return is_changed

    def times(self) -> DomainTimes:
        """The state as a change, for a recording."""
        found = ((key, each, at) for key, tracked in self._tracked.items() for each, at in tracked.since.items())
        return DomainTimes(self.now, tuple(found))

    def wrong_counts(self) -> list[str]:
        """What a recount finds different, for the audit. O(nodes × tracked keys)."""
        return [
            f"topology key {key}: the nodes of domains, or those that take pods, are counted wrongly"
            for key, tracked in self._tracked.items()
            if (fresh := self._track(key)).nodes != +tracked.nodes
            or +fresh.usable != +tracked.usable
            or fresh.new.keys() != tracked.new.keys() | tracked.since.keys()
        ]

    def statistics(self) -> dict[str, int]:
        """How many are kept."""
        return {"topology_domains": len(self.objects), "tracked_topology_keys": len(self._tracked)}
