"""Preemptions under way: who is being made room for, from the plan to the binding.

One record per preemptor. A plan is *carried out* (its writes are being made), then *awaited* (its victims are on their
way out), then *watched* until the preemptor is bound or gone. Nobody is left without a next step: where the writes
fail, or the preemptor stays pending, its nomination is taken back and it is woken, and the scheduler begins anew.

Facts this rests on: a promise in the index holds from `submit` until the nomination shows in the watch and every
victim is going or gone, so that verbs never see the room free in between; what must survive a restart stands in the
cluster itself (nomination, DisruptionTarget), and `recover` reads it from there. KEP-4832.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.plans import PreemptionPlan
from extender.tasks.ports import Clock
from extender.tasks.preemption_executor import PreemptionExecutor, PreemptorGoneError
from extender.tasks.requeue import FollowUp, Requeuer
from extender.tasks.retrying_writer import GaveUpError

_LOG = logging.getLogger(__name__)
_SWEEP_SECONDS: Final = 0.2
_RENOMINATE_AFTER: Final = 1.0  # longer than the watch takes to show a nomination


class PromisingIndex(Protocol):
    """What preempting needs of the index."""

    @property
    def view(self) -> ClusterView:
        """The readers."""

    def promise(self, pod: Pod, node: str, victims: Collection[str]) -> None:
        """The node counts as the pod's own until `withdraw`."""

    def withdraw(self, uid: str) -> None:
        """The pod's own status says by now what the promise said."""

    def forget(self, uid: str) -> None:
        """The plan is over."""


class Observer(Protocol):
    """Who counts what happens; the metrics, by shape. Results: success, error, abandoned, cancelled."""

    def began(self, victims: int, violations: int) -> None:
        """A plan has been taken on, for which so many pods have to go that would have stayed otherwise."""

    def carried_out(self, result: str, seconds: float) -> None:
        """Its writes have come to an end."""

    def ended(self, outcome: str, seconds: float) -> None:
        """The preemptor is bound, gone, released or replaced by another plan; since the plan was taken on."""


class Phase(Enum):
    """How far a preemption is."""

    CARRIED_OUT = "carried out"
    AWAITED = "awaited"
    WATCHED = "watched"


@dataclass(slots=True)
class Record:
    """One preemption. ``since``: when its phase began. ``displaced``: a more important pod has taken the node over."""

    plan: PreemptionPlan
    begun: float
    since: float
    phase: Phase = Phase.CARRIED_OUT
    displaced: bool = False
    renominations: int = 0


