"""The filter verb: what an answer holds, what it never holds, and when it waits or is given again."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import orjson
import pytest
from msgspec import DecodeError
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.rejections import Reason
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter
from tests.builders import (
    Json,
    asking,
    index_of,
    matching,
    node,
    node_json,
    pod,
    pod_json,
    settings,
    spread,
    term,
    weighted,
)
from tests.contenders import contender
from tests.deciding import filter_nodes
from tests.verbs.filtering import ALL, NAMES, ONE, TWO, Asker, ask, ask_nodes, coming, passed, two_nodes, waits, zoned

LONELY = pod_json(app="web", apart=[term("host", app="web")])
UNREADABLE = matching(("app", "In", []))


def test_names_that_pass_come_in_the_order_asked_and_without_texts() -> None:
    assert ask(two_nodes("n1"), LONELY, "n2", "n1") == FilterResult(["n2"])
    assert ask(two_nodes(), LONELY, "n2", "n1") == FilterResult(["n2", "n1"])


def test_texts_are_given_only_when_nothing_passes_and_for_every_name() -> None:
    text = Reason.ANTI_AFFINITY.text
    assert ask(two_nodes("n1", "n2"), LONELY, "n1", "n2") == FilterResult((), unresolvable={"n1": text, "n2": text})


def test_the_first_pod_of_its_group_stays_the_first_while_only_others_are_on_their_way() -> None:
    """Pods whose node is not known yet end the first pod's privilege only where the group counts them."""
    index = index_of(*(node(name) for name in ("n1", "n2", "n3")))
    index.assume(pod("db", app="db"), ("n1", "n2"), now=0.0)
    first = pod_json(app="web", near=[term("host", app="web")], apart=[term("host", app="db")])
    assert ask(index, first, "n1", "n2", "n3") == FilterResult(["n3"])
    index.assume(pod("web", app="web"), ("n1", "n3"), now=0.0)
    assert ask(index, first, "n1", "n2", "n3").passed == ()


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


class TestFullNodes:
    """Questions that bring their nodes along: those nodes are judged, known or not."""

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

    def test_labels_of_the_request_win_over_those_of_the_index(self) -> None:
        index = index_of(node("n1", zone="z1"), node("n2", zone="z2"), pod("web", on="n2", app="web"))
        moved = [node_json("n1", zone="z2")]
        assert ask_nodes(index, pod_json(near=[term("zone", app="web")]), moved).passed == ["n1"]


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

    def test_a_pod_that_terms_of_an_existing_pod_select_gets_one_node(self) -> None:
        index = two_nodes()
        index.upsert(pod("host", on="n1", apart=[term("host", app="guest")]))
        index.view.compiled(pod("other", app="guest").signature)
        index.view.compiled(pod("lonely", app="x", apart=[term("host", app="guest")]).signature)
        assert len(self.passed(index, pod_json(app="guest"), "n1", "n2")) == 1

    def test_a_node_to_avoid_that_the_request_does_not_bring_along_changes_nothing(self) -> None:
        nodes = [node_json("n1"), node_json("n2")]
        result = filter_nodes(asking(LONELY, nodes=nodes), two_nodes().view, self.DECISIVE, 0, avoid="n3")
        assert len(result.passed) == 1

    def test_rejections_are_those_of_the_other_placement(self) -> None:
        index = two_nodes("n1", "n2")
        decisive = filter_nodes(asking(LONELY, "n1", "n2"), index.view, self.DECISIVE, 0)
        assert decisive == ask(index, LONELY, "n1", "n2")


# -- Which requests wait for assumed pods: only those whose answer may become better by it -------------------------------

EVEN = pod_json(app="web", spreads=[spread("zone", app="web")])
NEAR = pod_json(app="web", near=[term("zone", app="web")])


def test_an_assumed_pod_that_the_constraints_do_not_count_is_not_waited_for() -> None:
    assert not waits(coming(zoned(), "n1", "n2", app="db"), LONELY, ALL)


