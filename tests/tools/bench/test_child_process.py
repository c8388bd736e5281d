"""Processes of the bench: called by name, they answer; what goes wrong there is raised here."""

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from tests.tools.bench.child_process import Calls, Child, ChildError


def double(pipe: Connection) -> None:
    """A child that doubles numbers, remembers what it was told, and fails at odd ones."""
    asyncio.run(_double(pipe))


async def _double(pipe: Connection) -> None:
    told: list[int] = []

    def half(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    asked: dict[str, Callable[..., object]] = {"double": lambda number: 2 * number, "half": half, "told": lambda: told}
    calls = Calls(pipe, asked, unanswered={"note": told.append})
    calls.listen()
    calls.send("ready")
    await calls.stopped.wait()


def break_off(pipe: Connection) -> None:
    """A child that ends without a word."""
    pipe.close()


def test_calls_are_answered_and_notifications_come_first() -> None:
    child = Child(double)
    try:
        assert child.receive() == "ready"
        child.notify("note", 7)
        assert [child.call("double", 4), child.call("told")] == [8, [7]]
        with pytest.raises(ChildError, match="3 is odd"):
            child.call("half", 3)
        assert child.call("half", 4) == 2, "one failed call does not end it"
    finally:
        child.stop()


def test_a_child_that_ends_by_itself_is_an_error_with_its_name() -> None:
    child = Child(break_off)
    with pytest.raises(ChildError, match="break_off: ended"):
        child.receive()
    child.stop()
