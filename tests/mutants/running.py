"""One mutant against the tests that know its floor: a forked process that imports the changed module and runs pytest.

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
from collections.abc import Iterator, Sequence
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

# The tests that are to notice a change of each floor; its own first, the slowest last.
RELEVANT: Final = {
    "model": (
        "model",
        "wire",
        "index",
        "rules",
        "verbs",
        "test_settings.py",
        "tasks/test_filter_service.py",
        "laws",
        "parity/test_parity.py",
    ),
    "wire": ("wire", "model", "index", "rules", "verbs", "server/test_verbs.py", "tasks/test_binding.py", "laws"),
    "index": (
        "index",
        "rules",
        "verbs",
        "tasks/test_filter_service.py",
        "tasks/test_nominator.py",
        "telemetry",
        "laws",
        "parity/test_parity.py",
    ),
    "rules": ("rules", "verbs", "index", "tasks/test_filter_service.py", "parity/test_parity.py", "laws"),
    "verbs": ("verbs", "rules", "tasks/test_filter_service.py", "tasks/test_preemption_races.py", "laws"),
    "settings": ("test_settings.py", "test_config_files.py", "verbs", "cli/test_config.py"),
    "doctor": ("doctor", "cli/test_quota.py", "cli/test_doctor.py", "cli/test_generate.py"),
}
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


def relevant_tests(path: Path) -> list[str]:
    """The folders and files of tests that are to notice a change of the module."""
    return [f"tests/{name}" for name in RELEVANT[floor_of(path)] if Path("tests", name).exists()]


def run(mutants: Sequence[Mutant], jobs: int, limit: float) -> Iterator[Outcome]:
    """The outcome of each, as they end. ``limit`` is in seconds for one mutant, on a machine that does nothing else."""
    waiting, running = list(reversed(mutants)), dict[int, _Child]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                pid, child = _start(waiting.pop())
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


def _start(mutant: Mutant) -> tuple[int, _Child]:
    output = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (closed when its child has been read)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 70  # neither passed nor failed: what went wrong stands in the output
        try:
            status = _test(mutant, output)
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


def _test(mutant: Mutant, output: IO[str]) -> int:
    """In the child: pytest's exit code over the relevant tests."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    with mutation(mutant):
        return int(pytest.main([*_OPTIONS, "-W", _IMPORTED_EARLY, *relevant_tests(mutant.path)]))


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
