"""Joins the pages of the heap to huge ones, so that a fork copies one entry of the page tables for 512.

A what-if forks, and the loop waits meanwhile. Measured on 5,000 nodes and 150,000 pods: 5.2 to 6 ms for pages of 4 KiB, 1.5 to 2 ms
after this; at twice the size 8 ms and 1.5 to 2.2 ms. Pages that are written while a child lives become small again; after several
what-ifs a fork still takes 2 ms. Memory stays as it is (1 % more).

It takes 2 to 3 ms for each MiB once, 3 s with 1,500,000 pods, so it runs in a thread: the loop goes on, and so do probes and the lease
of a standby. The thread holds the interpreter for microseconds of each page, as the call releases it. Measured with 0.9 GB and a loop that is always
busy: an iteration takes 0.04 ms and 0.08 ms at the 99th percentile, as without it; one page a slice of the loop instead takes 5 ms
and 7 ms. Several pages in one call hold the lock of the address space for longer: 5 ms at the 99th percentile.

https://docs.kernel.org/admin-guide/mm/transhuge.html, MADV_COLLAPSE in madvise(2): Linux 6.1 and newer, whatever the
system's setting for huge pages. Elsewhere nothing changes. The heap is not marked for huge pages (MADV_HUGEPAGE): then a page fault
might wait until the kernel has made room for one.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

_MAPS: Final = Path("/proc/self/maps")
_HUGE_PAGE: Final = 2**21
_COLLAPSE: Final = 25  # MADV_COLLAPSE
_FIELDS: Final = 5  # of a line of /proc/self/maps without a path


def join_pages_in_background() -> Thread:
    """Starts `join_pages` and returns the thread, which ends by itself, at the latest with the process."""
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
