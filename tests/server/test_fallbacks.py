"""Answers where nothing can be decided: too late, on a picture that is too old, or no longer ours to give."""

import asyncio
import io
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import orjson
import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.objects import Pod
from extender.model.units import ByteSize, Duration
from extender.server.collaborators import COLLABORATORS, Verbs
from extender.settings.connections import Kube, Server
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.fakes import PATIENCE, until
from tests.server.fallbacks import (
    QUESTIONS,
    Policy,
    broken,
    fallbacks,
    filter_error,
    handed_over,
    never,
    nothing_decided,
    nothing_refused,
    passed,
    short,
    stale,
)
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    BY_NODES,
    NODES,
    PREEMPTION,
    Client,
    Serve,
    Switch,
    app_with,
    every_candidate,
    everything_passes,
    scores_by_length,
)

STALE_TEXT = "cannot decide: changes of pods cannot be followed now; /readyz says why"
LATE_TEXT = "not decided within server.requestTimeout (250ms)"
PASSING = {"filter": BY_NAMES["NodeNames"], "prioritize": [], "preempt": PREEMPTION["NodeNameToMetaVictims"]}


@pytest.mark.parametrize(
    ("policy", "question", "names", "items", "error"),
    [
        ("error", BY_NAMES, [], None, LATE_TEXT),
        ("pass", BY_NAMES, BY_NAMES["NodeNames"], None, ""),
        ("pass", BY_NODES, None, {"metadata": {}, "items": NODES}, ""),
    ],
)
async def test_a_decision_that_does_not_come_in_time_is_an_error_of_the_pod_or_everything_passes(
    serve: Serve, policy: Policy, question: Any, names: Any, items: Any, error: str
) -> None:
    client = await serve(Verbs(never, scores_by_length, every_candidate), server=short(policy))
    answer = await client.post("/filter", json=question)
    found = await answer.json()
    assert (answer.status, found["NodeNames"], found["Nodes"], found["Error"]) == (200, names, items, error)
    counted = f'extender_fallbacks_total{{answer="{policy}",reason="deadline",verb="filter"}} 1.0'
    assert await fallbacks(client) == [counted]


async def test_a_request_that_was_given_up_leaves_its_place_to_the_next(serve: Serve) -> None:
    client = await serve(Verbs(never, scores_by_length, every_candidate), server=short(most=1))
    for _ in range(3):
        assert (await (await client.post("/filter", json=BY_NAMES)).json())["Error"] == LATE_TEXT
    assert (await client.post("/prioritize", json=BY_NAMES)).status == HTTPStatus.OK


async def test_a_body_that_comes_a_byte_at_a_time_holds_no_place_for_longer(serve: Serve) -> None:
    client = await serve(server=short(most=1))
    answered = asyncio.Event()

    async def trickle() -> AsyncIterator[bytes]:
        while not answered.is_set():
            yield b" "
            await asyncio.sleep(0.005)

    async with client.post("/prioritize", data=trickle(), headers={"Content-Length": "1000000"}) as slow:
        assert slow.status == HTTPStatus.REQUEST_TIMEOUT
        assert (await client.post("/prioritize", json=BY_NAMES)).status == HTTPStatus.OK
        answered.set()


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_on_an_old_picture_every_verb_passes_if_the_settings_say_so(serve: Serve, verb: str) -> None:
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided)
    client = await serve(decisions, stale(), kube=Kube(on_stale="pass"))
    assert await passed(client, verb) == PASSING[verb]
    assert await fallbacks(client) == [f'extender_fallbacks_total{{answer="pass",reason="stale",verb="{verb}"}} 1.0']


