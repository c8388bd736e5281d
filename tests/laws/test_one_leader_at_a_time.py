"""Whatever gets lost, stalls or jumps: at no moment two replicas are certain to lead, and in peace one does."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.cases import times
from tests.laws.leader_troubles import live


@times(1 / 4)
@given(st.integers(0, 2**32))
def test_there_is_never_more_than_one_leader_and_in_peace_exactly_one(seed: int) -> None:
    asyncio.run(live(seed))
