"""The filter verb: what an answer holds, what it never holds, and when it waits or is given again."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import orjson
import pytest
from msgspec import DecodeError
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter
from tests.builders import (
    Json,
    extender_args,
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
from tests.verbs.filtering import (
    ALL,
    NAMES,
    ONE,
    TWO,
    FilterScene,
    coming,
    filtered,
    filtered_nodes,
    passed,
    two_nodes,
    waits,
    zoned,
)

LONELY = pod_json(app="web", apart=[term("host", app="web")])
EVEN = pod_json(app="web", spreads=[spread("zone", app="web")])
NEAR = pod_json(app="web", near=[term("zone", app="web")])
UNREADABLE = matching(("app", "In", []))


ANTI_AFFINITY = Reason.ANTI_AFFINITY.text
GHOST = index_of(pod("web", on="ghost", app="web"))


@pytest.mark.parametrize(
    ("index", "incoming", "names", "expected"),
    [
        (two_nodes("n1"), LONELY, ["n2", "n1"], FilterResult(["n2"])),
        (two_nodes(), LONELY, ["n2", "n1"], FilterResult(["n2", "n1"])),
        (two_nodes("n1", "n2"), LONELY, ["n1", "n2"], {"n1": ANTI_AFFINITY, "n2": ANTI_AFFINITY}),
        (two_nodes("n1", "n2"), LONELY, ["n1", "ghost"], {"n1": ANTI_AFFINITY, "ghost": Reason.UNKNOWN_NODE.text}),
        (GHOST, pod_json(), ["ghost"], {"ghost": Reason.UNKNOWN_NODE.text}),
        (two_nodes(), LONELY, [], FilterResult(())),
        (two_nodes(), pod_json(spreads=[spread(hard=False, selector=UNREADABLE)]), ["n1"], FilterResult(["n1"])),
    ],
    ids=["one passes", "in the order of the request", "none passes", "an unknown name", "only a pod names it", "no name", "an unreadable soft constraint"],
)  # fmt: skip
def test_an_answer_has_the_names_that_pass_and_texts_only_where_none_does(
    index: ClusterIndex, incoming: Json, names: list[str], expected: FilterResult | Json
) -> None:
    found = filtered(index, incoming, *names)
    assert found == (expected if isinstance(expected, FilterResult) else FilterResult((), unresolvable=expected))
    assert names or filtered_nodes(index, incoming, []) == FilterResult(())


BROKEN = term("host", selector=UNREADABLE)


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"apart": [BROKEN]}, ["parsing pod: requiredAntiAffinityTerms: "]),
        ({"near": [BROKEN], "apart": [BROKEN]}, ["parsing pod: [requiredAffinityTerms: ", "requiredAntiAffinityTerms: "]),
    ],
)  # fmt: skip
def test_terms_that_cannot_be_read_reject_every_node_with_one_text(fields: Json, texts: list[str]) -> None:
    result = filtered(two_nodes(), pod_json(**fields), "n1", "n2")
    assert (list(result.passed), result.failed, result.error) == ([], {}, "")
    assert result.reasons == {Reason.MALFORMED_POD}
    assert result.unresolvable.keys() == {"n1", "n2"}
    (text,) = set(result.unresolvable.values())
    assert text.startswith(texts[0])
    assert texts[-1] in text


def test_hard_constraints_that_cannot_be_read_are_an_error_of_the_pod() -> None:
    result = filtered(two_nodes(), pod_json(spreads=[spread(selector=UNREADABLE)]), "n1")
    assert (list(result.passed), dict(result.unresolvable)) == ([], {})
    assert result.error.startswith("get constraints from pod: obtaining pod's hard topology spread constraints: ")


def test_the_first_pod_of_its_group_stays_the_first_while_only_others_are_on_their_way() -> None:
    """Pods whose node is not known yet end the first pod's privilege only where the group counts them."""
    index = index_of(*(node(name) for name in ("n1", "n2", "n3")))
    index.assume(pod("db", app="db"), ("n1", "n2"), now=0.0)
    first = pod_json(app="web", near=[term("host", app="web")], apart=[term("host", app="db")])
    assert filtered(index, first, "n1", "n2", "n3") == FilterResult(["n3"])
    index.assume(pod("web", app="web"), ("n1", "n3"), now=0.0)
    assert filtered(index, first, "n1", "n2", "n3").passed == ()


def test_a_name_asked_twice_is_answered_without_a_name_that_was_not_asked() -> None:
    passed = filtered(two_nodes("n2"), LONELY, "n1", "n1", "n2").passed
    assert set(passed) == {"n1"}