async def test_on_an_old_picture_filter_answers_an_error_and_the_others_503(serve: Serve) -> None:
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided)
    client = await serve(decisions, stale())
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, (await answer.json())["Error"]) == (HTTPStatus.OK, STALE_TEXT)
    for verb in ("prioritize", "preempt"):
        answer = await client.post(f"/{verb}", json=QUESTIONS[verb])
        assert (answer.status, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
        assert await answer.json() == {"error": STALE_TEXT}


@pytest.mark.parametrize(("verb", "expected_status"), [("preempt", 1), ("filter", 0), ("prioritize", 0)])
@pytest.mark.parametrize("why", ["stale", "not ready", "a bug"])
async def test_a_call_of_preempt_without_a_decision_is_reported_as_the_scheduler_does_not_repeat_it(
    serve: Serve, verb: str, expected_status: int, why: str
) -> None:
    refused: list[str] = []
    decisions = replace(
        Verbs(nothing_decided, nothing_decided, nothing_decided), preempt_refused=lambda: refused.append(verb)
    )
    readiness = {"stale": stale(), "not ready": Switch({"pods": "listing"}), "a bug": None}[why]
    client = await serve(decisions, readiness)
    await client.post(f"/{verb}", json=QUESTIONS[verb])
    assert len(refused) == expected_status


async def test_a_preemption_that_is_decided_is_not_reported(serve: Serve) -> None:
    client = await serve(replace(AGREEABLE, preempt_refused=nothing_refused))
    assert (await client.post("/preempt", json=PREEMPTION)).status == HTTPStatus.OK


async def test_decisions_come_back_with_the_news(serve: Serve) -> None:
    readiness = stale()
    client = await serve(readiness=readiness, kube=Kube(on_stale="pass"))
    assert await passed(client, "prioritize") == []
    readiness.missing["pods"] = ""
    assert await passed(client, "prioritize") == [{"Host": "node-a", "Score": 6}, {"Host": "node-bb", "Score": 7}]


async def test_what_was_never_complete_is_not_an_old_picture(serve: Serve) -> None:
    client = await serve(readiness=Switch({"pods": "listing"}), kube=Kube(on_stale="pass"))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, answer.headers["Connection"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "close"), (
        "the next request finds a replica that is ready"
    )
    assert await answer.json() == {"error": "not ready: pods; /readyz?verbose lists the checks"}


async def test_a_decision_is_kept_back_once_another_replica_may_answer(serve: Serve) -> None:
    readiness = Switch()

    async def loses_the_lease(args: ExtenderArgs) -> FilterResult:
        readiness.missing["leadership"] = "standby"
        readiness.may_answer = False
        return await everything_passes(args)

    client = await serve(Verbs(loses_the_lease, scores_by_length, every_candidate), readiness)
    answer = await client.post("/filter", json=BY_NAMES)
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert await answer.json() == {"error": "not ready: leadership; /readyz?verbose lists the checks"}


async def test_a_call_at_a_standby_is_sent_to_the_replica_that_leads_by_now(serve: Serve) -> None:
    readiness = Switch({"pods": "", "leadership": "standby"})
    client = await serve(handed_over(readiness, leads_then=False, elsewhere=True), readiness)
    answer = await client.post("/filter", json=BY_NAMES, allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (HTTPStatus.TEMPORARY_REDIRECT, "filter?redirects=1")
    assert answer.headers["Connection"] == "close", "the same address, by a new connection"
    for given, location in (("9", "10"), ("-1", "1"), ("999", "1"), ("x", "1")):
        answer = await client.post(f"/filter?redirects={given}", json=BY_NAMES, allow_redirects=False)
        assert answer.headers["Location"] == f"filter?redirects={location}"
    page = await (await client.get("/metrics")).text()
    assert 'extender_requests_total{code="307",verb="filter"} 5.0' in page
    assert 'reason="moved"' not in page, "a call that is answered elsewhere has not failed"


@pytest.mark.parametrize(
    ("pods", "leads_then", "elsewhere", "status"),
    [("", True, False, 200), ("", False, False, 503), ("listing", True, True, 503)],
    ids=["this standby begins to lead", "no replica leads in time", "its index is incomplete, so it does not wait"],
)
async def test_a_call_waits_for_a_leader(
    serve: Serve, pods: str, status: int, *, leads_then: bool, elsewhere: bool
) -> None:
    readiness = Switch({"pods": pods, "leadership": "standby"})
    client = await serve(handed_over(readiness, leads_then=leads_then, elsewhere=elsewhere), readiness)
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, answer.headers.get("Connection")) == (status, None if status == 200 else "close")
    assert (await answer.json()).get("NodeNames") == (["node-a", "node-bb"] if status == 200 else None)


async def test_a_request_in_flight_is_answered_although_the_service_is_stopping(serve: Serve) -> None:
    readiness = Switch()

    async def stopped_meanwhile(args: ExtenderArgs) -> FilterResult:
        readiness.missing["shutdown"] = "the service is stopping"
        return await everything_passes(args)

    client = await serve(Verbs(stopped_meanwhile, scores_by_length, every_candidate), readiness)
    assert await passed(client, "filter") == PASSING["filter"]
    assert (await client.post("/filter", json=BY_NAMES)).status == HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("policy", ["error", "pass"])
async def test_a_request_that_cannot_be_decided_shows_that_the_pod_s_last_attempt_failed(
    serve: Serve, policy: Policy
) -> None:
    failed: list[Pod] = []
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, attempt_failed=failed.append)
    client = await serve(decisions, stale(), kube=Kube(on_stale=policy))
    await client.post("/filter", json=BY_NAMES)
    assert [requested.uid for requested in failed] == ["u-1"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_what_had_arrived_counts_before_it_is_asked_how_old_the_picture_is(serve: Serve, verb: str) -> None:
    """After a pause the news lie unread in the socket, and the picture is as old as the pause was long."""
    readiness = stale()

    async def catch_up() -> None:
        await asyncio.sleep(0)
        readiness.missing["pods"] = ""

    decisions = Verbs(everything_passes, scores_by_length, every_candidate, catch_up=catch_up)
    client = await serve(decisions, readiness)
    assert (await client.post(f"/{verb}", json=QUESTIONS[verb])).status == HTTPStatus.OK
    assert await fallbacks(client) == []


async def test_news_that_take_too_long_to_be_read_make_the_answer_late_and_not_wrong(
    serve: Serve,
) -> None:
    async def catch_up() -> None:
        await asyncio.Event().wait()

    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, catch_up=catch_up)
    client = await serve(decisions, server=short())
    assert (await (await client.post("/filter", json=BY_NAMES)).json())["Error"] == LATE_TEXT


