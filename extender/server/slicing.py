"""Feeds bytes that are dear to parse in slices, one slice of one connection for each turn of the event loop.

The parser handles each chunk of a chunked body by itself, at 3 µs, and a socket gives up to 256 KiB at once: 40,000 chunks
of one byte, which hold the loop for 150 ms. What has few line ends is cheap at any length and is not sliced.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE: Final = 16 * 1024
_BYTES_A_LINE: Final = 64  # of an honest head, and of JSON that is written in lines


def is_dense(data: bytes) -> bool:
    """Whether data has so many line ends that parsing it at once would hold the loop. O(bytes), 20 µs for 256 KiB."""
    return len(data) > SLICE and data.count(b"\r\n") * _BYTES_A_LINE > len(data)


class SlicedFeeder:
    """The slices of all connections, in the order in which they came; `feed` is called with each in a turn of its own."""

    def __init__(self) -> None:
        self._slices: deque[tuple[Callable[[bytes], None], bytes]] = deque()

    def add(self, data: bytes, feed: Callable[[bytes], None], done: Callable[[], None]) -> None:
        """Feed this data, then call ``done``. What was added before is fed before."""
        is_idle = not self._slices
        self._slices.extend((feed, data[start : start + SLICE]) for start in range(0, len(data), SLICE))
        self._slices.append((lambda _: done(), b""))
        if is_idle:
            asyncio.get_running_loop().call_soon(self._feed_next)

    def _feed_next(self) -> None:
        feed, data = self._slices[0]
        try:
            feed(data)
        finally:
            self._slices.popleft()
            if self._slices:
                asyncio.get_running_loop().call_soon(self._feed_next)
