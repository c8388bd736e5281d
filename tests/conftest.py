"""Fixtures that several floors share. Builders of pods and nodes, and the stand-ins for feeds, live beside it.

Laws run with a bounded, repeatable profile. More examples: `pytest tests/laws --hypothesis-profile=thorough --timeout=0`.
"""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bounded",
    max_examples=60,
    derandomize=True,
    deadline=None,  # a shared machine is slow at times; no law is about time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("bounded"), max_examples=2000, derandomize=False)
settings.load_profile("bounded")


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
