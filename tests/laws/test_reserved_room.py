"""Reserved room is given out once, whatever happens in whatever order, and leaves nothing behind.

The truth beside the index is that of the scheduler: which pods it has bound, shown by the watch or not. The scheduler
takes any node of an answer that holds the pod by its own count, which knows of no reservation. Pods of a group may take the
room of each other; then the other pods of the group have to fit in what is left of it.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from extender.index.audit import audit
from tests.laws.cases import times
from tests.laws.reserved_room import PODS, World, room

# Mostly the first node, so that pods meet there.
NODE = st.sampled_from([0, 0, 0, 1, 2])
names = st.sampled_from(PODS)
REQUEST = st.tuples(st.just("request"), names, NODE)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.lists(names, min_size=1, max_size=3, unique=True), NODE),
        REQUEST,
        REQUEST,
        st.tuples(st.just("show"), names, st.just(0)),
        st.tuples(st.just("fail"), names, st.just(0)),
        st.tuples(st.just("delete"), names, st.just(0)),
        st.tuples(st.just("release"), names, st.just(0)),
        st.tuples(st.just("expire"), names, st.just(0)),
    ),
    min_size=12,
    max_size=40,
)


@times(4)
@given(OPERATIONS, st.sampled_from(["offload", "augment"]))
def test_no_order_of_events_gives_room_twice(operations: list[tuple[str, list[str] | str, int]], mode: str) -> None:
    world = World(mode)
    for operation in operations:
        world.step(*operation)
        assert world.rest_fits(), operation
    event(f"slots in the end: {len(world.index.reserved.held) > 0}")


@given(OPERATIONS)
def test_what_is_reserved_equals_a_recount_and_leaves_nothing(
    operations: list[tuple[str, list[str] | str, int]],
) -> None:
    world = World("offload")
    for operation in operations:
        before = world.index.reserved.version, room(world)
        world.step(*operation)
        assert audit(world.index) == []
        after = world.index.reserved.version, room(world)
        assert before[1] == after[1] or after[0] > before[0], "a change of the room has a new version"
    world.index.reserved.expire(1.0)
    reserved = world.index.reserved
    left = (reserved.by_node, reserved.totals, reserved.held, reserved._groups, reserved._rooms)
    assert left == ({}, {}, {}, {}, {})
