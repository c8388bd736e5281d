"""A state machine: pods are nominated, assumed, bound and deleted in any order on nodes with little room."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.model.release import GroupKey, Slot
from extender.verbs.filter import FilterVerb
from tests.builders import extender_args, settings
from tests.contenders import cluster, contender, contender_json, stage

NODES = ("n0", "n1", "n2")
ROOM = 4
PODS = tuple(f"p{number}" for number in range(6))
SIZES = dict(zip(PODS, (1, 1, 1, 2, 2, 3), strict=True))


@dataclass
class World:
    """The index, the verb, and what the scheduler has bound: pod to node. ``written``: bound in the API server."""

    mode: str
    index: ClusterIndex = field(init=False)
    bound: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

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

    def filter(self, name: str, choice: int) -> None:
        """The scheduler tries a pod that it has not bound yet, and binds it where its own count has room."""
        pod = self.pod(name)
        if pod is None or pod.node or name in self.bound:
            return
        self.index.assumed.forget(pod.uid)
        offered = [node for node in NODES if self.in_use(node) + SIZES[name] <= ROOM]
        if not offered:
            return
        args = extender_args(contender_json(name, cpu=1000 * SIZES[name]), *offered)
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
            case "request":
                self.filter(subject, choice)
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


def room(world: World) -> object:
    """What the rule reads: slots by node, and the pods on those nodes."""
    view = world.index.view
    return {
        node: (set(pods), set(view.pods_on(view.known[node]))) for node, pods in world.index.reserved.by_node.items()
    }
