"""The seam for fault injection: named points at which the embedded API server asks whether to misbehave.

Here stands only the well-behaved one. A scenario's faults are a subclass that overrides the points it needs; the
server calls them and knows nothing of what they do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from extender.simulator.apiserver.kinds import Target


class ConnectionCut(Exception):  # noqa: N818 -- not an error of the program: an order to the server
    """Raised at any point: send `partial`, then close the connection without the rest of the answer."""

    def __init__(self, partial: bytes = b"") -> None:
        super().__init__("connection cut")
        self.partial = partial


class StreamEnd(Exception):  # noqa: N818 -- as above
    """Raised for the lines of a watch: send `last`, then end the answer properly."""

    def __init__(self, last: bytes = b"") -> None:
        super().__init__("stream ended")
        self.last = last


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the points see it."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None

    @property
    def is_watch(self) -> bool:
        """Whether this is a WATCH, in the query's words."""
        return self.query.get("watch", "") in {"1", "true"}


class Faults:
    """No fault at all. Every point may also wait: a stall, a slow page, a late answer."""

    async def before_answer(self, call: Call) -> None:
        """Before a request is looked at. Raise ApiError for an HTTP error, ConnectionCut to drop it."""

    async def before_page(self, call: Call) -> None:
        """Before a page of a LIST is sent, or a piece of what a streaming list begins with."""

    async def before_write(self, call: Call) -> None:
        """After a write was read and before it is done: the place for conflicts and for slow writes."""

    async def after_write(self, call: Call) -> None:
        """After a write was done and before it is answered: the client cannot know whether it was."""

    async def watch_lines(self, call: Call, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The lines that a watch is about to send; give those to send instead (fewer, twice, in another order)."""
        del call
        return lines

    def watch_error(self, call: Call) -> bytes | None:
        """An ERROR line to open a watch with, after which it ends; None for none."""
        del call
        return None


class SlowWrites(Faults):
    """Writes that all take the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before_write(self, call: Call) -> None:
        """Wait before it is done."""
        del call
        await asyncio.sleep(self._seconds)


class SlowBindings(Faults):
    """Bindings that take a time drawn from a range, for bindings that do not come from the scheduling loop itself."""

    def __init__(self, seconds: tuple[float, float], rng: Random) -> None:
        self._seconds = seconds
        self._rng = rng

    async def before_write(self, call: Call) -> None:
        """Wait before a binding is done."""
        if call.path.endswith("/binding"):
            await asyncio.sleep(self._rng.uniform(*self._seconds))
