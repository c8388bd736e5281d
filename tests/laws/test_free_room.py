"""With several schedulers no node gets more than it holds, whatever happens in whatever order, and nothing is left behind.

The truth beside the index is what the schedulers have done: a pod takes room from the answer on, until its binding fails or
it is deleted. No scheduler checks anything itself, as none knows what the others do.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from tests.laws.cases import times
from tests.laws.free_room import NODES, PODS, ROOM, World

names = st.sampled_from(PODS)
REQUEST = st.tuples(st.just("request"), names)
OPERATIONS = st.lists(
    st.one_of(
        REQUEST,
        REQUEST,
        REQUEST,
        st.tuples(st.sampled_from(["show", "fail", "delete", "doubt", "nominate"]), names),
        st.tuples(st.just("node"), st.sampled_from(NODES)),
    ),
    min_size=10,
    max_size=40,
)


@given(OPERATIONS)
@times(2)
def test_no_node_gets_more_than_it_holds(operations: list[tuple[str, str]]) -> None:
    world = World()
    for operation, subject in operations:
        world.step(operation, subject)
        world.check()
    event(f"{len(world.taken)} pods at the end")
    for name in PODS:
        world.step("delete", name)
    room = world.index.room
    assert room is not None
    assert (room.claims, set(room.slots[:3]), set(room.free["cpu"][:3])) == ({}, {110}, {1000 * ROOM})
