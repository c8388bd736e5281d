"""Groups of pods, hosts with room, and every possible placement of the group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.index.cluster import ClusterIndex
from extender.model.release import GroupKey, Slot
from tests.builders import taint
from tests.contenders import cluster, contender, stage
from tests.gangs import gated

RACK = "rack"


@dataclass(frozen=True)
class Host:
    """A node: its zone and rack, what it offers, and what bound pods, slots of others and a wandering pod take of it."""

    zone: str
    rack: str
    cpu: int
    pods: int
    bound: int
    reserved: int
    is_closed: bool
    may_get_another: bool

    @property
    def free(self) -> int:
        return 0 if self.is_closed else self.cpu - self.bound - self.reserved - self.may_get_another

    @property
    def slots(self) -> int:
        taken = (self.bound > 0) + (self.reserved > 0) + self.may_get_another
        return 0 if self.is_closed else self.pods - taken


def hosts_index(hosts: Sequence[Host]) -> ClusterIndex:
    index = cluster()
    others: list[Slot] = []
    for number, host in enumerate(hosts):
        name = f"n{number}"
        taints = [taint("closed", "yes")] if host.is_closed else []
        labels = {RACK: host.rack}
        index.upsert(stage(name, host.zone, cpu=1000 * host.cpu, pods=host.pods, labels=labels, taints=taints))
        if host.bound:
            index.upsert(contender(f"bound-{number}", cpu=1000 * host.bound, on=name))
        if host.reserved:
            index.upsert(gated(f"reserved-{number}", "y", cpu=1000 * host.reserved))
            others.append(Slot(f"uid-reserved-{number}", name))
    index.reserved.reserve(GroupKey("default", "policy", "y"), others, until=1.0)
    wandering = [f"n{number}" for number, host in enumerate(hosts) if host.may_get_another]
    if wandering:
        index.assume(contender("wandering", cpu=1000), [*wandering, "ghost"], 0.0)
    return index


def _placements(sizes: Sequence[int], hosts: Sequence[Host], *, apart: bool) -> Iterator[tuple[int, ...]]:
    """Every way to place the pods on these hosts. Exponential."""

    def place(at: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if at == len(sizes):
            yield chosen
            return
        for number, host in enumerate(hosts):
            here = [sizes[each] for each, on in enumerate(chosen) if on == number]
            if apart and here:
                continue
            if len(here) < host.slots and sum(here) + sizes[at] <= host.free:
                yield from place(at + 1, (*chosen, number))

    yield from place(0, ())


def can_hold(sizes: Sequence[int], hosts: Sequence[Host], *, apart: bool) -> bool:
    return next(_placements(sizes, hosts, apart=apart), None) is not None
