"""The memory of the process: large blocks that are freed leave it, and the heap is in huge pages, which a fork copies faster."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from extender.compose import foundation
from extender.compose.foundation import make_index, settle_memory
from extender.compose.process import join_pages, join_pages_in_background, return_large_blocks
from extender.settings.configuration import Settings
from tests.builders import pod, settings
from tests.fakes import PATIENCE

# Blocks that grow side by side, as bodies of requests do, and small ones between them that stay.
BLOCKS = """
import sys
from pathlib import Path
from extender.compose.process import return_large_blocks
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
if not return_large_blocks():
    sys.exit("no mallopt")
before, kept = resident(), []
for _ in range(3):
    blocks = [bytearray() for _ in range(20)]
    for _ in range(200):
        for block in blocks:
            block += bytes(64 * 1024)
        kept.append(bytes(100_000))
    del blocks, block
print((resident() - before - len(kept) * 100_000) // 2**20)
"""
HEAP = """
from pathlib import Path
from extender.compose.process import join_pages
held = [(str(at), at) for at in range(400_000)]
print(Path("/proc/self/smaps_rollup").read_text())
print("joined", join_pages())
print(Path("/proc/self/smaps_rollup").read_text())
assert held[-1] == ("399999", 399_999)
"""
on_linux = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="/proc is missing: this test needs Linux"
)


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@on_linux
def test_what_grew_to_megabytes_is_given_back() -> None:
    ended = run(BLOCKS)
    if ended.stderr == "no mallopt\n":
        pytest.skip("the C library has no mallopt: this test needs glibc")
    assert ended.stderr == ""
    assert int(ended.stdout) < 32


@on_linux
def test_the_heap_is_in_huge_pages_and_takes_hardly_more_memory() -> None:
    ended = run(HEAP)
    assert ended.stderr == ""
    (joined,) = map(int, re.findall(r"joined (\d+)", ended.stdout))
    if not joined:
        pytest.skip("the kernel joins no pages: this test needs Linux 6.1 with transparent huge pages")
    before, after = map(int, re.findall(r"AnonHugePages: +(\d+) kB", ended.stdout))
    assert after - before > 16 * 1024
    small, large = map(int, re.findall(r"Rss: +(\d+) kB", ended.stdout))
    assert large - small < 8 * 1024


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: object())
    assert (join_pages(), return_large_blocks()) == (0, False)


def private_region() -> mmap.mmap:
    """Memory that holds whole huge pages, whatever the heap of this process looks like."""
    return mmap.mmap(-1, 2**23, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@on_linux
def test_the_caller_goes_on_while_the_pages_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, went_on = Event(), list[bool]()

    class Library:
        @staticmethod
        def madvise(_start: int, _size: int, _advice: int) -> int:
            went_on.append(goes_on.wait(60))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: Library)
    with private_region():
        thread = join_pages_in_background()
        goes_on.set()
        thread.join(60)
    assert not thread.is_alive()
    assert went_on
    assert all(went_on)
    assert thread.daemon  # the process does not wait for it


@on_linux
def test_each_call_joins_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call holds the lock of the address space, for which page faults of the loop wait."""
    sizes: list[int] = []

    class Library:
        @staticmethod
        def madvise(_start: int, size: int, _advice: int) -> int:
            sizes.append(size)
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: Library)
    with private_region():
        assert join_pages() == sum(sizes)
    assert set(sizes) == {2**21}


@pytest.mark.parametrize(("chosen", "pods", "joins"), [({}, 2, 1), ({}, 1, 0), ({"whatIf": {"enabled": False}}, 2, 0)])
def test_pages_are_joined_for_what_ifs_about_many_pods(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, dict[str, bool]], pods: int, joins: int
) -> None:
    joined: list[int] = []
    monkeypatch.setattr(foundation, "_MANY_PODS", 2)
    monkeypatch.setattr(foundation, "join_pages_in_background", lambda: joined.append(1))
    index = make_index(Settings())
    for at in range(pods):
        index.upsert(pod(f"p{at}"))
    settle_memory(index, settings(**chosen))
    assert len(joined) == joins
