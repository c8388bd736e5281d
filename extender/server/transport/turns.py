"""Spreads long work over iterations of the event loop, so that short requests wait only for a little of it."""

import asyncio
from collections import deque


class Turns:
    """Lets `most` pieces of work begin in one iteration of the event loop; the others wait, the oldest first.

    Such work is: a TLS handshake, decoding a large body, deciding it, rendering metrics. Without turns all work that is ready at the
    same time would be done in one iteration, and every request would wait for all of it.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, *, ahead: bool = False) -> None:
        """Returns in an iteration in which fewer than `most` other calls return; at once where no other call waits.

        ``ahead``: before the calls that wait already. For work that is half done: it holds objects, which the garbage collector
        visits again and again.
        """
        loop = asyncio.get_running_loop()
        if self._taken == self._most:
            turn = loop.create_future()
            (self._waiting.appendleft if ahead else self._waiting.append)(turn)
            await turn
        else:
            self._taken += 1
            if self._taken == 1:
                loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._most:
            turn = self._waiting.popleft()
            if not turn.done():  # else cancelled: by the deadline, the shutdown, or as its connection is closed
                turn.set_result(None)
                self._taken += 1
        if self._taken:
            asyncio.get_running_loop().call_soon(self._pass_on)