WEB_N1 = [node("n1", zone="z1"), pod("web", on="n1", app="web")]
WEB_N2 = [node("n1", zone="z1"), node("n2", zone="z2"), pod("web", on="n2", app="web")]
NEW = [node_json("new-1", zone="z1"), node_json("new-2", zone="z2"), node_json("new-3")]
HERE = tuple(pod(f"t{name}", on=name, app="web") for name in NAMES)
OLD = pod("old", on="n3", app="web")
LIKING_DB = pod_json(app="web", apart=[term("host", app="web")], prefers=[weighted(10, term("zone", app="db"))])
UNREADABLE_POD = pod_json(app="web", apart=[term("host", app="web")], near=[BROKEN])
IMPORTANT = {**LONELY, "spec": {**LONELY["spec"], "priority": 10}}
VIP = contender("vip", nominated="n4", priority=10)
EXECUTE, NO_PREEMPTION, ADVISE = (
    settings(answers={"shortlist": 2}, preemption={"mode": mode}) for mode in ("execute", "off", "advise")
)
# The pods that are there, the nodes on which a web pod is assumed, the incoming pod, the settings, whether the request
# waits, and the nodes that pass where that matters.
WAITS: dict[str, tuple[tuple[Object, ...], tuple[str, ...], Json, Settings, bool, list[str] | None]] = {
    # The answer is as long as it may be without the nodes on which the pod may be.
    "a full shortlist that passes wherever the pod is": ((), ("n1", "n2"), LONELY, TWO, False, ["n3", "n4"]),
    "it could not be longer anyway": (HERE[:3], ("n1", "n2"), LONELY, TWO, False, None),
    "a better node": ((pod("db", on="n1", app="db"),), ("n1", "n2"), LIKING_DB, TWO, True, None),
    "the best node": ((pod("db", on="n1", app="db"),), ("n1", "n2"), LIKING_DB, ONE, True, None),
    "the better node is another": ((pod("db", on="n3", app="db"),), ("n1", "n2"), LIKING_DB, TWO, False, None),
    # All nodes on which the pod may be are in one domain: where it counts there is known.
    "it attracts there": ((), ("n1", "n2"), NEAR, ALL, False, ["n1", "n2"]),
    "it counts there and nowhere else": ((), ("n1", "n2"), EVEN, ALL, False, ["n3", "n4"]),
    "it raises the minimum": ((OLD,), ("n1", "n2"), EVEN, ALL, False, list(NAMES)),
    "it attracts nowhere new": ((OLD,), ("n3", "n4"), NEAR, ALL, False, ["n3", "n4"]),
    "either domain, spread": ((), ("n1", "n3"), EVEN, TWO, True, []),
    "either domain, affinity": ((), ("n1", "n3"), NEAR, TWO, True, []),
    # No request waits for a rejection, unless others may be removed for the pod.
    "no assumed pod can change the rejection": (HERE, ("n1", "n3"), LONELY, TWO, False, None),
    "others may be removed": (HERE, ("n1", "n3"), IMPORTANT, EXECUTE, True, None),
    "others may not be removed": (HERE, ("n1", "n3"), IMPORTANT, ADVISE, False, None),
    "unreadable constraints": ((), ("n1", "n3"), UNREADABLE_POD, TWO, False, None),
    # The nodes that nominated pods claim are taken out of the answer afterwards.
    "a nominated pod": ((VIP,), ("n1", "n2"), LONELY, EXECUTE, True, None),
    "a nominated pod that does not matter": ((VIP,), ("n1", "n2"), LONELY, NO_PREEMPTION, False, None),
}


@pytest.mark.parametrize(("objects", "on", "incoming", "chosen", "expected", "passing"), WAITS.values(), ids=WAITS)
def test_which_requests_wait_for_an_assumed_pod(
    objects: tuple[Object, ...],
    on: tuple[str, ...],
    incoming: Json,
    chosen: Settings,
    passing: list[str] | None,
    *,
    expected: bool,
) -> None:
    """Only requests whose answer may become better by it."""
    index = coming(zoned(*objects), *on)
    assert waits(index, incoming, chosen) is expected
    assert passing in (None, passed(index, incoming, chosen))


def test_an_assumed_pod_that_the_constraints_do_not_count_is_not_waited_for() -> None:
    assert not waits(coming(zoned(), "n1", "n2", app="db"), LONELY, ALL)
    assert not waits(coming(zoned(), "n1", "n3"), LONELY, names=()), "nor where no name is requested"


