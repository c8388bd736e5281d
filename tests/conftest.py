"""Fixtures that several floors share. Builders of pods and nodes, and the stand-ins for feeds, live beside it.

Laws run with a bounded, repeatable profile. `make laws` runs them with many more examples, other ones each time.
"""

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

settings.register_profile(
    "bounded",
    max_examples=32,
    derandomize=True,
    deadline=None,  # a shared machine is slow at times; no law is about time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("bounded"), max_examples=2000, derandomize=False, print_blob=True
)
settings.load_profile("bounded")

# helm and kubectl of `python -m deploy.programs`. Programs of the machine come first.
os.environ["PATH"] += f"{os.pathsep}{Path(sys.prefix) / 'programs'}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: where the collector looks at it again and again, tests take a tenth more of the processor."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _first_law() -> None:
    """Hypothesis makes its source of chance at the first law, and warns when the collector shows no referrer of it.

    A service that has run before in this process has frozen what the collector knows, so the first law runs here.
    """
    given(st.none())(lambda _: None)()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Commands run inside a test set the level and the handlers of the whole process; the next test wants its own."""
    root, ours = logging.getLogger(), logging.getLogger("extender")
    level, own_level, handlers = root.level, ours.level, list(root.handlers)
    yield
    root.setLevel(level)
    ours.setLevel(own_level)
    for handler in [found for found in root.handlers if found not in handlers]:
        root.removeHandler(handler)


@pytest.fixture
def without_log(_logging_as_it_was: None) -> None:
    """For tests in which a service logs a line for each of many faults: pytest would keep every one."""
    logging.getLogger("extender").setLevel(logging.CRITICAL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what tests logged and is no Unicode: a worker can send the report of such a test no other way."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


_DESELECTED = pytest.StashKey[Counter[str]]()
_NONE: Counter[str] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember which markers kept tests out of the run, so that the end of the run can say so."""
    for item in items:
        count = item.config.stash.setdefault(_DESELECTED, Counter())
        count.update({mark.name for mark in item.iter_markers()})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what was remembered, where this is a worker of several."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        count = session.config.stash.get(_DESELECTED, _NONE)
        output["deselected"] = dict(count)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker remembered; each of them has seen every test."""
    node.config.stash[_DESELECTED] = Counter(getattr(node, "workeroutput", {}).get("deselected", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests each of our markers kept out, and what they need."""
    count = config.stash.get(_DESELECTED, _NONE)
    for marker in config.getini("markers"):
        name, _, needs = marker.partition(": ")
        if count[name] and f"not {name}" in config.option.markexpr:
            terminalreporter.write_line(f"DESELECTED [{count[name]}] {name}: {needs}")
