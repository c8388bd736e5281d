"""Writes a release: the GroupPlacement with the decision and its status, and the patch of each pod.

The decision is written before the first pod is patched (`StepWriter.decide`). So a leader that takes over finds it in the
GroupPlacement (`PlacementWriter.find`), and continues with the pods that still have their gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from random import Random
from typing import Any, Final, NamedTuple

from extender.index.cluster import ClusterIndex
from extender.index.gated import Placements
from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import (
    FORBIDDEN_SECONDS,
    Conflict,
    KubeError,
    NotFound,
    Rejected,
    Throttled,
    is_forbidden,
    may_be_made,
)
from extender.kube.timing import Backoff, BackoffOptions, Clock
from extender.kube.writer import ReleaseObjects
from extender.model.group_placements import MOST_RECORDED, GroupPlacement, PlacementStatus, placement_name
from extender.model.objects import Pod
from extender.model.release import GroupDecision, GroupKey, GroupPhase, Level, is_own_group
from extender.model.units import counted
from extender.settings.policies import Release
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.groups import GroupMemory, Report
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import (
    STUCK,
    Do,
    GroupState,
    GroupStep,
    Inexpressible,
    WaitReason,
    in_order,
    release_patch,
    status_of,
)
from extender.verbs.release.states import (
    Adopted,
    AllReleased,
    NoAnswer,
    NotReleased,
    NotWritten,
    Placed,
    Sent,
    StillSent,
    Unanswered,
    Written,
)
from extender.wire.policies.group_placements import decision_body, undecided_body

JsonObject = dict[str, Any]

_LOG = logging.getLogger(__name__)

MOST_TRIES: Final = 5
_AT_ONCE: Final = 500
_REFUSED_FOR: Final = 300.0
_COUNTS_EVERY: Final = 1.0
_BEGIN_AFTER: Final = 5.0  # a group that is decided before has its object created with the decision
_FORBIDDEN_WAIT: Final = 0.5  # seconds; longer than an API server takes to read the roles, mostly


class Result(StrEnum):
    """How the release of a pod ended. A label of the metric: a closed set."""

    RELEASED = "released"
    ALREADY = "already"  # without the gate when it was read
    GONE = "gone"  # deleted, or the name belongs to another pod
    REFUSED = "refused"  # 422, or no patch can narrow it: it would be refused again
    FORBIDDEN = "forbidden"  # 403: RBAC, or an admission plugin
    CONFLICT = "conflict"  # 409, each time
    UNKNOWN = "unknown"  # no answer, 429 or 5xx, each time


class WriteOutcome(NamedTuple):
    """The result, and the text of the last error."""

    result: Result
    error: str = ""


class PodReleaser:
    """Releases pods under one rate limiter, with at most two requests for each try.

    A patch that was not answered may have been applied. The pod is read before each try, so the patch is sent only while the
    pod has the gate, and repeating it does no harm.
    """

    def __init__(
        self, store: ReleaseObjects, rate_limiter: RateLimiter, clock: Clock, backoff: BackoffOptions, rng: Random
    ) -> None:
        self._store = store
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._backoff = backoff
        self._rng = rng

    async def release(self, pod: PodRef, decision: GroupDecision) -> WriteOutcome:
        """Raises ``LeadershipLost``; every other failure is a result."""
        backoff, last = None, WriteOutcome(Result.UNKNOWN)
        for number in range(MOST_TRIES):
            if number:
                backoff = backoff or Backoff(self._backoff, self._rng)
                await self._clock.sleep(backoff.next())
            try:
                async with self._rate_limiter.acquire(pod.namespace):
                    return await self._try(pod, decision)
            except Conflict as error:
                last = WriteOutcome(Result.CONFLICT, str(error))
            except Throttled as error:
                last = WriteOutcome(Result.UNKNOWN, str(error))
                await self._clock.sleep(error.retry_after)
            except LeadershipLost:
                raise
            except Rejected as error:
                is_forbidden = error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}
                return WriteOutcome(Result.FORBIDDEN if is_forbidden else Result.REFUSED, str(error))
            except KubeError as error:
                last = WriteOutcome(Result.UNKNOWN, str(error))
        return last

    async def release_all(self, pods: Sequence[Pod], decision: GroupDecision) -> list[WriteOutcome]:
        """The outcomes in the order of the pods. At most `_AT_ONCE` pods wait for the rate limiter, because each is a task."""
        outcomes: list[WriteOutcome] = []
        for start in range(0, len(pods), _AT_ONCE):
            refs = [_ref(decision.group, pod) for pod in pods[start : start + _AT_ONCE]]
            outcomes += await asyncio.gather(*[self.release(ref, decision) for ref in refs])
        return outcomes

    async def owner_of(self, pod: PodRef) -> dict[str, str] | None:
        """A reference to the controller of a pod; None where it has none, or where it cannot be read."""
        try:
            async with self._rate_limiter.acquire(pod.namespace):
                obj = await self._store.get_pod(pod)
        except KubeError:
            return None
        owners = obj["metadata"].get("ownerReferences") or ()
        fields = ("apiVersion", "kind", "name", "uid")
        return next(({name: str(owner[name]) for name in fields} for owner in owners if owner.get("controller")), None)

    async def is_gated(self, pod: PodRef, gate: str) -> bool | None:
        """Whether the pod has the gate, by a read; None if the API server has no such pod. Raises ``KubeError``."""
        try:
            async with self._rate_limiter.acquire(pod.namespace):
                obj = await self._store.get_pod(pod)
        except NotFound:
            return None
        if obj["metadata"].get("uid") != pod.uid:
            return None
        return any(entry.get("name") == gate for entry in obj["spec"].get("schedulingGates") or ())

    async def _try(self, pod: PodRef, decision: GroupDecision) -> WriteOutcome:
        try:
            obj = await self._store.get_pod(pod)
            if obj["metadata"].get("uid") != pod.uid:
                return WriteOutcome(Result.GONE)
            patch = release_patch(obj, decision)
            if patch is None:
                return WriteOutcome(Result.ALREADY)
            if isinstance(patch, Inexpressible):
                return WriteOutcome(Result.REFUSED, str(patch))
            await self._store.release_pod(pod, patch)
        except NotFound:
            return WriteOutcome(Result.GONE)
        return WriteOutcome(Result.RELEASED)


class PlacementWriter:
    """Writes decisions and their status to GroupPlacements. Each method raises ``KubeError``.

    1. A decision is written before the first pod of its group is patched.
    2. A decision of an earlier leader is kept, also if the watch does not show it yet: the write conflicts, and it is read.
    3. Between a write and its watch event the written object counts.
    """

    def __init__(
        self,
        store: ReleaseObjects,
        shown: Placements,
        rate_limiter: RateLimiter,
        utc_now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._shown = shown
        self._rate_limiter = rate_limiter
        self._utc_now = utc_now
        self._written: dict[GroupKey, GroupPlacement] = {}

    def find(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group, as it was written last or as the watch shows it."""
        return self._written.get(group) or self._shown.of(group)

    def observe(self, group: GroupKey) -> None:
        """Call when the watch shows the object of a group. With the same decision it replaces the written object."""
        written, shown = self._written.get(group), self._shown.of(group)
        if (
            written is not None
            and shown is not None
            and shown.uid == written.uid
            and (shown.decision, shown.pods) == (written.decision, written.pods)
        ):
            del self._written[group]

    def forget(self) -> None:
        """Forgets all written objects, because another leader may have written since."""
        self._written.clear()

    async def decide(
        self,
        decision: GroupDecision,
        replaces: GroupDecision | None,
        owner: Mapping[str, str] | None = None,
        pods: Collection[str] | None = None,
    ) -> GroupDecision:
        """Writes a decision; returns the valid one, which may be an earlier one. ``replaces``: the decision to overwrite.

        It is not written twice if an earlier write of it took effect.

        ``pods``: the UIDs to record with it; None if its policy counts no domains.
        """
        group = decision.group
        async with self._rate_limiter.acquire(group.namespace):
            known = self.find(group)
            if known is None:
                try:
                    self._written[group] = await self._store.create_placement(decision_body(decision, "", owner, pods))
                except Conflict:
                    pass  # it exists; it is read below
                else:
                    return decision
            try:
                placement, version = await self._store.get_placement(group.namespace, placement_name(group))
            except NotFound:
                self._written.pop(group, None)  # the watch shows one that was deleted
                self._written[group] = await self._store.create_placement(decision_body(decision, "", owner, pods))
                return decision
            stands = placement.decision
            # Only the decision that is to be replaced may be overwritten. Any other decision stays, because pods may
            # have been released by it. An earlier write of this decision may have taken effect, with other pods.
            is_written = stands == decision and (pods is None or placement.pods == tuple(pods))
            if stands is not None and (is_written or stands not in {decision, replaces}):
                self._written[group] = placement
                return stands
            body = decision_body(decision, version, owner, placement.pods if pods is None else pods)
            self._written[group] = await self._store.update_placement(body)
            return decision

    async def record(self, decision: GroupDecision, pods: Collection[str]) -> None:
        """Replaces the recorded UIDs in the object of a decided group."""
        group = decision.group
        async with self._rate_limiter.acquire(group.namespace):
            placement, version = await self._store.get_placement(group.namespace, placement_name(group))
            if placement.decision == decision and placement.pods != tuple(pods):
                placement = await self._store.update_placement(decision_body(decision, version, pods=pods))
            self._written[group] = placement

    async def begin(self, group: GroupKey, gate: str, size: int) -> None:
        """Creates the object of an undecided group, so that its status can say why the group waits."""
        async with self._rate_limiter.acquire(group.namespace):
            try:
                self._written[group] = await self._store.create_placement(undecided_body(group, gate, size))
            except Conflict:
                placement, _ = await self._store.get_placement(group.namespace, placement_name(group))
                self._written[group] = placement

    async def write_status(self, group: GroupKey, status: PlacementStatus, since: datetime | None = None) -> None:
        """Writes the status. Does nothing where there is no object."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            try:
                await self._store.patch_placement_status(known, status, since or self._utc_now())
            except (NotFound, Conflict):
                self._written.pop(group, None)
                raise

    async def delete(self, group: GroupKey) -> None:
        """Deletes the object of a group whose pods are gone."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            with suppress(NotFound, Conflict):
                await self._store.delete_placement(known)
            self._written.pop(group, None)