class PreemptionManager:
    """All preemptions. ``submit`` and the readers are synchronous; ``run`` does the work."""

    def __init__(
        self, index: PromisingIndex, evicting: PreemptionExecutor, clock: Clock, observer: Observer, stuck_after: float
    ) -> None:
        self._index = index
        self._evicting = evicting
        self._clock = clock
        self._observer = observer
        self._stuck_after = stuck_after
        self._records: dict[str, Record] = {}
        self._queue: asyncio.Queue[Record] = asyncio.Queue()
        self._waking = Requeuer(index.view, evicting, clock, self._records.__contains__)
        self._stuck: set[str] = set()
        self._changed = asyncio.Event()
        self._is_draining = False

    # -- what verbs decided -------------------------------------------------------------------------------------

    def submit(self, plan: PreemptionPlan) -> bool:
        """Takes a plan on; False while one for the same pod is being carried out, and on the way down. O(displaced)."""
        uid = plan.preemptor.uid
        known = self._records.get(uid)
        if self._is_draining or (known is not None and known.phase is Phase.CARRIED_OUT):
            return False
        if known is not None:
            self._close(known, "replaced")
        now = self._clock.now()
        self._observer.began(self._fresh_victims(plan), plan.pdb_violations)
        record = self._records[uid] = Record(plan, now, now)
        self._index.promise(plan.preemptor, plan.node, {each.uid for each in plan.victims})
        for lower in plan.displaced:
            if lower.uid in self._records:
                self._records[lower.uid].displaced = True
                self._index.withdraw(lower.uid)
        self._queue.put_nowait(record)
        return True

    def _fresh_victims(self, plan: PreemptionPlan) -> int:
        """How many have to go because of this plan: not those who are going, or being removed by another one."""
        view = self._index.view
        leaving = {each.uid for each in view.leaving(plan.node)}
        shown = [pod for each in plan.victims if (pod := view.pod(each.uid)) is not None]
        return sum(not pod.terminating and pod.uid not in leaving for pod in shown)

    def requeue(self, pod: Pod, node: str) -> None:
        """Nothing could be planned for the pod now; the scheduler is to try it again after a while."""
        self._waking.requeue(pod, node)

    # -- the work -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carries out what is submitted, side by side, and looks after what has been, until cancelled.

        Then everything is forgotten: by the next time, another leader may have gone on with it, and `recover` tells.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep_for_ever(group))
                group.create_task(self._evicting.telling.run(), name="events of preemptions")
                while True:
                    record = await self._queue.get()
                    name = f"preemption for {record.plan.preemptor.full_name}"
                    group.create_task(self._carry_out(record), name=name)
        finally:
            self._queue = asyncio.Queue()
            for record in list(self._records.values()):
                self._close(record, "cancelled")

    async def drain(self) -> None:
        """Takes on nothing more and returns when all that is being carried out has come to an end, and been told."""
        self._is_draining = True
        while any(each.phase is Phase.CARRIED_OUT for each in self._records.values()):
            self._changed.clear()
            await self._changed.wait()
        await self._evicting.telling.told()

    async def _carry_out(self, record: Record) -> None:
        plan, result = record.plan, "cancelled"
        fields = {"preemptor": plan.preemptor.full_name, "node": plan.node, "victims": len(plan.victims)}
        _LOG.info("preempting", extra=fields)
        try:
            await self._evicting.carry_out(plan)
            result = "success"
        except PreemptorGoneError:
            result = "abandoned"
        except GaveUpError as error:
            result = "error"
            _LOG.warning("preemption failed", extra=fields | {"error": str(error)})
        except Exception:  # noqa: BLE001 - one plan's surprise must not end all others; it is told, counted, released
            result = "error"
            _LOG.exception("preemption failed", extra=fields)
        finally:
            self._observer.carried_out(result, self._clock.now() - record.begun)
            self._after(record, result)
        if result == "error":
            await self._release(record)

    def _after(self, record: Record, result: str) -> None:
        """What becomes of a record whose writes have come to an end."""
        record.since = self._clock.now()
        if result == "success":
            record.phase = Phase.AWAITED
        else:
            self._close(record, {"error": "failed"}.get(result, result))
        self._changed.set()

    async def _release(self, record: Record) -> None:
        """Gives the scheduler its turn again. What cannot even be told the apiserver now is tried again later."""
        pod = record.plan.preemptor
        try:
            await self._evicting.release(record.plan)
        except GaveUpError as error:
            _LOG.warning("nomination not taken back", extra={"preemptor": pod.full_name, "error": str(error)})
            self.requeue(pod, record.plan.node)

    def _close(self, record: Record, outcome: str) -> None:
        """Forgets a record, and its promise with it."""
        uid = record.plan.preemptor.uid
        if self._records.get(uid) is record:
            del self._records[uid]
            self._index.forget(uid)
            self._observer.ended(outcome, self._clock.now() - record.begun)

    # -- looking after it ---------------------------------------------------------------------------------------

    async def _sweep_for_ever(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            for follow_up in self.sweep():
                group.create_task(follow_up)

    def sweep(self) -> list[FollowUp]:
        """One look at every preemption whose writes are done, and at the pods to be woken: what is to be done. O(records)."""
        looked_at = [each for each in self._records.values() if each.phase is not Phase.CARRIED_OUT]
        found = [follow_up for each in looked_at if (follow_up := self._look_at(each)) is not None]
        self._stuck = {uid for uid in self._stuck if self._is_pending(uid)}
        return found + self._waking.sweep()

    def _is_pending(self, uid: str) -> bool:
        pod = self._index.view.pod(uid)
        return pod is not None and not pod.node and not pod.terminating

    def _look_at(self, record: Record) -> FollowUp | None:
        uid = record.plan.preemptor.uid
        pod = self._index.view.pod(uid)
        if pod is None or not self._is_pending(uid):
            self._close(record, "bound" if pod is not None and pod.node else "gone")
            return None
        has_waited = self._clock.now() - record.since
        if record.phase is Phase.AWAITED:
            return self._look_at_victims(record, pod, has_waited)
        return self._give_up(record) if has_waited > self._stuck_after else None

    def _look_at_victims(self, record: Record, pod: Pod, has_waited: float) -> FollowUp | None:
        plan = record.plan
        here = [shown for each in plan.victims if (shown := self._index.view.pod(each.uid)) is not None]
        if not here:
            record.phase, record.since = Phase.WATCHED, self._clock.now()
        holds = record.displaced or pod.nominated_node == plan.node
        if not here or (holds and all(each.terminating for each in here)):
            self._index.withdraw(pod.uid)
        elif has_waited > self._stuck_after:
            return self._give_up(record)
        elif not holds and has_waited > _RENOMINATE_AFTER * (record.renominations + 1):
            record.renominations += 1
            return self._nominate_again(record)
        return None

    def _give_up(self, record: Record) -> FollowUp:
        """The preemptor is pending although everything was done: somebody else's turn to find out why."""
        pod = record.plan.preemptor
        _LOG.warning("preemptor still pending", extra={"preemptor": pod.full_name, "node": record.plan.node})
        self._stuck.add(pod.uid)
        self._close(record, "stuck")
        return self._release(record)

    async def _nominate_again(self, record: Record) -> None:
        """The scheduler has wiped the nomination, or the watch does not show it yet; said twice it does no harm."""
        try:
            await self._evicting.nominate(record.plan, self._clock.now() + self._stuck_after)
        except (GaveUpError, PreemptorGoneError) as error:
            _LOG.warning(
                "not nominated again", extra={"preemptor": record.plan.preemptor.full_name, "error": str(error)}
            )

    # -- after a restart ----------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Takes on what an earlier leader left half done; returns how many. To be called once, with a full index.

        Half done: the preemptor is nominated, and victims marked for it still stand on that node. Marks on a node to
        which nobody more important is nominated are forgotten: there is nobody any more to make room for.
        """
        view = self._index.view
        taken: set[str] = set()
        found = 0
        for node, to_come in list(view.nominated.items()):
            number = view.known.get(node)
            here = view.pods_on(number).values() if number is not None else ()
            for pod in sorted(to_come.values(), key=lambda each: -each.priority):
                lower = [each for each in here if each.priority < pod.priority]
                marked = tuple(each for each in lower if each.preempted and each.uid not in taken)
                if any(not each.terminating for each in marked):
                    taken |= {each.uid for each in marked}
                    found += self.submit(PreemptionPlan(pod, node, marked))
                elif lower and not marked:
                    self.requeue(pod, node)  # nominated, and nothing more: the earlier leader had just begun
        return found

    # -- for people and metrics ---------------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        """How many preemptions are in which phase, how many are stuck, and how many pods wait to be woken."""
        phases = [each.phase for each in self._records.values()]
        result = {phase.name.lower(): phases.count(phase) for phase in Phase}
        return result | {"stuck": len(self._stuck), "to_requeue": len(self._waking)}
