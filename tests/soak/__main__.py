"""`make soak`: so many decisions under faults, in two processes; ends with what was wrong, what was kept, and what happened."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.soak.running import MEMORY, PARTS, Soak, grown, run_lives

_PROCESSES: Final = 2


def main() -> int:
    """Runs two processes side by side, and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends both processes
    begun, context, pipes = time.monotonic(), multiprocessing.get_context("spawn"), []
    for number in range(_PROCESSES):
        ours, theirs = context.Pipe()
        seed = given.seed * _PROCESSES + number
        process = context.Process(target=run_lives, args=(theirs, given.decisions // _PROCESSES, seed), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
    try:
        results: list[Soak] = [pipe.recv() for pipe in pipes]
    except EOFError:
        _print("a process has ended: its error is above")
        return 1
    return _report(results, given.seed, time.monotonic() - begun)


def _report(results: Sequence[Soak], seed: int, seconds: float) -> int:
    happened = sum((result.happened for result in results), Counter[str]())
    _print(f"seed {seed}, {seconds:.0f} s, {_PROCESSES} processes; what happened:")
    for name, count in sorted(happened.items()):
        _print(f"  {count:>10,} {name}")
    for name in results[0].decisions:
        _print(f"{name}: {sum(result.decisions[name] for result in results):,} decisions")
    grew = {f"process {n}, {name}": times for n, each in enumerate(results) for name, times in grown(each).items()}
    problems = [problem for result in results for problem in result.problems]
    for problem in problems[:20]:
        _print(f"PROBLEM {problem}")
    for name, times in grew.items():
        _print(f"GROWN {name}: {times:.1f} times")
    tenth = [f"{result.kept[PARTS // 10][MEMORY]:.0f}" for result in results]
    last = [f"{result.kept[PARTS][MEMORY]:.0f}" for result in results]
    _print(f"memory: {' and '.join(tenth)} MB after the tenth part of {PARTS}, {' and '.join(last)} MB after the last")
    drift = sum(result.drift for result in results)
    decisions = sum(sum(result.decisions.values()) for result in results)
    violations = happened["violations"]
    _print(
        f"decisions {decisions:,}, violations {violations}, drift {drift}, other problems {len(problems) - violations}"
    )
    return 1 if problems or grew or drift else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
