"""The verbs' handlers, from body to answer, over a real connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import orjson
import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.rejections import Reason
from extender.server.app import make_app
from extender.server.collaborators import Verbs
from extender.server.v1 import shared
from extender.server.v1.shared import SharedAnswers
from extender.settings.configuration import Settings
from extender.settings.connections import Paths, Server
from extender.settings.limits import ConstraintLimits
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.builders import Json, pod_json, term
from tests.fakes import PATIENCE, until
from tests.server.connected_verbs import Computing, connected, names
from tests.server.raw import Wire, head_of, whole
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    BY_NODES,
    NODES,
    PREEMPTION,
    Client,
    Serve,
    Switch,
    every_candidate,
    scores_by_length,
)

PASSED = ["node-a", "node-bb"]
FAILED: Json = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
ANSWERS: dict[str, tuple[str, Json, object]] = {
    "filter by names": ("filter", BY_NAMES, {"Nodes": None, "NodeNames": PASSED} | FAILED),
    "filter with nodes": ("filter", BY_NODES, {"Nodes": {"metadata": {}, "items": NODES}, "NodeNames": None} | FAILED),
    "filter with unknown fields": (
        "filter",
        BY_NAMES | {"Novelty": {"deep": [1]}},
        {"Nodes": None, "NodeNames": PASSED} | FAILED,
    ),
    "scores are a bare list": (
        "prioritize",
        BY_NAMES,
        [{"Host": "node-a", "Score": 6}, {"Host": "node-bb", "Score": 7}],
    ),
    "candidates by UID": (
        "preempt",
        PREEMPTION,
        {"NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": "u-9"}], "NumPDBViolations": 1}}},
    ),
}


@pytest.mark.parametrize(("verb", "body", "expected"), ANSWERS.values(), ids=ANSWERS)
async def test_a_verb_answers_in_the_form_of_the_request(
    client: Client, verb: str, body: Json, expected: object
) -> None:
    answer = await client.post(f"/{verb}", json=body)
    assert (answer.status, answer.content_type, await answer.json()) == (200, "application/json", expected)


async def test_a_pod_above_a_limit_of_the_settings_is_counted_under_the_limits(aiohttp_client: AiohttpClient) -> None:
    async def rejected(args: ExtenderArgs) -> FilterResult:
        excess = args.pod.signature.excess
        assert excess is not None
        return FilterResult((), unresolvable={"node-a": excess.text}, reasons=frozenset((Reason.OVER_LIMIT,)))

    settings = Settings(limits=ConstraintLimits(affinity_terms=1))
    metrics = Metrics("1")
    decisions = replace(AGREEABLE, filter=rejected)
    client = await aiohttp_client(make_app(settings, decisions, Switch(), metrics, "1"))
    requested = pod_json(apart=[term(app="a"), term(app="b")])
    answer = await (await client.post("/filter", json={"Pod": requested, "NodeNames": ["node-a"]})).json()
    text = "spec.affinity: 2 terms of pods, limits.affinityTerms is 1"
    assert answer["FailedAndUnresolvableNodes"] == {"node-a": text}
    assert b'extender_filter_rejections_total{reason="over_limit"} 1.0' in metrics.render()


async def test_the_verbs_answer_under_the_paths_of_the_settings(serve: Serve) -> None:
    client = await serve(server=Server(paths=Paths(filter="/scheduler/v1/predicates")))
    assert (await client.post("/scheduler/v1/predicates", json=BY_NAMES)).status == 200
    assert (await client.post("/filter", json=BY_NAMES)).status == 404


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/octet-stream"])
async def test_a_content_type_that_no_page_sends_without_asking_does_not_matter(
    client: Client, content_type: str
) -> None:
    body = b'{"Pod": {"metadata": {"name": "web-1", "uid": "u-1"}}, "NodeNames": ["node-a"]}'
    answer = await client.post("/filter", data=body, headers={"Content-Type": content_type})
    assert (await answer.json())["NodeNames"] == ["node-a"]


async def test_requests_nodes_and_rejections_are_counted(serve: Serve) -> None:
    async def nothing_passes(args: ExtenderArgs) -> FilterResult:
        texts = dict.fromkeys(args.node_names or (), Reason.AFFINITY.text)
        return FilterResult((), unresolvable=texts, reasons=frozenset((Reason.AFFINITY,)))

    client = await serve(Verbs(nothing_passes, scores_by_length, every_candidate))
    await client.post("/filter", json=BY_NAMES)
    page = await (await client.get("/metrics")).text()
    assert 'extender_requests_total{code="200",verb="filter"} 1.0' in page
    assert 'extender_request_nodes_sum{verb="filter"} 2.0' in page
    assert "extender_filter_passed_nodes_sum 0.0" in page
    assert 'extender_filter_rejections_total{reason="affinity"} 1.0' in page
    assert 'extender_request_duration_seconds_count{verb="filter"} 1.0' in page


async def test_a_pod_that_cannot_be_decided_is_reported_in_the_error_and_counted(serve: Serve) -> None:
    async def gives_up(_: ExtenderArgs) -> FilterResult:
        return FilterResult((), error="pod has constraints that cannot be parsed")

    client = await serve(Verbs(gives_up, scores_by_length, every_candidate))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (await answer.json())["Error"] == "pod has constraints that cannot be parsed"
    page = await (await client.get("/metrics")).text()
    assert 'extender_request_failures_total{reason="undecidable",verb="filter"} 1.0' in page


# -- Answers of verbs: one write for head and body, and the same answer on each way to a verb --------------------------

QUESTION = orjson.dumps(BY_NAMES)
LONG = orjson.dumps({**BY_NAMES, "NodeNames": [f"node-{number:05}" for number in range(5000)]})


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to a socket by each call, by either side."""
    found: list[bytes] = []
    original = asyncio.selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined] # no other way to see it

    def write(self: object, data: bytes) -> None:
        found.append(bytes(data))
        original(self, data)

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write", write)
    return found


