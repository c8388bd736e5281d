"""How many files a reader opens to follow the release of a group of three, and how often the way changes between files.

Counted from when the leader has been shown the complete group until all of its pods are released. The API server of the simulator,
with what it calls, is left out: it plays the cluster.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import FrameType

import extender
from tests.tasks.release.scene import Scene
from tests.walking import noting

PACKAGE = Path(extender.__file__).parent
SIMULATOR = str(PACKAGE / "simulator")


def is_played(frame: FrameType | None) -> bool:
    """Whether the simulator calls it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(SIMULATOR):
            return True
        frame = frame.f_back
    return False


async def walk() -> list[str]:
    """The file of each function of the package that is called, or resumed, in order."""
    files = list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)) and not is_played(frame):
            files.append(path)

    scene = Scene({"a": 8, "b": 3, "c": 2})
    async with scene.leading():
        scene.create("x", 1, 2, 3)
        with noting(note):
            await scene.pass_time(1, shown=False)
    assert set(scene.released().values()) == {"b"}
    return files


async def test_a_release_passes_few_files_and_returns_to_each_seldom() -> None:
    await walk()  # the first release also fills caches
    files = await walk()
    assert len(set(files)) <= 17, sorted(set(files))
    assert sum(one != other for one, other in pairwise(files)) <= 195
