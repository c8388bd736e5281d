"""Assumed pods: pods for which nodes passed, between the filter response and the watch.

The scheduler sends the next request before the watch shows the last pod (in 70–98 % of cycles), so a response must
count at once. A pod counts by the labels that the watch shows.

1. A pod with one passed node counts there like any other pod.
2. A pod with several is undetermined: it counts on none of them. Groups that would count it have an undetermined pod. A
   request that depends on such a group can wait, or count the pod pessimistically (`expected`). Other requests go on.
3. A *doubted* pod is on one of its nodes or on none. A request that depends on it gets a result that is right in either
   case. Doubt is needed because a binding may fail without a report: the API server that refuses it may be unable to
   accept the report too. So an assumption that no binding confirms in time is doubted.

An assumption ends when the watch shows the pod bound or deleted, when a complete list lacks the pod, with a report that
this attempt failed, when our own binding failed (`end_binding`), or at expiry. A new request for the pod may be forged,
so it ends an assumption only if none of its nodes passes any more (`FilterService._answer_again`). No assumption begins
for a deleted pod. Time comes in as ``now`` in monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Final, NamedTuple

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import Expected, GroupView, SignatureTable
from extender.index.nodes.room import RoomTable
from extender.index.objects.changes import ChangeJournal, Subscribers
from extender.model.bounded import DeletedPods
from extender.model.changes import Assumption, AssumptionEnd, LaterAttempt
from extender.model.objects import Pod

MOST_BOUND: Final = 4_096  # pods that are bound in a quarter of a second


@dataclass(frozen=True, slots=True)
class AssumptionTimeouts:
    """Seconds after a response until its assumption expires, a failure report counts for it, or it is doubted."""

    expiry: float
    failure_grace: float
    doubt: float = inf


class Assumed(msgspec.Struct, frozen=True, gc=False):
    """A pod as in its request (with its node if it counts there), the nodes it may be on, and since when.

    ``doubted``: it may also be on no node. ``answered``: filter returned these nodes; otherwise it was nominated
    elsewhere.
    """

    pod: Pod
    nodes: tuple[str, ...]
    since: float
    doubted: bool = False
    answered: bool = True


class _LaterAttempts(NamedTuple):
    """The attempts for an assumed pod after the attempt that began its assumption.

    ``passed_at``: when a node last passed again. ``is_on_its_way``: whether the last answer was `ON_ITS_WAY`.
    """

    passed_at: float
    is_on_its_way: bool


class AssumedPods:
    """All assumed pods by UID."""

    def __init__(
        self,
        pods: Mapping[str, Pod],
        signatures: SignatureTable,
        count: Callable[[Pod, int], None],
        deleted: DeletedPods,
        known: Mapping[str, int],
        journal: ChangeJournal | None = None,
        observe: Callable[[Pod], None] | None = None,
        room: RoomTable | None = None,
        slots: tuple[Sized, Callable[[Pod], None]] = ((), lambda _pod: None),
    ) -> None:
        """The tables and callbacks that assumptions change.

        - ``pods``: the pods that the watch shows, by UID
        - ``known``: numbers of the existing nodes, by name
        - ``count``: adds a pod to its node (1) or removes it (-1)
        - ``observe``: called with each pod whose assumption has begun or ended
        - ``room``: where undetermined pods hold room, if it is counted
        - ``slots``: the slots, and what is called while there are any with a pod that counts on a node from now on
        """
        self._pods = pods
        self._room = room
        self._slots, self._move_slot = slots
        self.held: dict[str, Assumed] = {}
        # How many are undetermined; a filter request may wait for them, because their node is known soon.
        self.several = 0
        # How many are in doubt; no request waits for them.
        self.doubted = 0
        # How many assumptions expiry has ended, and how many expiry or a failure report.
        self.expired = 0
        self.ended = 0
        # Notifies of each assumption that ends or becomes doubted.
        self.changes: Subscribers[Assumed] = Subscribers()
        # Notifies of assumptions that ``ended`` counts.
        self.unconfirmed: Subscribers[Assumed] = Subscribers()
        # Notifies of each assumption that ends while its pod is not bound where it held room.
        self.given_back: Subscribers[Assumed] = Subscribers()
        # The pods that the watch has shown bound, at most `MOST_BOUND`; a reader removes them.
        self.bound: deque[Pod] = deque(maxlen=MOST_BOUND)
        self._signatures = signatures
        self._count = count
        self._deleted = deleted
        self._known = known
        self._journal = journal or ChangeJournal()
        self._observe = observe
        self._failed: set[str] = set()
        self._on: dict[str, dict[str, Pod]] | None = None  # see `undetermined_on`
        # UIDs of pods that this process is binding, or may have bound, and whether a failure was reported.
        self.binding: dict[str, bool] = {}
        # By UID, how many assumptions ended before a failure report came: as many later reports may belong to these
        # attempts.
        self._unreported: dict[str, int] = {}
        self._later: dict[str, _LaterAttempts] = {}  # by UID, of assumed pods only

    def assume(self, pod: Pod, nodes: Sequence[str], now: float, *, doubted: bool = False) -> None:
        """From now on the pod counts on the node; with several nodes it is undetermined.

        An earlier assumption of the pod ends. No assumption begins without a node, for a deleted pod, or for a pod that
        the watch already shows on a node. ``doubted``: the pod may be on none of the nodes. They hold room for it, and
        no other pod is placed because of it. O(groups that count the pod).
        """
        if pod.uid in self.held:
            self.discard(pod.uid)
        known = self._pods.get(pod.uid)
        if not nodes or (known is not None and known.node) or pod.uid in self._deleted:
            return
        if self._journal.note is not None:
            self._journal.note(Assumption(pod, tuple(nodes), doubted))
        # One node: the pod counts there like any other pod. Otherwise it is undetermined.
        if len(nodes) == 1 and not doubted:
            pod = msgspec.structs.replace(pod, node=nodes[0])
        self._begin(Assumed(pod, tuple(nodes), now, doubted, answered=not doubted))
        if pod.node and len(self._slots):
            self._move_slot(pod)

    def _begin(self, assumed: Assumed) -> None:
        self._put(assumed, 1)
        self.held[assumed.pod.uid] = assumed
        if self._observe is not None:
            self._observe(assumed.pod)

    @contextmanager
    def apart(self, uid: str) -> Iterator[None]:
        """Inside the block an assumption does not count. O(groups that count the pod + pods that were assumed later)."""
        assumed, is_failed, later = self.held[uid], uid in self._failed, self._later.get(uid)
        newer = list(takewhile(lambda other: other != uid, reversed(self.held)))
        if self._journal.note is not None:  # decisions inside the block are recorded
            self._journal.note(AssumptionEnd(uid))
        self._end(uid)
        if assumed.pod.node:
            self._count(assumed.pod, -1)
        try:
            yield
        finally:
            # Begins with its old time, so that neither expiry nor doubt is delayed, and at its old place: `held` is in the
            # order of these times.
            self._begin(assumed)
            for other in reversed(newer):
                if other in self.held:
                    self.held[other] = self.held.pop(other)
            if is_failed:
                self._failed.add(uid)
            if later is not None:
                self._later[uid] = later
            if self._journal.note is not None:
                self._journal.note(
                    Assumption(msgspec.structs.replace(assumed.pod, node=""), assumed.nodes, assumed.doubted)
                )

    def note_attempt(self, uid: str, now: float, *, passed: bool, others: Sequence[str] = ()) -> None:
        """A later attempt for an assumed pod was answered: a node passed again, or the answer was `ON_ITS_WAY`.

        If a node passed, the scheduler may bind the pod there now. The watch may show the report of the attempt before
        only later, and that report must not free the room. ``others``: further nodes that passed. The pod may be on any
        of the old and new ones, or on none. O(groups that count it).
        """
        if others:
            pod, every = self._pods[uid], tuple(dict.fromkeys((*self.held[uid].nodes, *others)))
            self.assume(pod, every, now, doubted=True)
            # `assume` takes a doubted pod for one that filter has not answered. This one was answered, so its binding
            # counts.
            self.held[uid] = msgspec.structs.replace(self.held[uid], answered=True)
        if self._journal.note is not None:
            self._journal.note(LaterAttempt(uid, passed))
        earlier = self._later.get(uid)
        if passed:
            self._unreported[uid] = self._unreported.get(uid, 0) + 1
            self._later[uid] = _LaterAttempts(now, is_on_its_way=False)
        else:
            self._later[uid] = _LaterAttempts(earlier.passed_at if earlier else -inf, is_on_its_way=True)

    def forget(self, uid: str) -> Assumed | None:
        """Ends an assumption because its attempt failed, and uncounts the pod. Returns it; None if there was none."""
        if uid not in self.held:
            return None
        # The failed attempt may still be reported. That report must not end a later assumption of the pod.
        is_unreported = uid in self._pods
        if is_unreported:
            self._unreported[uid] = self._unreported.get(uid, 0) + 1
        return self.discard(uid, is_unreported=is_unreported)

    def discard(self, uid: str, *, is_unreported: bool = False) -> Assumed | None:
        """Ends an assumption whose attempt will send no failure report. Returns it; None if there was none."""
        if self._journal.note is not None and uid in self.held:
            self._journal.note(AssumptionEnd(uid, is_unreported))
        assumed = self._end(uid)
        if assumed is not None:
            if assumed.pod.node:
                self._count(assumed.pod, -1)
            self.tell_end(assumed, None)
        return assumed

    def begin_binding(self, uid: str) -> None:
        """From now on no failure report ends the assumption, because the binding may succeed all the same."""
        self.binding[uid] = False

    def end_binding(self, uid: str, *, failed: bool) -> None:
        """The binding has ended. If it failed, the assumption ends."""
        is_reported = self.binding.pop(uid, False)
        if failed:
            # If the failure has been reported already, no later report belongs to this attempt. `forget` would expect
            # one.
            (self.discard if is_reported else self.forget)(uid)

    def tell_end(self, assumed: Assumed, pod: Pod | None) -> None:
        """Notifies of an assumption that has ended, after all counts are updated.

        ``pod``: as the watch shows it now.
        """
        if self.changes.callbacks:
            self.changes.notify(assumed, None)
        # Bound elsewhere, or not bound: room is free that it held.
        if self.given_back.callbacks and (pod is None or assumed.nodes != (pod.node,)):
            self.given_back.notify(assumed, None)
        # The binding failed. The scheduler watches no such event, so rejected pods that may pass now must be requeued.
        if pod is not None and not pod.node:
            self.unconfirmed.notify(assumed, None)

    def _end(self, uid: str) -> Assumed | None:
        """Ends an assumption, except: a pod on a single node still counts there, and nothing is notified."""
        assumed = self.held.pop(uid, None)
        if assumed is None:
            return None
        self._failed.discard(uid)
        self._later.pop(uid, None)
        self.binding.pop(uid, None)
        if not assumed.pod.node:
            self._put(assumed, -1)
        if self._observe is not None:
            self._observe(assumed.pod)
        return assumed

    def observe(self, uid: str, old: Pod | None, new: Pod | None) -> Assumed | None:
        """Applies a watch event of any pod. If it is bound, deleted or its binding failed, its assumption ends.

        1. A report of a failed binding belongs to the attempt of this assumption, because the scheduler binds only a
           pod that passed the filter. Exceptions: an earlier assumption may have ended before its own report came, or a
           node may have passed again before the report of the attempt before came.
        2. Filter answers `ON_ITS_WAY` to a later attempt while the pod is assumed. So a report of this error also shows
           that the assumed attempt is over, unless a node passed again after that answer.
        3. Any other report may belong to an earlier attempt: `review` decides later.

        Returns the assumption that ended. The caller counts the watch's pod in its place, and notifies `changes`.
        """
        if new is None:
            self._deleted.add(uid)
        # Deleted or bound: nothing is left to assume.
        if new is None or new.node:
            self._unreported.pop(uid, None)
            ended = self._end(uid)
            if new is not None and ended is not None and ended.answered:
                self.bound.append(ended.pod)
            return ended
        if uid in self.held:
            self._renew(uid, new)
        # Only a new report counts. Cases 1 and 2 make it a report of this attempt.
        if new.rejection and (old is None or new.rejection != old.rejection):
            later = self._later.get(uid)
            is_over = new.on_its_way and (later is None or later.is_on_its_way)
            is_of_this_attempt = is_over or (new.binding_failed and not self._take_earlier_report(uid))
            if uid not in self.held:
                return None
            # This process is binding the pod: `end_binding` decides, with the report in mind.
            if uid in self.binding:
                self.binding[uid] |= is_of_this_attempt
                return None
            if is_of_this_attempt:
                self.ended += 1
                return self._end(uid)
            # Case 3.
            self._failed.add(uid)
        return None

    def _renew(self, uid: str, new: Pod) -> None:
        """Counts an assumed pod as the watch shows it, because its labels may change before it is bound.

        O(groups that count it).
        """
        before = self.held[uid]
        if before.pod.signature is not new.signature or before.pod.requests != new.requests:
            renewed = msgspec.structs.replace(before, pod=msgspec.structs.replace(new, node=before.pod.node))
            self._put(before, -1)
            self._put(renewed, 1)
            self.held[uid] = renewed
            self.changes.notify(before, renewed)

    def _put(self, assumed: Assumed, sign: int) -> None:
        """Counts a pod on its node, or as undetermined between several (``sign`` 1), or uncounts it (-1)."""
        pod = assumed.pod
        if pod.node:
            self._count(pod, sign)
            return
        if assumed.doubted:
            self.doubted += sign
        else:
            self.several += sign
        # Undetermined: the groups count it separately, and all its nodes hold room.
        self._signatures.expect(pod.signature, sign)
        if self._on is not None:
            self._note_places(self._on, assumed, sign)
        if self._room is not None:
            self._room.claim(pod, assumed.nodes, sign)

    def _note_places(self, on: dict[str, dict[str, Pod]], assumed: Assumed, sign: int) -> None:
        """Adds a pod to the nodes where it may be, or removes it. O(its nodes)."""
        if not (self.several or self.doubted):
            self._on = None
            return
        for name in assumed.nodes:
            here = on.setdefault(name, {})
            if sign > 0:
                here[assumed.pod.uid] = assumed.pod
            else:
                here.pop(assumed.pod.uid, None)
            if not here:
                del on[name]

    def _take_earlier_report(self, uid: str) -> bool:
        """Takes a report for an attempt whose assumption had ended before. Returns whether one was expected."""
        attempts = self._unreported.pop(uid, 0)
        if attempts > 1:
            self._unreported[uid] = attempts - 1
        return attempts > 0

    def listed(self, shown: Container[str], begun: float) -> None:
        """Ends assumptions that began before ``begun``, the start of a complete list that lacks their pods.

        The watch may never have shown such a pod. Then no other event shows its deletion.
        """
        # Recorded as deleted, so that a late request cannot assume it again.
        for uid in [uid for uid, assumed in self.held.items() if assumed.since < begun and uid not in shown]:
            self._deleted.add(uid)
            self.forget(uid)

    def recount(self, signatures: SignatureTable) -> None:
        """Counts every assumption again, in tables that were just cleared."""
        self._signatures = signatures
        for assumed in self.held.values():
            if assumed.pod.node:
                self._count(assumed.pod, 1)
            else:
                signatures.expect(assumed.pod.signature, 1)

    def review(
        self, now: float, limits: AssumptionTimeouts, *, known_before: float = inf, known_until: float = inf
    ) -> int:
        """Ends what has expired, and what failed since the last review. Returns how many ended. O(assumed pods).

        1. A failure report counts only if it was written ``failure_grace`` seconds after the last answer with which a
           node passed. Earlier reports belong to an earlier attempt: such reports come while the pod is assumed (measured: 31–63 in 1,000 pods), and
           would free a place that is taken. The report does not say when it was written, but all reports written before
           ``known_before`` had been read before the last review.
        2. In the same way, a binding is missing for ``expiry`` seconds only if all events up to ``known_until`` have
           been read.
        """
        failed, self._failed = self._failed, set()
        # Fact 1.
        written = min(now, known_before)
        ended = [uid for uid in failed if uid in self.held and written - self._passed_at(uid) >= limits.failure_grace]
        # Fact 2.
        read = min(now, known_until)
        late = [uid for uid, assumed in self.held.items() if read - assumed.since >= limits.expiry]
        self.expired += len(late)
        # `discard`, because the report has come.
        ends = {**dict.fromkeys(late, self.forget), **dict.fromkeys(ended, self.discard)}
        over = [assumed for uid, end in ends.items() if (assumed := end(uid)) is not None]
        self.ended += len(over)
        # Subscribers are notified after all have ended, so that they see true counts.
        for assumed in over:
            self.unconfirmed.notify(assumed, None)
        for uid, assumed in self.held.items():
            if now - assumed.since >= limits.doubt:
                self.doubt(uid)
        return len(over)

    def _passed_at(self, uid: str) -> float:
        """When a node last passed for an assumed pod."""
        since, later = self.held[uid].since, self._later.get(uid)
        return since if later is None else max(since, later.passed_at)

    def doubt(self, uid: str) -> None:
        """From now on the pod is on one of its nodes or on none. O(groups that count it)."""
        assumed = self.held[uid]
        if assumed.doubted:
            return
        # It counted on one node, or was undetermined. From now on it is undetermined, even with one node.
        doubted = msgspec.structs.replace(assumed, pod=msgspec.structs.replace(assumed.pod, node=""), doubted=True)
        self._put(assumed, -1)
        self._put(doubted, 1)
        if self._journal.note is not None:
            self._journal.note(Assumption(doubted.pod, doubted.nodes, doubted=True))
        self.held[uid] = doubted
        if self._observe is not None:
            self._observe(doubted.pod)
        self.changes.notify(assumed, doubted)

    def extend(self, seconds: float) -> None:
        """Extends every assumption by a time in which this process was stopped and read no events. O(assumed pods)."""
        for uid, assumed in self.held.items():
            self.held[uid] = msgspec.structs.replace(assumed, since=assumed.since + seconds)
        for uid, later in self._later.items():
            self._later[uid] = later._replace(passed_at=later.passed_at + seconds)

    def places(self) -> dict[str, int]:
        """How many pods are assumed on one node, how many on several, and how many are in doubt."""
        certain = len(self.held) - self.several - self.doubted
        return {"known": certain, "undetermined": self.several, "doubted": self.doubted}

    def is_undetermined(self, compiled: CompiledConstraints) -> bool:
        """Whether the filter result may depend on an undetermined pod. O(groups)."""
        return (self.several or self.doubted) > 0 and any(group.undetermined for group in compiled.filter_groups())

    def is_score_undetermined(self, compiled: CompiledConstraints, since: float) -> bool:
        """Whether the scores may depend on an undetermined pod that was answered after ``since``.

        O(groups); O(pods answered since) if a group has such pods.
        """
        if not self.several:
            return False
        groups = [group for group in compiled.score_groups() if group.undetermined]
        recent = takewhile(lambda assumed: assumed.since > since, reversed(self.held.values())) if groups else ()
        return any(
            self._is_counted_by(groups, assumed) for assumed in recent if not (assumed.pod.node or assumed.doubted)
        )

    def _is_counted_by(self, groups: Sequence[GroupView], assumed: Assumed) -> bool:
        counts = self._signatures.find(assumed.pod.signature, terminating=False)
        return counts is not None and any(group in counts.groups for group in groups)

    def undetermined(self) -> Sequence[tuple[Pod, Sequence[str], bool]]:
        """The pods that count on no node, with the nodes that they may be on, and whether they are in doubt.

        O(assumed pods).
        """
        if not (self.several or self.doubted):
            return ()
        return [(assumed.pod, assumed.nodes, assumed.doubted) for assumed in self.held.values() if not assumed.pod.node]

    def undetermined_on(self) -> Mapping[str, Mapping[str, Pod]]:
        """These pods by the nodes that they may be on, and by UID.

        First O(such pods × their nodes). Then the table is kept until there is no such pod: O(1), and O(its nodes) for
        each answer.
        """
        if self._on is None and (self.several or self.doubted):
            self._on = {}
            for assumed in self.held.values():
                if not assumed.pod.node:
                    self._note_places(self._on, assumed, 1)
        return self._on or {}

    def expected(self, group: GroupView) -> Expected:
        """By domain, the undetermined pods that the group would count: sure to land there, and possible.

        A pod whose nodes are all in one domain is sure to land there, unless it is in doubt. O(assumed pods + such pods
        × their nodes).
        """
        sure: dict[int, int] = {}
        possible: dict[int, int] = {}
        domains, known = group.domain_of, self._known
        for assumed in self.held.values():
            if assumed.pod.node:
                continue
            counts_of_signature = self._signatures.find(assumed.pod.signature, terminating=False)
            # a view of one
            times = counts_of_signature.groups.get(group, 0) if counts_of_signature else 0  # type: ignore[call-overload]
            if times:
                places = {domains[known[name]] if name in known else 0 for name in assumed.nodes}
                bound = sure if len(places) == 1 and not assumed.doubted else possible
                for domain in places - {0}:
                    bound[domain] = bound.get(domain, 0) + times
        return Expected(sure, possible)
