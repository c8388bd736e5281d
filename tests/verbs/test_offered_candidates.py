"""The choice among offered nodes: how much of it needs a dry run."""

from __future__ import annotations

from collections.abc import Container, Sequence

from extender.index.nodes.columns import NodeNumber
from extender.model.objects import Object, Pod
from extender.verbs.dry_run import DryRun, Removal
from extender.verbs.preempt import Examination
from tests.builders import preempting, term
from tests.contenders import cluster, contender, contender_json, stage

IMPORTANT = 100
LARGE = contender_json("asking", priority=IMPORTANT, cpu=2000)
LONELY = contender_json("asking", priority=IMPORTANT, apart=[term("host", app="web")])
NODES: list[Object] = [stage(f"n{number}") for number in range(5)]
STANDING: list[Object] = [
    contender(f"p{number}", on=f"n{number}", cpu=4000, app="web", priority=number + 1) for number in range(5)
]


class Counted(DryRun):
    """A dry run that tells on how many nodes it was made."""

    runs = 0

    def on(
        self, number: NodeNumber, taken: Sequence[Pod] = (), *, checks_fit: bool = False, first: Container[str] = ()
    ) -> Removal | None:
        self.runs += 1
        return super().on(number, taken, checks_fit=checks_fit, first=first)


def chosen(pod: dict[str, object], *more: Object, seed: int = 0) -> tuple[str, int]:
    """The node, and how many dry runs that took."""
    held = cluster(*NODES, *STANDING, *more)
    args = preempting(pod, {f"n{number}": [f"uid-p{number}"] for number in range(5)})
    run = Counted(args.pod, held.view)
    outcome = Examination(run, sees_everything=True).best(args.candidates, seed)
    return (outcome.node if isinstance(outcome, Removal) else "", run.runs)


def test_the_victims_of_one_offer_are_computed_and_of_no_worse_one() -> None:
    assert chosen(LARGE) == ("n0", 1)


def test_a_worse_node_with_nominated_pods_gets_no_dry_run() -> None:
    coming = [contender(f"c{number}", cpu=2000, priority=IMPORTANT, nominated=f"n{number}") for number in (1, 2, 3)]
    assert chosen(LARGE, *coming) == ("n0", 1)


def test_an_offer_that_is_explained_ends_the_search_among_equals() -> None:
    equal = contender("p1", on="n1", cpu=4000, app="web", priority=1)
    assert {chosen(LARGE, equal, seed=seed) for seed in range(5)} == {("n0", 1), ("n1", 1)}


def test_with_constraints_the_seemingly_best_ones_are_tried_until_one_is_as_good_as_it_seemed() -> None:
    assert chosen(LONELY) == ("n0", 1)
    in_the_way = contender("w", on="n0", app="web", priority=4)
    assert chosen(LONELY, in_the_way) == ("n1", 2)
    for_good = contender("w", on="n0", app="web", priority=IMPORTANT)
    assert chosen(LONELY, for_good) == ("n1", 2)
