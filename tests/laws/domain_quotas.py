"""Groups of pods, domains with room and quotas, and the first domain that fits, found by brute force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Pod
from extender.model.release import Domain, GroupKey, NoRoom, Proposal
from extender.tasks.release.groups import Memories, group_state, quota_excess
from extender.verbs.release.choice import Rest, propose
from tests.builders import Json, settings
from tests.gangs import gated

ZONES = "abcd"
SETTINGS = settings()


@dataclass(frozen=True)
class Member:
    """A pod: the zones that it may be in, and its CPU in thousandths."""

    zones: str
    cpu: int

    def as_pod(self, name: str, gang: str, *, is_out: bool) -> Pod:
        fields: Json = {}
        if self.zones != ZONES:
            clause = {"key": ZONE, "operator": "In", "values": list(self.zones)}
            fields["node_terms"] = [{"matchExpressions": [clause]}]
        return gated(name, gang, cpu=self.cpu, released=gang if is_out else "", **fields)


@dataclass(frozen=True)
class Place:
    """A domain of the policy."""

    zones: str
    pods: int | None
    cpu: int | None
    may_grow: bool

    def as_domain(self) -> Domain:
        quota = {"pods": self.pods, "cpu": self.cpu}
        limits = tuple(sorted((name, most) for name, most in quota.items() if most is not None))
        return Domain(f"in-{self.zones}", tuple(self.zones), (), limits, self.may_grow)


LIMIT = st.sampled_from([None, 3, 8, 5, None, 2, 0])


@st.composite
def places(draw: st.DrawFn) -> list[Place]:
    order = draw(st.permutations(ZONES))
    cuts = sorted(draw(st.sets(st.integers(1, 3), max_size=3)))
    parts = ["".join(order[start:end]) for start, end in zip([0, *cuts], [*cuts, 4], strict=True)]
    kept = parts[: draw(st.integers(1, len(parts)))]
    cpu = st.sampled_from([None, 9000, 4000, None, 2000])
    return [Place(each, draw(LIMIT), draw(cpu), draw(st.booleans())) for each in kept]


def proposal(index: ClusterIndex, policy: str, memories: Memories) -> Proposal:
    key = GroupKey("default", policy, "asking")
    group = group_state(key, index)
    assert group is not None
    promised = memories.promised(group, index, has_begun=False)
    excess = partial(quota_excess, group, charges=index.gated.charges, promised=promised)
    return propose(Rest(key, group.spec, group.waiting, excess=excess), index.view, SETTINGS)


def brute_force(
    listed: Sequence[Place],
    out: Sequence[Member],
    promised: Sequence[tuple[Member, Place | None]],
    member: Member,
    size: int,
    rooms: Mapping[str, int],
    most: int,
    no_room: NoRoom,
) -> tuple[Place | None, str]:
    def is_admitted(place: Place) -> bool:
        there = [each for each in out if set(each.zones) & set(place.zones)]
        there += [each for each, to in promised if to is None or to is place]
        pods, cpu = len(there) + size, sum(each.cpu for each in there) + size * member.cpu
        return not (
            (place.pods is not None and pods > place.pods)
            or (place.cpu is not None and cpu > place.cpu)
            or (most and pods > most)
        )

    def has_room(place: Place) -> bool:
        zones = set(place.zones) & set(member.zones)
        return sum(1000 * rooms[zone] // member.cpu for zone in zones) >= size

    for place in listed:
        if is_admitted(place) and has_room(place):
            return place, "has room"
    for place in listed if no_room is NoRoom.GROWING_DOMAIN else ():
        if place.may_grow and is_admitted(place) and set(place.zones) & set(member.zones):
            return place, "may grow"
    return None, "waits"
