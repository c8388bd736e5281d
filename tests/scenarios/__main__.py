"""`make scenarios`: plays every scenario of config/ with several seeds, and ends with one table.

Exit code 1 where a run does not hold what its scenario promises.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.scenarios.playing import SCENARIOS, Run, name_of, play, table


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds each is played with (5)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--short", action="store_true", help="as in make test: fewer pods and shorter pauses")
    parser.add_argument(
        "--only", nargs="+", choices=[name_of(path) for path in SCENARIOS], metavar="SCENARIO", help="only these"
    )
    chosen = parser.parse_args(arguments)
    runs: list[Run] = []
    for path in SCENARIOS:
        for seed in range(
            chosen.first, chosen.first + chosen.seeds if name_of(path) in (chosen.only or [name_of(path)]) else 0
        ):
            runs.append(play(path, seed, short=chosen.short))
            sys.stderr.write(f"{'  '.join(runs[-1].cells())}\n")
    sys.stdout.write("".join(f"{line}\n" for line in table(runs)))
    return 1 if any(run.problems for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
