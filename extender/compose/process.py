"""The process as a whole: version, event loop, garbage collector, memory allocator."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
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

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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


async def until_signal(*work: Awaitable[None]) -> None:
    """Runs all jobs until a signal that ends the process (Ctrl-C, SIGTERM, the terminal is closed), or until one ends. Raises its error."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    # `nohup` has the process ignore SIGHUP, so that it outlives its terminal. A handler would undo that.
    ending = [number for number in _ENDING if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in ending:
        loop.add_signal_handler(number, stopped.set)
    # The signal is one of the jobs, so that a job that fails and Ctrl-C end the wait in the same way.
    tasks = [asyncio.ensure_future(awaitable) for awaitable in (stopped.wait(), *work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # Until all are cancelled: they use what the caller closes next.
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in ending:
            loop.remove_signal_handler(number)
    for task in done:  # raises the error of a job that has failed
        task.result()


def return_large_blocks() -> bool:
    """Has the C library return large blocks to the system when they are freed. False where it needs no such setting.

    How it works (mallopt(3), glibc):

    1. A block of at least M_MMAP_THRESHOLD bytes is a mapping of its own, which is unmapped when it is freed.
    2. By default the threshold rises, up to 32 MiB, with each freed mapping. After that bodies and answers of megabytes are on the
       heap, and freed memory between blocks in use stays with the process. A fixed threshold prevents that.
    3. musl and macOS return large blocks by themselves.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))


def allow_connections() -> int:
    """Raises the limit of open files to the most that the system allows this process. Returns the limit.

    Each connection is an open file. The usual limit of 1,024 exists for programs that use select(2); this one does not use it.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # macOS allows less than it says
        return now
    return most


def limit_gc() -> None:
    """Excludes all current objects from garbage collections, and later the survivors of each long collection. O(1).

    Call it before the first lists. The objects of the lists are needed as long as the process runs, and each full collection would
    visit all objects so far: 0.1 s after 100,000 pods of 20,000 templates.
    """
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()
    # Called twice: before the lists and after them.
    if _WATCH not in gc.callbacks:
        gc.callbacks.append(_WATCH)


def freeze_gc() -> None:
    """Excludes all current objects from garbage collections, and later the survivors of long ones. O(objects that are not frozen).

    A full collection visits every object that is not frozen: 0.3 s with 150,000 pods. Reference counting frees the objects that the
    index drops, so the collector is needed for cycles only, and cycles are young. How it works (CPython up to 3.13):

    1. A full collection is due when the objects that survived younger collections exceed a quarter of the objects that the last full
       collection left, frozen ones included. A collection right after `gc.freeze` leaves nothing, so the next full collection comes
       early and is small.
    2. It is due every 70,000 new objects at most. Visiting so many takes 30 ms, hence `_THRESHOLDS`.
    3. Frozen objects are still freed by reference counting. Only a cycle among them is never freed.
    """
    gc.collect()  # cycles of the start, which would never be freed once they are frozen
    limit_gc()
    gc.collect()  # fact 1: it leaves nothing


class _Watch:
    """Freezes the survivors of a long full collection, so that the next one is short again after the index has grown."""

    def __init__(self) -> None:
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector before and after each collection."""
        # Only full collections, of the oldest generation: younger ones are short.
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
    """Joins the pages of the heap into huge pages, so that a fork copies one entry of the page tables in place of 512.

    Why: a what-if forks, and the event loop waits for the fork. Measured with 5,000 nodes and 150,000 pods: 5.2 to 6 ms with pages of
    4 KiB, 1.5 to 2 ms after this. At twice the size 8 ms, and 1.5 to 2.2 ms after this. A page that is written while a child lives
    becomes small again; after several what-ifs a fork still takes 2 ms. Memory grows by 1 %.

    Cost: 2 to 3 ms for each MiB, once; 3 s with 1,500,000 pods. So it runs in a thread, beside the event loop, probes and the Lease of
    a standby. The thread holds the interpreter for microseconds of each page, because the system call releases it. Measured with 0.9 GB
    and a loop that is always busy:

    - one page a call, in a thread: an iteration takes 0.04 ms, and 0.08 ms at the 99th percentile, as without it;
    - one page in each iteration of the loop: 5 ms and 7 ms;
    - several pages a call: 5 ms at the 99th percentile, because the call holds the lock of the address space for longer.

    https://docs.kernel.org/admin-guide/mm/transhuge.html, MADV_COLLAPSE in madvise(2): Linux 6.1 and newer, with any system setting for
    huge pages. Elsewhere nothing changes. Returns the thread, which ends by itself. The heap is not marked for huge pages
    (MADV_HUGEPAGE): a page fault might then wait until the kernel has made room for one.
    """
    # A daemon, so that the end of the process does not wait for it.
    thread = Thread(target=join_pages, name="huge pages", daemon=True)
    thread.start()
    return thread


def join_pages() -> int:
    """Joins the pages. Returns how many bytes are in huge pages now. About 2.7 ms for each MiB that is joined."""
    with suppress(OSError, AttributeError, TypeError):  # another system, or another C library
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        regions = list(_heap())
        pages = (page for start, size in regions for page in range(start, start + size, _HUGE_PAGE))
        return sum(_HUGE_PAGE for page in pages if madvise(page, _HUGE_PAGE, _COLLAPSE) == 0)
    return 0


def _heap() -> Iterator[tuple[int, int]]:
    """Address and size of the whole huge pages in each writable region that belongs to no file."""
    for line in _MAPS.read_text("ascii").splitlines():
        # A line: `7f2c40000000-7f2c44000000 rw-p 00000000 00:00 0`, and a path if the region belongs to a file.
        fields = line.split()
        if not fields[1].startswith("rw") or (len(fields) > _FIELDS and fields[_FIELDS] != "[heap]"):
            continue
        first, last = (int(address, 16) for address in fields[0].split("-"))
        # Rounded up: the first whole huge page of the region.
        start = -(-first // _HUGE_PAGE) * _HUGE_PAGE
        if last - start >= _HUGE_PAGE:
            yield start, (last - start) // _HUGE_PAGE * _HUGE_PAGE
