"""What a step of a group writes: its decision, the release of its pods, and what it tells; and what is remembered of that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from extender.index.claims.reserved import Reservations
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError
from extender.kube.timing import Clock
from extender.model.release import Decision, GroupKey, Level, Phase, is_own_group
from extender.model.units import counted
from extender.settings.policies import Release
from extender.tasks.events import EventRecorder
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.release.groups import BEGIN_AFTER, GroupMemory, event_of
from extender.tasks.release.writes import PlacementWriter, PodReleaser, Result
from extender.telemetry.metrics import ReleaseMetrics
from extender.verbs.release.progress import Do, GroupState, Reason, Step, status_of

_LOG = logging.getLogger(__name__)


class StepWriter:
    """Each method writes one thing, and notes the outcome in the memory of the group.

    ``reserved``: room is given up where a decision cannot be written. ``come_back``: has a group worked on again at a time.
    `LeadershipLost` is raised; other failures of the API server are outcomes.
    """

    def __init__(
        self,
        placements: PlacementWriter,
        pods: PodReleaser,
        reserved: Reservations,
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
        self._reserved = reserved
        self._events = events
        self._recorder = recorder
        self._clock = clock
        self._utc_now = utc_now
        self._settings = settings
        self._come_back = come_back

    async def decide(self, group: GroupState, memory: GroupMemory, levels: tuple[Level, ...]) -> Step:
        """Writes a decision down. Where that fails its room is given up; if it was written after all, the next try finds it."""
        decided = self._utc_now().replace(microsecond=0)  # what the API server keeps
        decision = Decision(group.key, group.spec.gate, max(group.size, 1), levels, decided)
        memory.levels, memory.claimed_until = levels, self._clock.now() + self._settings.reservation
        try:
            stands = await self._placements.decide(decision, memory.decision, await self._owner(group))
        except LeadershipLost:
            raise
        except KubeError as error:
            self._reserved.release(group.key)
            memory.levels, memory.claimed_until = None, 0.0
            memory.wait(self._clock.now())
            return Step(Do.WAIT, Phase.DECIDING, Reason.NOT_WRITTEN, f"the decision cannot be written: {error}")
        memory.decision, memory.levels = stands, stands.levels
        memory.progress(self._clock.now())
        if stands != decision:
            self._reserved.release(group.key)
        where = ", ".join(map(str, stands.levels)) or "any node"
        _LOG.info("decided", extra={"group": str(group.key), "policy": group.key.policy, "domain": where})
        return Step(Do.RELEASE, Phase.DECIDED, Reason.DECIDED, f"{counted(group.ready, 'pod')} may go to {where}")

    async def _owner(self, group: GroupState) -> Mapping[str, str] | None:
        """What the object is deleted with: the controller where that makes the group, or the pod that is one of its own."""
        pod = PodRef.of(next(iter((*group.waiting, *group.released, *group.bound))))
        if is_own_group(group.key):
            return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        return None if group.spec.group_label else await self._pods.owner_of(pod)

    async def release(self, group: GroupState, memory: GroupMemory, decision: Decision, step: Step) -> Step:
        """Releases the pods of a step, each with a patch of its own. They count as released from before the first one."""
        memory.has_expired = False
        self._expect(group, memory, [pod.uid for pod in step.pods])
        outcomes = await self._pods.release_all(step.pods, decision)
        failed = ""
        for pod, (result, error) in zip(step.pods, outcomes, strict=True):
            self._recorder.record_patch(str(result))
            if result in {Result.RELEASED, Result.ALREADY, Result.UNKNOWN}:
                continue  # the watch shows it, or the pod is read when the expectation expires
            memory.sent.pop(pod.uid, None)
            if result is Result.GONE:
                memory.gone.add(pod.uid)
            elif result is Result.REFUSED:
                self._come_back(group.key, memory.refuse(pod.uid, error, self._clock.now()))
                _LOG.warning("a release was refused", extra={"pod": pod.full_name, "error": error})
            else:
                failed = f"{pod.name}: {error}"
        if failed:
            memory.problem = failed
            self._come_back(group.key, memory.wait(self._clock.now()))
            return Step(Do.WAIT, Phase.DEGRADED, Reason.FAILED, failed)
        memory.progress(self._clock.now())
        if not memory.is_placed and len(step.pods) + len(group.released) + len(group.bound) >= decision.size:
            memory.is_placed = True
            self._recorder.record_wait(self._clock.now() - memory.first_seen)
        return Step(Do.RELEASE, Phase.RELEASING, Reason.RELEASING, step.message)

    def _expect(self, group: GroupState, memory: GroupMemory, uids: Sequence[str]) -> None:
        """These pods count as released, until the watch shows it or they are read."""
        until = self._clock.now() + self._settings.expectation
        memory.sent.update(dict.fromkeys(uids, until))
        self._come_back(group.key, until)

    async def read_late(self, group: GroupState, memory: GroupMemory) -> None:
        """Reads the pods whose expectation has expired: the event may be lost, or the patch."""
        by_uid, now = {pod.uid: pod for pod in group.waiting}, self._clock.now()
        for uid in [uid for uid, until in memory.sent.items() if now >= until]:
            pod = by_uid.get(uid)
            self.expired += 1
            try:
                is_gated = pod is not None and await self._pods.is_gated(PodRef.of(pod), group.spec.gate)
            except KubeError:
                is_gated = False  # unknown: it counts as released for as long again
            if is_gated or is_gated is None:
                memory.sent.pop(uid, None)
            else:
                self._expect(group, memory, [uid])

    async def tell(self, group: GroupState, memory: GroupMemory, step: Step) -> None:
        """Records the event of a step, and writes the status of the group when it is due."""
        before, memory.step = memory.step, step
        is_news = before is None or (before.phase, before.reason) != (step.phase, step.reason)
        if is_news:
            event = event_of(group, memory.sent, step, self._utc_now())
            if event is not None:
                self._events.record(event)
        status = status_of(group, step)
        known, now = self._placements.find(group.key), self._clock.now()
        if known is not None and (memory.told or known.status) == status:
            return
        due = memory.status_due(is_written=known is not None, is_news=is_news, now=now)
        if now < due:
            self._come_back(group.key, due)
            return
        memory.told, memory.told_at = None, now
        try:
            if known is None and memory.decision is not None:
                await self._placements.decide(memory.decision, memory.decision)  # the object was deleted
            elif known is None:
                await self._placements.begin(group.key, group.spec.gate, max(group.size, 1))
            await self._placements.tell(group.key, status)
            memory.told = status
        except LeadershipLost:
            raise
        except KubeError as error:
            _LOG.warning("a status cannot be written", extra={"group": str(group.key), "error": str(error)})
            self._come_back(group.key, now + BEGIN_AFTER)
