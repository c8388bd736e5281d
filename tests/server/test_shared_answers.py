"""Answers that equal requests share: computed once, kept for a second within bounded bytes, and ended with the last client."""

from __future__ import annotations

import asyncio

import pytest

from extender.model.answers.explanations import Cause, NotExplained
from extender.server.v1 import shared
from extender.server.v1.shared import SharedAnswers
from tests.fakes import until


class Computing:
    """A computation that ends when it is told to."""

    def __init__(self, answer: object = "found") -> None:
        self.answer = answer
        self.begun = 0
        self.cancelled = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> object:
        """Waits, and counts how it ends."""
        self.begun += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_requests_that_arrive_meanwhile_and_soon_after_share_one_computation() -> None:
    answers, computing = SharedAnswers(), Computing()
    waiting = [asyncio.create_task(answers.of("a", computing, 5)) for _ in range(3)]
    await until(lambda: computing.begun)
    computing.go_on.set()
    assert await asyncio.gather(*waiting) == [b'"found"'] * 3
    assert await answers.of("a", computing, 5) == b'"found"'
    assert computing.begun == 1


async def test_an_answer_is_dropped_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KEPT_SECONDS", 0.01)
    answers, computing = SharedAnswers(), Computing()
    computing.go_on.set()
    await answers.of("a", computing, 5)
    assert (len(answers), answers.bytes) == (1, 7)
    await until(lambda: not len(answers))
    assert answers.bytes == 0
    await answers.of("a", computing, 5)
    assert computing.begun == 2


async def test_the_oldest_answers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_BYTES", 20)
    answers, computing = SharedAnswers(), Computing("12345678")
    computing.go_on.set()
    for asked in "abc":
        await answers.of(asked, computing, 5)
    assert (len(answers), answers.bytes) == (2, 20)
    await answers.of("c", computing, 5)
    assert computing.begun == 3
    await answers.of("a", computing, 5)
    assert computing.begun == 4


async def test_an_error_goes_to_all_that_wait_and_is_not_kept() -> None:
    answers, computing = SharedAnswers(), Computing(NotExplained(Cause.BUSY, "busy"))
    waiting = [asyncio.create_task(answers.of("a", computing, 5)) for _ in range(2)]
    await until(lambda: computing.begun)
    computing.go_on.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in found] == ["busy", "busy"]
    assert len(answers) == 0


async def test_a_computation_goes_on_until_its_last_client_has_gone() -> None:
    answers, computing = SharedAnswers(), Computing()
    first, second = (asyncio.create_task(answers.of("a", computing, 5)) for _ in range(2))
    await until(lambda: computing.begun)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (computing.cancelled, len(answers)) == (0, 1)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await until(lambda: computing.cancelled)
    assert len(answers) == 0


async def test_a_computation_that_takes_too_long_is_busy_and_ends() -> None:
    answers, computing = SharedAnswers(), Computing()
    with pytest.raises(NotExplained) as error:
        await answers.of("a", computing, 0.01)
    assert error.value.cause is Cause.BUSY
    await until(lambda: computing.cancelled)
