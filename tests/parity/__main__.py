"""``python -m tests.parity FILE.ndjson.gz...``: a line for each file, the first differences, exit 1 on any failure."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.parity.runner import run

MOST_CASES = 5
MOST_LINES = 6


def main(arguments: list[str]) -> int:
    """Runs the files named and prints how each went."""
    if not arguments:
        print("usage: python -m tests.parity FILE.ndjson.gz...", file=sys.stderr)  # noqa: T201 (for people)
        return 2
    failed = False
    for argument in arguments:
        path = Path(argument)
        outcome = run(path)
        failed |= bool(outcome.failures)
        name = path.name.removesuffix(".gz").removesuffix(".ndjson")
        print(f"{name}: {outcome.passed} passed, {len(outcome.failures)} failed")  # noqa: T201 (for people)
        for case, lines in list(outcome.failures.items())[:MOST_CASES]:
            print(f"  {case}")  # noqa: T201 (for people)
            for line in lines[:MOST_LINES]:
                print(f"    {line}")  # noqa: T201 (for people)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
