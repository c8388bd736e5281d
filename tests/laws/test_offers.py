"""Law of the choice among offered nodes: the one that is found early is as good as the best of all dry runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.model.objects import Object
from extender.model.preemption import Candidate
from extender.verbs.dry_run.victims import DryRun
from extender.verbs.preempt.offered_candidates import best_offer
from tests.builders import preempting
from tests.contenders import cluster, contender_json
from tests.laws.test_preemption import APPS, PREEMPTOR, carried, clusters, offers


@given(clusters(), carried, st.sampled_from(APPS), st.integers(0, 9), st.data())
def test_no_offered_node_is_better_than_the_one_chosen(
    objects: list[Object], fields: dict[str, Any], app: str, seed: int, data: st.DataObject
) -> None:
    held = cluster(*objects)
    offered = offers(held, data)
    asking = contender_json("asking", priority=PREEMPTOR, cpu=1000, app=app, **fields)
    args = preempting(asking, offered, violations=data.draw(st.integers(0, 1)))
    run = DryRun(args.pod, held.view)

    def exhausted(candidate: Candidate) -> Candidate | None:
        taken = [held.pods[victim.uid] for victim in candidate.victims]
        removal = run.on(held.view.known[candidate.node], taken)
        if removal is None:
            return None
        violations = removal.pdb_violations + candidate.pdb_violations
        return replace(removal, pdb_violations=violations).candidate()

    every = [found for each in args.candidates if (found := exhausted(each)) is not None]
    best = best_offer(args, run, seed)
    assert (best is None) == (not every)
    if best is not None:
        assert best.candidate().rank() == min(each.rank() for each in every)
