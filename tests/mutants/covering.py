"""Which tests run each line of the pure floors: a mutant meets those tests alone, the quickest first.

The tests are run once, with coverage.py (https://coverage.readthedocs.io/en/latest/contexts.html). This module is the pytest plugin
that tells it which test runs, and reads what it wrote. What a test runs in another process does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from coverage import Coverage, CoverageData

from tests.mutants.mutating import Mutant, statements_of_functions

# All that runs in its own process and within minutes.
TESTS: Final = (
    *("model", "wire", "index", "rules", "verbs", "doctor", "features", "laws", "parity", "deploy"),
    *("tasks", "server", "compose", "kube", "telemetry", "test_settings.py", "test_config_files.py"),
    *("cli/test_doctor.py", "cli/test_generate.py", "cli/test_policy.py"),
)
_FOLDER: Final = "MUTANTS_LINES"  # the environment variable that names where the plugin writes


@dataclass(frozen=True, slots=True)
class Covering:
    """``lines``: the tests that run a line of a file; ``seconds``: how long each took."""

    lines: dict[Path, dict[int, set[str]]]
    seconds: dict[str, float]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run the mutant's statement; where it runs at import, those that run its file, or import it themselves.

        A default of a record is such a statement: a test that makes the record runs no line of its file.
        """
        known = self.lines.get(mutant.path, {})
        found = set[str]().union(*(known.get(line, ()) for line in mutant.lines))
        found = found or set[str]().union(self._importing(mutant.path), *known.values())
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))

    def _importing(self, path: Path) -> list[str]:
        line = f"from {'.'.join(path.with_suffix('').parts)} import "
        files = {test.partition("::")[0] for test in self.seconds}
        importing = {each for each in files if Path(each).is_file() and line in Path(each).read_text("utf-8")}
        return [test for test in self.seconds if test.partition("::")[0] in importing]

    def share(self, paths: Iterable[Path]) -> tuple[int, int]:
        """How many statements of functions some test runs, of how many there are."""
        run = [
            not self.lines.get(path, {}).keys().isdisjoint(lines)
            for path in paths
            for lines in statements_of_functions(path.read_text("utf-8"))
        ]
        return sum(run), len(run)


def covering(jobs: int) -> Covering:
    """Runs the tests once, so many at a time. AssertionError where one fails: it would notice every mutant that it runs."""
    with TemporaryDirectory() as folder:
        names = [f"tests/{name}" for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", "--timeout=900"]
        done = subprocess.run(
            [*command, "-p", "tests.mutants.covering", *names],
            env=os.environ | {_FOLDER: folder},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return read(Path(folder))


def read(folder: Path) -> Covering:
    """What the workers of one run wrote."""
    lines: dict[Path, dict[int, set[str]]] = {}
    seconds: dict[str, float] = {}
    for file in folder.glob("*.json"):
        seconds |= json.loads(file.read_text("utf-8"))
        data = CoverageData(str(file.with_suffix(".lines")))
        data.read()
        for name in data.measured_files():
            known = lines.setdefault(Path(name).relative_to(Path.cwd()), {})
            for line, tests in data.contexts_by_lineno(name).items():
                if ran := {each for each in tests if each}:
                    known.setdefault(line, set()).update(ran)
    return Covering(lines, seconds)


class _Recorder:
    """The plugin in one worker."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.lines"
        self._coverage = Coverage(data_file=self._file, source=["extender"], config_file=False)
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        result = yield
        self._seconds[item.nodeid] = time.monotonic() - begun
        return result

    def pytest_collection_finish(self) -> None:
        self._coverage.start()

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        self._file.with_suffix(".json").write_text(json.dumps(self._seconds), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """In a worker of `covering`: measures from the end of the collection on."""
    if (folder := os.environ.get(_FOLDER)) and hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(folder)))
