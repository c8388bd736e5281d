"""The faults that a scenario can inject into the simulated API server: one strict struct for each, and the injector.

A condition lasts, and is injected at random (`FaultInjector`); a one-time fault occurs when its step runs (`play.py`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import orjson
from msgspec import Meta, Struct

from extender.model.documents import DocumentError, read_document
from extender.model.units import Duration
from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults, StreamEnd
from extender.simulator.apiserver.kinds import KINDS

PartT = TypeVar("PartT", bound=Struct)

_PLURALS: Final = frozenset(kind.plural for kind in KINDS)

Verb: TypeAlias = Literal["read", "watch", "write"]


def _check_range(time: tuple[Duration, Duration]) -> None:
    if time[1] < time[0]:
        raise ValueError(f"time: expected minimum and maximum, got {time[0]} and {time[1]}")


class _Form(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all faults."""


class Condition(_Form, frozen=True):
    """A fault that lasts: its kinds (empty: all), its probability at each hook, and limits of its number and duration."""

    kinds: tuple[str, ...] = ()
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    times: Annotated[int, Meta(ge=1)] | None = None
    lasts: Duration | None = None

    def __post_init__(self) -> None:
        """Rejects unknown kinds, as such a fault would never be injected."""
        unknown = [name for name in self.kinds if name not in _PLURALS]
        if unknown:
            raise ValueError(f'kinds: unknown kind "{unknown[0]}"')


class CutLine(Condition, frozen=True):
    """The connection of a watch breaks within a line."""


class EndWatch(Condition, frozen=True):
    """A watch ends normally during a burst, as the API server ends slow watches."""


class Expire(Condition, frozen=True):
    """A watch gets 410 at its start, as an event or as a status; the next page of a list gets the status."""

    form: Literal["event", "status"] = "event"


class ErrorEvent(Condition, frozen=True):
    """A watch gets an ERROR event after its next lines, and ends."""

    code: Annotated[int, Meta(ge=400, le=599)] = 500


class Stall(Condition, frozen=True, kw_only=True):
    """A watch gets no events for a time, then all of them."""

    time: Duration


class HalfOpen(Condition, frozen=True):
    """A connection is half open: a watch gets no more events and does not end, a request is never answered."""

    verbs: tuple[Verb, ...] = ("watch",)


class RepeatEvents(Condition, frozen=True):
    """A watch gets the same events again."""


class DelayEvents(Condition, frozen=True, kw_only=True):
    """The events of each watch are delayed by a random time, so that events of two kinds may change their order."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Rejects an empty range."""
        Condition.__post_init__(self)
        _check_range(self.time)


class LoseBookmarks(Condition, frozen=True):
    """A watch gets no bookmarks, except the one that ends a streaming list."""


class SlowPages(Condition, frozen=True, kw_only=True):
    """Each page of a list is delayed."""

    time: Duration


class Throttle(Condition, frozen=True):
    """A request gets 429 with the seconds to wait; 0 gives none."""

    retry_after: Annotated[int, Meta(ge=0)] = 1
    verbs: tuple[Verb, ...] = ("read", "watch")


class Fail(Condition, frozen=True):
    """A request gets a server error."""

    code: Annotated[int, Meta(ge=500, le=599)] = 500
    verbs: tuple[Verb, ...] = ("read", "watch")


class PauseProcess(Condition, frozen=True, kw_only=True):
    """The whole process (API server, scheduler, extender) gets no processor time for a random time."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Rejects an empty range."""
        Condition.__post_init__(self)
        _check_range(self.time)


class FalseConflict(Condition, frozen=True):
    """A write gets 409 although it has no conflict."""


class LoseAnswer(Condition, frozen=True):
    """A write is done, but the connection breaks before the answer."""


class WebhookDown(Condition, frozen=True):
    """The API server cannot reach an admission webhook; its failure policy decides. `kinds`: of the written object."""


class Restart(_Form, frozen=True):
    """The API server crashes and restarts after a time; with `new_history` its versions restart at a lower number."""

    down: Duration = Duration(0)
    new_history: bool = False


class JumpClock(_Form, frozen=True, kw_only=True):
    """The extender's monotonic clock jumps ahead."""

    by: Duration


OneTimeFault: TypeAlias = Restart | JumpClock
Fault: TypeAlias = Condition | OneTimeFault

