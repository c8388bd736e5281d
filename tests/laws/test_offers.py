"""Law of the choice among offered nodes: the one that is found early is as good as the best of all that are examined."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.model.objects import Object
from extender.model.preemption import Candidate, RemovalRank
from extender.verbs.dry_run import DryRun, NodeVictims, importance
from extender.verbs.preempt import Examination, Outcome
from tests.builders import preempting
from tests.contenders import cluster, contender_json
from tests.laws.preemption_strategies import APPS, PREEMPTOR, carried, clusters, offers


@given(clusters(), carried, st.sampled_from(APPS), st.integers(0, 9), st.booleans(), st.data())
def test_no_offered_node_is_better_than_the_one_chosen(
    objects: list[Object],
    fields: dict[str, Any],
    app: str,
    seed: int,
    sees_everything: bool,  # noqa: FBT001 (hypothesis gives it by position)
    data: st.DataObject,
) -> None:
    held = cluster(*objects)
    incoming = contender_json("asking", priority=PREEMPTOR, cpu=2000, app=app, **fields)
    args = preempting(incoming, offers(incoming, held, data), violations=data.draw(st.integers(0, 1)))

    def best(*candidates: Candidate) -> Outcome | None:
        return Examination(DryRun(args.pod, held.view), sees_everything).best(candidates, seed)

    def rank(outcome: Outcome) -> RemovalRank:
        if isinstance(outcome, NodeVictims):
            return outcome.candidate().rank()
        victims = sorted((held.pods[each.uid] for each in outcome.candidate.victims), key=importance)
        return NodeVictims("", tuple(victims), outcome.candidate.pdb_violations).candidate().rank()

    every = [found for each in args.candidates if (found := best(each)) is not None]
    chosen = best(*args.candidates)
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert rank(chosen) == min(map(rank, every))
