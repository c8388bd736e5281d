"""A scene for the release: the real index, an API server in a dictionary, and a watch that a test can hold back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.index.trial import TrialSteps
from extender.kube.effects import ObjectEvent
from extender.kube.timing import BackoffOptions
from extender.kube.writer import ReleaseObjects
from extender.model.group_placements import placement_name
from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, GroupKey, GroupSize, Level, Proposal, RejectedDomain, Slot
from extender.rules.catalog import counts_of_rules
from extender.settings.policies import Release
from extender.settings.rules import Rules
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.release.reconciler import GroupReconciler
from extender.tasks.release.writes import PlacementWriter, PodReleaser
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import GroupState
from extender.wire.objects.kinds import GROUP_PLACEMENTS, PODS
from tests.fake_api import FakeApi
from tests.fakes import PATIENCE, FakeClock, every_sleep, settle
from tests.gangs import gated_json, release_policy

Json = dict[str, Any]
POLICY = "ClusterPodSchedulingPolicy/gangs"
NOON = datetime(2026, 1, 1, 0, 0, 0, tzinfo=UTC)  # when the pods of `tests.gangs` were created


class Counts(ReleaseMetrics):
    """What was recorded."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def record_decision(self, result: str, seconds: float) -> None:
        del seconds
        self.of[result] += 1

    def record_patch(self, result: str) -> None:
        self.of[result] += 1

    def record_timeout(self, action: str) -> None:
        self.of[f"timeout {action}"] += 1

    def record_wait(self, seconds: float) -> None:
        del seconds
        self.of["placed"] += 1


