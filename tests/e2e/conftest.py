"""Fixtures: one real control plane for all tests, and for each test an empty cluster on it.

Everything in this folder needs real binaries; without them it is skipped, and says so.
"""

from __future__ import annotations

import gc
import signal
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.cluster import Cluster, open_cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.programs import PROGRAMS, VARIABLE, assets_directory, minor_of_program

# A TLS connection says goodbye in its own time; a test's loop may end before that, and no test loses anything by it.
_GOODBYE = "ignore:Exception ignored in. <(socket|function _Selector|function _SSLProtocol):pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let such connections be, in the tests of this folder. Name the feature of a core test in reports."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(_GOODBYE))
            item.user_properties += [("core", mark.args[0]) for mark in item.iter_markers("core")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a newer API server or scheduler than this one."""
    needs = list(item.iter_markers("needs"))
    assets = assets_directory() if needs else None
    for mark in needs if assets is not None else ():
        (what,) = mark.args
        for part, minor in mark.kwargs.items():
            if minor_of_program(str(assets / _PROGRAM_OF[part])) < minor:  # type: ignore[operator]
                pytest.skip(f"{what} (1.{minor})")


_PROGRAM_OF: Final = {"api": "kube-apiserver", "scheduler": "kube-scheduler"}


@pytest.fixture(scope="session", autouse=True)
def end_in_order() -> Iterator[None]:
    """Being told to end is like Ctrl-C: fixtures are torn down, and no control plane is left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)
    with warnings.catch_warnings():  # of the last test's connections; after the session they would be errors
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def assets() -> Path:
    """The directory of the programs."""
    found = assets_directory()
    if found is None:
        pytest.skip(f"{VARIABLE} is not set: it names a directory with {', '.join(PROGRAMS)}")
    return found


@pytest.fixture(scope="session")
def plane(assets: Path) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver, shared: starting them takes longer than most tests."""
    with ControlPlane(assets) as started:
        yield started


@pytest.fixture
def scheduler_flags() -> Sequence[str]:
    """Further flags of kube-scheduler; a test that names values for them has these instead."""
    return ()


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path, scheduler_flags: Sequence[str]) -> AsyncIterator[Cluster]:
    """An empty cluster; what a test leaves behind is removed."""
    async with open_cluster(plane, tmp_path, scheduler_flags) as opened:
        yield opened
