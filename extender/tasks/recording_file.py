"""The file of a recording and the one before it. Called in a thread: each method may block, and raises OSError."""

from __future__ import annotations

import gzip
import os
from typing import Final

_LEVEL: Final = 1  # the names of nodes repeat in every question, so even the fastest level saves nine tenths


class RecordingFile:
    """Appends to ``path``; keeps what was there before, and what `rotate` ends, as ``path`` with ``.1``.

    ``size`` is that of the file in bytes. After an error the file is cut to what was written completely.
    """

    def __init__(self, path: str) -> None:
        self.size = 0
        self._path = path
        self._is_compressed = path.endswith(".gz")
        self._descriptor: int | None = None

    def rotate(self) -> None:
        """Ends the file; the next piece begins a new one."""
        self.close()
        if os.path.exists(self._path):  # noqa: PTH110 (as the calls below, by descriptor)
            os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 (as above)
        self.size = 0

    def append(self, piece: bytes) -> int:
        """Writes whole lines; a member of its own where the file is compressed. Returns the bytes in the file."""
        if self._is_compressed:
            piece = gzip.compress(piece, _LEVEL)
        if self._descriptor is None:
            # Only the extender's user may read it: it has names and labels of the cluster.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            os.ftruncate(self._descriptor, self.size)
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(piece)
        return len(piece)

    def close(self) -> None:
        """Closes the file, if it is open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
