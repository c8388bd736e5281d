"""Answers where nothing can be decided: too late, on a picture that is too old, or no longer ours to give."""

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Literal, Never

import orjson
import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.objects import Pod
from extender.model.units import Duration
from extender.server.collaborators import Verbs
from extender.settings.connections import Kube, Server
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.server.serving import (
    BY_NAMES,
    BY_NODES,
    NODES,
    PREEMPTION,
    Client,
    Switch,
    app_with,
    every_candidate,
    everything_passes,
    scores_by_length,
)

Policy = Literal["error", "pass"]
STALE_TEXT = "cannot decide: changes of pods cannot be followed now; /readyz says why"
LATE_TEXT = "not decided within server.requestTimeout (250ms)"
PASSING = {"filter": BY_NAMES["NodeNames"], "prioritize": [], "preempt": PREEMPTION["NodeNameToMetaVictims"]}
QUESTIONS = {"filter": BY_NAMES, "prioritize": BY_NAMES, "preempt": PREEMPTION}


def stale() -> Switch:
    """A picture that was complete once."""
    return Switch({"nodes": "", "pods": "watch silent for 200 s"}, was_ready=True)


async def never(_: ExtenderArgs) -> FilterResult:
    """A decision that waits for what does not come."""
    await asyncio.Event().wait()
    raise AssertionError


def nothing_decided(_: object) -> Never:
    """A decision that must not be asked for."""
    raise AssertionError


def short(policy: Policy = "error", most: int = 100) -> Server:
    """A deadline that comes soon, and not before a slow machine has read a request or has answered one."""
    return Server(request_timeout=Duration(0.25), on_deadline=policy, max_in_flight=most)


async def fallbacks(client: Client) -> list[str]:
    """The lines of the metric that are not zero."""
    page = await (await client.get("/metrics")).text()
    return [line for line in page.splitlines() if line.startswith("extender_fallbacks_total{")]


async def passed(client: Client, verb: str) -> Any:
    """What a verb lets pass, without what stands around it."""
    answer = await client.post(f"/{verb}", json=QUESTIONS[verb])
    assert answer.status == HTTPStatus.OK
    found = await answer.json()
    return found.get("NodeNames") or found.get("NodeNameToMetaVictims") if isinstance(found, dict) else found


@pytest.mark.parametrize(
    ("policy", "question", "names", "items", "error"),
    [
        ("error", BY_NAMES, [], None, LATE_TEXT),
        ("pass", BY_NAMES, BY_NAMES["NodeNames"], None, ""),
        ("pass", BY_NODES, None, {"metadata": {}, "items": NODES}, ""),
    ],
)
async def test_a_decision_that_does_not_come_in_time_is_an_error_of_the_pod_or_everything_passes(
    aiohttp_client: AiohttpClient, policy: Policy, question: Any, names: Any, items: Any, error: str
) -> None:
    client = await aiohttp_client(app_with(Verbs(never, scores_by_length, every_candidate), server=short(policy)))
    answer = await client.post("/filter", json=question)
    found = await answer.json()
    assert (answer.status, found["NodeNames"], found["Nodes"], found["Error"]) == (200, names, items, error)
    counted = f'extender_fallbacks_total{{answer="{policy}",reason="deadline",verb="filter"}} 1.0'
    assert await fallbacks(client) == [counted]


async def test_a_request_that_was_given_up_leaves_its_place_to_the_next(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(Verbs(never, scores_by_length, every_candidate), server=short(most=1)))
    for _ in range(3):
        assert (await (await client.post("/filter", json=BY_NAMES)).json())["Error"] == LATE_TEXT
    assert (await client.post("/prioritize", json=BY_NAMES)).status == HTTPStatus.OK


async def test_a_body_that_comes_a_byte_at_a_time_holds_no_place_for_longer(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=short(most=1)))
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
async def test_on_an_old_picture_every_verb_passes_if_the_settings_say_so(
    aiohttp_client: AiohttpClient, verb: str
) -> None:
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided)
    client = await aiohttp_client(app_with(decisions, stale(), kube=Kube(on_stale="pass")))
    assert await passed(client, verb) == PASSING[verb]
    assert await fallbacks(client) == [f'extender_fallbacks_total{{answer="pass",reason="stale",verb="{verb}"}} 1.0']


