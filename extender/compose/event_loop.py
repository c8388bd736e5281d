"""The event loop that commands run on: uvloop where it is installed (the extra `uvloop`), else asyncio's own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # an extra, which is not available on every platform
    LOOP_FACTORY: Callable[[], asyncio.AbstractEventLoop] | None = None
else:
    LOOP_FACTORY = uvloop.new_event_loop

T = TypeVar("T")


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs to the end on a new loop; raises what the work raises."""
    with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
        return runner.run(work)
