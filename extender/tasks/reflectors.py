"""Applies the events of each kind to the index, in the order in which their objects may be added, and tells how current it is.

Each kind has a reflector, a job of its own under the supervisor. One that fails begins again with a list, while requests
are answered from what the index holds.

Order: pods and workloads are added after namespaces and nodes, since the counts of a pod depend on both. The index is correct
in any order, but another one would move every pod. The first list is added in time slices, as no request is answered yet.
The changes of a later list are applied in one step, between two answers, unless they are thousands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from weakref import WeakSet

import msgspec

from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorPhase, ReflectorStatus
from extender.kube.timing import Clock
from extender.model.bounded import DictInParts
from extender.model.objects import Object, Pod, PodSignature
from extender.model.policies import GROUP, PolicyKey
from extender.settings.limits import ConstraintLimits
from extender.tasks.readiness import Freshness
from extender.telemetry.logs import RepeatedWarnings
from extender.verbs.admit.injected import read_records

_LOG = logging.getLogger(__name__)
_FIRST_PROGRESS: Final = 2.0
_LONGEST_PROGRESS: Final = 60.0
# Those for each pod.
_LIMIT_NAMES: Final = tuple(
    field.encode_name for field in msgspec.structs.fields(ConstraintLimits) if field.name != "per_namespace"
)

_CHANGES_A_STEP: Final = 1000  # of a later list, at 5 to 30 µs

# Kinds that are added before all others, since the counts of a pod depend on them.
FOUNDATION: Final = frozenset({"namespaces", "nodes"})


class ObjectIndex(Protocol):
    """What takes changes of objects. Both return whether anything that decisions read has changed."""

    def upsert(self, obj: Object) -> bool:
        """Takes in a new or changed object."""

    def delete(self, obj: Object) -> bool:
        """Removes an object."""


class KnownObjects:
    """The objects of one kind that the index holds, by key, so that only the differences of a complete list are applied.

    The event handler of the kind owns one and is its only writer. A list of 150,000 unchanged pods takes a fifth of a
    second to compare, so the comparison can be interrupted after each object; then only the differences are applied.
    """

    def __init__(self, index: ObjectIndex) -> None:
        self._index = index
        self._objects: DictInParts[Object] = DictInParts()

    def find(self, key: str) -> Object | None:
        """The object under a key. O(1)."""
        return self._objects.get(key)

    def put(self, obj: Object, *, is_deleted: bool) -> bool:
        """Passes one change to the index; returns whether the index has changed.

        If not, the earlier object stays here: the index refers to it, so a second copy would only cost memory.
        """
        key = obj.uid if type(obj) is Pod else obj.key  # most events are of pods, and a property costs a call
        if is_deleted:
            self._objects.pop(key)
            return self._index.delete(obj)
        changed = self._index.upsert(obj)
        objects = self._objects.part(key)
        if changed or key not in objects:
            objects[key] = obj
        return changed

    def differences(
        self, objects: Mapping[str, Object], unreadable: Collection[str]
    ) -> Iterator[tuple[Object, bool] | None]:
        """(object, whether it is deleted) for each change that makes ``objects`` all there is; None for each unchanged one.

        ``unreadable``: keys of objects that exist and cannot be read. If they are known, they stay as they are.
        Deletions come last. Nothing is applied. The caller may pause after each step, and may ``put`` the change of that
        step, but nothing else in between.
        """
        # No list or set of all keys is made: for a million keys it takes 40 ms at once, and each garbage collection visits it.
        for key, obj in objects.items():
            held = self.find(key)
            yield None if held is obj or held == obj else (obj, False)
        gone = []
        for key in self._objects:
            if key not in objects and key not in unreadable:
                gone.append(key)
            yield None
        for key in gone:
            known = self.find(key)
            if known is not None:
                yield known, True


class KindHandler:
    """Applies the events of one kind. ``relist_changes`` counts what later lists changed.

    A later list is compared with the known objects in time slices; only the differences are applied, at once unless they are many.
    """

    def __init__(
        self, kinds: Reflectors, index: ObjectIndex, reflector: Reflector[Any], clock: Clock, seconds: float
    ) -> None:
        """``seconds``: how long objects are applied before other tasks run."""
        self.name = reflector.name
        self.status = reflector.status
        self.backlog = reflector.backlog
        self._reflector = reflector
        self.is_listed = False
        self.relist_changes = 0
        self._kinds = kinds
        self._clock = clock
        self._seconds = seconds
        self._known = KnownObjects(index)
        self._loading: tuple[int, int] | None = None
        self._is_waiting = False

    async def run(self) -> None:
        """Lists and watches until cancelled; each run begins with a list."""
        await self._reflector.run(self)

    def held(self, key: str) -> Object | None:
        """The object that is known under a key."""
        return self._known.find(key)

    async def replace(self, objects: Mapping[str, Object], unreadable: Collection[str] = ()) -> None:
        """A complete list by key. Objects under the keys ``unreadable`` stay as they were last read."""
        if self.is_listed:
            await self._swap(objects, unreadable)
            return
        self._is_waiting = True
        await self._kinds.wait_for_foundation(self.name)
        self._is_waiting = False
        await self._load(objects, unreadable)
        self.is_listed = True
        self._kinds.note_listed()

    async def apply(self, changes: Sequence[tuple[Object, bool]]) -> None:
        """Applies (object, whether it was deleted), in order, in time slices."""
        part = _TimeSlice(self._clock, self._seconds)
        for obj, is_deleted in changes:
            self._known.put(obj, is_deleted=is_deleted)
            if part.is_over():
                await part.yield_to_others()

    def apply_one(self, obj: Object, *, is_deleted: bool) -> None:
        """Applies one change."""
        self._known.put(obj, is_deleted=is_deleted)

    async def _load(self, objects: Mapping[str, Object], unreadable: Collection[str]) -> None:
        """The first list, added in time slices. Objects left by a failed attempt are deleted."""
        part = _TimeSlice(self._clock, self._seconds)
        for count, difference in enumerate(self._known.differences(objects, unreadable)):
            if difference:
                self._known.put(difference[0], is_deleted=difference[1])
            if part.is_over():
                self._loading = (min(count + 1, len(objects)), len(objects))
                await part.yield_to_others()
        self._loading = None

    async def _swap(self, objects: Mapping[str, Object], unreadable: Collection[str]) -> None:
        """A later list: compared in time slices, then applied in one step."""
        # 1. While it is compared, requests see the old state: it is complete, though late.
        # 2. All differences are applied without a pause, so that no request sees half of them.
        # 3. After a long outage there may be so many that this would take seconds. Then they are applied in steps of
        #    `_CHANGES_A_STEP`, deletions last. Until the last step some deleted pods still count: a node may be rejected for
        #    nothing, but no pod is placed wrongly.
        part, changes = _TimeSlice(self._clock, self._seconds), list[tuple[Object, bool]]()
        for difference in self._known.differences(objects, unreadable):
            if difference:
                changes.append(difference)
            if part.is_over():
                await part.yield_to_others()
        changed = 0
        for start in range(0, len(changes), _CHANGES_A_STEP):
            if start:
                await asyncio.sleep(0)
            step = changes[start : start + _CHANGES_A_STEP]
            changed += sum(self._known.put(obj, is_deleted=is_deleted) for obj, is_deleted in step)
        self._kinds.note_relisted(self.name, self.status.list_begun)
        self.relist_changes += changed
        _LOG.info("listed again", extra={"kind": self.name, "objects": len(objects), "changes": changed})

    def missing(self, now: float, stale_after: float) -> str:
        """Why this kind is not ready; empty if it is."""
        status = self.status
        if not self.is_listed:
            return self._progress(status)
        if status.outage:
            return status.outage
        lag = now - status.last_heard
        if lag <= stale_after:
            return ""
        return f"watch silent for {lag:.0f} s" + (f": {status.error}" if status.error else "")

    def _progress(self, status: ReflectorStatus) -> str:
        if self._loading:
            return "loading ({:,} of {:,})".format(*self._loading)
        if self._is_waiting:
            return f"waiting for {', '.join(sorted(FOUNDATION))}"
        if status.phase is ReflectorPhase.WAITING:
            return f"retrying: {status.error}"
        if status.phase is ReflectorPhase.LISTING and status.listed and not status.page:
            return f"listing ({status.listed:,} objects)"
        if status.phase is ReflectorPhase.LISTING:
            return f"listing (page {status.page + 1})"
        return "not started"


class _TimeSlice:
    """How long a loop may run before it lets other tasks run."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._deadline = clock.now() + seconds

    def is_over(self) -> bool:
        return self._clock.now() >= self._deadline

    async def yield_to_others(self) -> None:
        await asyncio.sleep(0)
        self._deadline = self._clock.now() + self._seconds


