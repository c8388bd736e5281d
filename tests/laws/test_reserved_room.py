"""Reserved room is given out once, whatever happens in whatever order, and leaves nothing behind.

The truth beside the index is that of the scheduler: which pods it has bound, shown by the watch or not. The scheduler
takes any node of an answer that holds the pod by its own count, which knows of no reservation.
"""

from __future__ import annotations

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
SIZES = {name: 1 + number % 3 for number, name in enumerate(PODS)}

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

    def slots_on(self, node: str) -> int:
        """Slots whose pods are not on the node in truth."""
        held = self.index.reserved.by_node.get(node, {})
        return sum(SIZES[pod.name] for pod in held.values() if self.bound.get(pod.name) != node)

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
        own = self.index.reserved.node_of(pod.uid)
        assert own not in offered or own in passed, "a pod passes on the node of its slot"
        if passed:
            self.index.assume(pod, passed, 0.0)
            self.bound[name] = passed[choice % len(passed)]

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
        for node in NODES:
            assert world.in_use(node) + world.slots_on(node) <= ROOM, (node, operation)
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
