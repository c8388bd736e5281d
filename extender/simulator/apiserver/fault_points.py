"""The hooks for fault injection, which the simulated API server calls at fixed points.

The class here injects nothing. A scenario's faults are a subclass that overrides the hooks it needs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from extender.simulator.apiserver.kinds import Target


class ConnectionCut(Exception):  # noqa: N818 -- not an error: tells the server what to do
    """Raised by any hook: send `partial`, then close the connection without the rest of the answer."""

    def __init__(self, partial: bytes = b"") -> None:
        super().__init__("connection cut")
        self.partial = partial


class StreamEnd(Exception):  # noqa: N818 -- as above
    """Raised by `watch_lines`: send `last`, then end the answer normally."""

    def __init__(self, last: bytes = b"") -> None:
        super().__init__("stream ended")
        self.last = last


@dataclass(frozen=True, slots=True)
class Call:
    """The request that a hook is called for."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None

    @property
    def is_watch(self) -> bool:
        """Whether the query asks for a WATCH."""
        return self.query.get("watch", "") in {"1", "true"}


class Faults:
    """Injects no fault. A hook may also wait, for a stall, a slow page or a late answer."""

    async def before_answer(self, call: Call) -> None:
        """Called for each request first. Raise ApiError for an HTTP error, ConnectionCut to drop the request."""

    async def before_page(self, call: Call) -> None:
        """Called before a page of a LIST is sent, or a part of the initial events of a streaming list."""

    async def before_write(self, call: Call) -> None:
        """Called after a write is read and before it is done, for conflicts and slow writes."""

    async def after_write(self, call: Call) -> None:
        """Called after a write is done and before it is answered, to lose the answer."""

    async def watch_lines(self, call: Call, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Called with the next lines of a watch. Returns the lines to send instead (fewer, repeated, reordered)."""
        del call
        return lines

    async def before_webhook(self, call: Call) -> None:
        """Called before an admission webhook is asked about a write; the path is the webhook's name. Raise OSError for one that is down."""

    def watch_error(self, call: Call) -> bytes | None:
        """The ERROR line with which a watch starts and ends; None for none."""
        del call
        return None


class SlowWrites(Faults):
    """Delays every write by the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before_write(self, call: Call) -> None:
        """Waits before the write is done."""
        del call
        await asyncio.sleep(self._seconds)


class SlowBindings(Faults):
    """Delays bindings by a time drawn from a range; for bindings by the extender, which the loop cannot delay."""

    def __init__(self, seconds: tuple[float, float], rng: Random) -> None:
        self._seconds = seconds
        self._rng = rng

    async def before_write(self, call: Call) -> None:
        """Waits before the binding is done."""
        if call.path.endswith("/binding"):
            await asyncio.sleep(self._rng.uniform(*self._seconds))