async def test_nothing_is_decided_for_a_client_that_has_hung_up(serve: Serve) -> None:
    """The scheduler waited for as long as it does, while the question lay unread: it has put the pod back since."""
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, attempt_failed=nothing_decided)
    client = await serve(decisions, stale())
    body = orjson.dumps(BY_NAMES)
    head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((client.server.host, client.server.port)) as caller:
        caller.sendall(head.encode() + body)
    failed = 'extender_request_failures_total{reason="abandoned",verb="filter"} 1.0'
    async with asyncio.timeout(PATIENCE):
        while failed not in await (await client.get("/metrics")).text():  # noqa: ASYNC110 (a page has no event)
            await asyncio.sleep(0)


# -- Everything that can be wrong with a request ends as an answer that says so ----------------------------------------

VERBS = ("filter", "prioritize", "preempt")
LENGTH = {"Content-Length": "1000"}
BAD_BODIES = {
    "no JSON": (b"{not json", ""),
    "an empty body": (b"", ""),
    "another kind of JSON": (b"[1, 2]", ""),
    "no pod": (b'{"NodeNames": ["node-a"]}', "Pod"),
    "a wrong type": (b'{"Pod": {"metadata": {"name": 5}}}', "Pod.metadata.name"),
}


@pytest.mark.parametrize(("body", "field"), BAD_BODIES.values(), ids=BAD_BODIES)
async def test_filter_says_what_it_cannot_read_in_its_error(client: Client, body: bytes, field: str) -> None:
    assert (await filter_error(client, body)).startswith(f"cannot read the request: {field}")


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
@pytest.mark.parametrize(("body", "field"), BAD_BODIES.values(), ids=BAD_BODIES)
async def test_the_other_verbs_reject_it_as_bad_request_with_the_field(
    client: Client, verb: str, body: bytes, field: str
) -> None:
    answer = await client.post(f"/{verb}", data=body)
    problem = await answer.json()
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert problem.get("field", "") == field
    assert problem["error"].startswith("cannot read the request: ")


