"""The loop takes an extender's answers as kube-scheduler does: strictly where that is strict, else leniently."""

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.json_objects import JsonObject
from tests.fakes import until
from tests.simulator.fake_extender import FakeExtender, accept, accept_all, cluster, refuse_all
from tests.simulator.plain import node, pod

NO_NODE = "0/3 nodes are available."
CURABLE = {"n1": "curable", "n2": "curable"}
NODES = (node("n1", "z1"), node("n2", "z2"), node("n3", "z3"))


def _scores(**scores: int) -> list[JsonObject]:
    return [{"Host": name, "Score": score} for name, score in scores.items()]


async def test_the_request_is_the_schedulers() -> None:
    extender = FakeExtender()
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a", labels={"app": "web"}))
        await there.quiet()
    (verb, body), (second, _) = extender.requests
    assert (verb, second) == ("filter", "prioritize")
    assert set(body) == {"Pod", "Nodes", "NodeNames"}
    assert (body["Nodes"], sorted(body["NodeNames"])) == (None, ["n1", "n2", "n3"])
    assert "kind" not in body["Pod"]
    assert body["Pod"]["metadata"]["labels"] == {"app": "web"}


async def test_without_a_node_cache_the_request_carries_whole_nodes() -> None:
    extender = FakeExtender(lambda requested: {"Nodes": {"items": requested["Nodes"]["items"][:1]}})
    async with cluster(*NODES, extender=extender, entry={"node_cache_capable": False}) as there:
        there.create(pod("a"))
        await there.quiet()
        body = extender.requests[0][1]
        assert body["NodeNames"] is None
        assert there.node_of("a") == body["Nodes"]["items"][0]["metadata"]["name"]
        assert body["Nodes"]["items"][0]["status"]["allocatable"]["cpu"] == "4"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (500, "code 500"),
        ({"Error": "index is stale"}, "index is stale"),
        ({"NodeNames": ["n9"]}, 'claims a filtered node "n9" which is not found in the input node list'),
        ("{", "filter http://"),
        ("[]", "cannot decode the answer: it is a list"),
    ],
    ids=["another status", "an error", "an unknown name", "broken JSON", "another shape"],
)
async def test_a_bad_answer_fails_the_pod(answer: object, message: str) -> None:
    extender = FakeExtender(lambda _: answer)
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a"))
        await until(lambda: there.reason_of("a")[0])
        reason, text = there.reason_of("a")
    assert (reason, message in text) == ("SchedulerError", True)
    assert extender.requests[0][0] == "filter"


ANSWERS: dict[str, tuple[FakeExtender, JsonObject, str, str]] = {
    "an ignorable extender is passed over": (FakeExtender(lambda _: 500), {"ignorable": True}, "n1 n2 n3", ""),
    "no field": (FakeExtender(lambda _: {}), {}, "", NO_NODE),
    "null": (FakeExtender(lambda _: {"NodeNames": None, "Nodes": None}), {}, "", NO_NODE),
    "no names": (FakeExtender(lambda _: {"NodeNames": []}), {}, "", NO_NODE),
    "the case of field names does not matter": (FakeExtender(lambda _: {"nodenames": ["n2"]}), {}, "n2", ""),
    "unresolvable rejections win over others": (
        FakeExtender(
            lambda _: {"NodeNames": [], "FailedNodes": CURABLE, "FailedAndUnresolvableNodes": {"n2": "incurable"}}
        ),
        {},
        "",
        "0/3 nodes are available: 1 curable, 1 incurable.",
    ),
    "scores of status 500 are missing": (FakeExtender(scores=lambda _: 500), {}, "n1 n2 n3", ""),
    "scores in broken JSON are missing": (FakeExtender(scores=lambda _: "{"), {}, "n1 n2 n3", ""),
    "scores that are null are missing": (FakeExtender(scores=lambda _: None), {}, "n1 n2 n3", ""),
    "scores of another shape are missing": (FakeExtender(scores=lambda _: {"Host": 3}), {}, "n1 n2 n3", ""),
}


