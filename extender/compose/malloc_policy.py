"""Configures the C library to return large blocks to the system when they are freed.

How it works (mallopt(3), glibc): a block of at least M_MMAP_THRESHOLD bytes is a mapping of its own, which is unmapped
when it is freed; the threshold rises up to 32 MiB with each mapping that is freed. After that bodies and answers of megabytes
share the heap, and what is freed between blocks in use stays with the process.
"""

import ctypes
from typing import Final

_MMAP_THRESHOLD: Final = -3
_BYTES: Final = 2**20


def return_large_blocks() -> bool:
    """Fix the threshold. False where the C library has none: musl and macOS give large blocks back by themselves."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _BYTES))
