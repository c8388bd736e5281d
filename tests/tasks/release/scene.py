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

import orjson

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodEvent, PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, Rejected
from extender.kube.timing import BackoffOptions
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.policies import PolicyObject
from extender.model.release import RELEASE_GATE, GroupKey, GroupSize, Level, Proposal, RejectedDomain, Slot
from extender.settings import Rules
from extender.tasks.preemption.retrying_writer import RateLimiter
from extender.tasks.release.decisions import Decisions, Room
from extender.tasks.release.groups import IndexGroups, NamespaceBudget
from extender.tasks.release.manager import ManagerOptions, Parts, ReleaseManager
from extender.tasks.release.placement_writer import PlacementWriter
from extender.tasks.release.pods import PodReleaser
from extender.tasks.release.reports import Reports
from extender.verbs.release.progress import GroupState
from extender.wire.group_placements import status_body
from extender.wire.kinds import GROUP_PLACEMENTS, PODS
from extender.wire.pod_updates.rules import allowed
from tests.fakes import PATIENCE
from tests.gangs import gated_json, release_policy

Json = dict[str, Any]
POLICY = "ClusterPodSchedulingPolicy/gangs"
NOON = datetime(2026, 1, 1, 0, 0, 0, tzinfo=UTC)  # when the pods of `tests.gangs` were created