@pytest.mark.parametrize(("extender", "entry", "nodes", "message"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_decides_where_a_pod_goes(
    extender: FakeExtender, entry: JsonObject, nodes: str, message: str
) -> None:
    async with cluster(*NODES, extender=extender, entry=entry) as there:
        there.create(pod("a"))
        await there.quiet()
        assert there.node_of("a") in (nodes.split() or [""])
        assert there.reason_of("a") == (("Unschedulable", message) if message else ("", ""))


@pytest.mark.parametrize(("weight", "score", "wins"), [(1, 6, True), (1, 1, False), (10, 1, True)])
async def test_scores_are_weighted_and_scaled_against_the_schedulers_own(
    weight: int, score: int, *, wins: bool
) -> None:
    # Half of n1's CPU is taken, so the loop's own score prefers n2 by 25 points; an extender's point counts ten.
    extender = FakeExtender(scores=lambda _: _scores(n1=score))
    nodes = (node("n1", cpu="8"), node("n2", cpu="8"), pod("half", on="n1", cpu="4"))
    async with cluster(*nodes, extender=extender, entry={"weight": weight}) as there:
        there.create(pod("a"))
        await there.quiet()
        assert (there.node_of("a") == "n1") is wins


@pytest.mark.parametrize("answer", [500, "{", None, {"Host": 3}])
async def test_a_failed_prioritize_is_only_a_missing_score(answer: object) -> None:
    async with cluster(*NODES, extender=FakeExtender(scores=lambda _: answer)) as there:
        there.create(pod("a"))
        await there.quiet()
        assert there.node_of("a")


async def test_one_passing_node_is_not_scored() -> None:
    extender = FakeExtender(accept("n2"))
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a"))
        await there.quiet()
        assert there.node_of("a") == "n2"
    assert [verb for verb, _ in extender.requests] == ["filter"]


async def test_the_extender_sees_only_what_the_own_filters_left() -> None:
    extender = FakeExtender()
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a", nodeSelector={"topology.kubernetes.io/zone": "z2"}))
        there.create(pod("b", nodeSelector={"topology.kubernetes.io/zone": "z9"}))
        await there.quiet()
        assert (
            there.reason_of("b")[1] == "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
        )
    assert [body["NodeNames"] for body in extender.filters_for("a")] == [["n2"]]
    assert extender.filters_for("b") == []


async def test_filter_is_called_first_with_the_nominated_node_alone() -> None:
    extender = FakeExtender(refuse_all)
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a"))
        await there.quiet()
        extender.answer = accept("n3")
        extender.requests.clear()
        there.api.operations.change(PODS, "default/a", lambda obj: obj["status"].update(nominatedNodeName="n3"))
        await until(lambda: there.node_of("a"))
    assert [(verb, body["NodeNames"]) for verb, body in extender.requests] == [("filter", ["n3"])]


@pytest.mark.parametrize(
    ("maps", "kept"),
    [
        ({"FailedNodes": {"n3": "held"}, "FailedAndUnresolvableNodes": {"n1": "no", "n2": "no"}}, "n3"),
        ({"FailedAndUnresolvableNodes": {"n1": "no", "n2": "no", "n3": "no"}}, None),
        ({}, None),
    ],
    ids=["refused for a cause that might be cured", "refused for good", "dropped"],
)
async def test_a_nomination_falls_unless_its_node_might_be_cured(maps: JsonObject, kept: str | None) -> None:
    async with cluster(*NODES, extender=FakeExtender(lambda _: {"NodeNames": [], **maps})) as there:
        there.create(pod("a", schedulingGates=[{"name": "hold"}]))
        there.api.operations.change(PODS, "default/a", _nominate_and_release)
        await until(lambda: there.reason_of("a")[0] == "Unschedulable")
        await there.quiet()
        assert there.pod("a")["status"].get("nominatedNodeName") == kept


def _nominate_and_release(obj: JsonObject) -> None:
    obj["status"]["nominatedNodeName"] = "n3"
    del obj["spec"]["schedulingGates"]


async def test_a_rejected_pod_is_tried_again_once_for_the_status_of_its_rejection() -> None:
    extender = FakeExtender(refuse_all)
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a"))
        await there.quiet()
        assert there.reason_of("a") == ("Unschedulable", "0/3 nodes are available: 3 refused by us.")
    assert len(extender.filters_for("a")) == 2


async def test_an_extender_that_relents_is_heard() -> None:
    extender = FakeExtender(refuse_all)
    async with cluster(*NODES, extender=extender) as there:
        there.create(pod("a"))
        await there.quiet()
        extender.answer = accept_all
        there.api.operations.change(PODS, "default/a", lambda obj: obj["metadata"].update(annotations={"again": "1"}))
        await until(lambda: there.node_of("a"))
        await there.quiet()  # the API server knows the binding before the loop has its answer
        assert there.loop.messages == {}