class TestEnoughNodes:
    """The answer is as long as it may be without the nodes on which the pod may stand."""

    def test_a_full_shortlist_that_passes_wherever_the_pod_is_comes_at_once(self) -> None:
        index = coming(zoned(), "n1", "n2")
        assert (waits(index, LONELY), passed(index, LONELY)) == (False, ["n3", "n4"])

    def test_one_that_could_not_be_longer_anyway_does_not(self) -> None:
        taken = [pod(f"t{name}", on=name, app="web") for name in ("n1", "n2", "n3")]
        assert not waits(coming(zoned(*taken), "n1", "n2"), LONELY)

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


LIKING = pod_json(app="web", prefers=[weighted(10, term("zone", app="web"))])
SPREADING = pod_json(app="web", spreads=[spread("zone", hard=False, app="web")])


@pytest.mark.parametrize("asked", [LIKING, SPREADING], ids=["preference", "soft spread"])
def test_a_pod_that_scores_count_is_waited_for_while_it_was_answered_just_before(asked: Json) -> None:
    index = coming(zoned(), "n1", "n3")  # at 0.0
    verb, request = FilterVerb(index.view, TWO), asking(asked, *NAMES)
    assert [verb.should_wait(request, since) for since in (-0.1, 0.0, inf)] == [True, False, False]
    assert not FilterVerb(coming(zoned(), "n1", "n3", app="db").view, TWO).should_wait(request, -0.1)
    assert not FilterVerb(coming(zoned(), "n1").view, TWO).should_wait(request, -0.1)
    index.assumed.doubt("uid-w")
    assert not verb.should_wait(request, -0.1)


def test_a_pod_whose_preference_selects_the_incoming_one_is_waited_for_too() -> None:
    index = zoned()
    index.assume(pod("w", app="db", prefers=[weighted(10, term("zone", app="web"))]), ("n1", "n3"), now=0.0)
    assert FilterVerb(index.view, TWO).should_wait(asking(pod_json(app="web"), *NAMES), -0.1)


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
        unreadable = pod_json(app="web", apart=[term("host", app="web")], near=[term("host", selector=UNREADABLE)])
        assert not waits(coming(zoned(), "n1", "n3"), unreadable)

    def test_nothing_asked_is_answered_at_once(self) -> None:
        assert not waits(coming(zoned(), "n1", "n3"), LONELY, names=())


def test_where_pods_are_nominated_every_assumed_pod_that_may_matter_is_waited_for() -> None:
    """The nodes that they claim are taken out of the answer afterwards."""
    index = coming(zoned(contender("vip", nominated="n4", priority=10)), "n1", "n2")
    chosen = [settings(answers={"shortlist": 2}, preemption={"mode": mode}) for mode in ("execute", "off")]
    assert [waits(index, LONELY, each) for each in chosen] == [True, False]


# -- rejections that are given again: only while nothing that they depend on has changed ----------------------------------


def test_a_rejection_is_given_again_byte_for_byte_without_deciding() -> None:
    asker = Asker()
    first, second = asker.ask(), asker.ask()
    assert (asker.decided, asker.memory.hits) == (1, 1)
    assert encode_filter(second) == encode_filter(first)
    assert second.reasons == first.reasons
    assert orjson.loads(encode_filter(second))["FailedAndUnresolvableNodes"].keys() == {"n1", "n2"}


def test_a_pod_that_does_not_concern_the_request_keeps_the_cached_rejection_valid() -> None:
    asker = Asker()
    asker.ask()
    asker.index.upsert(pod("other", on="n1", app="batch"))
    asker.ask()
    assert asker.decided == 1


