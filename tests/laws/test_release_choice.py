"""A group gets a domain exactly where one holds all of its pods: compared with trying every placement.

The brute force shares no code with the choice: plain dictionaries of small numbers, and every way to place each pod.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from extender.model.constraints.labels import ZONE
from extender.model.release import GroupKey, Level, NoRoom, ReleaseSpec, Strategy
from extender.verbs.release.choice import Rest, propose
from tests.builders import settings, term
from tests.gangs import actions, gated
from tests.laws.cases import times
from tests.laws.release_choice import RACK, Host, can_hold, hosts_index

KEY = GroupKey("default", "policy", "x")
SETTINGS = settings()
HOSTS = st.lists(
    st.builds(
        Host,
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["r1", "r2"]),
        st.integers(2, 7),
        st.integers(2, 6),
        st.integers(0, 2),
        st.integers(0, 1),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, True]),
    ),
    min_size=2,
    max_size=5,
)
EQUAL = st.integers(1, 3).flatmap(lambda cpu: st.integers(1, 6).map(lambda count: [cpu] * count))
PODS = st.one_of(EQUAL, st.lists(st.integers(1, 4), min_size=2, max_size=5))


@times(5)
@given(HOSTS, PODS, st.sampled_from(list(Strategy)), st.booleans(), st.booleans())
def test_a_domain_is_chosen_exactly_where_one_holds_the_whole_group(
    hosts: list[Host],
    sizes: list[int],
    strategy: Strategy,
    apart: bool,  # noqa: FBT001 (drawn)
    is_preferred: bool,  # noqa: FBT001 (drawn)
) -> None:
    index = hosts_index(hosts)
    constraints = [term("host", gang="x")] if apart else []
    pods = [gated(f"p{n}", "x", cpu=1000 * size, apart=constraints) for n, size in enumerate(sizes)]
    no_room = actions(NoRoom.SEVERAL_DOMAINS) if is_preferred else ()
    found = propose(
        Rest(KEY, ReleaseSpec((ZONE, RACK), strategy=strategy, no_room=no_room), pods),
        index.view,
        SETTINGS,
    )

    by_zone = {zone: [host for host in hosts if host.zone == zone] for zone in sorted({host.zone for host in hosts})}
    good = [zone for zone, there in by_zone.items() if can_hold(sizes, there, apart=apart)]
    event(f"zones that hold the group: {len(good)}, pods: {'equal' if len(set(sizes)) == 1 else 'unequal'}")
    anywhere = is_preferred and can_hold(sizes, hosts, apart=apart)
    assert bool(found.slots) == bool(good or anywhere)
    assert {each.domain.value for each in found.rejected}.isdisjoint(good)
    if not found.slots:
        assert {each.domain.value for each in found.rejected} == set(by_zone)
        return

    # All pods fit where they are, together and beside everything else.
    chosen = {slot.pod: int(slot.node.removeprefix("n")) for slot in found.slots}
    assert set(chosen) == {pod.uid for pod in pods}
    for number, host in enumerate(hosts):
        here = [size for n, size in enumerate(sizes) if chosen[f"uid-p{n}"] == number]
        assert not here or (sum(here) <= host.free and len(here) <= host.slots and (not apart or len(here) == 1))

    # They are in the domain that is named, and no finer one in it holds them.
    if not good:
        assert found.levels == ()
        return
    zone = found.levels[0].value
    assert zone in good
    racks = {host.rack for host in by_zone[zone]}
    finer = [r for r in racks if can_hold(sizes, [h for h in by_zone[zone] if h.rack == r], apart=apart)]
    assert len(found.levels) == 1 + bool(finer)
    inside = [host for host in by_zone[zone] if not finer or host.rack == found.levels[1].value]
    assert all(hosts[number] in inside for number in chosen.values())
    if len(set(sizes)) == 1 and strategy is Strategy.BEST_FIT:
        most = 1 if apart else len(sizes) * max(host.cpu for host in hosts)
        holds = {host: min(max(host.free, 0) // sizes[0], max(host.slots, 0), most) for host in hosts}
        room = {each: sum(holds[host] for host in by_zone[each]) for each in good}
        assert (room[zone], zone) == min((room[each], each) for each in good)
    assert (
        propose(
            Rest(KEY, ReleaseSpec((ZONE, RACK), strategy=strategy, no_room=no_room), pods),
            index.view,
            SETTINGS,
        )
        == found
    )


@given(HOSTS, PODS)
def test_a_decided_group_finds_the_same_room_again(hosts: list[Host], sizes: list[int]) -> None:
    """After a restart: with its own slots in place, and with some of its pods bound in theirs."""
    index = hosts_index(hosts)
    pods = [gated(f"p{n}", "x", cpu=1000 * size) for n, size in enumerate(sizes)]
    spec = ReleaseSpec((ZONE,))
    found = propose(Rest(KEY, spec, pods), index.view, SETTINGS)
    if not found.slots:
        return
    for pod in pods:
        index.upsert(pod)
    index.reserved.reserve(KEY, found.slots, until=1.0)
    assert len(propose(Rest(KEY, spec, pods, levels=found.levels), index.view, SETTINGS).slots) == len(pods)
    first, rest = found.slots[0], [pod for pod in pods if pod.uid != found.slots[0].pod]
    number = int(first.pod.removeprefix("uid-p"))
    bound = gated(f"p{number}", "x", cpu=1000 * sizes[number], released="x", on=first.node)
    index.upsert(bound)
    again = propose(Rest(KEY, spec, rest, siblings=[bound]), index.view, SETTINGS)
    assert len(again.slots) == len(rest)
    assert not rest or again.levels == (Level(ZONE, hosts[int(first.node.removeprefix("n"))].zone),)
