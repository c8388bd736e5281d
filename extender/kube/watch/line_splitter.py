"""Splits a byte stream into lines of limited length.

A chunk is split once and a long line is joined once, so the cost is linear in the bytes whatever the cuts: 20 MB in
64 KiB pieces are 320 appends and one join.
"""

from __future__ import annotations


class LineTooLongError(Exception):
    """Raised when a line has become longer than it may be. The stream cannot be read further."""


class LineSplitter:
    """Gives the complete lines of the chunks split so far; bytes after the last newline wait for the rest.

    ``longest``: bytes of a line. No more than that, and one chunk, is held.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._held = 0

    def split(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, in order, without newline and without empty ones."""
        lines = chunk.split(b"\n")
        if self._held + len(lines[0]) > self._longest or max(map(len, lines)) > self._longest:
            raise LineTooLongError(f"a line is longer than {self._longest:,} bytes")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._held = 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
        return [line for line in lines if line]