@pytest.mark.parametrize("change", ["pod gone", "namespace relabelled", "node added"])
def test_a_change_of_the_grounds_is_decided_anew(change: str) -> None:
    asker = Asker()
    assert asker.ask().unresolvable
    if change == "pod gone":
        asker.index.delete(pod("web-n1", on="n1", app="web"))
    elif change == "namespace relabelled":
        asker.relabel(t="b")
    else:
        asker.index.upsert(node("n3"))
    answer = asker.ask()
    assert asker.decided == 2
    assert list(answer.passed) == {"pod gone": ["n1"], "namespace relabelled": ["n1", "n2"], "node added": []}[change]


def test_a_rejection_because_of_a_pod_whose_node_is_not_known_is_decided_anew_every_time() -> None:
    asker = Asker()
    asker.index.assume(pod("w", app="web"), ("n0", "n3"), now=0.0)
    asker.ask()
    asker.ask()
    assert (asker.decided, len(asker.memory), asker.memory.hits) == (2, 0, 0)


def test_other_names_are_another_request() -> None:
    asker = Asker()
    asker.ask("n1")
    asker.ask("n2")
    assert asker.decided == 2


def test_the_memory_forgets_the_oldest_beyond_its_size() -> None:
    asker = Asker(most_bytes=3000)
    asker.ask("n1")
    asker.ask("n2")
    assert len(asker.memory) == 1
    assert 1500 < asker.memory.bytes <= 3000
    asker.ask("n1")
    assert asker.decided == 3


def test_the_names_are_read_only_for_a_signature_with_a_cached_rejection() -> None:
    asker = Asker(most_bytes=3000)
    asker.ask("n1")
    unread = ExtenderArgs(pod("other"), ["n1"], body=b"no JSON, so that to read it is an error")
    again = replace(unread, pod=Pod("u", "asking", asker.signature))
    assert asker.verb.decide(unread, 0).result.passed == ["n1"]
    with pytest.raises(DecodeError):
        asker.verb.decide(again, 0)
    asker.relabel(t="b")  # the rejection holds no longer, and it was the last of its signature
    assert list(asker.ask("n1").passed) == ["n1"]
    assert list(asker.verb.decide(again, 0).result.passed) == ["n1"]


def test_what_is_said_of_every_node_is_decided_at_once_and_takes_no_memory() -> None:
    asker = Asker()
    asker.index.upsert(pod("web-n0", on="n0", app="web"))
    first, second = asker.ask(), asker.ask()
    assert (asker.decided, len(asker.memory)) == (2, 0)
    assert encode_filter(first) == encode_filter(second)
    assert {reason.text for reason in first.reasons} == set(first.unresolvable.values())


def test_what_a_rejection_keeps_of_its_pod_counts() -> None:
    """Else a few large templates, refused once, would be kept for ever."""
    asker = Asker()
    asker.ask()
    assert asker.memory.bytes > asker.signature.size > 0


def test_a_pod_that_takes_a_node_gets_the_one_that_was_not_offered_for_the_longest_time() -> None:
    """What later samples offer again stays free for them. Where all nodes of a sample pass, nothing is scarce."""
    index = index_of(*(node(name) for name in ("n1", "n2", "n3", "n4")), pod("web", on="n4", app="web"))
    verb = FilterVerb(index.view, settings(placement="decisive"))

    def answer(*names: str) -> Sequence[str]:
        return verb.decide(asking(LONELY, *names), seed=0).result.passed

    assert answer("n1", "n2", "n4") == ["n1"]
    assert answer("n1", "n2", "n3", "n4") == ["n3"]
    assert answer("n1", "n2", "n3") == ["n1"]


def test_a_node_with_more_free_resources_goes_before_one_that_is_seldom_offered() -> None:
    index = index_of(*(node(name) for name in ("n1", "n2", "n3")), pod("web", on="n3", app="web"))
    index.upsert(pod("load", on="n2", requests={"cpu": "1"}))
    verb = FilterVerb(index.view, settings(placement="decisive"))
    assert verb.decide(asking(LONELY, "n1", "n3"), seed=0).result.passed == ["n1"]
    assert verb.decide(asking(LONELY, "n1", "n2", "n3"), seed=0).result.passed == ["n1"]