async def test_a_short_answer_is_written_by_one_call(connection: Wire, writes: list[bytes]) -> None:
    for _ in range(2):
        writes.clear()
        await connection.send(whole("POST", "/filter", QUESTION))
        assert await connection.status() == 200
        request, answer = writes
        assert request.startswith(b"POST ")
        assert answer == connection.head + connection.body


async def test_head_and_body_are_complete(connection: Wire) -> None:
    await connection.send(whole("POST", "/filter", QUESTION))
    assert await connection.status() == 200
    fields = [line.split(b":")[0] for line in connection.head.splitlines()[1:-1]]
    assert fields == [b"Content-Type", b"Content-Length", b"Date"]
    assert b"Content-Type: application/json\r\n" in connection.head
    assert orjson.loads(connection.body)["NodeNames"] == PASSED


@pytest.mark.parametrize("path", ["/filter", "/filter?trace=1", "http://extender/filter", "/%66ilter"])
async def test_however_the_path_is_written_the_answer_is_the_same(connection: Wire, path: str) -> None:
    await connection.send(whole("POST", path, QUESTION))
    assert await connection.status() == 200
    assert orjson.loads(connection.body)["NodeNames"] == PASSED


@pytest.mark.parametrize("body", [QUESTION, LONG], ids=["short", "long"])
async def test_a_client_that_wants_the_connection_closed_is_reported_that_it_is(connection: Wire, body: bytes) -> None:
    await connection.send(whole("POST", "/filter", body, Connection="close"))
    assert await connection.status() == 200
    assert b"Connection: close" in connection.head
    assert await connection.closed()


