"""Moves pods whose constraints are broken, one pod of a controller at a time. On the leader only.

A round follows the moves under way, finds out what is broken, plans moves for what was not planned lately, and begins moves as
far as policies and limits allow. The life of a move:

1. Waiting: it is planned, and `MoveWaits` says what it waits for: the policy only reports, or is paused; ``after``; a limit; the
   controller is busy; a disruption budget; an earlier move of the controller that was in vain.
2. Begun: the pod is read from the API server, tried once more, and the place of its replacement is claimed in the same
   step (`Reservations`, under the key `move_key`). The moves that begin together are written into the status of their policies.
   Then the pods are evicted, with their UIDs as a precondition.
3. Under way: filter answers the replacement the claimed node while the node passes (`rules/reserved_room.py`). The claim
   ends when a new pod of the controller is bound, when the node passes no longer, or after ``claimTimeout``.
4. Ended: the replacement is ready, or a time is over (`Outcome`). Only then another pod of the controller is moved.

A move is in vain if its replacement was bound elsewhere and its constraint is broken there too. Its controller then gets
no move until something that the trial reads has changed, and a time is over that doubles with each such move (`Blocks`). A
controller that makes no replacement gets no move for an hour, or until it creates a pod.

A new leader reads the moves of the earlier one from the status of policies, claims the places of replacements without a node
again before its first answer, and follows these moves to their end (`stored`). Nothing else is stored: a controller is busy while it
has a pod that is terminating, pending or not ready, and how long a constraint has been broken is counted anew.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Final, NamedTuple, TypeVar

from extender.features.execution.answers import NO_POLICY, MoveRow, MovesAnswer
from extender.features.execution.blocks import LONGEST_END, Blocks, Outcome, PodWriter, UnderWay, pass_alone, pods_of
from extender.features.execution.broken import BrokenConstraints, WatchedPods, is_evicting
from extender.features.execution.directive import PodFacts
from extender.features.execution.moves import Move, Neighbours, Planner, Stuck
from extender.features.execution.schema import MOST_STORED, Movable, pod_facts
from extender.features.execution.stored import StoredMoves
from extender.index.claims.reserved import move_key
from extender.index.cluster import ClusterIndex
from extender.kube.effects import ObjectEvent, PodRef
from extender.kube.errors import Conflict, KubeError, NotFound, OverBudget, may_be_made
from extender.kube.timing import Clock
from extender.model.bounded import Steps, at_once
from extender.model.objects import Pod, PodSignature
from extender.model.policies import PolicyKey
from extender.model.release import GroupKey
from extender.model.units import rfc3339
from extender.settings.configuration import Settings
from extender.tasks.fair_queue import NamespaceUsage
from extender.verbs.effective_pod import effective_pod

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
BROKEN: Final = "ConstraintBroken"
MOVED: Final = "Moved"
FOLLOW_SECONDS: Final = 1.0  # between looks at moves under way
ROUND_SECONDS: Final = 5.0  # between rounds, unless a move has ended
LONGEST_PAUSE: Final = 60.0  # between rounds, however long the steps of a round take
_SLICE_SECONDS: Final = 0.002
_PAUSE_SECONDS: Final = 0.01
_MOST_TOGETHER: Final = (
    16  # moves that are stored together: the first pod is evicted once the last of them has been tried
)
_LONGEST_PLANNING: Final = 5.0  # seconds of a round; then moves that are planned may begin
_PLANNED_FOR: Final = 60.0  # seconds until the moves of a signature are planned again although nothing has changed
_FACTS_FOR: Final = 60.0
_NEIGHBOURS_FOR: Final = 2.0  # seconds: a move may break constraints of pods that come later
_STAYS: Final = 30.0  # seconds after which a pod that was evicted and does not terminate stays
_PENDING: Final = 60.0  # seconds for which a replacement may wait for its claimed node
_MINUTE: Final = 60.0
_REFUSED_FOR: Final = 10.0  # seconds at least until a budget is asked again
_LONGEST_REFUSED: Final = 300.0
_NOT_REPLACED_FOR: Final = 3600.0  # seconds, unless the controller creates a pod
_COMPARED: Final = 9  # comparing takes a tenth of the time at most, also for more signatures than stay compiled


class _Planned(NamedTuple):
    """What was planned for the pods of one signature, and when."""

    watched: WatchedPods
    move: Move | None
    stuck: tuple[Stuck, ...]
    at: float


class Mover:
    """Moves pods. ``outcomes`` counts ended moves, ``ended`` is told of each with its seconds."""

    def __init__(
        self,
        index: ClusterIndex,
        settings: Settings,
        writer: PodWriter,
        clock: Clock,
        utc_now: Callable[[], datetime],
        is_complete: Callable[[], bool],
        ended: Callable[[Outcome, Move, float], None] = lambda _outcome, _move, _seconds: None,
        record: Callable[[ObjectEvent, Hashable], None] = lambda _event, _about: None,
        asks: Callable[[str], bool] = lambda _scheduler: True,
    ) -> None:
        """``is_complete``: whether all kinds are listed and current. ``record``: queues an event about an object.

        ``asks``: whether a scheduler has sent requests. Of a scheduler that has not, one pod is moved at a time, and none after
        a move in vain: it may place pods without the extender.
        """
        self.broken = BrokenConstraints(index.view, settings)
        self.under_way: dict[GroupKey, UnderWay] = {}
        self.outcomes: Counter[str] = Counter(dict.fromkeys(map(str, Outcome), 0))
        self.moved: Counter[PolicyKey] = Counter()  # completed moves while this replica leads
        self._index = index
        self._settings = settings
        self._writer = writer
        self._clock = clock
        self._utc_now = utc_now
        self._is_complete = is_complete
        self._ended = ended
        self._record = record
        self._asks = asks
        self._stored = StoredMoves(index, settings, writer, utc_now)
        self._silent: set[str] = set()  # schedulers without requests that placed a pod in vain
        self.is_leading = False
        self._since = -inf  # when it began to lead
        self._planned: dict[PodSignature, _Planned] = {}
        self._planner: tuple[Planner, float] | None = None
        self._facts: dict[str, tuple[PodFacts, float]] = {}
        self._blocks = Blocks()
        self._begun: dict[PolicyKey | None, deque[float]] = {}  # None: of all policies
        self._of_policy: Counter[PolicyKey] = Counter()  # moves under way
        # Those without a replacement on a node, when a move was chosen last; and whether one is bare.
        self._unbound: Counter[PolicyKey] = Counter()
        self._is_any_bare = False
        self._usage = NamespaceUsage(clock)
        self._worked = 0.0  # seconds of the steps of this round
        self._slice = 0.0  # when it began

    async def run(self) -> None:
        """Until cancelled. Claims of moves end with it. All kinds have been listed."""
        self.is_leading, self._since = True, self._clock.now()
        self.moved.clear()
        self.recover()
        try:
            while True:
                self._worked = 0.0
                if self._is_complete():
                    await self.round()
                # By the time of the steps: a round also waits for writes, and the clock may jump meanwhile.
                now, ended = self._clock.now(), self.outcomes.total()
                least = now + min(self._worked, LONGEST_PAUSE)
                until = max(now + ROUND_SECONDS, least)
                while (now := self._clock.now()) < least or (now < until and self.outcomes.total() == ended):
                    await self._clock.sleep(FOLLOW_SECONDS)
                    # While a watch is lost, a pod that is not shown may exist.
                    if self._is_complete():
                        await self._follow()
        finally:
            self.is_leading = False
            self._planned.clear()
            for key in self.under_way:
                self._index.reserved.release(key)
            self.under_way.clear()
            self._of_policy.clear()
            self._stored.forget()

    def recover(self) -> None:
        """Claims the places of moves that an earlier leader began. Called before the first answer of a term."""
        for key, under_way in list(self._stored.recover(self.under_way, self._clock.now())):
            self._add(key, under_way)

    def _add(self, key: GroupKey, under_way: UnderWay) -> None:
        self.under_way[key] = under_way
        self._of_policy[under_way.watched.policy.key] += 1
        self._index.reserved.claim(key, under_way.move.pod, under_way.move.target)

    async def round(self) -> None:
        """Follows moves under way, finds out what is broken, plans, and begins moves."""
        await self._follow()
        await self._in_slices(self.broken.round(self._clock.now()), _COMPARED)
        await self._forget()
        for signature in [signature for signature in self._planned if signature not in self.broken.found]:
            del self._planned[signature]
        if not self.broken.found:
            return
        await self._plan()
        while await self._begin():
            pass

    async def _in_slices(self, steps: Steps[T], weight: float = 1) -> T:
        """``weight``: how much longer the pause after the round is than these steps."""
        begun = self._clock.now()
        while True:
            # A slice goes on from one call to the next, because there may be many short ones without a pause between them.
            if (now := self._clock.now()) - self._slice >= _SLICE_SECONDS:
                self._worked += weight * (now - begun)
                await self._clock.sleep(_PAUSE_SECONDS)
                self._slice = begun = self._clock.now()
            try:
                next(steps)
            except StopIteration as end:
                self._worked += weight * (self._clock.now() - begun)
                result: T = end.value
                return result

    async def _forget(self) -> None:
        """Drops what concerns controllers and policies that are gone."""
        if waiting := self._blocks.awaiting_pods():
            self._blocks.see_pods(await self._in_slices(pods_of(waiting, self._index)))
        controllers = [(found.namespace, found.controller) for found in self.broken.found]
        broken = {(namespace, f"{owner.kind}/{owner.name}") for namespace, owner in controllers if owner is not None}
        self._blocks.forget(self._clock.now(), broken)
        for policy in [policy for policy in self._begun if not self._lately(policy)]:
            del self._begun[policy]

    # -- planning

    @property
    def planned(self) -> Collection[_Planned]:
        """What is planned for each signature with broken constraints."""
        return self._planned.values()

    def _movable(self) -> Movable:
        now = self._clock.now()
        self._facts = {uid: kept for uid, kept in self._facts.items() if now - kept[1] < _FACTS_FOR}
        return Movable({uid: facts for uid, (facts, _) in self._facts.items()}, self._utc_now())

    async def _plan(self) -> None:
        """Plans for signatures that were judged anew, or planned long ago, the longest ago first."""
        now, found, planned = self._clock.now(), self.broken.found, self._planned

        def planned_at(signature: PodSignature) -> float:
            known = planned.get(signature)
            return -inf if known is None or known.watched is not found[signature] else known.at

        due = sorted((signature for signature in found if now - planned_at(signature) >= _PLANNED_FOR), key=planned_at)
        if not due:
            return
        planner = await self._make_planner()
        for signature in due:
            watched = found.get(signature)
            if watched is not None:
                move, stuck = await self._in_slices(planner.find(watched, self._movable(), self._moves()))
                planned[signature] = _Planned(watched, move, stuck, self._clock.now())
                self._report(move, stuck)
            if self._clock.now() - now >= _LONGEST_PLANNING:
                return

    async def _make_planner(self) -> Planner:
        known, now = self._planner, self._clock.now()
        if known is not None and now - known[1] < _NEIGHBOURS_FOR:
            return known[0]
        neighbours = Neighbours(self._index.view, self._settings)
        await self._in_slices(neighbours.collect(self._moves()))
        planner = Planner(self._index.view, self._settings, neighbours)
        self._planner = planner, now
        return planner

    def _report(self, move: Move | None, stuck: Sequence[Stuck]) -> None:
        """Events on the pods about what is broken. The recorder drops repetitions."""
        every: list[Move | Stuck] = [*([] if move is None else [move]), *stuck]
        for found in every:
            what = f"a move to {found.target} is planned" if isinstance(found, Move) else found.why
            note = f"{found.broken} ({found.policy}): {what}"
            event = ObjectEvent(PodRef.of(found.pod), "Warning", BROKEN, "Execution", note, self._utc_now())
            self._record(event, found.pod.uid)

    def _moves(self) -> list[Move]:
        """The moves under way whose replacement is not bound yet."""
        return [each.move for each in self.under_way.values() if not (each.is_bound or each.is_bare)]

    # -- which move begins

    def _next(self) -> _Planned | None:
        """The planned move that may begin now: of the namespace that used least, the one that mends most."""
        possible: dict[str, list[_Planned]] = {}
        self._unbound = Counter(each.watched.policy.key for each in self.under_way.values() if not each.is_bound)
        self._is_any_bare = any(each.is_bare for each in self.under_way.values())
        for planned in self._planned.values():
            if planned.move is not None and not self._waits_for(planned):
                possible.setdefault(planned.move.pod.namespace, []).append(planned)
        if not possible:
            return None
        namespace = self._usage.least(possible)
        return min(possible[namespace], key=lambda planned: planned.move.order if planned.move is not None else ())

    def _waits_for(self, planned: _Planned) -> str:
        """What a planned move waits for; empty if it may begin. O(moves under way)."""
        watched, move, now = planned.watched, planned.move, self._clock.now()
        key = None if move is None else move_key(move.pod)
        if move is None or key is None:
            return "no move is planned"
        spec = watched.spec
        if not is_evicting(watched.policy, spec):
            return "the policy only reports"
        if spec.paused:
            return "the moves of the policy are paused"
        if now - self._since < ROUND_SECONDS:
            return "this replica has just begun to lead"
        if self._is_any_bare:
            return "the replacement for a pod that an earlier leader moved does not exist yet"
        since = self.broken.since.get(watched.signature, {}).get(move.place, now)
        if now - since < spec.after:
            return f"broken for less than {spec.after:g} s"
        return (
            self._waits_for_controller(key, move)
            or self._waits_for_scheduler(move.pod.scheduler)
            or self._waits_for_limit(watched)
        )

    def _waits_for_controller(self, key: GroupKey, move: Move) -> str:
        if key in self.under_way:
            return "another pod of its controller is moved"
        return self._blocks.why(key, self._clock.now(), lambda state: self._state_of(move.pod, state))

    def _waits_for_scheduler(self, name: str) -> str:
        if self._asks(name):
            return ""
        if name in self._silent:
            return f"its scheduler {name} places pods without the extender"
        is_tried = any(under_way.move.pod.scheduler == name for under_way in self.under_way.values())
        return f"another pod of its scheduler {name} is moved, which has sent no request" if is_tried else ""

    def _waits_for_limit(self, watched: WatchedPods) -> str:
        key, spec = watched.policy.key, watched.spec
        if self._of_policy[key] >= spec.max_concurrent:
            return "the policy has maxConcurrent moves under way"
        if self._unbound[key] >= MOST_STORED:
            return f"the policy has {MOST_STORED} moves under way whose replacements have no node"
        if self._lately(key) >= spec.max_per_minute:
            return "the policy has begun maxPerMinute moves"
        if self._lately(None) >= self._settings.execution.max_per_minute:
            return "all policies have begun execution.maxPerMinute moves"
        return ""

    def _lately(self, policy: PolicyKey | None) -> int:
        """How many moves have begun within a minute."""
        begun, now = self._begun.get(policy, ()), self._clock.now()
        while isinstance(begun, deque) and begun and now - begun[0] >= _MINUTE:
            begun.popleft()
        return len(begun)

    def _state_of(self, pod: Pod, known: Hashable = None) -> Hashable:
        """Equal while the trial of a pod reads the same counts and nodes; for a block by a budget, the same budgets."""
        view = self._index.view
        if isinstance(known, int):
            return view.claims_version
        compiled = view.compiled(effective_pod(pod, view, self._settings).signature)
        return compiled.serial, view.dependency_version(compiled)

    def _wait(self, key: GroupKey, why: str, seconds: float) -> None:
        self._blocks.wait(key, why, self._clock.now() + seconds)

    def _block(self, key: GroupKey, why: str, seconds: float, state: Hashable = None) -> None:
        self._blocks.block(key, why, self._clock.now(), seconds, state)

    # -- a move begins

    async def _begin(self) -> bool:
        """Claims places for the moves that may begin now, stores the moves, and evicts the pods. Returns whether a move began."""
        begun: list[GroupKey] = []
        while len(begun) < _MOST_TOGETHER and (chosen := self._next()) is not None:
            if (key := await self._claim(chosen)) is not None:
                begun.append(key)
        policies = dict.fromkeys(self.under_way[key].watched.policy.key for key in begun)
        errors = await self._stored.write(policies, self.under_way, self._clock.now())
        for key in begun:
            under_way = self.under_way[key]
            pod = self._index.pods.get(under_way.move.pod.uid)
            if (error := errors.get(under_way.watched.policy.key)) is not None:
                self._block(key, f"the move cannot be stored: {error}", _MINUTE)
                self._end(key, Outcome.FAILED)
            elif pod is None or pod.terminating or not under_way.is_broken(pod, self._index.view, self._settings):
                self._drop(key)  # while the moves were stored, its reason went away
            else:
                await self._evict(key, under_way.move)
        return bool(begun)

    async def _claim(self, planned: _Planned) -> GroupKey | None:
        """Reads the pod, tries it again, and claims the place of its replacement. None if the move does not begin."""
        move, signature = planned.move, planned.watched.signature
        key = None if move is None else move_key(move.pod)
        if move is None or key is None or not await self._is_settled(move.pod, key):
            return None  # the controller is blocked for a while
        # Whatever follows, this plan is used up.
        self._planned.pop(signature, None)
        planner = await self._make_planner()
        # From here to the claim there is no await, so that the claim is made for the cluster in which the move was tried.
        pod, watched = self._index.pods.get(move.pod.uid), self.broken.found.get(signature)
        if pod is None or watched is None or pod.terminating:
            return None
        again = planner.try_pod(pod, watched, self._movable(), self._moves())
        if not isinstance(again, Move) or not pass_alone([*self._moves(), again], self._index.view, self._settings):
            return None
        now = self._clock.now()
        known = frozenset(other.uid for other in at_once(pods_of({key}, self._index))[key])
        self._add(key, UnderWay(again, watched, now, now, known))
        for policy in (watched.policy.key, None):
            self._begun.setdefault(policy, deque()).append(now)
        self._usage.charge(pod.namespace)
        return key

    async def _evict(self, key: GroupKey, move: Move) -> None:
        pod = move.pod
        try:
            await self._writer.evict(PodRef.of(pod))
            note = f"{move.broken}: evicted from {pod.node}, its replacement gets a place on {move.target}"
            self._record(ObjectEvent(PodRef.of(pod), "Normal", MOVED, "Execution", note, self._utc_now()), None)
            _LOG.info(
                "pod is moved",
                extra={"pod": pod.full_name, "node": pod.node, "target": move.target, "why": move.broken},
            )
        except OverBudget as error:
            why, state = f"a disruption budget forbids it: {error}", self._index.view.claims_version
            self._blocks.block(key, why, self._clock.now(), _REFUSED_FOR, state, longest=_LONGEST_REFUSED)
            self._end(key, Outcome.REFUSED)
        except (NotFound, Conflict) as error:
            self._block(key, f"the pod was not evicted: {error}", _REFUSED_FOR)
            self._end(key, Outcome.FAILED)
        except KubeError as error:
            # Without an answer the eviction may have happened: the watch shows it.
            if not may_be_made(error):
                self._block(key, f"the eviction failed: {error}", _MINUTE)
                self._end(key, Outcome.FAILED)

    async def _is_settled(self, pod: Pod, key: GroupKey) -> bool:
        """Whether every other pod of the controller runs and is ready, as far as its youngest pod shows; reads the pod too."""
        pods = (await self._in_slices(pods_of({key}, self._index)))[key]
        if any(other.terminating or not other.node for other in pods):
            self._wait(key, "its controller has pods that are terminating or pending", FOLLOW_SECONDS)
            return False
        others = [other for other in pods if other.uid != pod.uid and other.start_time is not None]
        youngest = max(others, key=lambda other: str(other.start_time), default=None)
        if await self._read(pod) is None:
            self._wait(key, "the pod cannot be read", _REFUSED_FOR)
            return False
        facts = None if youngest is None else await self._read(youngest)
        if facts is not None and not facts.is_ready:
            self._wait(key, "another pod of its controller is not ready", _REFUSED_FOR)
            return False
        return True

    async def _read(self, pod: Pod) -> PodFacts | None:
        """The facts about a pod; None if it cannot be read."""
        try:
            facts = pod_facts(await self._writer.read_pod(PodRef.of(pod)))
        except KubeError as error:
            if not isinstance(error, NotFound):
                _LOG.warning("a pod cannot be read", extra={"pod": pod.full_name, "error": str(error)})
            return None
        self._facts[pod.uid] = facts, self._clock.now()
        return facts

    # -- moves under way

    async def _follow(self) -> None:
        """Finds the replacements of moves under way, and ends the moves that are over."""
        self._slice = self._clock.now()
        if self._slice - self._since < ROUND_SECONDS:
            self.recover()  # the watch of policies may have been late
        if not self.under_way:
            return
        # A replacement that has been found is looked up, which costs less than a search on the nodes.
        replacements = {key: self._index.pods.get(each.replacement) for key, each in self.under_way.items()}
        missing = [key for key, pod in replacements.items() if pod is None or pod.terminating]
        pods = await self._in_slices(pods_of(missing, self._index)) if missing else {}
        for key, under_way in list(self.under_way.items()):
            # An assumed pod is on a node, and the watch may not show it there, or not any more.
            known = [under_way.replacement, *(pod.uid for pod in pods.get(key, ()) if pod.uid not in under_way.known)]
            shown = map(self._index.pods.get, known)
            new = [pod for pod in shown if pod is not None and not pod.terminating]
            bound = [pod for pod in new if pod.node]
            if bound:
                await self._follow_bound(key, under_way, bound[0])
            elif new:
                self._follow_pending(key, under_way, new[0])
            else:
                self._follow_missing(key, under_way)

    async def _follow_bound(self, key: GroupKey, under_way: UnderWay, pod: Pod) -> None:
        if not under_way.is_bound:
            under_way.is_bound, under_way.is_bare, under_way.replacement = True, False, pod.uid
            self._planner = None  # its neighbours do not know the new pod
            self._index.reserved.release(key)
        facts = None
        if under_way.is_due(self._clock.now()):
            under_way.read, facts = self._clock.now(), await self._read(pod)
        if facts is not None and facts.is_ready:
            is_in_vain = under_way.is_in_vain(pod, self._index.view, self._settings)
            self._end(key, Outcome.IN_VAIN if is_in_vain else Outcome.COMPLETED)
        elif self._clock.now() - under_way.left >= self._settings.execution.replacement_timeout:
            self._end(key, Outcome.NOT_READY)

    def _follow_pending(self, key: GroupKey, under_way: UnderWay, pod: Pod) -> None:
        now, view = self._clock.now(), self._index.view
        if under_way.pending == inf:
            under_way.pending = now
        if under_way.is_bare and not self._stored.complete(under_way, pod):
            self._end(key, Outcome.FAILED)
            return
        # The replacement is decided anew if its place is lost, or if the scheduler does not bind it there.
        is_late = now - under_way.pending >= _PENDING
        is_on_its_way = view.assumed_nodes(pod.uid) is not None
        if not is_on_its_way and (is_late or not under_way.still_passes(pod, view, self._settings)):
            self._index.reserved.release(key)
        if now - under_way.left >= self._settings.execution.replacement_timeout:
            self._end(key, Outcome.NOT_READY)

    def _follow_missing(self, key: GroupKey, under_way: UnderWay) -> None:
        now, pod = self._clock.now(), self._index.pods.get(under_way.move.pod.uid)
        if pod is not None and pod.terminating and now - under_way.began < LONGEST_END:
            under_way.left = now  # a StatefulSet replaces a pod once it has ended
        elif pod is not None and not pod.terminating and now - under_way.began >= _STAYS:
            self._block(key, "the pod was evicted and does not terminate", _MINUTE)
            self._end(key, Outcome.FAILED)
        elif now - under_way.left >= self._settings.execution.claim_timeout:
            self._end(key, Outcome.NOT_REPLACED)

    def _drop(self, key: GroupKey) -> UnderWay:
        under_way = self.under_way.pop(key)
        self._of_policy[under_way.watched.policy.key] -= 1
        self._index.reserved.release(key)
        return under_way

    def _end(self, key: GroupKey, outcome: Outcome) -> None:
        under_way = self._drop(key)
        self.outcomes[outcome] += 1
        move = under_way.move
        if outcome is Outcome.COMPLETED:
            self._blocks.end(key)
            self.moved[under_way.watched.policy.key] += 1
        elif outcome in (Outcome.IN_VAIN, Outcome.NOT_READY):
            why = f"the last move of its controller was {outcome.replace('_', ' ')}"
            self._block(key, why, _MINUTE, self._state_of(move.pod))
        elif outcome is Outcome.NOT_REPLACED:
            why = "its controller has not replaced the last pod that was moved"
            longest, now = 24 * _NOT_REPLACED_FOR, self._clock.now()
            self._blocks.block(key, why, now, _NOT_REPLACED_FOR, longest=longest, seen=under_way.known)
        if outcome is Outcome.IN_VAIN:
            if not self._asks(move.pod.scheduler):
                self._silent.add(move.pod.scheduler)
            _LOG.error("a move was in vain", extra={"pod": move.pod.full_name, "target": move.target})
        self._ended(outcome, move, self._clock.now() - under_way.began)

    # -- what a person sees

    def answer(self, namespace: str = "", most: int = 1000) -> MovesAnswer:
        """The first rows, of a namespace or of all. The other rows are only counted."""
        found = [entry for entry in self._entries() if not namespace or entry[1].pod.namespace == namespace]
        moves = [entry for entry in found if isinstance(entry[1], Move)]
        stuck = [entry for entry in found if isinstance(entry[1], Stuck)]
        notes = []
        if not self.is_leading:
            notes.append("this replica does not lead: only the leader plans moves")
        elif not any(policy.execution is not None for policy in self._index.policies):
            notes.append(NO_POLICY)
        elif len(found) > most:
            notes.append(f"{len(found) - most} more rows")
        lowers = sum(move.lowers for _, move in moves if isinstance(move, Move))
        before = self.broken.measure
        shown, left = moves[:most], stuck[: max(most - len(moves), 0)]
        rows, others = (tuple(self._row(*entry) for entry in entries) for entries in (shown, left))
        return MovesAnswer(rows, others, before, max(before - lowers, 0), tuple(notes))

    def rows(self) -> Iterator[MoveRow]:
        """Moves under way, planned moves in order, and broken constraints without a move."""
        return (self._row(*entry) for entry in self._entries())

    def _entries(self) -> Iterator[tuple[UnderWay | _Planned, Move | Stuck]]:
        for under_way in self.under_way.values():
            yield under_way, under_way.move
        moves = [(each, each.move) for each in self._planned.values() if each.move is not None]
        yield from sorted(moves, key=lambda entry: entry[1].order)
        for each in self._planned.values():
            yield from ((each, stuck) for stuck in each.stuck)

    def _row(self, of: UnderWay | _Planned, found: Move | Stuck) -> MoveRow:
        watched, state, why = of.watched, "underWay", ""
        if isinstance(found, Stuck):
            state, why = "stuck", found.why
        elif isinstance(of, _Planned):
            state = "waiting" if (why := self._waits_for(of)) else "planned"
        since = self.broken.since.get(watched.signature, {}).get(found.place)
        ago = 0.0 if since is None else self._clock.now() - since
        return MoveRow(
            pod=found.pod.full_name,
            constraint=str(found.place.kind),
            broken=found.broken,
            source=found.pod.node,
            policy=str(watched.policy.key),
            state=state,
            since="" if since is None else rfc3339(self._utc_now() - timedelta(seconds=ago)),
            target=found.target if isinstance(found, Move) else "",
            why=why,
            lowers=found.lowers if isinstance(found, Move) else 0,
        )
