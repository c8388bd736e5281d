"""`python -m tests.tools.bench.turns`: one line that says which workloads have become slower since an earlier version.

The earlier version comes from git, and runs in a process of its own beside this one. Both play the same requests in turns, a few
at a time, so that other programs of the machine slow down both. A figure is the median of the ratios of all turns: processor
time of an answer about 100 and about 500 nodes, and the time to apply a watch event, with 5,000 pods on 5,000 nodes. What looks
slower is measured again, three times as long, before it is named.

It ends with 1 where something is slower, and with 0 where there is no earlier version, or one too old to be played.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import orjson

from extender.cli.files import own_file
from tests.earlier import ROOT, NoEarlierVersionError, commit_of, extract
from tests.tools.bench.__main__ import SCENARIOS, read_workloads
from tests.tools.bench.cluster import SyntheticCluster
from tests.tools.bench.in_process import fill
from tests.tools.bench.player import Player
from tests.tools.bench.scenario import BenchScenario, Load, Point
from tests.tools.bench.subject import Subject

WORKLOADS: Final = ("w1", "w2", "w3", "w4", "w5-zone", "w6", "w7")
NAMES: Final = (100, 500)
TURNS: Final = 10
_PODS: Final = 5000
_SELECTORS: Final = 100
_REQUESTS: Final = 25  # of each number of names in a turn, besides those that warm up
_SLOWER: Final = 1.1
_AGAIN: Final = 3

Ratios = dict[str, float]
"""New / old by the name of a figure."""


class VersionError(Exception):
    """Raised when the other version ends before it has answered."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compares, and prints one line."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.turns", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, help=f"some of {' '.join(WORKLOADS)}")
    parser.add_argument("--from", dest="earlier", default="", metavar="COMMIT", help="the version to compare with")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"default {TURNS}")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)  # the process of one version
    chosen = parser.parse_args(argv)
    if chosen.play:
        play()
        return 0
    try:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            commit = commit_of(chosen.earlier)
            versions = stack.enter_context(_both(commit, Path(folder)))
            ratios = {name: ratios_of(*versions, name, chosen.turns) for name in chosen.workloads}
    except (NoEarlierVersionError, VersionError) as error:
        print(f"turns: nothing was compared: {error}")
        return 0
    slower = is_slower(ratios)
    print(verdict(ratios, commit[:12]))
    return 1 if slower else 0


def is_slower(ratios: Mapping[str, Ratios]) -> bool:
    """Whether any figure is."""
    return any(ratio > _SLOWER for each in ratios.values() for ratio in each.values())


def verdict(ratios: Mapping[str, Ratios], commit: str) -> str:
    """The line: what is slower, the worst first, or how near the worst comes to it."""
    found = sorted(((ratio, f"{name} {figure}") for name, each in ratios.items() for figure, ratio in each.items()))[
        ::-1
    ]
    if found and found[0][0] > _SLOWER:
        named = ", ".join(f"{name} {ratio:.2f} ×" for ratio, name in found if ratio > _SLOWER)
        return f"turns: SLOWER than {commit}: {named}"
    worst = f"at most {found[0][0]:.2f} × ({found[0][1]})" if found else "no figures"
    return f"turns: nothing is slower than {commit}: {worst}"


def ratios_of(old: "Version", new: "Version", workload: str, turns: int) -> Ratios:
    """The ratios of one workload; those above the limit are measured again."""
    path = str(own_file(f"{SCENARIOS}/{workload}.yaml"))
    for version in (old, new):
        version.request({"load": path})
    found = _in_turns(old, new, turns)
    return _in_turns(old, new, turns * _AGAIN) if is_slower({workload: found}) else found


def _in_turns(old: "Version", new: "Version", turns: int) -> Ratios:
    measured: dict[str, list[float]] = {}
    for turn in range(turns):
        order = (old, new) if turn % 2 else (new, old)
        figures = {version: version.request({}) for version in order}
        for name in figures[old].keys() & figures[new].keys():
            measured.setdefault(name, []).append(figures[new][name] / figures[old][name])
    return {name: median(ratios) for name, ratios in sorted(measured.items())}


class Version:
    """The process that plays one version, whose files are in ``tree``."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, "-m", "tests.tools.bench.turns", "--play"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=tree, stdin=pipe, stdout=pipe, env={**os.environ, "PYTHONPATH": ""}
        )
        where = Path(str(self._read()))
        if not where.is_relative_to(tree):
            raise VersionError(f"{where} was imported, and not the version in {tree}")

    def request(self, question: Mapping[str, str]) -> dict[str, float]:
        """The figures of one turn, or none where the question is to load a workload."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(question) + b"\n")
        self._process.stdin.flush()
        answer = self._read()
        assert isinstance(answer, dict)
        return answer

    def _read(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise VersionError("the other version cannot be played by this bench")
        found: object = orjson.loads(line)
        return found

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def _both(commit: str, folder: Path) -> Iterator[tuple[Version, Version]]:
    """The earlier version and this one. The earlier one is played by this file, as it may not have it."""
    extract(commit, folder)
    shutil.copy(__file__, folder / Path(__file__).relative_to(ROOT))
    shutil.copy(ROOT / "tests" / "earlier.py", folder / "tests" / "earlier.py")
    with ExitStack() as stack:
        versions: list[Version] = []
        for tree in (folder.resolve(), ROOT):
            versions.append(Version(tree))
            stack.callback(versions[-1].end)
        yield versions[0], versions[1]


# -- the process of one version ---------------------------------------------------------------------------------------


def play() -> None:
    """Answers the questions on standard input: each is a workload to load, or empty for a turn."""
    import extender  # noqa: PLC0415 (to tell where it is)

    print(orjson.dumps(str(Path(str(extender.__file__)).resolve())).decode(), flush=True)
    turn: _Turn | None = None
    for line in sys.stdin:
        path = orjson.loads(line).get("load")
        if path:
            turn = _Turn(path)
        print(orjson.dumps({} if path or turn is None else turn.play()).decode(), flush=True)


class _Turn:
    """One workload, loaded, and played some requests at a time."""

    def __init__(self, path: str) -> None:
        (workload,) = read_workloads([path])
        scenario = workload.scenario
        assert isinstance(scenario, BenchScenario)
        requests = msgspec.structs.replace(scenario.requests, count=_REQUESTS)
        self._points = [Point(names, "decisive", frozenset({"requests"})) for names in NAMES]
        load = Load(msgspec.structs.replace(scenario, requests=requests), _PODS, _SELECTORS, tuple(self._points))
        cluster, subject = SyntheticCluster(load), Subject(scenario.namespace_limits)
        fill(cluster, subject)
        self._player = Player(cluster, subject.index)
        self._decisions = subject.decisions(self._points[0].settings)

    def play(self) -> dict[str, float]:
        """Milliseconds at the median."""
        found: dict[str, float] = {}
        for point in self._points:
            figures = self._player.play(self._decisions, point)
            found[f"answer about {point.names}"] = figures["cpu.p50"]
            found["event"] = figures["event.p50"]
        return found


if __name__ == "__main__":
    sys.exit(main())
