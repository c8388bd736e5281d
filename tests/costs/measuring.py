"""Runs the service on a loop that measures each step: the processor time, or counted operations, between two awaits.

The service is the one that `extender serve` runs, over an API server in this process. Waiting costs nothing, and the clock of
the service goes on with what its steps cost, so that work in slices is measured as slices. What the API server and the
driver of the measurement do is not counted.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import itertools
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any, Final, Protocol

import orjson

import extender
from extender.compose.service import Service, service_of_cluster
from extender.kube.session import Body, Query
from extender.model.answers.explanations import NotExplained
from extender.server.admission import decode_review
from extender.settings.configuration import Settings, parse_settings
from extender.simulator.apiserver.kinds import PODS, key_of, kind_of
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.json_objects import JsonObject, name_of, namespace_of
from extender.wire.errors import WireError
from extender.wire.extender_v1 import (
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode_filter,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)
from extender.wire.manifests import decode_what_if
from tests.in_memory import InMemorySession, Link
from tests.soak.virtual_time import LoopClock, VirtualLoop

_SOURCE: Final = str(Path(extender.__file__).parent)
_SIMULATOR: Final = f"{_SOURCE}/simulator"
_HISTORY: Final = 10**6  # changes: no watch is too slow
_BOOKMARK_SECONDS: Final = 60.0
_SETTLED: Final = 300.0  # seconds
_AT_ONCE: Final = 500  # objects that come between two turns of the loop
SECONDS_AN_OPERATION: Final = 2e-7
REQUEST: Final = "request"  # the name of a task of the driver that does what a handler does


class Meter(Protocol):
    """What a step costs."""

    def now(self) -> float:
        """Seconds up to now, or what counts as such."""

    def running(self) -> Any:
        """A context in which it runs."""


class Seconds:
    """Seconds of processor time of this thread. The collector is off, as it would hit any step."""

    now = staticmethod(thread_time)

    @contextmanager
    def running(self) -> Iterator[None]:
        """As said."""
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


class Operations:
    """Calls of functions, those in C too, and their returns. The same in each run, but what one call in C costs is not seen."""

    def __init__(self) -> None:
        self._next = itertools.count().__next__
        self._profile = cProfile.Profile(self._next)

    def now(self) -> float:
        """As so many seconds."""
        return self._next() * SECONDS_AN_OPERATION

    @contextmanager
    def running(self) -> Iterator[None]:
        """As said."""
        self._profile.enable()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            self._profile.disable()


class MeteredLoop(VirtualLoop):
    """Measures its steps. ``longest`` is in seconds, with what it was; ``spent`` is the sum of all."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.reset()
        super().__init__()

    def reset(self) -> None:
        """Begins anew."""
        self.longest, self.spent, self.what = 0.0, 0.0, ""

    def time(self) -> float:
        """The virtual time goes on with work."""
        return super().time() + self.meter.now()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """As the base, measured."""
        return super().call_soon(self._metered, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """As the base, measured."""
        return super().call_at(when, self._metered, callback, *args, context=context)

    def _metered(self, callback: Any, *args: Any) -> None:
        what = _source_of(callback)
        begun = self.meter.now()
        callback(*args)
        took = self.meter.now() - begun
        if what:
            self.spent += took
            if took > self.longest:
                self.longest, self.what = took, what


def _source_of(callback: Any) -> str:
    """The name of the service's function that a callback runs; empty for others."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine: Any = task.get_coro()
        if task.get_name().startswith(REQUEST):
            return task.get_name()
        code = getattr(coroutine, "cr_code", None)
        name = getattr(coroutine, "__qualname__", "")
    else:
        code, name = getattr(callback, "__code__", None), getattr(callback, "__qualname__", "")
    path = getattr(code, "co_filename", "")
    return name if path.startswith(_SOURCE) and not path.startswith(_SIMULATOR) else ""


class _Link(Link):
    """The way to the API server, whose work is a task of its own: it is no step of the service."""

    async def request(self, method: str, path: str, query: Query, body: Body | None, content_type: str) -> Any:
        return await asyncio.create_task(super().request(method, path, query, body, content_type))


@dataclass(frozen=True)
class Play:
    """What happens in one measurement: objects come, changes, reviews and requests follow, and the objects go again.

    ``before`` come first and are not measured. ``requested`` are pods, of ``objects``, that the scheduler asks about: filter,
    prioritize, preempt and an explanation. ``bodies`` are sent to a verb as they are.
    """

    objects: Sequence[JsonObject] = ()
    before: Sequence[JsonObject] = ()
    requested: Sequence[JsonObject] = ()
    bodies: Sequence[tuple[str, bytes]] = ()
    reviews: Sequence[JsonObject] = ()
    changes: Sequence[Callable[[ApiServer], None]] = ()


@dataclass(frozen=True)
class Measured:
    """One play: the longest step and the sum of all in seconds, and what the longest was."""

    longest: float
    spent: float
    what: str


class World:
    """A service with a small cluster."""

    def __init__(self, meter: Meter, objects: Sequence[JsonObject], sections: Mapping[str, Any]) -> None:
        self._meter = meter
        self._loop = MeteredLoop(meter)
        self._base = objects
        self._tasks: set[asyncio.Task[Any]] = set()
        self.errors: list[str] = []
        self.settings = settings_of(sections)
        self._loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.api = ApiServer(ApiServerSettings(history=_HISTORY, slow_after=_HISTORY, bookmark_every=_BOOKMARK_SECONDS))
        self.api.store.load(self._base)
        session = InMemorySession(_Link(self.api))
        self.service: Service = service_of_cluster(self.settings, session, LoopClock(), Random(1))
        for name, job in self.service.jobs:
            if not name.startswith("webhook"):  # which needs a port
                self._spawn(job(), name)
        while not self.service.readiness.is_ready:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.1)

    def _spawn(self, job: Any, name: str) -> None:
        task = self._loop.create_task(job, name=name)
        task.add_done_callback(self._ended)
        self._tasks.add(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self.errors.append(f"the job {task.get_name()} has ended: {task.exception()!r}")

    def close(self) -> None:
        """Ends the service."""
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self.api.pods.stop()
        self._loop.close()

    def measure(self, play: Play) -> Measured:
        """Plays, and measures all steps of the service from the first object to the last deletion."""
        self._loop.run_until_complete(self._create(play.before))
        self._loop.reset()
        with self._meter.running():
            self._loop.run_until_complete(self._play(play))
        found = Measured(self._loop.longest, self._loop.spent, self._loop.what)
        self._loop.run_until_complete(self._remove(play.before))
        return found

    @contextmanager
    def holding(self, objects: Sequence[JsonObject]) -> Iterator[None]:
        """These objects exist meanwhile, and what follows from their creation is done."""
        self._loop.run_until_complete(self._create(objects))
        self._loop.run_until_complete(asyncio.sleep(_SETTLED))
        yield
        self._loop.run_until_complete(self._remove(objects))

    def spent_on(self, happen: Callable[[ApiServer, int], None], times: int) -> float:
        """Seconds of the service for one of so many changes, until everything that follows from them is done."""

        async def run() -> None:
            for number in range(times):
                happen(self.api, number)
                await asyncio.sleep(0.01)

        return self._spent(run()) / times

    def spent_on_requests(self, pods: Sequence[JsonObject]) -> float:
        """Seconds of a filter request for one of the pods, which are asked about one after the other."""
        bodies = [self._request_body(pod) for pod in pods]

        async def run() -> None:
            for body in bodies:
                await self._run(self._filter(body), "filter")

        return self._spent(run()) / len(pods)

    def _spent(self, work: Coroutine[Any, Any, None]) -> float:
        self._loop.reset()
        with self._meter.running():
            self._loop.run_until_complete(work)
        return self._loop.spent

    def memory(self, play: Play) -> tuple[int, int]:
        """Bytes that the service holds while the objects are there, and bytes that are left some minutes after they went."""
        held = 0

        def look() -> None:
            nonlocal held
            held = _held()

        gc.collect()
        tracemalloc.start()
        self._loop.run_until_complete(self._create(play.before))
        self._loop.run_until_complete(self._play(play, look))
        self._loop.run_until_complete(self._remove(play.before))
        self._loop.run_until_complete(asyncio.sleep(300))
        gc.collect()
        left = _held()
        tracemalloc.stop()
        return held, left

    async def _play(self, play: Play, look: Callable[[], None] = lambda: None) -> None:
        await self._create(play.objects)
        for change in play.changes:
            change(self.api)
            await asyncio.sleep(0.5)
        for review in play.reviews:
            await self._run(self._review(orjson.dumps(review)), "review")
        for pod in play.requested:
            await self._request(pod)
        for verb, body in play.bodies:
            await self._run(getattr(self, f"_{verb}")(body), verb)
        await asyncio.sleep(3)
        look()
        await self._remove(play.objects)
        await asyncio.sleep(3)

    async def _create(self, objects: Sequence[JsonObject]) -> None:
        for begin in range(0, len(objects), _AT_ONCE):
            for each in objects[begin : begin + _AT_ONCE]:
                kind = kind_of(each)
                body = {name: value for name, value in each.items() if name not in ("kind", "apiVersion")}
                body["metadata"] = {"uid": self.api.store.new_uid(), "creationTimestamp": _CREATED} | body["metadata"]
                self.api.store.put(kind, body)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)

    async def _remove(self, objects: Sequence[JsonObject]) -> None:
        for number, each in enumerate(reversed(objects)):
            kind = kind_of(each)
            with suppress(Exception):  # a pod may be gone
                self.api.store.remove(kind, key_of(kind, each))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)

    async def _request(self, pod: JsonObject) -> None:
        """One scheduling cycle, and what people ask about a pod."""
        shown, nodes = self._shown(pod), list(self.service.index.view.known)
        body = self._request_body(pod)
        passed = await self._run(self._filter(body), "filter")
        if passed:
            await self._run(self._prioritize(body), "prioritize")
        else:
            uids = [{"UID": each} for each in list(self.service.index.pods)[:50]]
            victims = {name: {"Pods": uids, "NumPDBViolations": 0} for name in nodes[:100]}
            await self._run(self._preempt(orjson.dumps({"Pod": shown, "NodeNameToMetaVictims": victims})), "preempt")
        explainer = self.service.verbs.explainer
        assert explainer is not None
        with suppress(NotExplained):
            await self._run(explainer.explain(namespace_of(pod), name_of(pod)), "explain")

    def _shown(self, pod: JsonObject) -> JsonObject:
        stored = self.api.store.table(PODS).objects.get(key_of(PODS, pod))
        return {"kind": "Pod", "apiVersion": "v1", **(pod if stored is None else stored.read())}

    def _request_body(self, pod: JsonObject) -> bytes:
        nodes = list(self.service.index.view.known)
        return orjson.dumps({"Pod": self._shown(pod), "Nodes": None, "NodeNames": nodes})

    async def _run(self, work: Awaitable[Any], name: str) -> Any:
        """What a handler does, in a task whose steps count; None where it refuses the body."""
        try:
            return await asyncio.get_running_loop().create_task(work, name=f"{REQUEST}: {name}")  # type: ignore[arg-type]
        except WireError:
            return None

    # -- the handlers without HTTP: decode, bring up to date, decide, encode

    async def _filter(self, body: bytes) -> Sequence[str]:
        args, verbs = decode_args(body, self.settings.limits), self.service.verbs
        assert verbs.catch_up is not None
        await verbs.catch_up()
        result = await verbs.filter(args)
        encode_filter(result) if args.nodes is None else encode_filter_nodes(result, args)
        return result.passed

    async def _prioritize(self, body: bytes) -> None:
        encode_priorities(self.service.verbs.prioritize(decode_args(body, self.settings.limits)))

    async def _preempt(self, body: bytes) -> None:
        encode_preemption(await self.service.verbs.preempt(decode_preemption_args(body, self.settings.limits)))

    async def _bind(self, body: bytes) -> None:
        decode_binding_args(body)

    async def _whatif(self, body: bytes) -> None:
        """The question alone: it is answered in a process of its own."""
        decode_what_if(body, self.settings)

    async def _review(self, body: bytes) -> None:
        assert self.service.admission is not None
        review = await decode_review(body)
        orjson.dumps(await self.service.admission.service.decide(review))


_CREATED: Final = "2026-01-01T00:00:00Z"


def settings_of(sections: Mapping[str, Any]) -> Settings:
    """Everything that a tenant can make work is switched on; limits have their defaults."""
    document = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "policies": {"enabled": True},
        "quota": {"enabled": True},
        "whatIf": {"enabled": False},
        "audit": {"pause": "1s"},
    }
    return parse_settings({**document, **sections})


def _held() -> int:
    """Bytes that were allocated in modules of the service since tracing began."""
    snapshot = tracemalloc.take_snapshot().filter_traces(
        [
            tracemalloc.Filter(True, f"{_SOURCE}/*"),
            tracemalloc.Filter(False, f"{_SIMULATOR}/*"),
        ]
    )
    return sum(each.size for each in snapshot.traces)
