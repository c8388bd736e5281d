"""The collector's policy: what stands is frozen, what grows later is frozen as soon as it costs something."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from extender.compose import process
from extender.compose.process import freeze_gc, limit_gc


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """All tests of the process share the collector."""
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def grow() -> list[dict[str, object]]:
    return [{"number": number, "self": []} for number in range(2000)]


def test_what_stands_is_not_walked_through_again() -> None:
    kept = grow()
    freeze_gc()
    assert gc.is_tracked(kept[0])
    assert not any(found is kept[0] for found in gc.get_objects())


def test_the_next_full_collection_is_due_by_what_has_come_since() -> None:
    """Else it is due only when a quarter of the whole index has been added, and then it takes as much longer."""
    kept: list[list[object]] = [[] for _ in range(800_000)]
    freeze_gc()
    rounds = gc.get_stats()[-1]["collections"]
    later: list[list[object]] = [[] for _ in range(30_000)]
    assert gc.get_stats()[-1]["collections"] > rounds
    assert len(kept) > 4 * len(later)


def test_what_has_survived_a_long_collection_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LONG_SECONDS", float("inf"))  # none is long, however busy the machine is
    freeze_gc()
    kept = grow()
    gc.collect()
    assert any(found is kept[0] for found in gc.get_objects())
    monkeypatch.setattr(process, "_LONG_SECONDS", 0.0)
    gc.collect()
    assert not any(found is kept[0] for found in gc.get_objects())


def test_settling_again_watches_once() -> None:
    before = len(gc.callbacks)
    freeze_gc()
    freeze_gc()
    assert len(gc.callbacks) <= before + 1


def test_a_list_is_collected_in_parts_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each full collection during the first list visits all that came so far, and the last one takes longest."""
    monkeypatch.setattr(process, "_LONG_SECONDS", 0.0)
    limit_gc()
    kept: list[list[object]] = []
    most = 0
    for _ in range(30):
        kept += [[] for _ in range(5_000)]
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(3)))
    assert most < len(kept) / 2
