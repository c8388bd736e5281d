"""What concerns the whole process: its version, its event loop, the garbage collector and the memory allocator."""

import asyncio
import ctypes
import gc
import resource
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from time import perf_counter
from typing import Any, Final, TypeVar

try:
    import uvloop
except ImportError:  # an extra, which is not available on every platform
    LOOP_FACTORY: Callable[[], asyncio.AbstractEventLoop] | None = None
else:
    LOOP_FACTORY = uvloop.new_event_loop

T = TypeVar("T")

_THRESHOLDS: Final = (700, 10, 2)  # full collections every 14,000 new objects instead of 70,000
_LONG_SECONDS: Final = 0.005  # some 10,000 objects
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of mallopt(3)
_LARGE_BYTES: Final = 2**20


def installed_version() -> str:
    """The version of the installed distribution."""
    return version("placement-extender")


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs to the end on a new event loop, uvloop where it is installed (the extra `uvloop`). Raises what the work raises."""
    with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
        return runner.run(work)


def return_large_blocks() -> bool:
    """Has the C library return large blocks to the system when they are freed. False where it needs no such setting.

    How it works (mallopt(3), glibc): a block of at least M_MMAP_THRESHOLD bytes is a mapping of its own, which is unmapped
    when it is freed; the threshold rises up to 32 MiB with each mapping that is freed. After that bodies and answers of
    megabytes share the heap, and what is freed between blocks in use stays with the process. musl and macOS return large
    blocks by themselves.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))


def allow_connections() -> int:
    """Raises the limit of open files to what the system allows this process; returns it.

    Each connection is an open file. The usual limit of 1,024 is for programs that use select(2), which this one does not.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # macOS allows less than it says
        return now
    return most


def limit_gc() -> None:
    """Excludes all current objects from collections, and has what survives a long one excluded from the next. O(1).

    To be called before the first lists. Their objects are needed for as long as the process runs, and each full collection
    would visit all that came so far: 0.1 s after 100,000 pods of 20,000 templates.
    """
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()
    if _WATCH not in gc.callbacks:
        gc.callbacks.append(_WATCH)


def freeze_gc() -> None:
    """Excludes all current objects from collections, and from now on those that survive a long one. O(objects not frozen).

    A full collection visits every object that is not frozen: 0.3 s at 150,000 pods. Reference counting frees what the index
    drops, so the collector is needed for cycles only, and those are young. How it works (CPython up to 3.13):

    1. A full collection is due once a quarter more has survived the younger ones than the last full one left, frozen objects
       included. After `gc.freeze` a further collection of what is left, nothing, makes the next one due early and small.
    2. It is due every 70,000 new objects at most, and visiting so many takes 30 ms: hence `_THRESHOLDS`.
    3. Frozen objects are still freed by reference count; only a cycle among them is never freed.
    """
    gc.collect()
    limit_gc()
    gc.collect()


class _Watch:
    """Freezes what has survived a long full collection, so that the next one is short after the index has grown."""

    def __init__(self) -> None:
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector before and after each collection."""
        if info["generation"] < len(_THRESHOLDS) - 1:
            return
        if phase == "start":
            self._started = perf_counter()
        elif perf_counter() - self._started > _LONG_SECONDS:
            gc.freeze()


_WATCH: Final = _Watch()
