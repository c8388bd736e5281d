"""The filter verb: what an answer holds, and what it never holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.rejections import Code, Reason
from extender.wire.extender_v1 import FilterResult
from tests.builders import Json, asking, index_of, matching, node, node_json, pod, pod_json, settings, spread, term
from tests.deciding import filter_nodes

WHOLE = settings()
LONELY = pod_json(app="web", apart=[term("host", app="web")])
UNREADABLE = matching(("app", "In", []))


def two_nodes(*occupied: str) -> ClusterIndex:
    """Nodes n1 and n2, with a web pod on those that are named."""
    return index_of(node("n1"), node("n2"), *(pod(f"web-{name}", on=name, app="web") for name in occupied))


def ask(index: ClusterIndex, asked: Json, *names: str) -> FilterResult:
    result = filter_nodes(asking(asked, *names), index.view, WHOLE, seed=0)
    if Reason.MALFORMED_POD not in result.reasons:  # those texts quote the parser
        assert set(result.unresolvable.values()) == {reason.text for reason in result.reasons}
    return result


def ask_nodes(index: ClusterIndex, asked: Json, nodes: Sequence[Json]) -> FilterResult:
    return filter_nodes(asking(asked, nodes=nodes), index.view, WHOLE, seed=0)


def test_names_that_pass_come_in_the_order_asked_and_without_texts() -> None:
    assert ask(two_nodes("n1"), LONELY, "n2", "n1") == FilterResult(["n2"])
    assert ask(two_nodes(), LONELY, "n2", "n1") == FilterResult(["n2", "n1"])


def test_texts_are_given_only_when_nothing_passes_and_for_every_name() -> None:
    text = Reason.ANTI_AFFINITY.text
    assert ask(two_nodes("n1", "n2"), LONELY, "n1", "n2") == FilterResult((), unresolvable={"n1": text, "n2": text})


def test_what_eviction_could_cure_is_reported_as_incurable() -> None:
    """A plain refusal makes the scheduler try preemption that cannot see our rules, and retry in a hot loop."""
    assert Reason.ANTI_AFFINITY.code is Code.UNSCHEDULABLE
    assert ask(two_nodes("n1"), LONELY, "n1").failed == {}


def test_the_first_pod_of_its_group_stays_the_first_while_only_others_are_on_their_way() -> None:
    """Pods whose node is not known yet end the first pod's privilege only where the group counts them."""
    index = index_of(*(node(name) for name in ("n1", "n2", "n3")))
    index.assume(pod("db", app="db"), ("n1", "n2"), now=0.0)
    first = pod_json(app="web", near=[term("host", app="web")], apart=[term("host", app="db")])
    assert ask(index, first, "n1", "n2", "n3") == FilterResult(["n3"])
    index.assume(pod("web", app="web"), ("n1", "n3"), now=0.0)
    assert ask(index, first, "n1", "n2", "n3").passed == ()


def test_a_name_that_the_index_does_not_know_never_passes() -> None:
    assert ask(two_nodes(), pod_json(), "ghost", "n1") == FilterResult(["n1"])
    assert ask(two_nodes(), pod_json(), "ghost") == FilterResult((), unresolvable={"ghost": Reason.UNKNOWN_NODE.text})


def test_a_name_that_the_index_does_not_know_has_its_own_text_where_every_node_is_rejected() -> None:
    told = ask(two_nodes("n1", "n2"), LONELY, "n1", "ghost").unresolvable
    assert told == {"n1": Reason.ANTI_AFFINITY.text, "ghost": Reason.UNKNOWN_NODE.text}


def test_a_node_that_only_pods_mention_is_not_known() -> None:
    index = index_of(pod("web", on="ghost", app="web"))
    assert ask(index, pod_json(), "ghost").unresolvable == {"ghost": Reason.UNKNOWN_NODE.text}


def test_a_name_asked_twice_is_answered_without_a_name_that_was_not_asked() -> None:
    passed = ask(two_nodes("n2"), LONELY, "n1", "n1", "n2").passed
    assert set(passed) == {"n1"}


def test_nothing_asked_is_nothing_answered() -> None:
    assert ask(two_nodes(), LONELY) == FilterResult(())
    assert ask_nodes(two_nodes(), LONELY, []) == FilterResult(())


