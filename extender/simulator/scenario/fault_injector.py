"""Injects the faults of a scenario at the hooks of the simulated API server.

The seed selects the calls. `injected` counts the faults, so that a test can check that a fault has occurred. Created by
`scenario/simulated_cluster.py`, changed by `scenario/play.py`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults, StreamEnd
from extender.simulator.scenario.faults import (
    NAMES,
    Condition,
    Conflict,
    CutLine,
    DelayEvents,
    EndWatch,
    ErrorEvent,
    Expire,
    Fail,
    HalfOpen,
    LoseAnswer,
    LoseBookmarks,
    PauseProcess,
    RepeatEvents,
    SlowPages,
    Stall,
    Throttle,
    Verb,
    WebhookDown,
)

FormT = TypeVar("FormT", bound=Condition)

_INITIAL_END = b"initial-events-end"


class FaultInjector(Faults):
    """The active faults, in addition to those that are `always` active."""

    def __init__(self, rng: Random, always: Faults | None = None) -> None:
        self.injected: Counter[str] = Counter()
        self._rng = rng
        self._always = always or Faults()
        self._active: list[_Active] = []

    def change(self, conditions: Iterable[Condition]) -> None:
        """Replaces the active faults. A connection that is half open stays so."""
        self._active = [_Active(form) for form in conditions]

    async def before_answer(self, call: Call) -> None:
        """Never answers, or rejects the request."""
        await self._always.before_answer(call)
        self._pause_process(call)
        if not call.is_watch and self._draw(HalfOpen, call):  # a watch becomes half open between its lines
            await asyncio.Event().wait()
        if throttle := self._draw(Throttle, call):
            raise api_errors.too_many_requests("too many requests, please try again later", throttle.retry_after)
        if failure := self._draw(Fail, call):
            raise api_errors.ApiError(failure.code, "InternalError", "etcdserver: no leader")
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
        if call.target is not None and self._draw(Conflict, call):
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
            # Without the bookmark that ends the initial events the client could never become ready.
            lines = [line for line in lines if b'"BOOKMARK"' not in line or _INITIAL_END in line]
        if not lines:
            return lines
        if self._draw(RepeatEvents, call):
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
            raise ConnectionCut(whole[: len(whole) - self._rng.randrange(1, len(lines[-1]))])
        if self._draw(EndWatch, call):
            raise StreamEnd(b"".join(lines[: self._rng.randrange(len(lines) + 1)]))
        if error := self._draw(ErrorEvent, call):
            raise StreamEnd(b"".join(lines) + _error_line(error.code, "InternalError"))

    def _draw(self, kind: type[FormT], call: Call, **having: str) -> FormT | None:
        """The first active fault of that kind that applies to this call; counts it as injected."""
        for active in self._active:
            form = active.form
            if not isinstance(form, kind) or any(getattr(form, name) != value for name, value in having.items()):
                continue
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
        return _verb(call) in getattr(form, "verbs", (_verb(call),))


def _verb(call: Call) -> Verb:
    if call.is_watch:
        return "watch"
    return "read" if call.method == "GET" else "write"


def _error_line(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code}
    return orjson.dumps({"type": "ERROR", "object": {**status, "message": f"{reason}, injected"}}) + b"\n"
