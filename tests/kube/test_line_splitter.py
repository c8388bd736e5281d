"""Lines out of chunks: whatever the cuts, the same lines, and no time beyond the bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.watch.decoding import LineSplitter, LineTooLongError


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x"))), st.lists(st.integers(0, 200)))
def test_any_cuts_give_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter(100_000_000)
    found = [line for start, end in pairwise(edges) for line in splitter.split(data[start:end])]
    assert found == [line for line in lines if line]


def test_what_stands_after_the_last_newline_is_no_line_yet() -> None:
    splitter = LineSplitter(100_000_000)
    assert splitter.split(b"one\ntw") == [b"one"]
    assert splitter.split(b"o") == []
    assert splitter.split(b"\n") == [b"two"]


def test_a_long_line_is_joined_once() -> None:
    """Joining at each chunk would copy 3 GB for this line."""
    splitter = LineSplitter(100_000_000)
    piece = b"x" * 65_536
    assert all(splitter.split(piece) == [] for _ in range(320))
    (line,) = splitter.split(b"\n")
    assert len(line) == 320 * 65_536
    assert splitter._pieces == []


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1), st.integers(1, 30))
def test_a_line_is_given_or_rejected_by_its_length_whatever_the_cuts(longest: int, sizes: list[int], cut: int) -> None:
    data = b"".join(b"x" * size + b"\n" for size in sizes)
    splitter, found = LineSplitter(longest), list[bytes]()
    pieces = [data[start : start + cut] for start in range(0, len(data), cut)]
    if all(size <= longest for size in sizes):
        assert [len(line) for piece in pieces for line in splitter.split(piece)] == sizes
        return
    with pytest.raises(LineTooLongError, match=f"longer than {longest:,} bytes"):
        found += (line for piece in pieces for line in splitter.split(piece))
    assert sum(map(len, splitter._pieces)) <= longest
