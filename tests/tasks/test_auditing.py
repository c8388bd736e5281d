"""A wrong count is found while the service runs, and cured; answers are right again at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from extender.index.audit import audit, audit_steps
from extender.tasks.index_upkeep import Auditing
from tests.builders import read_pod
from tests.fakes import FakeClock, until
from tests.tasks.audited_cluster import cluster, counted, pod_json


async def test_a_planted_difference_is_found_and_cured() -> None:
    index = cluster()
    before = counted(index)
    (group, *_) = (group for _, groups in index.counts.selections.acquired() for group in groups)
    group.counts[next(iter(group.counts))] += 5
    assert len(audit(index)) == 1
    auditing = Auditing(index, partial(audit_steps, index), FakeClock(), 1.0)
    running = asyncio.create_task(auditing.run())
    await until(lambda: auditing.rounds >= 2)
    running.cancel()
    assert auditing.differences == 1
    assert counted(index) == before
    assert audit(index) == ["the index had to be rebuilt once"]


async def test_a_true_index_is_left_alone() -> None:
    index = cluster()
    auditing = Auditing(index, partial(audit_steps, index), FakeClock(), 1.0)
    running = asyncio.create_task(auditing.run())
    await until(lambda: auditing.rounds >= 2)
    running.cancel()
    assert (auditing.differences, index.drifts) == (0, 0)


@pytest.mark.parametrize("deleted", ["on-n1", "on-n2"])
def test_a_change_that_cannot_be_counted_is_counted_anew_instead(deleted: str) -> None:
    """A count that would become negative shows that one was lost before; nothing of the change is."""
    index = cluster()
    for group in (group for _, groups in index.counts.selections.acquired() for group in groups):
        group.counts.clear()
        group._levels = None
    pod = index.pods[deleted]
    assert index.delete(pod)
    assert index.drifts == 1
    assert audit(index) == ["the index had to be rebuilt once"]
    assert deleted not in index.pods


def test_counting_anew_keeps_every_answer() -> None:
    index = cluster()
    before, sizes = counted(index), index.statistics()
    index.rebuild()
    assert counted(index) == before
    assert index.statistics() == {**sizes, "drifts": 1}
    assert index.view.is_undetermined(index.view.compiled(read_pod(pod_json("asking")).signature))
