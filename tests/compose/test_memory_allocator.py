"""Large blocks that are freed leave the process."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from extender.compose.process import return_large_blocks
from tests.fakes import PATIENCE

# Blocks that grow side by side, as bodies of requests do, and small ones between them that stay.
PROGRAM = """
import sys
from pathlib import Path
from extender.compose.process import return_large_blocks
from tests.fakes import PATIENCE
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
if not return_large_blocks():
    sys.exit(77)
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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_what_grew_to_megabytes_is_given_back() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    if ended.returncode == 77:
        pytest.skip("the C library has no mallopt: this test needs glibc")
    assert ended.stderr == ""
    assert int(ended.stdout) < 32


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert return_large_blocks() is False