async def test_on_an_old_picture_filter_answers_an_error_and_the_others_503(aiohttp_client: AiohttpClient) -> None:
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided)
    client = await aiohttp_client(app_with(decisions, stale()))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, (await answer.json())["Error"]) == (HTTPStatus.OK, STALE_TEXT)
    for verb in ("prioritize", "preempt"):
        answer = await client.post(f"/{verb}", json=QUESTIONS[verb])
        assert (answer.status, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
        assert await answer.json() == {"error": STALE_TEXT}


async def test_decisions_come_back_with_the_news(aiohttp_client: AiohttpClient) -> None:
    readiness = stale()
    client = await aiohttp_client(app_with(readiness=readiness, kube=Kube(on_stale="pass")))
    assert await passed(client, "prioritize") == []
    readiness.missing["pods"] = ""
    assert await passed(client, "prioritize") == [{"Host": "node-a", "Score": 6}, {"Host": "node-bb", "Score": 7}]


async def test_what_was_never_complete_is_not_an_old_picture(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(readiness=Switch({"pods": "listing"}), kube=Kube(on_stale="pass")))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, answer.headers["Connection"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "close"), (
        "the next request finds a replica that is ready"
    )
    assert await answer.json() == {"error": "not ready: pods; /readyz?verbose lists the checks"}


async def test_a_decision_is_kept_back_once_another_replica_may_answer(aiohttp_client: AiohttpClient) -> None:
    readiness = Switch()

    async def loses_the_lease(args: ExtenderArgs) -> FilterResult:
        readiness.missing["leadership"] = "standby"
        readiness.may_answer = False
        return await everything_passes(args)

    client = await aiohttp_client(app_with(Verbs(loses_the_lease, scores_by_length, every_candidate), readiness))
    answer = await client.post("/filter", json=BY_NAMES)
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert await answer.json() == {"error": "not ready: leadership; /readyz?verbose lists the checks"}


async def test_a_request_in_flight_is_answered_although_the_service_is_stopping(aiohttp_client: AiohttpClient) -> None:
    readiness = Switch()

    async def stopped_meanwhile(args: ExtenderArgs) -> FilterResult:
        readiness.missing["shutdown"] = "the service is stopping"
        return await everything_passes(args)

    client = await aiohttp_client(app_with(Verbs(stopped_meanwhile, scores_by_length, every_candidate), readiness))
    assert await passed(client, "filter") == PASSING["filter"]
    assert (await client.post("/filter", json=BY_NAMES)).status == HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("policy", ["error", "pass"])
async def test_a_request_that_cannot_be_decided_shows_that_the_pod_s_last_attempt_failed(
    aiohttp_client: AiohttpClient, policy: Policy
) -> None:
    failed: list[Pod] = []
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, attempt_failed=failed.append)
    client = await aiohttp_client(app_with(decisions, stale(), kube=Kube(on_stale=policy)))
    await client.post("/filter", json=BY_NAMES)
    assert [asked.uid for asked in failed] == ["u-1"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_what_had_arrived_counts_before_it_is_asked_how_old_the_picture_is(
    aiohttp_client: AiohttpClient, verb: str
) -> None:
    """After a pause the news lie unread in the socket, and the picture is as old as the pause was long."""
    readiness = stale()

    async def catch_up() -> None:
        await asyncio.sleep(0)
        readiness.missing["pods"] = ""

    decisions = Verbs(everything_passes, scores_by_length, every_candidate, catch_up=catch_up)
    client = await aiohttp_client(app_with(decisions, readiness))
    assert (await client.post(f"/{verb}", json=QUESTIONS[verb])).status == HTTPStatus.OK
    assert await fallbacks(client) == []


async def test_news_that_take_too_long_to_be_read_make_the_answer_late_and_not_wrong(
    aiohttp_client: AiohttpClient,
) -> None:
    async def catch_up() -> None:
        await asyncio.Event().wait()

    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, catch_up=catch_up)
    client = await aiohttp_client(app_with(decisions, server=short()))
    assert (await (await client.post("/filter", json=BY_NAMES)).json())["Error"] == LATE_TEXT


async def test_nothing_is_decided_for_a_client_that_has_hung_up(aiohttp_client: AiohttpClient) -> None:
    """The scheduler waited for as long as it does, while the question lay unread: it has put the pod back since."""
    decisions = Verbs(nothing_decided, nothing_decided, nothing_decided, attempt_failed=nothing_decided)
    client = await aiohttp_client(app_with(decisions, stale()))
    body = orjson.dumps(BY_NAMES)
    head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((client.server.host, client.server.port)) as caller:
        caller.sendall(head.encode() + body)
    failed = 'extender_request_failures_total{reason="abandoned",verb="filter"} 1.0'
    async with asyncio.timeout(30):
        while failed not in await (await client.get("/metrics")).text():  # noqa: ASYNC110 (a page has no event)
            await asyncio.sleep(0)