async def test_a_client_of_an_older_http_is_answered_and_its_connection_closed(connection: Wire) -> None:
    await connection.send(whole("POST", "/filter", QUESTION).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    assert await connection.status() == 200
    assert connection.head.startswith(b"HTTP/1.0 200")
    assert await connection.closed()


async def test_an_expectation_is_answered_before_the_body_comes(connection: Wire) -> None:
    request = whole("POST", "/filter", QUESTION, Expect="100-continue")
    await connection.send(request[: -len(QUESTION)])
    assert await connection.status() == 100
    await connection.send(QUESTION)
    assert await connection.status() == 200


async def test_answers_of_requests_that_come_together_keep_their_order(connection: Wire) -> None:
    """A long answer between short ones is written by the framework."""
    await connection.send(b"".join(whole("POST", "/filter", body) for body in (QUESTION, LONG, QUESTION)))
    assert [await names(connection) for _ in range(3)] == [2, 5000, 2]


@pytest.mark.parametrize(
    "request_", [head_of("GET", "/livez"), whole("POST", "/filter", QUESTION)], ids=["GET", "POST"]
)
async def test_more_requests_than_the_framework_queues_are_all_answered(connection: Wire, request_: bytes) -> None:
    """It stops parsing, and goes on with what it holds back when it is called with no data."""
    sending = asyncio.create_task(connection.send(request_ * 300))
    async with asyncio.timeout(PATIENCE):
        assert [await connection.status() for _ in range(300)] == [200] * 300
    await sending


async def test_of_requests_that_came_together_one_is_answered_in_each_iteration_of_the_loop() -> None:
    iteration, answered = 0, list[int]()
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal iteration
        iteration += 1
        if len(answered) < 3:
            loop.call_soon(count)

    async with connected(lambda: answered.append(iteration)) as connection:
        count()
        connection.data_received(whole("POST", "/verb", QUESTION) * 3)
        await until(lambda: len(answered) == 3)
    assert len(set(answered)) == 3


async def test_after_another_request_of_the_connection_verbs_are_answered_as_before(connection: Wire) -> None:
    for request in (
        whole("POST", "/filter", QUESTION),
        head_of("GET", "/livez"),
        whole("POST", "/filter", QUESTION),
    ):
        await connection.send(request)
        assert await connection.status() == 200
    assert orjson.loads(connection.body)["NodeNames"] == PASSED


async def test_a_connection_goes_on_after_a_body_that_no_handler_read(connection: Wire) -> None:
    compressed = whole("POST", "/prioritize", b" " * 100_000, Content_Encoding="gzip")
    await connection.send(compressed[:-1])
    assert await connection.status() == 415
    await connection.send(compressed[-1:] + whole("POST", "/filter", QUESTION))
    assert await connection.status() == 200


# -- Answers that equal requests share: computed once, kept for a second within bounded bytes, and ended with the
#    last client


async def test_requests_that_arrive_meanwhile_and_soon_after_share_one_computation() -> None:
    answers, computing = SharedAnswers(), Computing()
    waiting = [asyncio.create_task(answers.of("a", computing, 5)) for _ in range(3)]
    await until(lambda: computing.begun)
    computing.go_on.set()
    assert await asyncio.gather(*waiting) == [b'"found"'] * 3
    assert await answers.of("a", computing, 5) == b'"found"'
    assert computing.begun == 1


async def test_an_answer_is_dropped_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KEPT_SECONDS", 0.01)
    answers, computing = SharedAnswers(), Computing()
    computing.go_on.set()
    await answers.of("a", computing, 5)
    assert (len(answers), answers.bytes) == (1, 7)
    await until(lambda: not len(answers))
    assert answers.bytes == 0
    await answers.of("a", computing, 5)
    assert computing.begun == 2


async def test_the_oldest_answers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_BYTES", 20)
    answers, computing = SharedAnswers(), Computing("12345678")
    computing.go_on.set()
    for requested in "abc":
        await answers.of(requested, computing, 5)
    assert (len(answers), answers.bytes) == (2, 20)
    await answers.of("c", computing, 5)
    assert computing.begun == 3
    await answers.of("a", computing, 5)
    assert computing.begun == 4


async def test_an_error_goes_to_all_that_wait_and_is_not_kept() -> None:
    answers, computing = SharedAnswers(), Computing(NotExplained(NoAnswerCause.BUSY, "busy"))
    waiting = [asyncio.create_task(answers.of("a", computing, 5)) for _ in range(2)]
    await until(lambda: computing.begun)
    computing.go_on.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in found] == ["busy", "busy"]
    assert len(answers) == 0


async def test_a_computation_goes_on_until_its_last_client_has_gone() -> None:
    answers, computing = SharedAnswers(), Computing()
    first, second = (asyncio.create_task(answers.of("a", computing, 5)) for _ in range(2))
    await until(lambda: computing.begun)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (computing.cancelled, len(answers)) == (0, 1)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await until(lambda: computing.cancelled)
    assert len(answers) == 0


async def test_a_computation_that_takes_too_long_is_busy_and_ends() -> None:
    answers, computing = SharedAnswers(), Computing()
    with pytest.raises(NotExplained) as error:
        await answers.of("a", computing, 0.01)
    assert error.value.cause is NoAnswerCause.BUSY
    await until(lambda: computing.cancelled)
