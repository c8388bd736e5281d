"""Pods that ask for too much change no other pod's answer, cost work in proportion to their bytes, and leave nothing."""

from __future__ import annotations

import pytest
from hypothesis import given

from extender.index.audit import audit
from extender.index.counts import compiled_constraints
from tests.builders import Json, extender_args, pod_json
from tests.deciding import filter_nodes
from tests.laws.hostile_pods import KINDS, hostile_pods, leave, meet, work_for
from tests.laws.observing import WHOLE_ANSWERS, built, requested_pods, seen
from tests.strategies import Step, histories

"""Below every limit, above some, and above all."""


@given(histories(), hostile_pods())
def test_other_pods_get_the_answers_that_they_get_without_them(history: list[Step], hostile: list[Json]) -> None:
    beside, _ = built(history)
    alone, _ = built(history)
    meet(beside, hostile)
    pods = requested_pods(history)
    assert seen(beside, pods) == seen(alone, pods)
    assert audit(beside) == []


@given(histories(), hostile_pods())
def test_nothing_of_them_stays_when_they_are_gone(history: list[Step], hostile: list[Json]) -> None:
    """Compiled questions are kept for the next replica; here for one, so that the pod asked about last pushes them out."""
    last = pod_json("last")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_constraints, "MOST_COMPILED", 1)
        index, _ = built(history)
        filter_nodes(extender_args(last, *index.view.known), index.view, WHOLE_ANSWERS, seed=0)
        before = index.statistics()
        meet(index, hostile)
        leave(index, hostile)
        filter_nodes(extender_args(last, *index.view.known), index.view, WHOLE_ANSWERS, seed=0)
    assert index.statistics() == before
    assert audit(index) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_for_a_pod_grows_no_faster_than_its_bytes(kind: str) -> None:
    """From a tenth of the usual limit to the limit, and far above it."""
    small, large, huge = work_for(kind, 9), work_for(kind, 90), work_for(kind, 3_000)
    per_byte = small[0] / small[1]
    assert large[0] <= 1.5 * per_byte * large[1]
    assert huge[0] <= 1.5 * per_byte * huge[1]
