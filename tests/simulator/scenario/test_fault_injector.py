"""Each fault of a scenario as a client of the embedded API server meets it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import aiohttp
import pytest

from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import NAMESPACES as NAMESPACE_KIND
from extender.simulator.apiserver.kinds import PODS as POD_KIND
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.faults import CONDITIONS, Condition, FaultInjector, read_part
from tests.fakes import PATIENCE
from tests.simulator.client import NAMESPACES, PODS, Client, Stream, names
from tests.simulator.plain import namespace, pod

LONG = 3600.0


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """A server without bookmarks, so that a watch gets just what is created."""
    async with ApiServer(ApiServerSettings(bookmark_every=LONG)) as server:
        server.operations.create(NAMESPACE_KIND, namespace("default"))
        yield server


def strike(api: ApiServer, name: str, **fields: object) -> FaultInjector:
    problems: list[str] = []
    form = read_part(fields, CONDITIONS[name], name, problems)
    assert form is not None, problems
    return _set(api, form)


def _set(api: ApiServer, *conditions: Condition) -> FaultInjector:
    injector = FaultInjector(Random(1))
    injector.change(conditions)
    api.faults = injector
    return injector


async def watching(client: Client, api: ApiServer) -> Stream:
    return await client.watch(PODS, resourceVersion=api.store.version, allowWatchBookmarks="true")


def create(api: ApiServer, *pods: str) -> None:
    for name in pods:
        api.operations.create(POD_KIND, pod(name))


async def rest(stream: Stream) -> bytes:
    return await asyncio.wait_for(stream.response.content.read(), PATIENCE)


async def test_a_line_is_cut_in_the_middle(api: ApiServer) -> None:
    injector = strike(api, "cutLine")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))
    writer.write(f"GET {PODS}?watch=true&resourceVersion={api.store.version} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    create(api, "a")
    got = await _everything(reader)
    writer.close()
    assert b"\r\n{" in got
    assert not got.endswith(b"0\r\n\r\n"), "the end of a chunked body"
    assert b"}}\n" not in got
    assert injector.injected == {"cutLine": 1}


async def _everything(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the connection is reset."""
    got = b""
    with suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(65_536), PATIENCE):
            got += piece
    return got


async def test_a_watch_ends_properly_and_loses_what_was_to_come(client: Client, api: ApiServer) -> None:
    strike(api, "endWatch")
    stream = await watching(client, api)
    create(api, "a", "b", "c")
    assert (await rest(stream)).count(b"\n") < 4


@pytest.mark.parametrize("form", ["event", "status"])
async def test_a_watch_gets_410_at_its_start(client: Client, api: ApiServer, form: str) -> None:
    strike(api, "expire", form=form)
    stream = await watching(client, api)
    found: JsonObject = await stream.response.json(content_type=None)
    status = found["object"] if form == "event" else found
    assert (stream.response.status, status["code"], status["reason"]) == (
        200 if form == "event" else 410,
        410,
        "Expired",
    )


async def test_continued_pages_are_expired_with_watches_and_first_pages_are_not(client: Client, api: ApiServer) -> None:
    create(api, "a", "b")
    strike(api, "expire")
    code, page = await client.get(PODS, limit=1)
    assert code == 200
    assert (await client.get(PODS, limit=1, **{"continue": page["metadata"]["continue"]}))[0] == 410


async def test_an_error_comes_after_what_was_to_be_reported_and_ends_the_watch(client: Client, api: ApiServer) -> None:
    strike(api, "errorEvent", code=504)
    stream = await watching(client, api)
    create(api, "a")
    added, error = await stream.take(2)
    assert (added["type"], error["type"], error["object"]["code"]) == ("ADDED", "ERROR", 504)
    assert await stream.ends()


async def test_a_stalled_watch_says_everything_late(client: Client, api: ApiServer) -> None:
    strike(api, "stall", time="100ms", times=1)
    stream = await watching(client, api)
    begun = time.monotonic()
    create(api, "a", "b")
    assert names([event["object"] for event in await stream.take(2)]) == ["a", "b"]
    assert time.monotonic() - begun >= 0.1


