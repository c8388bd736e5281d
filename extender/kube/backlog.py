"""What has arrived for a feed and has not been taken in yet, in bytes.

A process that gets no processor time reads nothing, and what it has not read it does not know: a chunk that it reads now
may have been sent long ago. So it is not the time of reading that tells how fresh a feed is. Everything that had arrived
at a moment is known as soon as all bytes that lay there at that moment have been taken in. Two things rest on that:
``Backlog.mark`` (until when everything is known) and ``Backlog.caught_up`` (a question waits for what lay there when it
came). Neither is told of time; ``list_watch`` is.

A socket that holds very much may have held up the sender as well (TCP flow control), who then had more to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_SENDER_MAY_WAIT: Final = 32 * 1024  # bytes; half of the smallest receive window that Linux offers
_BUSY_TURNS: Final = 100  # of the loop; a chunk is read and taken in within a few
_LOOK_SECONDS: Final = 0.001


def _nothing() -> int:
    return 0


class Backlog:
    """Counts the bytes of one stream after another. ``unread`` asks for those that lie in the present one."""

    def __init__(self) -> None:
        self._unread: Callable[[], int] = _nothing
        self._received = 0
        self._taken = 0
        self._mark: tuple[int, float] | None = None

    def begin(self, unread: Callable[[], int]) -> None:
        """A stream begins."""
        self._unread = unread

    def end(self) -> None:
        """The stream is over: what was in flight will not come by it, and proves nothing."""
        self._unread = _nothing
        self._mark = None
        self._taken = self._received

    @property
    def is_behind(self) -> bool:
        """Whether anything has arrived that is not taken in. One system call while a stream is open."""
        return self._taken < self._received or self._unread() > 0

    def received(self, size: int, now: float) -> None:
        """A chunk was read at that time."""
        self._received += size
        left = self._unread()
        if self._mark is None and left < _SENDER_MAY_WAIT:
            self._mark = (self._received + left, now)

    def taken(self) -> float | None:
        """Everything that was read is taken in; the time up to which everything is known now, None where that is as before.

        What lies in the socket is counted as it was sent, with the frames of HTTP and TLS around it: so a mark may lie
        beyond all that comes. It is reached, too, once nothing is left.
        """
        self._taken = self._received
        if self._mark is None or (self._taken < self._mark[0] and self._unread()):
            return None
        (_, moment), self._mark = self._mark, None
        return moment

    async def caught_up(self) -> None:
        """Return when all that has arrived by now is taken in, or nothing is left of it, or the stream is over.

        Looks again at each turn of the loop, and later every millisecond: bytes that are no data wake no reader.
        """
        goal, turns = self._received + self._unread(), _BUSY_TURNS
        while self._taken < goal and self.is_behind:
            await asyncio.sleep(0 if turns > 0 else _LOOK_SECONDS)
            turns -= 1