def test_terms_that_cannot_be_read_reject_every_node_with_one_text() -> None:
    asked = pod_json(apart=[term("host", selector=UNREADABLE)])
    result = ask(two_nodes(), asked, "n1", "n2")
    assert (list(result.passed), result.failed, result.error) == ([], {}, "")
    assert result.unresolvable.keys() == {"n1", "n2"}
    (text,) = set(result.unresolvable.values())
    assert text.startswith("parsing pod: requiredAntiAffinityTerms: ")
    assert result.reasons == {Reason.MALFORMED_POD}


def test_several_unreadable_lists_are_reported_together() -> None:
    broken = term("host", selector=UNREADABLE)
    (text,) = ask(two_nodes(), pod_json(near=[broken], apart=[broken]), "n1").unresolvable.values()
    assert text.startswith("parsing pod: [requiredAffinityTerms: ")
    assert "requiredAntiAffinityTerms: " in text


def test_hard_constraints_that_cannot_be_read_are_an_error_of_the_pod() -> None:
    result = ask(two_nodes(), pod_json(spreads=[spread(selector=UNREADABLE)]), "n1")
    assert (list(result.passed), dict(result.unresolvable)) == ([], {})
    assert result.error.startswith("get constraints from pod: obtaining pod's hard topology spread constraints: ")


def test_soft_constraints_that_cannot_be_parsed_reject_no_node() -> None:
    assert ask(two_nodes(), pod_json(spreads=[spread(hard=False, selector=UNREADABLE)]), "n1").passed == ["n1"]


def test_of_two_rejections_that_of_spread_is_reported_as_the_scheduler_runs_it_first() -> None:
    index = index_of(node("n1", zone="z1"), node("n2", zone="z2"), pod("web", on="n1", app="web"))
    asked = pod_json(app="web", apart=[term("host", app="web")], spreads=[spread("zone", app="web")])
    assert ask(index, asked, "n1").unresolvable == {"n1": Reason.SPREAD_SKEW.text}


class TestFullNodes:
    """Questions that bring their nodes along: those nodes are judged, known or not."""

    def test_known_nodes_are_judged_by_the_pods_that_stand_there(self) -> None:
        result = ask_nodes(two_nodes("n1"), LONELY, [node_json("n1"), node_json("n2")])
        assert result == FilterResult(["n2"])

    def test_a_node_that_the_index_does_not_hold_is_judged_by_its_labels(self) -> None:
        index = index_of(node("n1", zone="z1"), pod("web", on="n1", app="web"))
        nodes = [node_json("new-1", zone="z1"), node_json("new-2", zone="z2"), node_json("new-3")]
        assert ask_nodes(index, pod_json(apart=[term("zone", app="web")]), nodes).passed == ["new-2", "new-3"]
        assert ask_nodes(index, pod_json(near=[term("zone", app="web")]), nodes).passed == ["new-1"]

    def test_a_node_in_a_new_domain_makes_that_domain_empty_and_eligible(self) -> None:
        index = index_of(node("n1", zone="z1"), pod("web", on="n1", app="web"))
        asked = pod_json(app="web", spreads=[spread("zone", app="web")])
        assert ask_nodes(index, asked, [node_json("n1", zone="z1")]).passed == ["n1"]
        assert ask_nodes(index, asked, [node_json("n1", zone="z1"), node_json("new", zone="z2")]).passed == ["new"]

    def test_new_domains_count_towards_min_domains(self) -> None:
        index = index_of(node("n1", zone="z1"), pod("web", on="n1", app="web"))
        asked = pod_json(app="web", spreads=[spread("zone", 2, min_domains=2, app="web")])
        fresh = [node_json("new-1", zone="z2"), node_json("new-2", zone="z2")]
        assert ask_nodes(index, asked, fresh).passed == ["new-1", "new-2"]

    def test_labels_of_the_request_win_over_those_of_the_index(self) -> None:
        index = index_of(node("n1", zone="z1"), node("n2", zone="z2"), pod("web", on="n2", app="web"))
        moved = [node_json("n1", zone="z2")]
        assert ask_nodes(index, pod_json(near=[term("zone", app="web")]), moved).passed == ["n1"]

    def test_two_nodes_of_one_name_are_answered_with_names_that_were_asked(self) -> None:
        result = ask_nodes(two_nodes("n2"), LONELY, [node_json("n1"), node_json("n1"), node_json("n2")])
        assert set(result.passed) == {"n1"}

    def test_rejections_name_the_nodes_of_the_request(self) -> None:
        asked = pod_json(near=[term("zone", app="web")])
        assert ask_nodes(two_nodes(), asked, [node_json("new")]).unresolvable == {"new": Reason.AFFINITY.text}