class OverLimits:
    """The index as the event handlers use it. Passes each object on, and counts pods above a limit, pending or bound."""

    def __init__(self, index: ObjectIndex, clock: Clock) -> None:
        self._index = index
        self._limit_of: dict[str, str] = {}
        self._logged: WeakSet[PodSignature] = WeakSet()
        self._warnings = RepeatedWarnings(_LOG, "pod is above a limit", now=clock.now)

    def upsert(self, obj: Object) -> bool:
        """Passes the object on. O(1) on top."""
        if isinstance(obj, Pod) and (obj.signature.excess is not None or obj.uid in self._limit_of):
            self._note(obj)
        return self._index.upsert(obj)

    def delete(self, obj: Object) -> bool:
        """Passes the object on. O(1) on top."""
        if isinstance(obj, Pod):
            self._limit_of.pop(obj.uid, None)
        return self._index.delete(obj)

    def counts(self) -> dict[str, int]:
        """How many pods are above each limit, by its name. O(such pods): for metrics."""
        counts = dict.fromkeys(_LIMIT_NAMES, 0)
        for limit in self._limit_of.values():
            counts[limit] += 1
        return counts

    def _note(self, pod: Pod) -> None:
        """Logs each signature once; of many within seconds, the first of each limit and the number of the others."""
        excess = pod.signature.excess
        if excess is None:
            del self._limit_of[pod.uid]
            return
        self._limit_of[pod.uid] = excess.limit
        if pod.signature not in self._logged:
            self._logged.add(pod.signature)
            self._warnings.warn(excess.limit, pod=pod.full_name, limit=excess.text)