@pytest.mark.parametrize("verb", VERBS)
async def test_another_method_is_rejected_with_the_right_one(client: Client, verb: str) -> None:
    answer = await client.get(f"/{verb}")
    assert (answer.status, answer.headers["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "POST")
    assert await answer.json() == {"error": "Method Not Allowed"}


async def test_an_unknown_path_is_not_found(client: Client) -> None:
    answer = await client.post("/filters", json=BY_NAMES)
    assert (answer.status, await answer.json()) == (HTTPStatus.NOT_FOUND, {"error": "Not Found"})


async def test_a_body_over_the_limit_is_rejected_by_naming_the_setting(serve: Serve) -> None:
    client = await serve(server=Server(max_body_bytes=ByteSize(1024)))
    text = "request body is larger than server.maxBodyBytes (1Ki)"
    assert await filter_error(client, b" " * 2000) == text
    answer = await client.post("/prioritize", data=b" " * 2000)
    assert (answer.status, await answer.json()) == (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": text})


async def test_a_body_up_to_the_limit_is_read(serve: Serve) -> None:
    client = await serve(server=Server(max_body_bytes=ByteSize(2 * 2**20)))
    body = orjson.dumps(BY_NAMES | {"Padding": "x" * 1_500_000})
    answer = await client.post("/filter", data=io.BytesIO(body))
    assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


@pytest.mark.parametrize("verb", VERBS)
async def test_nothing_is_decided_before_the_index_is_ready(serve: Serve, verb: str) -> None:
    client = await serve(readiness=Switch({"pods": "not listed yet"}))
    answer = await client.post(f"/{verb}", json=BY_NAMES)
    assert (answer.status, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
    assert (await answer.json())["error"].startswith("not ready: ")


async def test_more_requests_than_the_limit_are_sent_away(serve: Serve) -> None:
    deciding, decided = asyncio.Event(), asyncio.Event()

    async def slowly(args: ExtenderArgs) -> FilterResult:
        deciding.set()
        await decided.wait()
        return FilterResult(args.node_names or [])

    decisions = replace(AGREEABLE, filter=slowly)
    client = await serve(decisions, server=Server(max_in_flight=1))
    first = asyncio.create_task(client.post("/filter", json=BY_NAMES))
    await deciding.wait()
    rejected = await client.post("/filter", json=BY_NAMES)
    decided.set()
    assert rejected.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert (await rejected.json())["error"] == "overloaded: server.maxInFlight (1) requests are being answered"
    assert (await (await first).json())["NodeNames"] == ["node-a", "node-bb"]
    assert (await client.post("/filter", json=BY_NAMES)).status == HTTPStatus.OK


async def test_requests_whose_bodies_never_arrive_take_no_place(aiohttp_client: AiohttpClient) -> None:
    app = app_with(server=Server(max_in_flight=1))
    client = await aiohttp_client(app)
    never = asyncio.Event()

    async def endless_body() -> AsyncIterator[bytes]:
        yield b'{"Pod": '
        await never.wait()

    async with asyncio.TaskGroup() as halves:
        waiting = [halves.create_task(client.post("/filter", data=endless_body(), headers=LENGTH)) for _ in range(20)]
        await until(lambda: app[COLLABORATORS].bodies.requests == 20)
        assert (await client.post("/filter", json=BY_NAMES)).status == HTTPStatus.OK
        for each in waiting:
            each.cancel()


async def test_a_body_that_does_not_arrive_in_time_is_given_up(serve: Serve) -> None:
    client = await serve(server=Server(request_timeout=Duration(0.05)))
    never = asyncio.Event()

    async def endless_body() -> AsyncIterator[bytes]:
        yield b'{"Pod": '
        await never.wait()

    async with client.post("/prioritize", data=endless_body(), headers=LENGTH) as answer:
        assert answer.status == HTTPStatus.REQUEST_TIMEOUT
        assert await answer.json() == {"error": "the request did not arrive within server.requestTimeout (50ms)"}


async def test_a_bug_in_a_decision_is_answered_counted_and_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(Verbs(broken, broken, broken))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (await answer.json())["Error"] == "the extender failed on this request; see its log"
    assert (await client.post("/preempt", json=BY_NAMES)).status == HTTPStatus.INTERNAL_SERVER_ERROR
    page = await (await client.get("/metrics")).text()
    assert 'extender_request_failures_total{reason="unexpected",verb="filter"} 1.0' in page
    assert 'extender_requests_total{code="500",verb="preempt"} 1.0' in page
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [(record.message, vars(record)["path"]) for record in errors] == [
        ("request failed", "/filter"),
        ("request failed", "/preempt"),
    ]
    assert errors[0].exc_info is not None


async def test_a_failed_request_leaves_its_place_to_the_next(serve: Serve) -> None:
    client = await serve(server=Server(max_in_flight=1))
    for _ in range(3):
        assert (await client.post("/prioritize", data=b"{")).status == HTTPStatus.BAD_REQUEST
    assert (await client.post("/prioritize", json=BY_NAMES)).status == HTTPStatus.OK