class Scene(EventRecorder):
    """``room``: pods that fit into each zone, beside those that have a slot or a node there."""

    def __init__(self, rooms: dict[str, int], **release: Any) -> None:
        self.api = FakeApi()
        self.objects = ReleaseObjects(self.api)
        self.clock = FakeClock(held=every_sleep)
        self.counts = Counts()
        self.events: list[ObjectEvent] = []
        self.removed: list[list[str]] = []
        self.is_stale = False
        self.rooms = rooms
        self.budget = Release(groups_per_namespace=50, pods_per_namespace=200)
        self.index = ClusterIndex(Rules(), counts_of_rules())
        self.policy = release_policy(**({"size": GroupSize(label="size")} | release))
        self.index.upsert(PolicyObject(self.policy))
        self.manager = self.leader()

    def leader(self) -> GroupReconciler:
        """One that remembers nothing."""
        clock, index = self.clock, self.index
        return GroupReconciler(
            index,
            PlacementWriter(self.objects, index.placements, RateLimiter(clock, 4, 1000), self.utc_now),
            PodReleaser(self.objects, RateLimiter(clock, 8, 1000), clock, BackoffOptions(0.1, 1.0), Random(1)),
            self.propose,
            self.has_zone,
            self,
            self.counts,
            clock,
            self.utc_now,
            self.budget,
            self.catch_up,
            self.remove,
            lambda: self.is_stale,
        )

    def utc_now(self) -> datetime:
        return NOON + timedelta(seconds=self.clock.now() - 1000.0)

    async def catch_up(self) -> None:
        """What a new leader waits for: the watches show all that an earlier one wrote."""
        self.show()

    async def remove(self, pod: Pod, victims: Sequence[Pod]) -> bool:
        """Preempts pods for a group; False where that fails."""
        del pod
        self.removed.append([victim.name for victim in victims])
        return True

    def record(self, event: ObjectEvent, _about: object = None) -> None:
        self.events.append(event)

    @property
    def warnings(self) -> list[str]:
        """The reasons of the warnings so far, each once in its order."""
        return list(dict.fromkeys(event.reason for event in self.events if event.type == "Warning"))

    def propose(
        self,
        group: GroupState,
        levels: Sequence[Level] | None,
        taken: Sequence[tuple[GroupKey, Sequence[Level]]] = (),
        excess: Callable[[Sequence[Level]], str] = lambda _: "",
    ) -> TrialSteps[Proposal]:
        """The tightest zone that holds the pods without a node; a node of a zone has the zone's name."""
        yield True
        pods = [pod.uid for pod in (*group.waiting, *group.released)]
        rejected = []
        zones = sorted(self.rooms, key=lambda zone: (self.free(zone), zone))
        for zone in zones if not levels else [levels[0].value]:
            own = sum(self.index.reserved.node_of(uid) == zone for uid in pods)
            free = self.free(zone) + own
            if not levels and (over := excess((Level("zone", zone),))):
                rejected.append(RejectedDomain(Level("zone", zone), len(pods), excess=over))
                continue
            owner = next((key for key, there in taken if there and there[0].value == zone), None)
            if owner is not None and not levels:
                rejected.append(RejectedDomain(Level("zone", zone), len(pods), taken_by=str(owner)))
                continue
            if free >= len(pods):
                return Proposal((Level("zone", zone),), tuple(Slot(uid, zone) for uid in pods))
            rejected.append(RejectedDomain(Level("zone", zone), len(pods), free))
        return Proposal(rejected=tuple(rejected))

    def has_zone(self, name: str) -> bool:
        return self.rooms.get(name, 0) > 0

    def free(self, zone: str) -> int:
        """Room that nothing has."""
        bound = sum(pod.node == zone for pod in self.index.pods.values())
        return self.rooms.get(zone, 0) - bound - len(self.index.reserved.by_node.get(zone, ()))

    # -- what a test does -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[GroupReconciler]:
        """A new leader works until the block is left, as if it was killed then."""
        self.manager = self.leader()
        job = asyncio.ensure_future(self.manager.run())
        try:
            await settle()
            yield self.manager
        finally:
            job.cancel()
            await asyncio.wait({job})
            if not job.cancelled() and (error := job.exception()) is not None:
                raise error

    def create(self, gang: str, *numbers: int, size: int = 0, **fields: Any) -> None:
        """Creates gated pods ``gang-number`` and shows them."""
        for number in numbers:
            labels = {"size": str(size or len(numbers))}
            self.api.add(gated_json(f"{gang}-{number}", gang, labels=labels, **fields))
        self.show()

    def show(self, *names: str) -> None:
        """The watch shows pods as they are, or all and what was deleted; the objects of groups too."""
        shown = [PODS.decode_object(line) for line in self.api.pods.lines(*names)]
        for pod in shown:
            self.index.upsert(pod)
        if not names:
            there = {pod.uid for pod in shown}
            for pod in [pod for uid, pod in self.index.pods.items() if uid not in there]:
                self.index.delete(pod)
            self.show_placements()

    def show_placements(self) -> None:
        """The watch shows the objects of groups as they are."""
        for line in self.api.placements.lines():
            self.index.upsert(GROUP_PLACEMENTS.decode_object(line))
        for placement in [each for each in self.index.placements if each.key not in self.api.placements]:
            self.index.delete(placement)

    def bind(self, *names: str) -> None:
        """Binds released pods into the zones that they are pinned to, and shows them."""
        for body in self.api.pods.values():
            spec = body["spec"]
            is_free = not spec.get("schedulingGates") and not spec.get("nodeName")
            if is_free and (not names or body["metadata"]["name"] in names):
                spec["nodeName"] = (spec.get("nodeSelector") or {}).get("zone", "anywhere")
                self.api.add(body)
        self.show()

    def delete(self, name: str) -> None:
        del self.api.pods[f"default/{name}"]
        self.show()

    def released(self, gang: str = "") -> dict[str, str]:
        """The zone of each pod without the gate, by name."""
        return {
            body["metadata"]["name"]: (body["spec"].get("nodeSelector") or {}).get("zone", "")
            for body in self.api.pods.values()
            if RELEASE_GATE not in {gate["name"] for gate in body["spec"].get("schedulingGates") or ()}
            and body["metadata"]["name"].startswith(gang)
        }

    def status(self, gang: str) -> Json:
        """The status of the object of a group."""
        key = GroupKey("default", POLICY, gang)
        found: Json = self.api.placements[f"default/{placement_name(key)}"].get("status", {})
        return found

    def change_policy(self, **release: Any) -> None:
        spec = self.policy.release
        assert spec is not None
        self.policy = replace(self.policy, release=replace(spec, **release))
        self.index.upsert(PolicyObject(self.policy))

    async def pass_time(self, seconds: float, *, shown: bool = True) -> None:
        """Lets time pass; ``shown``: the watch shows everything meanwhile."""
        async with asyncio.timeout(PATIENCE):
            for _ in range(4 if shown else 1):
                await self.clock.advance(seconds / 4 if shown else seconds)
                if shown:
                    self.show()
                    await settle()
