"""The heap in huge pages: what a fork of the service copies becomes less, and the memory stays as it is."""

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
from extender.compose.process import join_pages, join_pages_in_background
from extender.settings.configuration import Settings
from tests.builders import pod, settings
from tests.fakes import PATIENCE

PROGRAM = """
from pathlib import Path
from extender.compose.process import join_pages
held = [(str(at), at) for at in range(400_000)]
print(Path("/proc/self/smaps_rollup").read_text())
print("joined", join_pages())
print(Path("/proc/self/smaps_rollup").read_text())
assert held[-1] == ("399999", 399_999)
"""


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="/proc/self/smaps_rollup is missing: this test needs Linux"
)
def test_the_heap_is_in_huge_pages_and_takes_hardly_more_memory() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    (joined,) = map(int, re.findall(r"joined (\d+)", ended.stdout))
    if not joined:
        pytest.skip("the kernel joins no pages: this test needs Linux 6.1 with transparent huge pages")
    before, after = map(int, re.findall(r"AnonHugePages: +(\d+) kB", ended.stdout))
    assert after - before > 16 * 1024
    small, large = map(int, re.findall(r"Rss: +(\d+) kB", ended.stdout))
    assert large - small < 8 * 1024


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: object())
    assert join_pages() == 0


def private_region() -> mmap.mmap:
    """Memory that holds whole huge pages, whatever the heap of this process looks like."""
    return mmap.mmap(-1, 2**23, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


needs_maps = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="/proc/self/maps is missing: this test needs Linux"
)


@needs_maps
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


@needs_maps
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