@pytest.mark.parametrize(
    ("objects", "incoming", "nodes", "expected"),
    [
        (WEB_N1, pod_json(apart=[term("zone", app="web")]), NEW, ["new-2", "new-3"]),
        (WEB_N1, pod_json(near=[term("zone", app="web")]), NEW, ["new-1"]),
        (WEB_N1, EVEN, [node_json("n1", zone="z1")], ["n1"]),
        (WEB_N1, EVEN, [node_json("n1", zone="z1"), node_json("new", zone="z2")], ["new"]),
        (WEB_N2, pod_json(near=[term("zone", app="web")]), [node_json("n1", zone="z2")], ["n1"]),
    ],
    ids=["unknown nodes", "unknown nodes near a pod", "a known domain", "a new domain is empty and eligible", "labels of the request win"],
)  # fmt: skip
def test_nodes_of_the_request_are_judged_by_their_own_labels(
    objects: list[Object], incoming: Json, nodes: list[Json], expected: list[str]
) -> None:
    assert filtered_nodes(index_of(*objects), incoming, nodes).passed == expected


@pytest.mark.parametrize("mode", ["augment", "offload with one rule"])
def test_a_disabled_rule_rejects_no_node(mode: str) -> None:
    sections = (
        {"mode": "augment"}
        if mode == "augment"
        else {"rules": {"interPodAffinity": {"enabled": False}, "topologySpread": {"enabled": True}}}
    )
    chosen = settings(**sections)
    index = index_of(node("n1"), pod("web", on="n1", app="web"), rules=chosen.rules)
    assert filter_nodes(extender_args(LONELY, "n1"), index.view, chosen, 0).passed == ["n1"]


class TestDecisive:
    """Where a pod's place may matter to others, one node is answered."""

    DECISIVE = settings(placement="decisive", answers={"shortlist": 2})

    def passed(self, index: ClusterIndex, incoming: Json, *names: str, seed: int = 0, avoid: str = "") -> list[str]:
        return list(filter_nodes(extender_args(incoming, *names), index.view, self.DECISIVE, seed, avoid).passed)

    def test_a_pod_that_terms_of_an_existing_pod_select_gets_one_node(self) -> None:
        index = two_nodes()
        index.upsert(pod("host", on="n1", apart=[term("host", app="guest")]))
        index.view.compiled(pod("other", app="guest").signature)
        index.view.compiled(pod("lonely", app="x", apart=[term("host", app="guest")]).signature)
        assert len(self.passed(index, pod_json(app="guest"), "n1", "n2")) == 1

    def test_a_node_to_avoid_that_the_request_does_not_bring_along_changes_nothing(self) -> None:
        nodes = [node_json("n1"), node_json("n2")]
        result = filter_nodes(extender_args(LONELY, nodes=nodes), two_nodes().view, self.DECISIVE, 0, avoid="n3")
        assert len(result.passed) == 1

    def test_rejections_are_those_of_the_other_placement(self) -> None:
        index = two_nodes("n1", "n2")
        decisive = filter_nodes(extender_args(LONELY, "n1", "n2"), index.view, self.DECISIVE, 0)
        assert decisive == filtered(index, LONELY, "n1", "n2")


# -- Which requests wait for assumed pods: only those whose answer may become better by it -------------------------------


@pytest.mark.parametrize("incoming", [EVEN, NEAR], ids=["spread", "affinity"])
def test_a_request_waits_no_longer_once_the_domain_is_known(incoming: Json) -> None:
    index = coming(coming(zoned(), "n1", "n3"), "n3")
    assert (waits(index, incoming), len(passed(index, incoming))) == (False, 2)


LIKING = pod_json(app="web", prefers=[weighted(10, term("zone", app="web"))])
SPREADING = pod_json(app="web", spreads=[spread("zone", hard=False, app="web")])


@pytest.mark.parametrize("incoming", [LIKING, SPREADING], ids=["preference", "soft spread"])
def test_a_pod_that_scores_count_is_waited_for_while_it_was_answered_just_before(incoming: Json) -> None:
    index = coming(zoned(), "n1", "n3")  # at 0.0
    verb, request = FilterVerb(index.view, TWO), extender_args(incoming, *NAMES)
    assert [verb.should_wait(request, since) for since in (-0.1, 0.0, inf)] == [True, False, False]
    assert not FilterVerb(coming(zoned(), "n1", "n3", app="db").view, TWO).should_wait(request, -0.1)
    assert not FilterVerb(coming(zoned(), "n1").view, TWO).should_wait(request, -0.1)
    index.assumed.doubt("uid-w")
    assert not verb.should_wait(request, -0.1)


