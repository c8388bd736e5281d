"""The bind verb: the pod counts on its node from the call on, and no longer when the binding is known to have failed."""

from __future__ import annotations

import asyncio

import pytest

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.kube.effects import PodRef
from extender.kube.errors import (
    NO_CONNECTION,
    Conflict,
    KubeError,
    NotFound,
    Rejected,
    Throttled,
    TooLarge,
    Unreachable,
)
from extender.tasks.preempt_and_bind import BindService
from extender.wire.errors import WireError
from extender.wire.extender_v1 import BindingArgs, decode_binding_args, encode_binding
from tests.builders import read_pod
from tests.fakes import FakeWriter, running, until
from tests.tasks.bindings import POD, TIMED_OUT, Answers, HeldWriter, JsonObject, Unanswered, binder, cluster

GATED = POD | {"spec": {"schedulingGates": [{"name": "quota"}]}}
BOUND = POD | {"spec": {"nodeName": "n1"}}
NOT_ANSWERED = "no answer of the extender lets the pod go to this node"
ARGS = BindingArgs("ns", "w", "u", "n2")


async def test_a_bound_pod_counts_on_its_node_before_the_watch_reports() -> None:
    index, writer = cluster(), FakeWriter()
    assert await binder(index, writer).bind(ARGS) == ""
    assert writer.effects == ["bind w n2"]
    assert list(index.view.pods_on(index.view.known["n2"])) == ["u"]
    assert index.assumed.several == 0


async def test_a_failed_binding_is_reported_and_the_pod_counts_nowhere() -> None:
    index, writer = cluster(), FakeWriter(failures=[Conflict("pod w is already assigned to node n1")])
    assert "already assigned" in await binder(index, writer).bind(ARGS)
    assert index.assumed.held == {}


async def test_a_binding_that_fails_frees_the_place_only_once_nothing_is_under_way() -> None:
    """A second call for the same pod must not end the assumption on which the first one rests."""
    index, writer = cluster(), HeldWriter()
    binding = binder(index, writer)
    first = asyncio.create_task(binding.bind(ARGS))
    await until(lambda: writer.requests)
    assert await binding.bind(ARGS) == "not bound: the pod is being bound already"
    assert list(index.assumed.held) == ["u"]
    writer.go.set()
    assert await first == ""
    assert writer.effects == ["bind w n2"]


AMBIGUOUS = {
    "a time-out": TIMED_OUT,
    "a lost connection": Unreachable("POST: ServerDisconnectedError"),
    "a proxy": Throttled("503 upstream connect error", status=503),
    "an answer without end": TooLarge("answer exceeds 1 MiB"),
}
CERTAIN = {
    "no connection": Unreachable("POST: refused", reason=NO_CONNECTION),
    "a refusal": Rejected("403 forbidden", status=403),
    "too many calls": Throttled("429 slow down", status=429),
    "no pod": NotFound("404 pods w", status=404),
}


