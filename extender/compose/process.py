"""What concerns the whole process: its version, its event loop, the garbage collector and the memory allocator."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from threading import Thread
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


_MAPS: Final = Path("/proc/self/maps")
_HUGE_PAGE: Final = 2**21
_COLLAPSE: Final = 25  # MADV_COLLAPSE
_FIELDS: Final = 5  # of a line of /proc/self/maps without a path


def join_pages_in_background() -> Thread:
    """Joins the pages of the heap to huge ones, so that a fork copies one entry of the page tables for 512.

    A what-if forks, and the loop waits meanwhile. Measured on 5,000 nodes and 150,000 pods: 5.2 to 6 ms for pages of 4 KiB, 1.5 to 2 ms
    after this; at twice the size 8 ms and 1.5 to 2.2 ms. Pages that are written while a child lives become small again; after several
    what-ifs a fork still takes 2 ms. Memory stays as it is (1 % more).

    It takes 2 to 3 ms for each MiB once, 3 s with 1,500,000 pods, so it runs in a thread: the loop goes on, and so do probes and the lease
    of a standby. The thread holds the interpreter for microseconds of each page, as the call releases it. Measured with 0.9 GB and a loop that is always
    busy: an iteration takes 0.04 ms and 0.08 ms at the 99th percentile, as without it; one page a slice of the loop instead takes 5 ms
    and 7 ms. Several pages in one call hold the lock of the address space for longer: 5 ms at the 99th percentile.

    https://docs.kernel.org/admin-guide/mm/transhuge.html, MADV_COLLAPSE in madvise(2): Linux 6.1 and newer, whatever the
    system's setting for huge pages. Elsewhere nothing changes. Returns the thread, which ends by itself. The heap is not marked for huge pages (MADV_HUGEPAGE): then a page fault
    might wait until the kernel has made room for one.
    """
    thread = Thread(target=join_pages, name="huge pages", daemon=True)
    thread.start()
    return thread


def join_pages() -> int:
    """The bytes that are in huge pages now. About 2.7 ms for each MiB that was not."""
    with suppress(OSError, AttributeError, TypeError):  # another system, or another C library
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        regions = list(_heap())
        pages = (page for start, size in regions for page in range(start, start + size, _HUGE_PAGE))
        return sum(_HUGE_PAGE for page in pages if madvise(page, _HUGE_PAGE, _COLLAPSE) == 0)
    return 0


def _heap() -> Iterator[tuple[int, int]]:
    """Address and size of each writable region that is no file's, as far as whole huge pages fit into it."""
    for line in _MAPS.read_text("ascii").splitlines():
        fields = line.split()
        if not fields[1].startswith("rw") or (len(fields) > _FIELDS and fields[_FIELDS] != "[heap]"):
            continue
        first, last = (int(address, 16) for address in fields[0].split("-"))
        start = -(-first // _HUGE_PAGE) * _HUGE_PAGE
        if last - start >= _HUGE_PAGE:
            yield start, (last - start) // _HUGE_PAGE * _HUGE_PAGE
