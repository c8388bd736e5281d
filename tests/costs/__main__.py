"""`make costs`: measures every dimension up to its limit, prints the table, and fails where a bound is passed.

With ``--write`` the table is put into the documentation; of rows that are not measured the figures stay. Each row is measured in a process of its own, two at a time.
Then it measures what an event costs by its kind; alone with the argument ``events``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from typing import Final

from tests.costs import events
from tests.costs.judging import KNOWN, Result, as_text, judged, measured_by_name, table, write
from tests.costs.rows import ROWS

_PROCESSES: Final = 2
_EVENTS: Final = "events"


def main() -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of the names of rows")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    parser.add_argument("--jobs", type=int, default=_PROCESSES)
    given = parser.parse_args()
    rows = [row for row in ROWS if not given.only or any(each in row.name for each in given.only)]
    results: dict[str, Result] = {}
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.jobs, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(measured_by_name, [row.name for row in rows]):
            results[found.name] = found
            last = found.at_limit
            _print(
                f"{found.name}: {last.longest * 1000:.1f} ms ({last.what}), growth {found.growth:.1f} {'; '.join(found.problems)}"
            )
        crowds = [crowd.name for crowd in events.CROWDS] if not given.only or _EVENTS in given.only else []
        costs = pool.map(events.measured_events, crowds, chunksize=1)
    if rows:
        _print("\n" + as_text(table(rows, results)))
    if costs:
        _print("\n" + as_text(events.table(costs)))
    for name, why in KNOWN.items():
        if name in results:
            _print(f"KNOWN {name}: {why}: {'; '.join(results[name].problems)}")
    problems = [*judged(list(results.values())), *(problem for each in costs for problem in each.problems)]
    for problem in problems:
        _print(f"PROBLEM {problem}")
    if given.write:
        write(table(ROWS, results))
        if costs:
            events.write(costs)
    return 1 if problems else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