@pytest.mark.parametrize("error", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_pod_that_may_be_bound_keeps_its_room_until_that_is_known(error: KubeError) -> None:
    """Neither the scheduler's report nor its next question ends the assumption: another pod would get the node."""
    played = Unanswered(Answers(Unreachable("GET: refused")), error)
    assert await played.binder.bind(ARGS) == str(error)
    played.report()
    assert (await played.filter()).error == "cannot decide: the pod is being bound, or may be bound already"
    played.filter_service.attempt_failed(read_pod(POD))
    played.index.assumed.review(played.clock.now() + 5, AssumptionTimeouts(expiry=120, failure_grace=2, doubt=120))
    assert played.assumed == ["n2"]
    assert await played.binder.bind(ARGS) == "not bound: the pod is being bound already"
    played.show({"spec": {"nodeName": "n2"}})
    assert (played.assumed, "u" in played.index.assumed.binding) == ([], False)
    assert audit(played.index) == []


@pytest.mark.parametrize("error", CERTAIN.values(), ids=CERTAIN)
async def test_a_binding_that_was_never_made_gives_the_room_back_at_once(error: KubeError) -> None:
    played = Unanswered(Answers("n2"), error)
    assert await played.binder.bind(ARGS) == str(error)
    assert (played.assumed, "u" in played.index.assumed.binding) == ([], False)
    assert sorted((await played.filter()).passed) == ["n1", "n2"]


async def test_a_request_that_runs_out_of_time_leaves_the_binding_open() -> None:
    """Its deadline cancels the call to the API server, which may have been sent."""
    played, writer = Unanswered(Answers("")), HeldWriter()
    binding = BindService(played.index, writer, played.clock, played.unanswered)
    call = asyncio.create_task(binding.bind(ARGS))
    await until(lambda: writer.requests)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (await played.filter()).error != ""
    assert played.assumed == ["n2"]
    async with running(played.unanswered.run):
        await until(lambda: not played.assumed)


RESULTS = {
    "it was carried out": (["n2"], ["n2"]),
    "another client has bound it": (["n1"], ["n1"]),
    "it was not": ([""], []),
    "the pod is gone": ([NotFound("404 pods w", status=404)], []),
    "nothing can be read for a while": ([Unreachable("GET: refused"), Throttled("429", status=429), "n2"], ["n2"]),
}


@pytest.mark.parametrize(("answers", "assumed"), RESULTS.values(), ids=RESULTS)
async def test_the_pod_is_read_until_the_result_is_known(answers: list[str | KubeError], assumed: list[str]) -> None:
    played = Unanswered(Answers(*answers))
    await played.binder.bind(ARGS)
    async with running(played.unanswered.run):
        await until(lambda: "u" not in played.index.assumed.binding)
        assert (played.assumed, played.answers.reads) == (assumed, len(answers))
        assert audit(played.index) == []


async def test_no_pod_is_read_within_a_second_of_its_binding_although_others_are() -> None:
    """The API server may still carry it out, after the read: then its room would have been given away."""
    played, read = Unanswered(Answers("")), list[tuple[str, float]]()
    begun = played.clock.now()

    async def node_of(pod: PodRef) -> str:
        read.append((pod.uid, played.clock.now() - begun))
        if pod.uid == "u":
            played.unanswered.add(PodRef("ns", "later", "later"), "n1")
            played.index.assumed.begin_binding("later")
        return ""

    vars(played.answers)["node_of"] = node_of  # the time of each read
    await played.binder.bind(ARGS)
    async with running(played.unanswered.run):
        await until(lambda: len(read) == 2)
    assert read == [("u", 1.0), ("later", 2.0)]


@pytest.mark.parametrize("comes_first", ["the report", "the read"])
async def test_the_report_of_a_binding_that_was_not_made_is_not_taken_for_the_next_attempt(comes_first: str) -> None:
    played = Unanswered(Answers(""))
    await played.binder.bind(ARGS)
    if comes_first == "the report":
        played.report()
    async with running(played.unanswered.run):
        await until(lambda: not played.assumed)
    await played.filter()
    if comes_first == "the read":
        played.report()
    assert played.assumed == ["n1", "n2"]
    if comes_first == "the report":  # so the next one is of the new attempt
        played.show({"status": {}})
        played.report()
        assert played.assumed == []


async def test_a_result_that_is_never_known_ends_with_the_assumption() -> None:
    played = Unanswered(Answers(Unreachable("GET: refused")))
    await played.binder.bind(ARGS)
    played.index.assumed.review(played.clock.now() + 121, AssumptionTimeouts(expiry=120, failure_grace=2))
    assert sorted((await played.filter()).passed) == ["n1", "n2"]
    async with running(played.unanswered.run):
        await until(lambda: len(played.clock.slept) > 0)
    assert played.answers.reads == 0, "it is not asked about any more"


async def test_a_late_read_does_not_end_a_newer_binding() -> None:
    """The read of the first attempt says that the pod is not bound; by then the second one is under way."""
    played, writer = Unanswered(Answers("")), HeldWriter()
    await played.binder.bind(ARGS)
    incoming = asyncio.Event()
    answer = asyncio.Event()

    async def slow(_pod: PodRef) -> str:
        incoming.set()
        await answer.wait()
        return ""

    played.answers.node_of = slow  # type: ignore[method-assign]  # a read that the test lets end
    async with running(played.unanswered.run):
        await incoming.wait()
        played.index.assumed.forget("u")
        await played.filter()
        newer = asyncio.create_task(BindService(played.index, writer, played.clock, played.unanswered).bind(ARGS))
        await until(lambda: writer.requests)
        answer.set()
        await asyncio.sleep(0)
        writer.go.set()
        assert await newer == ""
    assert played.assumed == ["n2"]


FORGED = {
    "a pod that does not exist": (POD, BindingArgs("ns", "w", "made-up", "n2"), "the watch does not show this pod yet"),
    "another name": (POD, BindingArgs("ns", "x", "u", "n2"), "the watch shows a pod of another name under this UID"),
    "another namespace": (
        POD,
        BindingArgs("y", "w", "u", "n2"),
        "the watch shows a pod of another name under this UID",
    ),
    "a gated pod": (GATED, ARGS, "the watch shows scheduling gates on this pod"),
    "a bound pod": (BOUND, ARGS, "the watch shows this pod on a node already"),
    "a node of no answer": (POD, BindingArgs("ns", "w", "u", "n3"), NOT_ANSWERED),
}


@pytest.mark.parametrize(("shown", "args", "problem"), FORGED.values(), ids=FORGED)
async def test_nothing_is_bound_on_the_word_of_a_request(shown: JsonObject, args: BindingArgs, problem: str) -> None:
    index, writer = cluster(), FakeWriter()
    index.upsert(read_pod(shown))
    assert await binder(index, writer).bind(args) == f"not bound: {problem}"
    assert writer.effects == []


async def test_a_pod_that_no_filter_has_let_through_is_not_bound() -> None:
    index, writer = cluster(), FakeWriter()
    index.assumed.forget("u")
    assert await binder(index, writer).bind(ARGS) == f"not bound: {NOT_ANSWERED}"
    assert writer.effects == []


def test_the_bodies_are_in_go_s_casing() -> None:
    body = b'{"PodName":"w","PodNamespace":"ns","PodUID":"u","Node":"n2"}'
    assert decode_binding_args(body) == ARGS
    assert encode_binding("") == b'{"Error":""}'


def test_a_missing_field_is_named() -> None:
    with pytest.raises(WireError, match="Node"):
        decode_binding_args(b'{"PodName":"w","PodNamespace":"ns","PodUID":"u"}')
