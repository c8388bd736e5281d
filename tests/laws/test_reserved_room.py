"""Reserved room is given out once, whatever happens in whatever order, and leaves nothing behind.

The truth beside the index is that of the scheduler: which pods it has bound, shown by the watch or not. The scheduler
takes any node of an answer that holds the pod by its own count, which knows of no reservation. Pods of a group may take the
room of each other; then the other pods of the group have to fit in what is left of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from hypothesis import event, given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.model.release import GroupKey, Slot
from extender.verbs.filter import FilterVerb
from tests.builders import asking, settings
from tests.contenders import cluster, contender, contender_json, stage
from tests.laws.cases import times

NODES = ("n0", "n1", "n2")
ROOM = 4
PODS = tuple(f"p{number}" for number in range(6))
SIZES = dict(zip(PODS, (1, 1, 1, 2, 2, 3), strict=True))

# Mostly the first node, so that pods meet there.
NODE = st.sampled_from([0, 0, 0, 1, 2])
names = st.sampled_from(PODS)
ASK = st.tuples(st.just("ask"), names, NODE)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.lists(names, min_size=1, max_size=3, unique=True), NODE),
        ASK,
        ASK,
        st.tuples(st.just("show"), names, st.just(0)),
        st.tuples(st.just("fail"), names, st.just(0)),
        st.tuples(st.just("delete"), names, st.just(0)),
        st.tuples(st.just("release"), names, st.just(0)),
        st.tuples(st.just("expire"), names, st.just(0)),
    ),
    min_size=12,
    max_size=40,
)


@dataclass
class World:
    """The index, the verb, and what the scheduler has bound: pod to node. ``written``: bound in the API server."""

    mode: str
    index: ClusterIndex = field(init=False)
    bound: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        nodes = [stage(name, cpu=1000 * ROOM) for name in NODES]
        self.index = cluster(*nodes, *(contender(name, cpu=1000 * SIZES[name]) for name in PODS))
        self.verb = FilterVerb(self.index.view, settings(mode=self.mode))

    def pod(self, name: str) -> Pod | None:
        return self.index.pods.get(f"uid-{name}")

    def in_use(self, node: str) -> int:
        return sum(SIZES[name] for name, there in self.bound.items() if there == node)

    def rest_fits(self) -> bool:
        """Whether every pod with a slot that is on no node in truth fits on a node where its group has one. Exponential."""
        reserved = self.index.reserved
        left = [(held.pod.name, held.group) for held in reserved.held.values() if held.pod.name not in self.bound]
        free = {node: ROOM - self.in_use(node) for node in NODES}
        nodes = {group: sorted({slot.node for slot in reserved.slots_of(group)}) for _, group in left}

        def place(at: int) -> bool:
            if at == len(left):
                return min(free.values()) >= 0
            name, group = left[at]
            for node in nodes[group]:
                free[node] -= SIZES[name]
                is_found = free[node] >= 0 and place(at + 1)
                free[node] += SIZES[name]
                if is_found:
                    return True
            return False

        return place(0)

    def may_be_on(self, node: str) -> int:
        """What the index has to fear on the node: the pods that it counts there, and those that may be there."""
        number = self.index.view.known[node]
        here = {pod.name for pod in self.index.view.pods_on(number).values()}
        here |= {pod.name for pod, nodes, _ in self.index.view.undetermined() if node in nodes}
        here |= {pod.name for pod in self.index.reserved.by_node.get(node, {}).values()}
        return sum(SIZES[name] for name in here)

    def reserve(self, pods: list[str], first: int) -> None:
        """A group is decided, if all of its pods find room one after the other."""
        key = GroupKey("default", "policy", pods[0])
        slots: list[Slot] = []
        self.index.reserved.release(key)
        for name in pods:
            pod = self.pod(name)
            if pod is None or pod.node or name in self.bound or pod.uid in self.index.reserved.held:
                continue
            order = NODES[first:] + NODES[:first]
            taken = dict.fromkeys(NODES, 0)
            for slot in slots:
                taken[slot.node] += SIZES[slot.pod.removeprefix("uid-")]
            fits = [node for node in order if self.may_be_on(node) + taken[node] + SIZES[name] <= ROOM]
            if not fits:
                return
            slots.append(Slot(pod.uid, fits[0]))
        self.index.reserved.reserve(key, slots, until=1.0)

    def ask(self, name: str, choice: int) -> None:
        """The scheduler tries a pod that it has not bound yet, and binds it where its own count has room."""
        pod = self.pod(name)
        if pod is None or pod.node or name in self.bound:
            return
        self.index.assumed.forget(pod.uid)
        offered = [node for node in NODES if self.in_use(node) + SIZES[name] <= ROOM]
        if not offered:
            return
        args = asking(contender_json(name, cpu=1000 * SIZES[name]), *offered)
        passed = list(self.verb.decide(args, choice).result.passed)
        if not self.is_on_its_way(self.index.reserved.siblings_of(pod.uid)):
            own = self.index.reserved.node_of(pod.uid)
            assert own not in offered or own in passed, "a pod passes on the node of its slot"
        if passed:
            self.index.assume(pod, passed, 0.0)
            self.bound[name] = passed[choice % len(passed)]

    def is_on_its_way(self, pods: Collection[str]) -> bool:
        """Whether one of the pods may be on several nodes."""
        return any(pod.uid in pods for pod, _, _ in self.index.view.undetermined())

    def step(self, operation: str, subject: list[str] | str, choice: int) -> None:
        if operation == "reserve":
            assert isinstance(subject, list)
            return self.reserve(subject, choice)
        assert isinstance(subject, str)
        pod = self.pod(subject)
        match operation:
            case "ask":
                self.ask(subject, choice)
            case "show" if pod is not None and subject in self.bound:
                on = self.bound[subject]
                self.index.upsert(contender(subject, cpu=1000 * SIZES[subject], on=on))
            case "fail" if pod is not None and not pod.node and subject in self.bound:
                del self.bound[subject]
                self.index.assumed.forget(pod.uid)
            case "delete" if pod is not None:
                self.bound.pop(subject, None)
                self.index.delete(pod)
            case "release":
                self.index.reserved.release(GroupKey("default", "policy", subject))
            case "expire":
                self.index.reserved.expire(1.0)
        return None


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
        before = world.index.reserved.version, _room(world)
        world.step(*operation)
        assert audit(world.index) == []
        after = world.index.reserved.version, _room(world)
        assert before[1] == after[1] or after[0] > before[0], "a change of the room has a new version"
    world.index.reserved.expire(1.0)
    reserved = world.index.reserved
    left = (reserved.by_node, reserved.totals, reserved.held, reserved._groups, reserved._rooms)
    assert left == ({}, {}, {}, {}, {})


def _room(world: World) -> object:
    """What the rule reads: slots by node, and the pods on those nodes."""
    view = world.index.view
    return {
        node: (set(pods), set(view.pods_on(view.known[node]))) for node, pods in world.index.reserved.by_node.items()
    }
