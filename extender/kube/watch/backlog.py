"""Counts the bytes of a watch that have arrived and were not handled yet.

A process without processor time reads nothing, so a chunk that is read now may have been sent long ago. The time of
reading does not show how current a reflector is. Everything that had arrived at a moment is known once all bytes that were
unread at that moment have been handled. Two methods use this: ``note_handled`` (up to when everything is known) and
``wait_until_handled`` (a request waits for the events that had arrived with it).

A socket that holds many bytes may have stopped the sender as well (TCP flow control), which then has more to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_SENDER_MAY_WAIT: Final = 32 * 1024  # bytes; half of the smallest receive window that Linux offers
_BUSY_ITERATIONS: Final = 100  # of the event loop; a chunk is read and handled within a few
_POLL_SECONDS: Final = 0.001


def _nothing() -> int:
    return 0


class Backlog:
    """Counts the bytes of one stream after another."""

    def __init__(self) -> None:
        self._unread: Callable[[], int] = _nothing
        self._received = 0
        self._handled = 0
        self._mark: tuple[int, float] | None = None

    def begin(self, unread: Callable[[], int]) -> None:
        """A stream begins; ``unread`` returns its bytes that have arrived and were not read."""
        self._unread = unread

    def end(self) -> None:
        """The stream has ended: its unread bytes will not be read."""
        self._unread = _nothing
        self._mark = None
        self._handled = self._received

    @property
    def is_behind(self) -> bool:
        """Whether bytes have arrived that were not handled. One system call while a stream is open."""
        return self._handled < self._received or self._unread() > 0

    def note_received(self, size: int, now: float) -> None:
        """A chunk was read at that time."""
        self._received += size
        left = self._unread()
        if self._mark is None and left < _SENDER_MAY_WAIT:
            self._mark = (self._received + left, now)

    def note_handled(self) -> float | None:
        """All bytes that were read are handled. Returns the time up to which everything is known, None if unchanged.

        Bytes in the socket include the frames of HTTP and TLS, so a mark may lie beyond all data. It also counts as reached
        once no byte is left.
        """
        self._handled = self._received
        if self._mark is None or (self._handled < self._mark[0] and self._unread()):
            return None
        (_, moment), self._mark = self._mark, None
        return moment

    async def wait_until_handled(self) -> None:
        """Returns when all that has arrived by now is handled, or the stream has ended.

        Polls at each iteration of the loop, and later every millisecond: bytes that are no data wake no reader.
        """
        goal, iterations = self._received + self._unread(), _BUSY_ITERATIONS
        while self._handled < goal and self.is_behind:
            await asyncio.sleep(0 if iterations > 0 else _POLL_SECONDS)
            iterations -= 1
