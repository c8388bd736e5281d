"""Lines out of a byte stream, of any length.

A chunk is split once and a long line is joined once, so the cost is linear in the bytes whatever the cuts: 20 MB in
64 KiB pieces are 320 appends and one join.
"""

from __future__ import annotations


class LineSplitter:
    """Gives the complete lines of the chunks fed so far; what stands after the last newline waits for the rest."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, in order, without newline and without empty ones."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)
        return [line for line in lines if line]

    @property
    def has_partial_line(self) -> bool:
        """Whether the stream has stopped in the middle of a line; such a half is never decoded."""
        return bool(self._pieces)
