"""A process of the bench and the pipe to it: what is called by name there, and what it answers.

So that what is measured shares neither its interpreter nor its memory with what asks it. Called by `serving`; the
other end is `answer_calls`, in the child.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

_LONGEST: Final = 180.0

# (pipe, URL of the API server, settings): says its addresses when it is ready, and answers calls until told to stop.
RunService: TypeAlias = Callable[..., None]


class ChildError(Exception):
    """Raised when a process of the bench has failed, ended, or not answered in time."""


class Child:
    """A process that runs `target(pipe, *arguments)` and answers calls until it is told to stop."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._name = target.__name__
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid or 0

    def receive(self) -> Any:
        """What the child says next. Raises ChildError."""
        try:
            if not self._pipe.poll(_LONGEST):
                raise ChildError(f"{self._name}: no answer within {_LONGEST:.0f} s")
            error, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1)
            raise ChildError(f"{self._name}: ended with code {self._process.exitcode}") from None
        if error:
            raise ChildError(f"{self._name}: {error}")
        return value

    def tell(self, name: str, *arguments: object) -> None:
        """Call something that gives no answer."""
        self._pipe.send((name, arguments))

    def call(self, name: str, *arguments: object) -> Any:
        """Call something and wait for what it gives. Raises ChildError."""
        self.tell(name, *arguments)
        return self.receive()

    def stop(self) -> None:
        """Tell it to stop; what does not end by itself is ended."""
        if self._process.is_alive():
            with suppress(ConnectionError):
                self.tell("stop")
            self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(10)
        self._pipe.close()


@contextmanager
def child_running(target: Callable[..., None], *arguments: object) -> Iterator[Child]:
    """A child for as long as the block lasts."""
    child = Child(target, *arguments)
    try:
        yield child
    finally:
        child.stop()


class Calls:
    """The child's end: `told` give no answer, `asked` answer, both by name; `stop` sets `stopped`."""

    def __init__(
        self,
        pipe: Connection,
        asked: Mapping[str, Callable[..., object]],
        told: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self.stopped = asyncio.Event()
        self._pipe = pipe
        self._asked = asked
        self._told = {**(told or {}), "stop": self.stopped.set}

    def say(self, value: object) -> None:
        """Tell the parent something of our own accord."""
        self._pipe.send(("", value))

    def listen(self) -> None:
        """Answer on the running loop, between its other work."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)

    def close(self) -> None:
        """Hear no more."""
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def _read(self) -> None:
        try:
            while self._pipe.poll():
                self._answer(*self._pipe.recv())
        except (EOFError, ConnectionError):  # the parent is gone
            self.close()
            self.stopped.set()

    def _answer(self, name: str, arguments: tuple[object, ...]) -> None:
        if name in self._told:
            self._told[name](*arguments)
            return
        try:
            self.say(self._asked[name](*arguments))
        except Exception as error:  # noqa: BLE001 (told to the parent, which raises it)
            self._pipe.send((f"{name}: {error!r}", None))