CONDITIONS: Final[dict[str, type[Condition]]] = {
    "cutLine": CutLine,
    "endWatch": EndWatch,
    "expire": Expire,
    "errorEvent": ErrorEvent,
    "stall": Stall,
    "halfOpen": HalfOpen,
    "repeatEvents": RepeatEvents,
    "delayEvents": DelayEvents,
    "loseBookmarks": LoseBookmarks,
    "slowPages": SlowPages,
    "throttle": Throttle,
    "fail": Fail,
    "pauseProcess": PauseProcess,
    "conflict": FalseConflict,
    "loseAnswer": LoseAnswer,
    "webhookDown": WebhookDown,
}
ONE_TIME_FAULTS: Final[dict[str, type[OneTimeFault]]] = {"restart": Restart, "jumpClock": JumpClock}
NAMES: Final = {form: name for name, form in CONDITIONS.items()}


def read_conditions(raw: object, path: str, problems: list[str]) -> tuple[Condition, ...]:
    """Reads the section `faults` of a scenario: the faults that are active from the start."""
    conditions = _read_each(raw, CONDITIONS, path, problems)
    return tuple(fault for fault in conditions if isinstance(fault, Condition))


def read_faults(raw: object, path: str, problems: list[str]) -> tuple[Fault, ...]:
    """Reads the body of a step."""
    return tuple(_read_each(raw, {**CONDITIONS, **ONE_TIME_FAULTS}, path, problems))


def _read_each(raw: object, forms: dict[str, Any], path: str, problems: list[str]) -> list[Fault]:
    if raw == {}:  # a bare `faults:`
        return []
    if not isinstance(raw, list | tuple):
        problems.append(f"{path}: expected a list of faults, got {type(raw).__name__}")
        return []
    faults: list[Fault] = []
    for number, document in enumerate(raw):
        place = f"{path}[{number}]"
        name = next(iter(document)) if isinstance(document, dict) and len(document) == 1 else ""
        if name not in forms:
            got = ", ".join(map(str, document)) if isinstance(document, dict) else repr(document)
            problems.append(f"{place}: expected one of {', '.join(forms)}, got {got or 'nothing'}")
            continue
        fault: Fault | None = read_part(document[name], forms[name], f"{place}.{name}", problems)
        faults += [fault] if fault is not None else []
    return faults


def read_part(document: object, kind: type[PartT], path: str, problems: list[str]) -> PartT | None:
    """Reads one part of a scenario. Returns None if it is invalid, and adds all problems with their path to `problems`."""
    try:
        return read_document(document, kind)
    except DocumentError as error:
        # A problem of the whole part has no path: "expected a mapping".
        for text in error.problems:
            problems += [f"{path}: {text}" if text.startswith("expected") else f"{path}.{text.lstrip('.')}"]
        return None


FormT = TypeVar("FormT", bound=Condition)

_INITIAL_END = b"initial-events-end"


