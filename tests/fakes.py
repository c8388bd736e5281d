"""Stand-ins for what surrounds the loops: a clock, a reflector, a writer, an index, an event handler. They record; they do not mock.

``until`` is how a test waits for any of them: on a condition, never for a time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from extender.kube.byte_stream import Backlog
from extender.kube.effects import ObjectEvent, PodCondition, PodRef
from extender.kube.reflector import EventHandler, Reflector
from extender.kube.reflector_status import ReflectorStatus
from extender.kube.writer import Writer
from extender.model.objects import Object

T = TypeVar("T", bound=Object)

PATIENCE = 300.0  # seconds that end a test which hangs; no machine that is merely busy takes as long


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds; a test in which it never does fails here."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event to wait on
            await asyncio.sleep(0.002)


async def settle(turns: int = 400) -> None:
    """Lets every task run until it waits for something that only a test or a clock brings, or has had so many turns."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # what it runs next: empty where all tasks wait
    for _ in range(turns):
        await asyncio.sleep(0)
        if not ready:
            break


@asynccontextmanager
async def running(job: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """A job runs inside, and is cancelled on leaving."""
    task = asyncio.create_task(job())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def every_sleep(seconds: float) -> bool:
    """For `FakeClock.held`: only the test lets time pass."""
    return seconds > 0


class FakeClock:
    """Virtual time: a sleep ends at once, and its seconds have passed. Implements ``kube.timing.Clock``.

    - ``step``: seconds that pass each time the clock is read.
    - ``held``: which sleeps, by their seconds, wait until `advance` or `release` ends them.
    - ``late``: seconds by which the next sleep lasts longer than it should.
    """

    def __init__(self, step: float = 0.0, held: Callable[[float], bool] = lambda _: False) -> None:
        self.time = 1000.0
        self.step = step
        self.held = held
        self.late = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """The time as it stands."""
        self.time += self.step
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Let that time pass now, and give way once; or wait for the test."""
        self.slept.append(seconds)
        if self.held(seconds):
            ended = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (self.time + seconds, len(self.slept), ended))
            await ended
            return
        self.time += max(seconds, 0.0) + self.late
        self.late = 0.0
        await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, one sleep after the other, and let tasks run in between."""
        end = self.time + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._end_first()
            await settle()
        self.time = end

    def jump(self, seconds: float) -> None:
        """Time passes, and no task gets to run: the process was stopped."""
        self.time += seconds

    def release(self) -> None:
        """All sleeps end now, and none is held from now on."""
        self.held = lambda _: False
        while self._sleepers:
            self._end_first()

    def _end_first(self) -> None:
        due, _, ended = heapq.heappop(self._sleepers)
        if not ended.done():
            self.time = max(self.time, due)  # after a jump it is later already
            ended.set_result(None)


class FakeHandler(Generic[T]):
    """An event handler that records the calls of a reflector: all lists, all batches, and the objects as they should now be.

    ``failure`` is raised at the next batch.
    """

    def __init__(self) -> None:
        self.lists: list[list[T]] = []
        self.batches: list[list[tuple[T, bool]]] = []
        self.objects: dict[str, T] = {}
        self.failure: Exception | None = None

    def held(self, key: str) -> T | None:
        return self.objects.get(key)

    async def replace(self, objects: Mapping[str, T], unreadable: Collection[str] = ()) -> None:
        self.lists.append(list(objects.values()))
        kept = {key: found for key, found in self.objects.items() if key in unreadable}
        self.objects = {**kept, **objects}

    async def apply(self, changes: Sequence[tuple[T, bool]]) -> None:
        if self.failure:
            raise self.failure
        self.batches.append(list(changes))
        for found, deleted in changes:
            self._keep(found, is_deleted=deleted)

    def apply_one(self, obj: T, *, is_deleted: bool) -> None:
        if self.failure:
            raise self.failure
        self.batches.append([(obj, is_deleted)])
        self._keep(obj, is_deleted=is_deleted)

    def _keep(self, obj: T, *, is_deleted: bool) -> None:
        if is_deleted:
            self.objects.pop(obj.key, None)
        else:
            self.objects[obj.key] = obj

    @property
    def changes(self) -> list[tuple[T, bool]]:
        """All changes so far, in order."""
        return [change for batch in self.batches for change in batch]


class FakeBacklog(Backlog):
    """The backlog of a `FakeReflector`: changes that are queued and not handled yet."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    @property
    def is_behind(self) -> bool:
        """Whether a queued change has not been handled."""
        return not self._queue.empty()

    def may_be_behind(self, _readable: Container[int]) -> bool:
        return self.is_behind

    async def wait_until_handled(self) -> None:
        await until(lambda: not self.is_behind)


class FakeReflector(Reflector[Object]):
    """A reflector that passes on the changes that a test queues, in order, and can be made to fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = ReflectorStatus(name, outage="")
        self.runs = 0
        self.handled = 0
        self._queue: asyncio.Queue[Callable[[EventHandler[Object]], Awaitable[None]]] = asyncio.Queue()
        self.backlog = FakeBacklog(self._queue)

    def notify_list(self, *objects: Object, unreadable: Collection[str] = ()) -> None:
        """Queue a complete list."""
        self._queue.put_nowait(lambda handler: handler.replace({found.key: found for found in objects}, unreadable))

    def notify(self, *changes: tuple[Object, bool]) -> None:
        """Queue a batch of (object, whether it is deleted)."""
        self._queue.put_nowait(lambda handler: handler.apply(changes))

    def fail(self, error: Exception) -> None:
        """Queue a failure of the reflector itself."""

        async def raise_it(_: EventHandler[Object]) -> None:
            raise error

        self._queue.put_nowait(raise_it)

    async def run(self, handler: EventHandler[Object]) -> None:
        """Pass on changes until cancelled."""
        self.runs += 1
        while True:
            call = await self._queue.get()
            await call(handler)
            self.handled += 1


class FakeIndex:
    """An index that only records: objects by kind, and each call. ``on_call`` is called first each time."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.calls: list[str] = []
        self.on_call: Callable[[], None] = lambda: None

    def upsert(self, obj: Object) -> bool:
        self._note(f"upsert {identity(obj)}")
        changed = self.objects.get(identity(obj)) != obj
        self.objects[identity(obj)] = obj
        return changed

    def delete(self, obj: Object) -> bool:
        self._note(f"delete {identity(obj)}")
        return self.objects.pop(identity(obj), None) is not None

    def _note(self, call: str) -> None:
        self.on_call()
        self.calls.append(call)


def identity(obj: Object) -> str:
    """``pods/uid``, ``nodes/name``: the kind and the key."""
    return f"{type(obj).__name__.lower()}s/{obj.key}"


@dataclass
class FakeWriter(Writer):
    """Writes down each effect as a line, and keeps ``events``; ``failures`` are raised first, one per call."""

    effects: list[str] = field(default_factory=list)
    events: list[ObjectEvent] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    async def nominate(self, pod: PodRef, node: str) -> None:
        """Note the nomination."""
        self._note(f"nominate {pod.name} {node or '-'}")

    async def set_condition(self, pod: PodRef, condition: PodCondition) -> None:
        self._note(f"condition {pod.name} {condition.type}={condition.status}")

    async def annotate(self, pod: PodRef, key: str, value: str | None) -> None:
        """Note the annotation."""
        self._note(f"annotate {pod.name} {key}={value}")

    async def delete(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Note the deletion."""
        self._note(f"delete {pod.name} {grace_seconds}")

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        self._note(f"evict {pod.name} {grace_seconds}")

    async def bind(self, pod: PodRef, node: str) -> None:
        self._note(f"bind {pod.name} {node}")

    async def create_event(self, event: ObjectEvent) -> None:
        self._note(f"event {event.about.reference()['name']} {event.reason}")
        self.events.append(event)

    def annotated(self, key: str) -> list[str]:
        """The pods that got the annotation, in order."""
        lines = [effect.split() for effect in self.effects]
        return [name for kind, name, what in lines if kind == "annotate" and what.startswith(key)]

    def _note(self, effect: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.effects.append(effect)