class StepWriter:
    """Each method writes one thing, and notes the outcome in the memory of the group.

    Room in the index is given up where a decision cannot be written. ``come_back``: has a group worked on again at a time.
    `LeadershipLost` is raised; other failures of the API server are outcomes.
    """

    def __init__(
        self,
        placements: PlacementWriter,
        pods: PodReleaser,
        index: ClusterIndex,
        events: EventRecorder,
        recorder: ReleaseMetrics,
        clock: Clock,
        utc_now: Callable[[], datetime],
        settings: Release,
        come_back: Callable[[GroupKey, float], None],
    ) -> None:
        self.expired = 0
        self._placements = placements
        self._pods = pods
        self._index = index
        self._events = events
        self._recorder = recorder
        self._clock = clock
        self._utc_now = utc_now
        self._settings = settings
        self._come_back = come_back

    async def decide(self, group: GroupState, memory: GroupMemory, levels: tuple[Level, ...]) -> GroupStep:
        """Writes a decision, or once more the decision whose write was not answered, if it has these levels."""
        # 1. Without an answer the decision may stand. The group keeps its room and its domain, and the decision is written again.
        #    The write is repeated even where a read shows the old decision, because it may still take effect.
        # 2. After any other failure it does not stand, and the room is given up.
        # 3. An earlier decision stands that is not the one to be replaced: it is followed.
        if isinstance(memory.state, Unanswered):
            decision = memory.state.decision
        else:
            decided = self._utc_now().replace(microsecond=0)  # what the API server keeps
            decision = GroupDecision(group.key, group.spec.gate, max(group.size, 1), levels, decided)
        pods = [pod.uid for pod in group.waiting][:MOST_RECORDED] if group.spec.counts_domains else None
        try:
            stands = await self._write_decision(group, memory, decision, pods)
        except LeadershipLost:
            raise
        except KubeError as error:
            memory.record(NoAnswer(decision) if may_be_made(error) else NotWritten())
            if not isinstance(memory.state, Unanswered):
                self._index.reserved.release(group.key)
            memory.wait(self._clock.now())
            return GroupStep(
                Do.WAIT, GroupPhase.DECIDING, WaitReason.NOT_WRITTEN, f"the decision cannot be written: {error}"
            )
        memory.record(Written(stands))
        memory.goal = memory.goal.reached(self._clock.now())
        if stands != decision:
            self._index.reserved.release(group.key)
        elif pods:
            self._index.gated.record(group.key, stands.levels, pods)
        where = ", ".join(map(str, stands.levels)) or "any node"
        _LOG.info("decided", extra={"group": str(group.key), "policy": group.key.policy, "domain": where})
        return GroupStep(
            Do.RELEASE, GroupPhase.DECIDED, WaitReason.DECIDED, f"{counted(group.ready, 'pod')} may go to {where}"
        )

    async def _write_decision(
        self, group: GroupState, memory: GroupMemory, decision: GroupDecision, pods: Collection[str] | None
    ) -> GroupDecision:
        """The decision that stands. A 403 is repeated for `FORBIDDEN_SECONDS`, and the group keeps its room meanwhile."""
        owner, until = await self._owner(group), self._clock.now() + FORBIDDEN_SECONDS
        while True:
            try:
                return await self._placements.decide(decision, memory.decision, owner, pods)
            except KubeError as error:
                if not is_forbidden(error) or self._clock.now() >= until:
                    raise
            await self._clock.sleep(_FORBIDDEN_WAIT)

    async def _owner(self, group: GroupState) -> Mapping[str, str] | None:
        """The owner of the object, with which it is deleted: the controller of the group, or the single pod of a group of one."""
        pod = next(iter((*group.waiting, *group.released, *group.bound)))
        if is_own_group(group.key):
            return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        return None if group.spec.group_label else await self._pods.owner_of(_ref(group.key, pod))

    async def release(
        self, group: GroupState, memory: GroupMemory, decision: GroupDecision, step: GroupStep
    ) -> GroupStep:
        """Releases the pods of a step, one patch each. They count as released from before the first patch."""
        if failed := await self._record(group, decision, [pod.uid for pod in step.pods]):
            return self._failed(group, memory, failed)
        # Before the patches: the watch may show a released pod before its patch is answered.
        memory.record(Sent([pod.uid for pod in step.pods], self._expect(group)))
        outcomes = await self._pods.release_all(step.pods, decision)
        failed, unsent, absent, refusals = "", set[str](), set[str](), dict[str, str]()
        for pod, (result, error) in zip(step.pods, outcomes, strict=True):
            self._recorder.record_patch(str(result))
            if result in {Result.RELEASED, Result.ALREADY, Result.UNKNOWN}:
                continue  # the watch shows it, or the pod is read when the expectation expires
            if result is Result.GONE:
                absent.add(pod.uid)
            elif result is Result.REFUSED:
                refusals[pod.uid] = error
                _LOG.warning("a release was refused", extra={"pod": pod.full_name, "error": error})
            else:
                unsent.add(pod.uid)
                failed = f"{pod.name}: {error}"
        again = self._clock.now() + _REFUSED_FOR
        if unsent or absent or refusals:
            memory.record(NotReleased(frozenset(unsent), frozenset(absent), refusals, again))
        if refusals:
            self._come_back(group.key, again)
        if failed:
            return self._failed(group, memory, failed)
        memory.goal = memory.goal.reached(self._clock.now())
        is_placed = isinstance(memory.decided, Placed)
        if not is_placed and len(step.pods) + len(group.released) + len(group.bound) >= decision.size:
            memory.record(AllReleased())
            self._recorder.record_wait(self._clock.now() - memory.first_seen)
        return GroupStep(Do.RELEASE, GroupPhase.RELEASING, WaitReason.RELEASING, step.message)

    def _failed(self, group: GroupState, memory: GroupMemory, problem: str) -> GroupStep:
        self._come_back(group.key, memory.wait(self._clock.now(), problem))
        return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.FAILED, problem)

    async def _record(self, group: GroupState, decision: GroupDecision, pods: Sequence[str]) -> str:
        """Records pods with their group if its policy counts domains. Why that failed; empty if it did not."""
        if not group.spec.counts_domains:
            return ""
        before = self._index.gated.recorded_in(group.key)
        missing = set(pods).difference(before)
        if not missing:
            return ""
        if len(before) + len(missing) > MOST_RECORDED:
            return f"the object of a group records no more than {counted(MOST_RECORDED, 'pod')}"
        try:
            await self._placements.record(decision, sorted(missing.union(before)))
        except LeadershipLost:
            raise
        except KubeError as error:
            return f"the pods cannot be recorded: {error}"
        self._index.gated.record(group.key, decision.levels, missing)
        return ""

    async def catch_up_records(self, group: GroupState, memory: GroupMemory) -> None:
        """Records the pods that the object of a group lacks, in two cases.

        1. They were released before the policy counted domains.
        2. They are adopted: they went without the gate into a domain that the policy limits, and are decided after the fact.
        """
        out = (*group.released, *group.bound)
        if not (out and group.spec.counts_domains):
            return
        placement, adopted = self._placements.find(group.key), self._index.gated.records.get(out[0].uid)
        failed = ""
        if placement is not None and placement.decision is not None:
            if placement.pods is None:
                failed = await self._record(group, placement.decision, [pod.uid for pod in out])
        elif is_own_group(group.key) and adopted is not None and memory.decided is None:
            levels = () if adopted.level is None else (adopted.level,)
            decided = self._utc_now().replace(microsecond=0)
            decision = GroupDecision(group.key, group.spec.gate, 1, levels, decided)
            try:
                owner = await self._owner(group)
                memory.record(Adopted(await self._placements.decide(decision, None, owner, [out[0].uid])))
            except LeadershipLost:
                raise
            except KubeError as error:
                failed = str(error)
        if failed:
            _LOG.warning("released pods are not recorded", extra={"group": str(group.key), "error": failed})
            self._come_back(group.key, self._clock.now() + _BEGIN_AFTER)

    def _expect(self, group: GroupState) -> float:
        """Until when pods count as released. Then they are read, if the watch has not shown it."""
        until = self._clock.now() + self._settings.expectation
        self._come_back(group.key, until)
        return until

    async def read_late(self, group: GroupState, memory: GroupMemory) -> None:
        """Reads the pods whose release was sent and is not shown in time: the event or the patch may be lost."""
        by_uid, now = {pod.uid: pod for pod in group.waiting}, self._clock.now()
        gated, out = set[str](), set[str]()
        for uid in [uid for uid, until in memory.pods.sent.items() if now >= until]:
            pod = by_uid.get(uid)
            self.expired += 1
            try:
                is_gated = pod is not None and await self._pods.is_gated(_ref(group.key, pod), group.spec.gate)
            except KubeError:
                is_gated = False  # unknown: it counts as released for as long again
            (out if is_gated is False else gated).add(uid)
        if gated:
            memory.record(NotReleased(frozenset(gated)))
        if out:
            memory.record(StillSent(out, self._expect(group)))

    async def report(self, group: GroupState, memory: GroupMemory, step: GroupStep) -> None:
        """Records the event of a step, and writes the status of the group when it is due."""
        before = memory.report
        memory.report = replace(before, step=step)
        is_news = before.step is None or (before.step.phase, before.step.reason) != (step.phase, step.reason)
        if is_news:
            event = _event_of(group, memory.pods.sent, step, self._utc_now())
            if event is not None:
                self._events.record(event)
        status = status_of(group, step)
        known, now = self._placements.find(group.key), self._clock.now()
        if known is not None and (before.status or known.status) == status:
            return
        # At once if the phase or the reason changes; if only counts change, once a second.
        due = now if is_news else before.written_at + _COUNTS_EVERY
        if known is None and memory.decided is None:
            due = max(before.written_at + _COUNTS_EVERY, memory.first_seen + _BEGIN_AFTER)
        if now < due:
            self._come_back(group.key, due)
            return
        # Cleared first: after a failed write it is not known what the object has.
        memory.report = Report(step, None, now)
        try:
            if known is None and memory.decision is not None:
                pods = self._index.gated.recorded_in(group.key) if group.spec.counts_domains else None
                await self._placements.decide(memory.decision, memory.decision, None, pods)  # the object was deleted
            elif known is None:
                await self._placements.begin(group.key, group.spec.gate, max(group.size, 1))
            await self._placements.write_status(group.key, status)
            memory.report = Report(step, status, now)
        except LeadershipLost:
            raise
        except KubeError as error:
            _LOG.warning("a status cannot be written", extra={"group": str(group.key), "error": str(error)})
            self._come_back(group.key, now + _BEGIN_AFTER)


def _event_of(group: GroupState, sent: Container[str], step: GroupStep, at: datetime) -> ObjectEvent | None:
    """An event if the group is stuck, decided or completely bound: on its first waiting pod, or else on its first pod.

    ``sent``: UIDs of pods whose release was sent.
    """
    is_warning = step.reason in STUCK or step.phase in {GroupPhase.TIMED_OUT, GroupPhase.DEGRADED}
    if not is_warning and step.phase not in {GroupPhase.DECIDED, GroupPhase.BOUND}:
        return None
    waiting = in_order([pod for pod in group.waiting if pod.uid not in sent])
    pods = (*waiting, *(pod for pod, _ in group.blocked), *group.waiting, *group.released, *group.bound)
    kind, reason = "Warning" if is_warning else "Normal", f"Group{step.reason}"
    note = f"group {group.key.value} of {group.key.policy}: {step.phase}: {step.message}"
    return ObjectEvent(_ref(group.key, pods[0]), kind, reason, "Release", note, at) if pods else None


def _ref(group: GroupKey, pod: Pod) -> PodRef:
    """The pod of a group, whose namespace is the group's. Its UID excludes a later pod of the same name."""
    return PodRef(group.namespace, pod.name, pod.uid)
