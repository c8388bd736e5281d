"""Everything that can be wrong with a request ends as an answer that says so."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from typing import Never

import orjson
import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.units import ByteSize, Duration
from extender.server.collaborators import COLLABORATORS, Verbs
from extender.settings.connections import Server
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.fakes import until
from tests.server.serving import AGREEABLE, BY_NAMES, Client, Switch, app_with

VERBS = ("filter", "prioritize", "preempt")
LENGTH = {"Content-Length": "1000"}
BAD_BODIES = {
    "no JSON": (b"{not json", ""),
    "an empty body": (b"", ""),
    "another kind of JSON": (b"[1, 2]", ""),
    "no pod": (b'{"NodeNames": ["node-a"]}', "Pod"),
    "a wrong type": (b'{"Pod": {"metadata": {"name": 5}}}', "Pod.metadata.name"),
}


def broken(args: object) -> Never:
    """A decision with a bug."""
    raise RuntimeError(f"secret detail of {args}")


async def filter_error(client: Client, body: bytes) -> str:
    """The text that filter answers with status 200, next to lists that name no node."""
    answer = await client.post("/filter", data=body)
    assert answer.status == HTTPStatus.OK
    fields: dict[str, object] = await answer.json()
    text = str(fields.pop("Error"))
    assert fields == {"Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
    return text


@pytest.mark.parametrize(("body", "field"), BAD_BODIES.values(), ids=BAD_BODIES)
async def test_filter_tells_what_it_cannot_read_in_its_error(
    aiohttp_client: AiohttpClient, body: bytes, field: str
) -> None:
    client = await aiohttp_client(app_with())
    assert (await filter_error(client, body)).startswith(f"cannot read the request: {field}")


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
@pytest.mark.parametrize(("body", "field"), BAD_BODIES.values(), ids=BAD_BODIES)
async def test_the_other_verbs_reject_it_as_bad_request_with_the_field(
    aiohttp_client: AiohttpClient, verb: str, body: bytes, field: str
) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post(f"/{verb}", data=body)
    problem = await answer.json()
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert problem.get("field", "") == field
    assert problem["error"].startswith("cannot read the request: ")


@pytest.mark.parametrize("verb", VERBS)
async def test_another_method_is_rejected_with_the_right_one(aiohttp_client: AiohttpClient, verb: str) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.get(f"/{verb}")
    assert (answer.status, answer.headers["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "POST")
    assert await answer.json() == {"error": "Method Not Allowed"}


async def test_an_unknown_path_is_not_found(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post("/filters", json=BY_NAMES)
    assert (answer.status, await answer.json()) == (HTTPStatus.NOT_FOUND, {"error": "Not Found"})


async def test_a_body_over_the_limit_is_rejected_by_naming_the_setting(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(max_body_bytes=ByteSize(1024))))
    text = "request body is larger than server.maxBodyBytes (1Ki)"
    assert await filter_error(client, b" " * 2000) == text
    answer = await client.post("/prioritize", data=b" " * 2000)
    assert (answer.status, await answer.json()) == (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": text})


async def test_a_body_up_to_the_limit_is_read(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(max_body_bytes=ByteSize(2 * 2**20))))
    body = orjson.dumps(BY_NAMES | {"Padding": "x" * 1_500_000})
    answer = await client.post("/filter", data=io.BytesIO(body))
    assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


@pytest.mark.parametrize("verb", VERBS)
async def test_nothing_is_decided_before_the_index_is_ready(aiohttp_client: AiohttpClient, verb: str) -> None:
    client = await aiohttp_client(app_with(readiness=Switch({"pods": "not listed yet"})))
    answer = await client.post(f"/{verb}", json=BY_NAMES)
    assert (answer.status, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
    assert (await answer.json())["error"].startswith("not ready: ")


async def test_more_requests_than_the_limit_are_sent_away(aiohttp_client: AiohttpClient) -> None:
    deciding, decided = asyncio.Event(), asyncio.Event()

    async def slowly(args: ExtenderArgs) -> FilterResult:
        deciding.set()
        await decided.wait()
        return FilterResult(args.node_names or [])

    decisions = replace(AGREEABLE, filter=slowly)
    client = await aiohttp_client(app_with(decisions, server=Server(max_in_flight=1)))
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


async def test_a_body_that_does_not_arrive_in_time_is_given_up(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(request_timeout=Duration(0.05))))
    never = asyncio.Event()

    async def endless_body() -> AsyncIterator[bytes]:
        yield b'{"Pod": '
        await never.wait()

    async with client.post("/prioritize", data=endless_body(), headers=LENGTH) as answer:
        assert answer.status == HTTPStatus.REQUEST_TIMEOUT
        assert await answer.json() == {"error": "the request did not arrive within server.requestTimeout (50ms)"}


async def test_a_bug_in_a_decision_is_answered_counted_and_logged(
    aiohttp_client: AiohttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await aiohttp_client(app_with(Verbs(broken, broken, broken)))
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


async def test_a_failed_request_leaves_its_place_to_the_next(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(max_in_flight=1)))
    for _ in range(3):
        assert (await client.post("/prioritize", data=b"{")).status == HTTPStatus.BAD_REQUEST
    assert (await client.post("/prioritize", json=BY_NAMES)).status == HTTPStatus.OK
