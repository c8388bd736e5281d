"""A group gets the first domain that its policy lists, that has room for it and whose quota admits it: compared by brute force.

The brute force reads plain values: which zones a pod may be in, and sums over all pods for each domain. KEP-3838 names a
dynamic quota manager among its alternatives:
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3838-pod-mutable-scheduling-directives
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import event, given
from hypothesis import strategies as st

from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, GroupDecision, GroupKey, GroupSize, NoRoom, Strategy
from extender.tasks.release.groups import GroupMemory, Memories
from extender.verbs.release.states import Releasing
from tests.contenders import cluster, stage
from tests.gangs import actions, release_policy
from tests.laws.domain_quotas import ZONES, Member, Place, brute_force, places, proposal

MEMBERS = st.builds(Member, st.sampled_from([ZONES, "a", "b", "cd", "ac", "bd"]), st.sampled_from([1000, 2000]))


@given(
    places(),
    st.lists(MEMBERS, max_size=4),
    st.lists(st.tuples(st.sampled_from(["x", "y"]), MEMBERS), max_size=3),
    st.integers(0, 3),
    MEMBERS,
    st.integers(1, 3),
    st.tuples(*[st.sampled_from([8, 0, 4, 8, 2])] * 4),
    st.sampled_from([0, 4, 2, 0, 3]),
    st.sampled_from([NoRoom.WAIT, NoRoom.GROWING_DOMAIN, NoRoom.PREEMPT]),
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
    no_room: NoRoom,
) -> None:
    policy = release_policy(
        domains=tuple(each.as_domain() for each in listed),
        max_per_domain=most,
        no_room=actions(no_room),
        strategy=Strategy.IN_ORDER,
        size=GroupSize(1),
    )
    assert policy.release is not None
    rooms = dict(zip(ZONES, room, strict=True))
    nodes = [stage(zone, zone, cpu=1000 * free) for zone, free in rooms.items()]
    members = [each.as_pod(f"out-{at}", f"o{at}", is_out=True) for at, each in enumerate(out)]
    members += [each.as_pod(f"{gang}-{at}", f"{gang}{at}", is_out=False) for at, (gang, each) in enumerate(others)]
    incoming = [member.as_pod(f"p{at}", "asking", is_out=False) for at in range(size)]
    index = cluster(*nodes, PolicyObject(policy), *members, *incoming)
    for at in range(len(out)):
        index.gated.record(GroupKey("default", str(policy.key), f"o{at}"), (), [f"uid-out-{at}"])
    memories = Memories()
    anywhere_too = [*listed, None]
    promised = [(each, anywhere_too[at % len(anywhere_too)]) for at, (_, each) in enumerate(others[:decided])]
    for at, (gang, _) in enumerate(others[:decided]):  # decided, and not released yet
        place = promised[at][1]
        there = (policy.release.level_of(place.as_domain()),) if place is not None else ()
        key = GroupKey("default", str(policy.key), f"{gang}{at}")
        decision = GroupDecision(key, RELEASE_GATE, 1, there, datetime(2026, 1, 1, tzinfo=UTC))
        memories[key] = GroupMemory(0.0, 0.0, Releasing(decision))

    found = proposal(index, str(policy.key), memories)
    wanted, how = brute_force(listed, out, promised, member, size, rooms, most, no_room)
    event(how)
    levels = (policy.release.level_of(wanted.as_domain()),) if wanted is not None else ()
    assert (found.levels, bool(found.slots)) == (levels, how == "has room")
