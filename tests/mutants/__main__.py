"""`make mutants`: a sample of the mutants of the pure floors, those that no test noticed, and the share that was killed.

The sample depends on the seed and on the mutants themselves, so it stays the same where the code does. Exit code 1 where
fewer than the wanted share are killed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import yaml

from tests.mutants.covering import covering
from tests.mutants.mutating import Mutant, mutants_of
from tests.mutants.running import Outcome, floor_of, run

EQUIVALENT: Final = Path(__file__).with_name("equivalent.yaml")
FLOORS: Final = ("model", "settings", "wire", "index", "rules", "verbs", "doctor", "features")
ABOVE: Final = {"cli", "metrics", "jobs", "calls"}  # files of features that are above the line
# Imported once, before the first child is forked; nothing of ours, and nothing that imports ours.
LIBRARIES: Final = ("aiohttp", "aiohttp.web", "hypothesis", "msgspec", "orjson", "prometheus_client", "pytest_asyncio")

Key = tuple[str, str, str, str]


def modules() -> list[Path]:
    """Those of the pure floors."""
    paths = [path for floor in FLOORS for path in sorted(Path("extender", floor).rglob("*.py"))]
    return [path for path in paths if path.parts[1] != "features" or path.stem not in ABOVE]


def all_mutants() -> Iterator[Mutant]:
    """Every mutant of the pure floors."""
    for path in modules():
        yield from mutants_of(path, path.read_text("utf-8"))


def equivalents() -> dict[Key, str]:
    """The mutants that no test can notice, with the reasons."""
    listed = yaml.safe_load(EQUIVALENT.read_text("utf-8")) or []
    return {(each["file"], each["function"], each["old"], each["new"]): each["reason"] for each in listed}


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many mutants (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="which sample (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--only", default="", help="mutants of files whose path contains this")
    parser.add_argument("--share", type=float, default=0.95, help="the share that must be killed (default 0.95)")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one mutant (default 240)")
    parser.add_argument("--verbose", action="store_true", help="also print what killed each mutant")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Sample, run, report."""
    chosen = options(arguments)
    known, every = equivalents(), list(all_mutants())
    for key in known.keys() - {mutant.key for mutant in every}:
        print("no such mutant any more, see equivalent.yaml:", *key, sep="\n    ")  # noqa: T201 (for people)
    pool = [mutant for mutant in every if mutant.key not in known and chosen.only in mutant.path.as_posix()]
    sample = sorted(pool, key=lambda mutant: mutant.order(chosen.seed))[: chosen.count]
    found = covering(chosen.jobs)
    done, every_statement = found.share(modules())
    print(f"{done} of {every_statement} statements of functions are run by a test ({done / every_statement:.1%})")  # noqa: T201
    for library in LIBRARIES:
        import_module(library)
    outcomes = run(sample, found.tests_of, chosen.jobs, chosen.limit)
    return report(printed(outcomes, verbose=chosen.verbose), chosen.share)


def printed(outcomes: Iterator[Outcome], *, verbose: bool) -> list[Outcome]:
    """Prints each survivor as soon as it is known."""
    gathered = []
    for outcome in outcomes:
        gathered.append(outcome)
        mutant = outcome.mutant
        if verbose or not outcome.killed:
            fate = f"killed by {outcome.by}" if outcome.killed else "SURVIVED"
            print(  # noqa: T201 (for people)
                f"{mutant.path}:{mutant.line} {mutant.where}: {fate} ({outcome.seconds:.0f} s)",
                f"    - {mutant.old}",
                f"    + {mutant.new}",
                sep="\n",
                flush=True,
            )
    return gathered


def report(outcomes: Sequence[Outcome], wanted: float) -> int:
    """Prints the share killed, by floor and in all; 0 where it is as wanted."""
    made = Counter(floor_of(outcome.mutant.path) for outcome in outcomes)
    killed = Counter(floor_of(outcome.mutant.path) for outcome in outcomes if outcome.killed)
    for floor in sorted(made):
        print(f"{floor}: {killed[floor]} of {made[floor]} killed")  # noqa: T201 (for people)
    share = killed.total() / max(made.total(), 1)
    print(f"all: {killed.total()} of {made.total()} killed ({share:.1%}), wanted {wanted:.0%}")  # noqa: T201 (for people)
    return 0 if share >= wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
