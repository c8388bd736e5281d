"""A scheduler that has other pods before the pods of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import orjson

from extender.index.trial import TrialSteps
from extender.model.release import GroupKey, Level, Proposal
from extender.model.resources import PODS
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.verbs.filter import FilterVerb
from extender.verbs.release.choice import Rest, propose_in_steps
from extender.verbs.release.progress import GroupState
from extender.wire.extender_v1 import ExtenderArgs
from extender.wire.objects.kinds import PODS as DECODED
from tests.contenders import contender, stage
from tests.deciding import KeptPlans
from tests.tasks.release.scene import Scene

PODS_OF_A_NODE = 50
ZONE = "topology.kubernetes.io/zone"


class Backlog(Scene):
    """Room for 100 pods in a zone. ``ask``: a scheduler asks about pods, which the index need not know."""

    def __init__(self, **release: object) -> None:
        super().__init__({"a": 100}, **release)

    @property
    def reserved(self) -> int:
        return self.index.reserved.room_of("default").get(PODS, 0)

    def request(self, *names: str, scheduler: str = "") -> None:
        for name in names:
            self.index.reserved.note_request(contender(name, scheduler=scheduler), self.clock.now())

    async def request_for(self, seconds: int, *names: str, scheduler: str = "") -> None:
        """The scheduler asks every five seconds, for so long."""
        for _ in range(seconds // 5):
            self.request(*names, scheduler=scheduler)
            await self.pass_time(5)


class Scheduled(Backlog):
    """Nodes, the chooser of the service, and its filter: a scheduler asks about one pod after the other, and binds it."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.names = [f"n{number}" for number in range(nodes)]
        for number, name in enumerate(self.names):
            self.index.upsert(stage(name, zone="ab"[number % 2], cpu=0, pods=PODS_OF_A_NODE))
        self.change_policy(topology=(ZONE,))
        self.settings = Settings()
        options, pods = AssumedPodOptions(wait=0.0), WatchedPods(self.index, self.clock, 0.0, 1)
        verb = FilterVerb(self.index.view, self.settings)
        self.filters = FilterService(self.index, pods, self.clock, options, verb, Random(1), KeptPlans())

    def propose(
        self,
        group: GroupState,
        levels: Sequence[Level] | None,
        taken: Sequence[tuple[GroupKey, Sequence[Level]]] = (),
        excess: Callable[[Sequence[Level]], str] = lambda _: "",
    ) -> TrialSteps[Proposal]:
        pods, siblings = (*group.waiting, *group.released), (*group.released, *group.bound)
        rest = Rest(group.key, group.spec, pods, siblings, levels, taken, excess)
        return propose_in_steps(rest, self.index.view, self.settings)

    def has_zone(self, name: str) -> bool:
        return name in self.index.view.known

    async def schedule(self, name: str, zone: str = "") -> str:
        """Binds a pod to a node of a zone that has room, as kube-scheduler counts it; empty where it finds none."""
        pod, view = self.index.pods[f"uid-{name}"], self.index.view
        with_room = [node for node in self.names if len(view.pods_on(view.known[node])) < PODS_OF_A_NODE]
        nodes = [node for node in with_room if not zone or self.zone_of(node) == zone]
        answer = await self.filters.filter(ExtenderArgs(pod, nodes)) if nodes else None
        if answer is None or not answer.passed:
            return ""
        self.api.pods.edit(f"default/{name}", "spec", nodeName=answer.passed[0])
        self.show(name)
        return answer.passed[0]

    def zone_of(self, name: str) -> str:
        node = self.index.view.node(self.index.view.known[name])
        assert node is not None
        return node.labels[ZONE]

    def show(self, *names: str) -> None:
        """As in `Scene`. Pods that are named are not searched for, as there are thousands."""
        if not names:
            super().show()
        for name in names:
            self.index.upsert(DECODED.decode_object(orjson.dumps(self.api.pods[f"default/{name}"])))
