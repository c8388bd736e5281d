"""Answers that equal requests share: requests that arrive while the answer is computed, and in the second after it.

So a page in fifty browsers costs as much as a page in one browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from extender.model.answers.explanations import NoAnswerCause, NotExplained

KEPT_SECONDS: Final = 1.0
MOST_BYTES: Final = 8 * 2**20


@dataclass(eq=False, slots=True)
class _Shared:
    """One answer, while it is computed or kept. ``waiting``: how many requests wait for it."""

    task: asyncio.Task[bytes]
    waiting: int = 0


class SharedAnswers:
    """The answers, by the text of the request; at most ``MOST_BYTES`` together. The oldest is dropped first."""

    def __init__(self) -> None:
        self.bytes = 0
        self._held: dict[str, _Shared] = {}

    def __len__(self) -> int:
        return len(self._held)

    async def of(self, request: str, compute: Callable[[], Awaitable[object]], seconds: float) -> bytes:
        """The encoded answer. Raises what ``compute`` raises, and NotExplained where it takes more than so many seconds.

        The computation ends when no request waits for it any more.
        """
        shared = self._held.get(request)
        if shared is None:
            shared = self._held[request] = _Shared(asyncio.create_task(_encoded(compute)))
            shared.task.add_done_callback(partial(self._keep, request, shared))
        shared.waiting += 1
        # The task is shielded: a request that ends (deadline, client gone) must not cancel it for the others. The last one does.
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(shared.task)
        except TimeoutError:
            raise NotExplained(
                NoAnswerCause.BUSY, f"not computed within {seconds:g} s; try again in a moment"
            ) from None
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.task.done():
                self._drop(request, shared)
                shared.task.cancel()

    def _keep(self, request: str, shared: _Shared, task: asyncio.Task[bytes]) -> None:
        """Keeps an answer for a while. An error is raised in the waiting requests and not kept."""
        if task.cancelled() or task.exception() is not None:
            self._drop(request, shared)
            return
        self.bytes += len(task.result())
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, request, shared)
        for key, held in list(self._held.items()):
            if self.bytes <= MOST_BYTES:
                break
            if held.task.done():
                self._drop(key, held)

    def _drop(self, request: str, shared: _Shared) -> None:
        if self._held.get(request) is not shared:  # dropped before, and a newer answer to the same request is there
            return
        del self._held[request]
        if shared.task.done() and not shared.task.cancelled() and shared.task.exception() is None:
            self.bytes -= len(shared.task.result())


async def _encoded(compute: Callable[[], Awaitable[object]]) -> bytes:
    return msgspec.json.encode(await compute())
