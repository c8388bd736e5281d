"""Which requests wait for assumed pods: only those whose answer may become better by it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from tests.builders import Json, asking, index_of, node, pod, pod_json, settings, spread, term, weighted
from tests.contenders import contender
from tests.deciding import filter_nodes

NAMES = ("n1", "n2", "n3", "n4")
ALL, TWO, ONE = (settings(answers={"shortlist": most}) for most in (0, 2, 1))
LONELY = pod_json(app="web", apart=[term("host", app="web")])
EVEN = pod_json(app="web", spreads=[spread("zone", app="web")])
NEAR = pod_json(app="web", near=[term("zone", app="web")])


def zoned(*objects: Object) -> ClusterIndex:
    """Two nodes in each of two zones."""
    zones = zip(NAMES, ("z1", "z1", "z2", "z2"), strict=True)
    return index_of(*(node(name, zone=zone) for name, zone in zones), *objects)


def coming(index: ClusterIndex, *names: str, name: str = "w", app: str = "web") -> ClusterIndex:
    """A pod that was let through to these nodes."""
    index.assume(pod(name, app=app), names, now=0.0)
    return index


def waits(index: ClusterIndex, asked: Json, chosen: Settings = TWO, names: Sequence[str] = NAMES) -> bool:
    return FilterVerb(index.view, chosen).should_wait(asking(asked, *names))


def passed(index: ClusterIndex, asked: Json, chosen: Settings = TWO) -> list[str]:
    return sorted(filter_nodes(asking(asked, *NAMES), index.view, chosen, seed=0).passed)


def test_an_assumed_pod_that_the_constraints_do_not_count_is_not_waited_for() -> None:
    assert not waits(coming(zoned(), "n1", "n2", app="db"), LONELY, ALL)


class TestEnoughNodes:
    """The answer is as long as it may be without the nodes on which the pod may stand."""

    def test_a_full_shortlist_that_passes_wherever_the_pod_is_comes_at_once(self) -> None:
        index = coming(zoned(), "n1", "n2")
        assert (waits(index, LONELY), passed(index, LONELY)) == (False, ["n3", "n4"])

    def test_a_shorter_one_waits(self) -> None:
        assert waits(coming(coming(zoned(), "n1", "n2"), "n2", "n3", name="v"), LONELY)

    def test_one_that_could_not_be_longer_anyway_does_not(self) -> None:
        taken = [pod(f"t{name}", on=name, app="web") for name in ("n1", "n2", "n3")]
        assert not waits(coming(zoned(*taken), "n1", "n2"), LONELY)

    def test_an_answer_that_is_to_name_all_that_pass_waits(self) -> None:
        assert waits(coming(zoned(), "n1", "n2"), LONELY, ALL)

    def test_a_better_node_is_waited_for(self) -> None:
        liking = pod_json(app="web", apart=[term("host", app="web")], prefers=[weighted(10, term("zone", app="db"))])
        index = coming(zoned(pod("db", on="n1", app="db")), "n1", "n2")
        assert [waits(index, liking, chosen) for chosen in (TWO, ONE)] == [True, True]
        assert not waits(coming(zoned(pod("db", on="n3", app="db")), "n1", "n2"), liking)


class TestOneDomain:
    """All nodes on which the pod may stand are in the same domain: where it counts there is known."""

    def test_it_attracts_there(self) -> None:
        index = coming(zoned(), "n1", "n2")
        assert (waits(index, NEAR, ALL), passed(index, NEAR, ALL)) == (False, ["n1", "n2"])

    def test_it_counts_there_and_nowhere_else(self) -> None:
        index = coming(zoned(), "n1", "n2")
        assert (waits(index, EVEN, ALL), passed(index, EVEN, ALL)) == (False, ["n3", "n4"])

    def test_it_raises_the_minimum(self) -> None:
        index = coming(zoned(pod("old", on="n3", app="web")), "n1", "n2")
        assert (waits(index, EVEN, ALL), passed(index, EVEN, ALL)) == (False, list(NAMES))

    def test_one_that_attracts_nowhere_new_is_not_waited_for(self) -> None:
        index = coming(zoned(pod("old", on="n3", app="web")), "n3", "n4")
        assert (waits(index, NEAR, ALL), passed(index, NEAR, ALL)) == (False, ["n3", "n4"])


@pytest.mark.parametrize("asked", [EVEN, NEAR], ids=["spread", "affinity"])
def test_a_pod_that_may_come_to_either_domain_is_waited_for(asked: Json) -> None:
    index = coming(zoned(), "n1", "n3")
    assert (waits(index, asked), passed(index, asked)) == (True, [])
    coming(index, "n3")
    assert (waits(index, asked), len(passed(index, asked))) == (False, 2)


class TestRejections:
    """No request waits for a rejection."""

    def full(self, *objects: Object) -> ClusterIndex:
        """Every node is taken, and one more pod is to come."""
        return coming(zoned(*(pod(f"t{name}", on=name, app="web") for name in NAMES), *objects), "n1", "n3")

    def test_a_rejection_that_no_assumed_pod_can_change_comes_at_once(self) -> None:
        assert not waits(self.full(), LONELY)

    @pytest.mark.parametrize(("mode", "expected"), [("execute", True), ("advise", False)])
    def test_unless_others_may_be_removed_for_the_pod(self, mode: str, *, expected: bool) -> None:
        chosen = settings(answers={"shortlist": 2}, preemption={"mode": mode})
        important = {**LONELY, "spec": {**LONELY["spec"], "priority": 10}}
        assert waits(self.full(), important, chosen) is expected

    def test_a_pod_whose_constraints_cannot_be_read_is_not_kept_waiting(self) -> None:
        unreadable = pod_json(app="web", apart=[term("host", app="web")], near=[term("host", selector=_BROKEN)])
        assert not waits(coming(zoned(), "n1", "n3"), unreadable)

    def test_nothing_asked_is_answered_at_once(self) -> None:
        assert not waits(coming(zoned(), "n1", "n3"), LONELY, names=())


def test_where_pods_are_nominated_every_assumed_pod_that_may_matter_is_waited_for() -> None:
    """The nodes that they claim are taken out of the answer afterwards."""
    index = coming(zoned(contender("vip", nominated="n4", priority=10)), "n1", "n2")
    chosen = [settings(answers={"shortlist": 2}, preemption={"mode": mode}) for mode in ("execute", "off")]
    assert [waits(index, LONELY, each) for each in chosen] == [True, False]


_BROKEN = {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}
