"""A child process of the bench, and the calls to it over a pipe.

The measured service and the client need processes of their own, so that they share neither interpreter nor memory.
`Child` is the end of the parent, `Calls` that of the child.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final

_LONGEST: Final = 180.0  # seconds for an answer, where a call names no others


class ChildError(Exception):
    """Raised when a child process has failed, has ended, or does not answer in time."""


class Child:
    """A process that runs `target(pipe, *arguments)` and answers calls until it is stopped."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share this process's memory, which is measured
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._name = target.__name__
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid or 0

    def receive(self, within: float = _LONGEST) -> Any:
        """The next value that the child sends, within so many seconds. Raises ChildError."""
        try:
            if not self._pipe.poll(within):
                raise ChildError(f"{self._name}: no answer within {within:.0f} s")
            error, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise ChildError(f"{self._name}: ended with code {self._process.exitcode}") from None
        if error:
            raise ChildError(f"{self._name}: {error}")
        return value

    def notify(self, name: str, *arguments: object) -> None:
        """Calls a function of the child that has no result."""
        self._pipe.send((name, arguments))

    def call(self, name: str, *arguments: object, within: float = _LONGEST) -> Any:
        """Calls a function of the child and returns its result, within so many seconds. Raises ChildError."""
        self.notify(name, *arguments)
        return self.receive(within)

    def kill(self) -> None:
        """Ends the child at once, without a chance to release anything."""
        self._process.kill()
        self._process.join(10)

    def stop(self) -> None:
        """Stops the child, and terminates it if it does not stop within 10 s."""
        if self._process.is_alive():
            with suppress(ConnectionError):
                self.notify("stop")
            self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(10)
        self._pipe.close()


@contextmanager
def child_running(target: Callable[..., None], *arguments: object) -> Iterator[Child]:
    """Runs a child during the block."""
    child = Child(target, *arguments)
    try:
        yield child
    finally:
        child.stop()


class Calls:
    """The functions of the child by name: `answered` ones return a result, `unanswered` ones do not. `stop` sets `stopped`."""

    def __init__(
        self,
        pipe: Connection,
        answered: Mapping[str, Callable[..., object]],
        unanswered: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self.stopped = asyncio.Event()
        self._pipe = pipe
        self._answered = answered
        self._unanswered = {**(unanswered or {}), "stop": self.stopped.set}

    def send(self, value: object) -> None:
        self._pipe.send(("", value))

    def listen(self) -> None:
        """Answers calls on the running loop."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)

    def close(self) -> None:
        """Stops answering."""
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def _read(self) -> None:
        try:
            while self._pipe.poll():
                self._answer(*self._pipe.recv())
        except (EOFError, ConnectionError):  # the parent has ended
            self.close()
            self.stopped.set()

    def _answer(self, name: str, arguments: tuple[object, ...]) -> None:
        if name in self._unanswered:
            self._unanswered[name](*arguments)
            return
        try:
            self.send(self._answered[name](*arguments))
        except Exception as error:  # noqa: BLE001 (sent to the parent, which raises it)
            self._pipe.send((f"{name}: {error!r}", None))
