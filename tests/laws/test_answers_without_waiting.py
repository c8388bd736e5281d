"""An answer that waits for no assumed pod is as good as the one with the node of each assumed pod known."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from tests.builders import Json, extender_args, settings
from tests.deciding import filter_nodes
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import built, pending, shape_of
from tests.strategies import NODE_NAMES, Step, decoded, histories_with_room, mostly_linked

SEVERAL = st.lists(st.sampled_from(NODE_NAMES[:3]), min_size=2, max_size=2, unique=True)
COMING = ("p8", "p9")


def _assume(index: ClusterIndex, bodies: tuple[Json, ...], places: tuple[list[str], ...]) -> None:
    for body, names in zip(bodies, places, strict=True):
        pod = decoded("pods", pending(body))
        index.assume(pod, [name for name in names if name in index.view.known], now=0.0)  # type: ignore[arg-type]  # as the test gives it


def _passed(index: ClusterIndex, pod: Json, chosen: Settings) -> list[str]:
    return list(filter_nodes(extender_args(pod, *sorted(index.view.known)), index.view, chosen, seed=1).passed)


@meets_its_case
@given(
    histories_with_room(),
    st.tuples(*map(mostly_linked, COMING)),
    st.tuples(*(SEVERAL for _ in COMING)),
    mostly_linked("asking"),
    st.sampled_from((1, 1, 1, 1, 2, 0)),
)
def test_it_is_right_and_no_shorter_whichever_nodes_the_assumed_pods_are_bound_to(
    history: list[Step], coming: tuple[Json, ...], places: tuple[list[str], ...], pod: Json, most: int
) -> None:
    chosen = settings(answers={"shortlist": most})
    index, _ = built(history, chosen)
    index.view.compiled(shape_of(pod))
    _assume(index, coming, places)
    waits = FilterVerb(index.view, chosen).should_wait(extender_args(pod, *sorted(index.view.known)))
    case(not waits and index.view.is_undetermined(index.view.compiled(shape_of(pod))))
    answered = _passed(index, pod, chosen)
    known = [
        [name for name in names if name in index.view.known] or [""] for names in places
    ]  # no assumed pod is bound to another node
    for nodes in itertools.product(*known):
        _assume(index, coming, tuple([node] for node in nodes))
        passing = _passed(index, pod, settings(answers={"shortlist": 0}))
        assert set(answered) <= set(passing)
        assert len(answered) == min(len(passing), most or len(passing))