class TestClock:
    """Time passes when all tasks sleep: `advance` moves it to the next sleeper, or by so many seconds."""

    __test__ = False

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        """The time as it stands."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Waits until the time has been advanced by so much."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, done))
        await done

    def utc_now(self) -> datetime:
        """The wall clock."""
        return NOON + timedelta(seconds=self.time - 1000.0)

    async def advance(self, seconds: float) -> None:
        """Lets the time pass, sleeper after sleeper."""
        end = self.time + seconds
        while True:
            await settle()
            self._sleepers = [each for each in self._sleepers if not each[1].done()]
            first = min((when for when, _ in self._sleepers), default=end + 1)
            if first > end:
                break
            self.time = max(self.time, first)
            for when, done in self._sleepers:
                if when <= self.time and not done.done():
                    done.set_result(None)
        self.time = end
        await settle()


async def settle() -> None:
    """Lets every task run until it waits for something that only a test or the clock brings."""
    for _ in range(60):
        await asyncio.sleep(0)


class FakeApi:
    """Pods and GroupPlacements as an API server keeps them, by the rules of updates. ``calls`` are all requests, in order.

    ``fail`` is asked before each request and may raise; ``lose_answer`` raises after the write was made.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.placements: dict[str, Json] = {}
        self.calls: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.fail: Callable[[str, str], KubeError | None] = lambda _call, _name: None
        self.lose_answer: Callable[[str, str], KubeError | None] = lambda _call, _name: None
        self._version = 0

    def add(self, body: Json) -> Json:
        """Stores a pod or a GroupPlacement under a new version."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        (self.pods if body.get("kind") != "GroupPlacement" else self.placements)[_key(body)] = body
        return body

    async def get_pod(self, pod: PodRef) -> Json:
        self._begin("get_pod", pod.name)
        return _copied(_found(self.pods, f"{pod.namespace}/{pod.name}"))

    async def release_pod(self, pod: PodRef, patch: Json) -> Json:
        self._begin("release_pod", pod.name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        old = _found(self.pods, f"{pod.namespace}/{pod.name}")
        meta = patch["metadata"]
        if (meta["uid"], meta["resourceVersion"]) != (old["metadata"]["uid"], old["metadata"]["resourceVersion"]):
            raise Conflict("409 changed", status=409)
        new = _copied(old)
        new["metadata"]["annotations"] = {**(old["metadata"].get("annotations") or {}), **meta["annotations"]}
        removed = {each["name"] for each in patch["spec"]["schedulingGates"] if each.get("$patch") == "delete"}
        new["spec"]["schedulingGates"] = [
            each for each in old["spec"].get("schedulingGates") or () if each["name"] not in removed
        ]
        new["spec"]["nodeSelector"] = {
            **(old["spec"].get("nodeSelector") or {}),
            **patch["spec"].get("nodeSelector", {}),
        }
        verdict = allowed(old, new)
        if not verdict.is_allowed:
            self.refused.append(pod.name)
            raise Rejected(f"422 {verdict}", status=422, reason="Invalid")
        self.add(new)
        self._end("release_pod", pod.name)
        return new

    async def get_placement(self, namespace: str, name: str) -> tuple[GroupPlacement, str]:
        self._begin("get_placement", name)
        found = _found(self.placements, f"{namespace}/{name}")
        return _placement(found), found["metadata"]["resourceVersion"]

    async def create_placement(self, body: Json) -> GroupPlacement:
        self._begin("create_placement", body["metadata"]["name"])
        if _key(body) in self.placements:
            raise Conflict("409 exists", status=409)
        body = _copied(body)
        body["metadata"]["uid"] = f"uid-{self._version}"
        self.add(body)
        self._end("create_placement", body["metadata"]["name"])
        return _placement(body)

    async def update_placement(self, body: Json) -> GroupPlacement:
        self._begin("update_placement", body["metadata"]["name"])
        old = _found(self.placements, _key(body))
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise Conflict("409 changed", status=409)
        self.add({**old, "metadata": dict(old["metadata"]), "spec": body["spec"]})
        self._end("update_placement", body["metadata"]["name"])
        return _placement(self.placements[_key(body)])

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        self._begin("patch_placement_status", placement.name)
        old = _found(self.placements, placement.key)
        self.add({**old, "metadata": dict(old["metadata"]), "status": status_body(status, since)})
        self._end("patch_placement_status", placement.name)

    async def delete_placement(self, placement: GroupPlacement) -> None:
        self._begin("delete_placement", placement.name)
        _found(self.placements, placement.key)
        del self.placements[placement.key]

    def _begin(self, call: str, name: str) -> None:
        self.calls.append((call, name))
        error = self.fail(call, name)
        if error is not None:
            raise error

    def _end(self, call: str, name: str) -> None:
        error = self.lose_answer(call, name)
        if error is not None:
            raise error


def _found(table: dict[str, Json], key: str) -> Json:
    if key not in table:
        raise NotFound("404", status=404)
    return table[key]


def _copied(body: Json) -> Json:
    found: Json = orjson.loads(orjson.dumps(body))
    return found


def _key(body: Json) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _placement(body: Json) -> GroupPlacement:
    return GROUP_PLACEMENTS.decode_object(orjson.dumps(body))


class Counts:
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


class Scene:
    """``room``: pods that fit into each zone, beside those that have a slot or a node there."""

    def __init__(self, rooms: dict[str, int], **release: Any) -> None:
        self.api = FakeApi()
        self.clock = TestClock()
        self.counts = Counts()
        self.events: list[PodEvent] = []
        self.rooms = rooms
        self.index = ClusterIndex(Rules())
        self.policy = release_policy(**({"size": GroupSize(label="size")} | release))
        self.index.upsert(PolicyObject(self.policy))
        self.manager = self.leader()

    def leader(self) -> ReleaseManager:
        """A manager that remembers nothing."""
        clock, index = self.clock, self.index
        groups = IndexGroups(index.gated, index.pods)
        placements = PlacementWriter(self.api, index.placements, RateLimiter(clock, 4, 1000), clock.utc_now)
        budget = NamespaceBudget(index.reserved, 50, 200)
        parts = Parts(
            groups,
            index.placements,
            Decisions(Room(self.propose, budget, index.reserved, 300), placements, clock, clock.utc_now, self.counts),
            index.reserved,
            placements,
            PodReleaser(self.api, RateLimiter(clock, 8, 1000), clock, BackoffOptions(0.1, 1.0), Random(1)),
            Reports(placements, self, clock, clock.utc_now),
            self.counts,
        )
        sources = (index.room_changes, index.reserved.changes)
        options = ManagerOptions(keep_empty=300, expectation=60)
        return ReleaseManager(
            parts, clock, clock.utc_now, index.gated.changes, index.placements.changes, sources, options
        )

    def record(self, event: PodEvent) -> None:
        """Takes an event."""
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
    ) -> Proposal:
        """The tightest zone that holds the pods without a node; a node of a zone has the zone's name."""
        pods = [pod.uid for pod in (*group.waiting, *group.released)]
        rejected = []
        zones = sorted(self.rooms, key=lambda zone: (self.free(zone), zone))
        for zone in zones if not levels else [levels[0].value]:
            own = sum(self.index.reserved.node_of(uid) == zone for uid in pods)
            free = self.free(zone) + own
            owner = next((key for key, there in taken if there and there[0].value == zone), None)
            if owner is not None and not levels:
                rejected.append(RejectedDomain(Level("zone", zone), len(pods), taken_by=str(owner)))
                continue
            if free >= len(pods):
                return Proposal((Level("zone", zone),), tuple(Slot(uid, zone) for uid in pods))
            rejected.append(RejectedDomain(Level("zone", zone), len(pods), free))
        return Proposal(rejected=tuple(rejected))

    def free(self, zone: str) -> int:
        """Room that nothing has."""
        bound = sum(pod.node == zone for pod in self.index.pods.values())
        return self.rooms.get(zone, 0) - bound - len(self.index.reserved.by_node.get(zone, ()))

    # -- what a test does -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[ReleaseManager]:
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
        for body in list(self.api.pods.values()):
            if not names or body["metadata"]["name"] in names:
                self.index.upsert(PODS.decode_object(orjson.dumps(body)))
        if not names:
            there = {body["metadata"]["uid"] for body in self.api.pods.values()}
            for pod in [pod for uid, pod in self.index.pods.items() if uid not in there]:
                self.index.delete(pod)
            self.show_placements()

    def show_placements(self) -> None:
        """The watch shows the objects of groups as they are."""
        shown = {_placement(body).key for body in self.api.placements.values()}
        for body in self.api.placements.values():
            self.index.upsert(_placement(body))
        for placement in [each for each in self.index.placements if each.key not in shown]:
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
        """Deletes a pod and shows that."""
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
        """Another version of the policy."""
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
