"""A group gets the first domain that its policy lists, that has room for it and whose quota admits it: compared by brute force.

The brute force reads plain values: which zones a pod may be in, and sums over all pods for each domain. KEP-3838 names a
dynamic quota manager among its alternatives:
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hypothesis import event, given
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.model.release import Domain, GroupKey, GroupSize, Proposal, Strategy, WhenNoRoom
from extender.tasks.release.groups import GroupMemory, Memories, group_state, quota_excess
from extender.verbs.release.choice import Rest, propose
from tests.builders import Json, settings
from tests.contenders import cluster, stage
from tests.gangs import gated, release_policy

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
MEMBERS = st.builds(Member, st.sampled_from([ZONES, "a", "b", "cd", "ac", "bd"]), st.sampled_from([1000, 2000]))


@st.composite
def places(draw: st.DrawFn) -> list[Place]:
    order = draw(st.permutations(ZONES))
    cuts = sorted(draw(st.sets(st.integers(1, 3), max_size=3)))
    parts = ["".join(order[start:end]) for start, end in zip([0, *cuts], [*cuts, 4], strict=True)]
    kept = parts[: draw(st.integers(1, len(parts)))]
    cpu = st.sampled_from([None, 9000, 4000, None, 2000])
    return [Place(each, draw(LIMIT), draw(cpu), draw(st.booleans())) for each in kept]


@given(
    places(),
    st.lists(MEMBERS, max_size=4),
    st.lists(st.tuples(st.sampled_from(["x", "y"]), MEMBERS), max_size=3),
    st.integers(0, 3),
    MEMBERS,
    st.integers(1, 3),
    st.tuples(*[st.sampled_from([8, 0, 4, 8, 2])] * 4),
    st.sampled_from([0, 4, 2, 0, 3]),
    st.sampled_from(WhenNoRoom),
)
def test_a_group_gets_the_first_domain_that_holds_it_within_its_quota(
    listed: list[Place],
    out: list[Member],
    others: list[tuple[str, Member]],
    decided: int,
    member: Member,
    size: int,
    room: Sequence[int],
    most: int,
    when_no_room: WhenNoRoom,
) -> None:
    policy = release_policy(
        domains=tuple(each.as_domain() for each in listed),
        max_per_domain=most,
        when_no_room=when_no_room,
        strategy=Strategy.IN_ORDER,
        size=GroupSize(1),
    )
    assert policy.release is not None
    rooms = dict(zip(ZONES, room, strict=True))
    nodes = [stage(zone, zone, cpu=1000 * free) for zone, free in rooms.items()]
    members = [each.as_pod(f"out-{at}", f"o{at}", is_out=True) for at, each in enumerate(out)]
    members += [each.as_pod(f"{gang}-{at}", f"{gang}{at}", is_out=False) for at, (gang, each) in enumerate(others)]
    asking = [member.as_pod(f"p{at}", "asking", is_out=False) for at in range(size)]
    index = cluster(*nodes, PolicyObject(policy), *members, *asking)
    for at in range(len(out)):
        index.gated.record(GroupKey("default", str(policy.key), f"o{at}"), (), [f"uid-out-{at}"])
    memories = Memories()
    anywhere_too = [*listed, None]
    promised = [(each, anywhere_too[at % len(anywhere_too)]) for at, (_, each) in enumerate(others[:decided])]
    for at, (gang, _) in enumerate(others[:decided]):  # decided, and not released yet
        place = promised[at][1]
        there = (policy.release.level_of(place.as_domain()),) if place is not None else ()
        memories[GroupKey("default", str(policy.key), f"{gang}{at}")] = GroupMemory(0.0, 0.0, levels=there)

    found = _propose(index, str(policy.key), memories)
    wanted, how = _brute_force(listed, out, promised, member, size, rooms, most, when_no_room)
    event(how)
    levels = (policy.release.level_of(wanted.as_domain()),) if wanted is not None else ()
    assert (found.levels, bool(found.slots)) == (levels, how == "has room")


def _propose(index: ClusterIndex, policy: str, memories: Memories) -> Proposal:
    key = GroupKey("default", policy, "asking")
    group = group_state(key, index.gated, index.pods)
    assert group is not None
    promised = memories.promised(group, index.gated, index.pods, index.reserved, index.placements, has_begun=False)
    excess = partial(quota_excess, group, charges=index.gated.charges, promised=promised)
    return propose(Rest(key, group.spec, group.waiting, excess=excess), index.view, SETTINGS)


def _brute_force(
    listed: Sequence[Place],
    out: Sequence[Member],
    promised: Sequence[tuple[Member, Place | None]],
    member: Member,
    size: int,
    rooms: Mapping[str, int],
    most: int,
    when_no_room: WhenNoRoom,
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
    for place in listed if when_no_room is WhenNoRoom.RELEASE else ():
        if place.may_grow and is_admitted(place) and set(place.zones) & set(member.zones):
            return place, "may grow"
    return None, "waits"