class FaultInjector(Faults):
    """Injects the active faults, and beside them the faults that are `always` active."""

    def __init__(self, rng: Random, always: Faults | None = None) -> None:
        self.injected: Counter[str] = Counter()
        self._rng = rng
        self._always = always or Faults()
        self._active: list[_Active] = []

    def change(self, conditions: Iterable[Condition]) -> None:
        """Replaces the active faults. A connection that is half open stays so."""
        # New counters and deadlines, also for a fault that was active before.
        self._active = [_Active(form) for form in conditions]

    async def before_answer(self, call: Call) -> None:
        """Never answers, or rejects the request."""
        await self._always.before_answer(call)
        self._pause_process(call)
        if not call.is_watch and self._draw(HalfOpen, call):  # a watch becomes half open between its lines
            # Never set: the wait ends when the connection ends.
            await asyncio.Event().wait()
        if throttle := self._draw(Throttle, call):
            raise api_errors.too_many_requests("too many requests, please try again later", throttle.retry_after)
        if failure := self._draw(Fail, call):
            raise api_errors.ApiError(failure.code, "InternalError", "etcdserver: no leader")
        # Only pages after the first have this parameter.
        if "continue" in call.query and self._draw(Expire, call):
            raise api_errors.expired(api_errors.CONTINUE_EXPIRED)
        if call.is_watch and self._draw(Expire, call, form="status"):
            raise api_errors.expired("too old resource version")

    async def before_page(self, call: Call) -> None:
        """Delays the page."""
        await self._always.before_page(call)
        if slow := self._draw(SlowPages, call):
            await asyncio.sleep(slow.time)

    async def before_write(self, call: Call) -> None:
        """Rejects the write with 409, as if another client had written the object."""
        await self._always.before_write(call)
        if call.target is not None and self._draw(FalseConflict, call):
            raise api_errors.stale(call.target.kind, call.target.name)

    async def after_write(self, call: Call) -> None:
        """Loses the answer."""
        await self._always.after_write(call)
        self._pause_process(call)
        if self._draw(LoseAnswer, call):
            raise ConnectionCut

    async def before_webhook(self, call: Call) -> None:
        """Rejects the connection to the webhook."""
        await self._always.before_webhook(call)
        if self._draw(WebhookDown, call):
            raise ConnectionRefusedError(f"{call.path} is down")

    def watch_error(self, call: Call) -> bytes | None:
        """Starts the watch with 410."""
        return _error_line(410, "Expired") if self._draw(Expire, call, form="event") else None

    async def watch_lines(self, call: Call, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Drops, delays or repeats lines, or ends the watch."""
        lines = await self._always.watch_lines(call, lines)
        self._pause_process(call)
        if self._draw(LoseBookmarks, call):
            # The bookmark that ends the initial events stays: without it the client could never become ready.
            lines = [line for line in lines if b'"BOOKMARK"' not in line or _INITIAL_END in line]
        if not lines:
            return lines
        if self._draw(RepeatEvents, call):
            # A batch at a time, so that events of two objects come again in their order.
            lines = [*lines, *lines]
        await self._delay(call)
        self._break(call, lines)
        return lines

    def _pause_process(self, call: Call) -> None:
        """Blocks the event loop: before an answer, between a write and its answer, or before a watch line."""
        if pause := self._draw(PauseProcess, call):
            time.sleep(self._rng.uniform(*pause.time))

    async def _delay(self, call: Call) -> None:
        if delay := self._draw(DelayEvents, call):
            await asyncio.sleep(self._rng.uniform(*delay.time))
        if stall := self._draw(Stall, call):
            await asyncio.sleep(stall.time)
        if self._draw(HalfOpen, call):
            await asyncio.Event().wait()

    def _break(self, call: Call, lines: Sequence[bytes]) -> None:
        if self._draw(CutLine, call):
            whole = b"".join(lines)
            # Of the last line at least one byte is sent and at least one is missing, so the client sees half a line.
            raise ConnectionCut(whole[: len(whole) - self._rng.randrange(1, len(lines[-1]))])
        if self._draw(EndWatch, call):
            # After any number of whole lines: the client has to continue from the version of the last one.
            raise StreamEnd(b"".join(lines[: self._rng.randrange(len(lines) + 1)]))
        if error := self._draw(ErrorEvent, call):
            raise StreamEnd(b"".join(lines) + _error_line(error.code, "InternalError"))

    def _draw(self, kind: type[FormT], call: Call, **having: str) -> FormT | None:
        """The first active fault of that kind that applies to this call; counts it as injected."""
        for active in self._active:
            form = active.form
            if not isinstance(form, kind) or any(getattr(form, name) != value for name, value in having.items()):
                continue
            # A number is drawn only for a fault that applies, so requests of other kinds do not change the sequence.
            if active.meets(call) and self._rng.random() < form.probability:
                active.count += 1
                self.injected[NAMES[kind]] += 1
                return form
        return None


class _Active:
    """An active fault, and how often it was injected."""

    def __init__(self, form: Condition) -> None:
        self.form = form
        self.count = 0
        self._until = time.monotonic() + form.lasts if form.lasts is not None else None

    def meets(self, call: Call) -> bool:
        form = self.form
        if form.times is not None and self.count >= form.times:
            return False
        if self._until is not None and time.monotonic() >= self._until:
            return False
        if call.target is None or (form.kinds and call.target.kind.plural not in form.kinds):
            return False
        # A condition without this field applies to every verb.
        return _verb(call) in getattr(form, "verbs", (_verb(call),))


def _verb(call: Call) -> Verb:
    if call.is_watch:
        return "watch"
    return "read" if call.method == "GET" else "write"


def _error_line(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code}
    return orjson.dumps({"type": "ERROR", "object": {**status, "message": f"{reason}, injected"}}) + b"\n"
