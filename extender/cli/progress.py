"""Reports on a terminal that a command still works, and on what. Where standard error is no terminal it prints nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Final

from extender.cli.main import say

EVERY_SECONDS: Final = 2.0


@contextmanager
def progress(what: str, every: float = EVERY_SECONDS) -> Iterator[None]:
    """Prints ``what`` and the seconds since the beginning, every two seconds while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    ended, begun = Event(), monotonic()

    def report() -> None:
        while not ended.wait(every):
            say(f"{what} ({monotonic() - begun:.0f} s)", to=sys.stderr)

    # A thread, because the block may be one long call.
    thread = Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