@pytest.mark.parametrize("mode", ["augment", "offload with one rule"])
def test_a_disabled_rule_rejects_no_node(mode: str) -> None:
    sections = (
        {"mode": "augment"}
        if mode == "augment"
        else {"rules": {"interPodAffinity": {"enabled": False}, "topologySpread": {"enabled": True}}}
    )
    chosen = settings(**sections)
    index = index_of(node("n1"), pod("web", on="n1", app="web"), rules=chosen.rules)
    assert filter_nodes(asking(LONELY, "n1"), index.view, chosen, 0).passed == ["n1"]


class TestDecisive:
    """Where a pod's place may matter to others, one node is answered."""

    DECISIVE = settings(placement="decisive", answers={"shortlist": 2})

    def passed(self, index: ClusterIndex, asked: Json, *names: str, seed: int = 0, avoid: str = "") -> list[str]:
        return list(filter_nodes(asking(asked, *names), index.view, self.DECISIVE, seed, avoid).passed)

    def test_a_pod_with_terms_gets_one_node(self) -> None:
        assert len(self.passed(two_nodes(), LONELY, "n1", "n2")) == 1

    def test_a_pod_that_terms_of_an_existing_pod_select_gets_one_node(self) -> None:
        index = two_nodes()
        index.upsert(pod("host", on="n1", apart=[term("host", app="guest")]))
        index.view.compiled(pod("other", app="guest").signature)
        index.view.compiled(pod("lonely", app="x", apart=[term("host", app="guest")]).signature)
        assert len(self.passed(index, pod_json(app="guest"), "n1", "n2")) == 1

    def test_a_pod_that_no_constraint_selects_gets_the_shortlist(self) -> None:
        assert len(self.passed(two_nodes(), pod_json(), "n1", "n2")) == 2

    def test_the_node_that_the_pod_did_not_reach_is_avoided_while_another_passes(self) -> None:
        assert [self.passed(two_nodes(), LONELY, "n1", "n2", seed=seed, avoid="n1") for seed in range(3)] == [
            ["n2"]
        ] * 3
        assert self.passed(two_nodes("n2"), LONELY, "n1", "n2", avoid="n1") == ["n1"]

    def test_a_node_to_avoid_that_the_request_does_not_bring_along_changes_nothing(self) -> None:
        nodes = [node_json("n1"), node_json("n2")]
        result = filter_nodes(asking(LONELY, nodes=nodes), two_nodes().view, self.DECISIVE, 0, avoid="n3")
        assert len(result.passed) == 1

    def test_rejections_are_those_of_the_other_placement(self) -> None:
        index = two_nodes("n1", "n2")
        decisive = filter_nodes(asking(LONELY, "n1", "n2"), index.view, self.DECISIVE, 0)
        assert decisive == ask(index, LONELY, "n1", "n2")

    @pytest.mark.parametrize("seed", range(3))
    def test_among_equals_the_node_with_more_room_is_chosen(self, seed: int) -> None:
        index = index_of(
            *(node(name, allocatable={"cpu": "4", "memory": "8Gi"}) for name in ("n1", "n2", "n3")),
            pod("a", on="n1", requests={"cpu": "2"}),
            pod("b", on="n3", requests={"cpu": "1"}),
        )
        assert self.passed(index, LONELY, "n1", "n2", "n3", seed=seed) == ["n2"]

    @pytest.mark.parametrize("seed", range(2))
    def test_a_preferred_taint_is_shunned(self, seed: int) -> None:
        index = index_of(node("n1", taints=[{"key": "busy", "effect": "PreferNoSchedule"}]), node("n2"))
        assert self.passed(index, LONELY, "n1", "n2", seed=seed) == ["n2"]