def test_a_pod_whose_preference_selects_the_incoming_one_is_waited_for_too() -> None:
    index = zoned()
    index.assume(pod("w", app="db", prefers=[weighted(10, term("zone", app="web"))]), ("n1", "n3"), now=0.0)
    assert FilterVerb(index.view, TWO).should_wait(extender_args(pod_json(app="web"), *NAMES), -0.1)


# -- rejections that are given again: only while nothing that they depend on has changed ----------------------------------


def test_a_rejection_is_given_again_byte_for_byte_without_deciding() -> None:
    scene = FilterScene()
    first = scene.filter()
    scene.index.upsert(pod("other", on="n1", app="batch"))
    second = scene.filter()
    assert (scene.decided, scene.memory.hits) == (1, 1)
    assert (encode_filter(second), second.reasons) == (encode_filter(first), first.reasons)
    assert orjson.loads(encode_filter(second))["FailedAndUnresolvableNodes"].keys() == {"n1", "n2"}
    assert scene.memory.bytes > scene.signature.size > 0, "a large template that is rejected once counts in the cache"


@pytest.mark.parametrize(
    ("change", "passing"),
    [
        (lambda scene: scene.index.delete(pod("web-n1", on="n1", app="web")), ["n1"]),
        (lambda scene: scene.relabel(t="b"), ["n1", "n2"]),
        (lambda scene: scene.index.upsert(node("n3")), []),
    ],
    ids=["pod deleted", "namespace relabelled", "node added"],
)
def test_a_change_of_what_the_answer_depends_on_is_decided_anew(
    change: Callable[[FilterScene], object], passing: list[str]
) -> None:
    scene = FilterScene()
    assert scene.filter().unresolvable
    change(scene)
    assert (list(scene.filter().passed), scene.decided) == (passing, 2)


def test_a_rejection_because_of_a_pod_whose_node_is_not_known_is_decided_anew_every_time() -> None:
    scene = FilterScene()
    scene.index.assume(pod("w", app="web"), ("n0", "n3"), now=0.0)
    scene.filter()
    scene.filter()
    assert (scene.decided, len(scene.memory), scene.memory.hits) == (2, 0, 0)


def test_the_cache_drops_the_oldest_beyond_its_size() -> None:
    scene = FilterScene(most_bytes=3000)
    scene.filter("n1")
    scene.filter("n2")
    assert (scene.decided, len(scene.memory)) == (2, 1), "other names are another request"
    assert 1500 < scene.memory.bytes <= 3000
    scene.filter("n1")
    assert scene.decided == 3


def test_the_names_are_read_only_for_a_signature_with_a_cached_rejection() -> None:
    scene = FilterScene(most_bytes=3000)
    scene.filter("n1")
    unread = ExtenderArgs(pod("other"), ["n1"], body=b"no JSON, so that to read it is an error")
    again = replace(unread, pod=Pod("u", "asking", scene.signature))
    assert scene.verb.decide(unread, 0).result.passed == ["n1"]
    with pytest.raises(DecodeError):
        scene.verb.decide(again, 0)
    scene.relabel(t="b")  # the rejection holds no longer, and it was the last of its signature
    assert list(scene.filter("n1").passed) == ["n1"]
    assert list(scene.verb.decide(again, 0).result.passed) == ["n1"]


def test_what_is_said_of_every_node_is_decided_at_once_and_takes_no_memory() -> None:
    scene = FilterScene()
    scene.index.upsert(pod("web-n0", on="n0", app="web"))
    first, second = scene.filter(), scene.filter()
    assert (scene.decided, len(scene.memory)) == (2, 0)
    assert encode_filter(first) == encode_filter(second)
    assert {reason.text for reason in first.reasons} == set(first.unresolvable.values())


@pytest.mark.parametrize(
    ("objects", "requests"),
    [
        # What later samples offer again stays free for them. Where all nodes of a sample pass, nothing is scarce.
        (
            [node("n3"), node("n4"), pod("web", on="n4", app="web")],
            [("n1 n2 n4", "n1"), ("n1 n2 n3 n4", "n3"), ("n1 n2 n3", "n1")],
        ),
        (
            [node("n3"), pod("web", on="n3", app="web"), pod("load", on="n2", requests={"cpu": "1"})],
            [("n1 n3", "n1"), ("n1 n2 n3", "n1")],
        ),
    ],
    ids=["not offered for the longest time", "free resources count more"],
)
def test_a_decisive_answer_depends_on_earlier_offers(objects: list[Object], requests: list[tuple[str, str]]) -> None:
    verb = FilterVerb(index_of(node("n1"), node("n2"), *objects).view, settings(placement="decisive"))
    for names, expected in requests:
        assert verb.decide(extender_args(LONELY, *names.split()), seed=0).result.passed == [expected]
