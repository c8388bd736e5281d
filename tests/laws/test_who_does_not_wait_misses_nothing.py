"""An answer that waits for nobody is as good as the one that could be given if everybody's place were known."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.settings import Settings
from extender.verbs.awaiting import should_wait
from extender.verbs.filtering import filter_nodes
from tests.builders import Json, asking, settings
from tests.laws.observing import built, shape_of
from tests.strategies import NODE_NAMES, Step, decoded, histories, pods

SEVERAL = st.lists(st.sampled_from(NODE_NAMES), min_size=2, max_size=3, unique=True)
COMING = ("p8", "p9")


def _assume(index: ClusterIndex, bodies: tuple[Json, ...], places: tuple[list[str], ...]) -> None:
    for body, names in zip(bodies, places, strict=True):
        pod = decoded("pods", {**body, "metadata": {**body["metadata"]}, "status": {"phase": "Pending"}})
        index.assume(pod, [name for name in names if name in index.known], now=0.0)  # type: ignore[arg-type]  # as the test gives it


def _passed(index: ClusterIndex, pod: Json, chosen: Settings) -> list[str]:
    return list(filter_nodes(asking(pod, *sorted(index.known)), index.view, chosen, seed=1).passed)


@given(
    histories(),
    st.tuples(*map(pods, COMING)),
    st.tuples(*(SEVERAL for _ in COMING)),
    pods(),
    st.sampled_from((0, 1, 2)),
)
def test_it_is_right_and_no_shorter_wherever_those_are_whose_place_is_not_known(
    history: list[Step], coming: tuple[Json, ...], places: tuple[list[str], ...], pod: Json, most: int
) -> None:
    chosen = settings(answers={"shortlist": most})
    index, _ = built(history, chosen)
    index.view.question(shape_of(pod))
    _assume(index, coming, places)
    if should_wait(asking(pod, *sorted(index.known)), index.view, chosen):
        return
    answered = _passed(index, pod, chosen)
    known = [[name for name in names if name in index.known] or [""] for names in places]  # nobody comes to another
    for nodes in itertools.product(*known):
        _assume(index, coming, tuple([node] for node in nodes))
        passing = _passed(index, pod, settings(answers={"shortlist": 0}))
        assert set(answered) <= set(passing)
        assert len(answered) == min(len(passing), most or len(passing))
