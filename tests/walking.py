"""Notes the calls of a piece of code, for tests of how many files its way passes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noting(note: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    """Profiles with ``note``. Without garbage collection, whose callback a service of an earlier test may have set."""
    earlier, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(earlier)
        if collects:
            gc.enable()
