"""One mutant against the tests that run its lines: a forked process that imports the changed module and runs pytest.

The parent has imported the libraries and nothing of ours, so a child begins with a warm start and the mutant is all
that it ever sees of the module. The first failure ends it. A mutant that never ends is killed by the time limit.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Final

import pytest

from tests.mutants.mutating import Mutant, mutated

TestsOf = Callable[[Mutant], Sequence[str]]

_MEMORY: Final = 4 * 2**30  # bytes; a mutant may build something without end
_OPTIONS: Final = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout=60", "--tb=line")
_IMPORTED_EARLY: Final = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a mutant fared; ``by`` is the first test that failed, or why there was none."""

    mutant: Mutant
    killed: bool
    by: str
    seconds: float


@dataclass(slots=True)
class _Child:
    mutant: Mutant
    output: IO[str]
    began: float = field(default_factory=time.monotonic)


def floor_of(path: Path) -> str:
    """The floor that a module of ``extender/`` belongs to."""
    return path.stem if len(path.parts) == 2 else path.parts[1]


def run(mutants: Sequence[Mutant], tests_of: TestsOf, jobs: int, limit: float) -> Iterator[Outcome]:
    """The outcome of each, as they end. ``limit`` is in seconds for one mutant, on a machine that does nothing else.

    ``tests_of``: the tests that may notice it, in the order in which they are run. Without any, it survives.
    """
    waiting, running = list(reversed(mutants)), dict[int, _Child]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                pid, child = _start(mutant, tests_of(mutant))
                running[pid] = child
            for pid, child in list(running.items()):
                outcome = _look_at(pid, child, limit)
                if outcome is not None:
                    del running[pid]
                    yield outcome
            time.sleep(0.02)
    finally:
        for pid in running:
            _end(pid)


def _start(mutant: Mutant, tests: Sequence[str]) -> tuple[int, _Child]:
    output = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed when its child has been read)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 70  # neither passed nor failed: what went wrong stands in the output
        try:
            status = _test(mutant, tests, output) if tests else 0
        finally:
            os._exit(status)
    return pid, _Child(mutant, output)


def _look_at(pid: int, child: _Child, limit: float) -> Outcome | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    seconds = time.monotonic() - child.began
    if not ended and seconds < limit:
        return None
    if not ended:
        _end(pid)
    with child.output as output:
        output.seek(0)
        text = output.read()
    by = _first_failure(text) if ended else "the time limit"
    return Outcome(child.mutant, not ended or os.waitstatus_to_exitcode(status) != 0, by, seconds)


def _end(pid: int) -> None:
    """Ends a child with all that it has started: it leads a group of its own."""
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _first_failure(text: str) -> str:
    lines = text.splitlines()
    named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return (named or lines or [""])[0].partition(" - ")[0]


def _test(mutant: Mutant, tests: Sequence[str], output: IO[str]) -> int:
    """In the child: pytest's exit code over the tests."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    with mutation(mutant):
        ended = pytest.main([*_OPTIONS, "-W", _IMPORTED_EARLY, *files], plugins=[_Selection(tests)])
    return 0 if ended is pytest.ExitCode.NO_TESTS_COLLECTED else int(ended)


class _Selection:
    """The pytest plugin that runs some tests alone, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (each for each in items if each.nodeid in self._places), key=lambda each: self._places[each.nodeid]
        )


@contextmanager
def mutation(mutant: Mutant) -> Iterator[None]:
    """Inside, the first import of the module gets the mutant."""
    finder = _Finder(mutant)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds one module, which is not as its file has it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(mutant.path.with_suffix("").parts)

    def find_spec(self, name: str, _path: object, _target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec, None for every other."""
        if name != self._name:
            return None
        file = str(self._mutant.path.resolve())
        return spec_from_file_location(name, file, loader=_Loader(name, file, self._mutant.number))


class _Loader(SourceFileLoader):
    """Compiles the mutant; nothing of it is cached on disk."""

    def __init__(self, name: str, file: str, number: int) -> None:
        super().__init__(name, file)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        source = mutated(Path(self.get_filename(fullname)).read_text("utf-8"), self._number)
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code