async def test_events_are_repeated(client: Client, api: ApiServer) -> None:
    strike(api, "repeatEvents")
    stream = await watching(client, api)
    create(api, "a", "b")
    assert names([event["object"] for event in await stream.take(4)]) == ["a", "b", "a", "b"]


async def test_one_kind_overtakes_another(client: Client, api: ApiServer) -> None:
    strike(api, "delayEvents", time=["200ms", "200ms"], kinds=["namespaces"])
    pods = await watching(client, api)
    spaces = await client.watch(NAMESPACES, resourceVersion=api.store.version)
    reported: list[str] = []

    async def report(stream: Stream) -> None:
        reported.append((await stream.next())["object"]["metadata"]["name"])

    api.operations.create(NAMESPACE_KIND, namespace("first"))
    create(api, "second")
    await asyncio.gather(report(spaces), report(pods))
    assert reported == ["second", "first"]


async def test_the_server_fails_with_the_code_that_is_asked_for(client: Client, api: ApiServer) -> None:
    strike(api, "fail", code=503, verbs=["write"])
    assert (await client.get(PODS))[0] == 200
    assert (await client.post("/api/v1/namespaces/default/pods", pod("a")))[0] == 503
    assert api.store.table(POD_KIND).objects == {}


async def test_each_page_comes_late(client: Client, api: ApiServer) -> None:
    injector = strike(api, "slowPages", time="50ms")
    create(api, "a", "b")
    begun = time.monotonic()
    _, page = await client.get(PODS, limit=1)
    await client.get(PODS, limit=1, **{"continue": page["metadata"]["continue"]})
    assert time.monotonic() - begun >= 0.1
    assert injector.injected == {"slowPages": 2}


async def test_too_many_requests_name_the_time_to_wait(client: Client, api: ApiServer) -> None:
    strike(api, "throttle", retryAfter=7)
    async with client.session.get(PODS) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
    code, _ = await client.post("/api/v1/namespaces/default/pods", pod("a"))
    assert code == 201, "writes are not throttled unless the scenario says so"


async def test_a_write_meets_a_conflict_and_is_not_done(client: Client, api: ApiServer) -> None:
    strike(api, "conflict", times=1)
    answers = [await client.post("/api/v1/namespaces/default/pods", pod("a")) for _ in range(2)]
    assert [(code, body.get("reason")) for code, body in answers] == [(409, "Conflict"), (201, None)]


async def test_a_write_is_done_and_its_answer_is_lost(client: Client, api: ApiServer) -> None:
    strike(api, "loseAnswer")
    with pytest.raises(aiohttp.ClientError):
        await client.post("/api/v1/namespaces/default/pods", pod("a"))
    assert list(api.store.table(POD_KIND).objects) == ["default/a"]


async def test_a_fault_strikes_those_kinds_so_often_and_so_long_as_it_says(client: Client, api: ApiServer) -> None:
    injector = strike(api, "fail", kinds=["pods"], times=2)
    codes = [(await client.get(path))[0] for path in (NAMESPACES, PODS, PODS, PODS)]
    assert codes == [200, 500, 500, 200]
    strike(api, "fail", lasts="0s")
    assert (await client.get(PODS))[0] == 200
    assert injector.injected == {"fail": 2}


async def test_chance_is_drawn_from_the_seed(client: Client, api: ApiServer) -> None:
    seen = []
    for seed in (1, 1, 2):
        injector = FaultInjector(Random(seed))
        injector.change([CONDITIONS["fail"](probability=0.5)])
        api.faults = injector
        seen.append([(await client.get(PODS))[0] for _ in range(12)])
    assert seen[0] == seen[1] != seen[2]
    assert set(seen[0]) == {200, 500}


async def test_what_is_always_so_stays_so(client: Client, api: ApiServer) -> None:
    class Counting(Faults):
        seen = 0

        async def before_answer(self, call: Call) -> None:
            del call
            self.seen += 1

    always = Counting()
    api.faults = FaultInjector(Random(1), always)
    await client.get(PODS)
    assert always.seen == 1