@dataclass(frozen=True, slots=True)
class ReflectorsOptions:
    """Times in seconds.

    ``slice_seconds``: how long objects are added before other tasks run.
    ``stale_after``: a kind is not ready after so long without any event, not even a bookmark. If no watch is granted, so that
    changes are certainly missed, the kind is not ready at once.
    """

    slice_seconds: float = 0.003
    stale_after: float = 180.0


def _ignore(_kind: str, _begun: float) -> None:
    """The default of ``on_relisted``."""


class Reflectors:
    """All reflectors together: their jobs, and the order of their first lists. ``freshness``: whether the index is current."""

    def __init__(
        self,
        index: ObjectIndex,
        reflectors: Sequence[Reflector[Any]],
        clock: Clock,
        options: ReflectorsOptions | None = None,
        on_synced: Callable[[], None] | None = None,
        on_relisted: Callable[[str, float], None] = _ignore,
        readable: Callable[[], Container[int]] = tuple,
    ) -> None:
        """``on_synced`` is called once, when every kind is listed and before any request is answered.

        ``on_relisted`` is called after each later list, with the kind and the time at which the list was requested.
        ``readable`` returns the descriptors of the sockets of watches that hold unread bytes.
        """
        self._options = options or ReflectorsOptions()
        self._on_synced = on_synced
        self.note_relisted = on_relisted
        self._foundation = asyncio.Event()
        self._all = asyncio.Event()
        self._handlers = [
            KindHandler(self, index, reflector, clock, self._options.slice_seconds) for reflector in reflectors
        ]
        self.freshness = Freshness(self._handlers, self._all, clock, self._options.stale_after, readable)
        if FOUNDATION.isdisjoint(handler.name for handler in self._handlers):
            self._foundation.set()

    def jobs(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """(name, job) of each reflector, for the supervisor."""
        return [(f"reflector {handler.name}", handler.run) for handler in self._handlers]

    async def log_progress(self, first_wait: float = _FIRST_PROGRESS) -> None:
        """Logs what the first lists still lack: after two seconds, then at twice the distance. Never ends, as a job."""
        wait = first_wait
        while not self._all.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self._all.wait()
            except TimeoutError:
                missing = {kind: problem for kind, problem in self.freshness.checks().items() if problem}
                _LOG.info("still reading the cluster", extra={"missing": missing})
            wait = min(2 * wait, _LONGEST_PROGRESS)
        await asyncio.get_running_loop().create_future()

    async def wait_until_synced(self) -> None:
        """Waits until every kind has been listed and added to the index."""
        await self._all.wait()

    def known_until(self, kind: str) -> Callable[[], float]:
        """A function that returns the time up to which every event of a kind has been handled."""
        (status,) = (handler.status for handler in self._handlers if handler.name == kind)
        return lambda: status.last_heard

    def statuses(self) -> Mapping[str, ReflectorStatus]:
        """The status of each reflector by kind, for metrics."""
        return {handler.name: handler.status for handler in self._handlers}

    def relist_changes(self) -> dict[str, int]:
        """By kind the objects that later lists changed. The watch missed these changes, so a healthy cluster has 0."""
        return {handler.name: handler.relist_changes for handler in self._handlers}

    async def wait_for_foundation(self, kind: str) -> None:
        """Waits until objects of ``kind`` may be added."""
        if kind not in FOUNDATION:
            await self._foundation.wait()

    def note_listed(self) -> None:
        """Called by each handler after its first list; the last call completes the sync."""
        # Nodes and namespaces come first: a pod on an unknown node, or in an unknown namespace, would be counted anew when it
        # appears. `on_synced` comes before `_all` is set, because from then on requests are answered.
        if all(handler.is_listed for handler in self._handlers if handler.name in FOUNDATION):
            self._foundation.set()
        if not self._all.is_set() and all(handler.is_listed for handler in self._handlers):
            if self._on_synced:
                self._on_synced()
            self._all.set()
            _LOG.info("all kinds are synced", extra={"kinds": len(self._handlers)})


OnInjected = Callable[[PodSignature, Collection[PolicyKey]], None]


def _ignore_injection(_signature: PodSignature, _policies: Collection[PolicyKey]) -> None:
    """The default of ``on_injected``."""


class InjectedPods:
    """The index as the event handlers use it if policies are enabled: reports which policies were injected into new pods.

    The annotation of a pod says what was injected, whichever replica admitted it. ``known``: the UIDs in the index. ``on_injected`` is
    called with each new pod that carries a record.
    """

    def __init__(self, index: ObjectIndex, known: Collection[str]) -> None:
        self.on_injected: OnInjected = _ignore_injection
        self._index = index
        self._known = known
        self._last: tuple[str, tuple[PolicyKey, ...]] = ("", ())  # pods of one workload come together

    def upsert(self, obj: Object) -> bool:
        """Passes the object on. O(1) more; O(record) for a new pod whose record differs from the last one."""
        if isinstance(obj, Pod) and obj.signature.injected and obj.uid not in self._known:
            self.on_injected(obj.signature, self._policies(obj.signature.injected))
        return self._index.upsert(obj)

    def delete(self, obj: Object) -> bool:
        """Passes the object on."""
        return self._index.delete(obj)

    def _policies(self, text: str) -> tuple[PolicyKey, ...]:
        if text != self._last[0]:
            record = read_records(text).get("")
            keys = [] if record is None else [PolicyKey.parse(policy.policy) for policy in record.policies]
            self._last = text, tuple(key for key in keys if key is not None and key.group == GROUP)
        return self._last[1]
